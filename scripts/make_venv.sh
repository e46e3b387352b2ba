#!/usr/bin/env bash
# Makes the virtual environment of the checkout: scripts/make_venv.sh [FOLDER [PYTHON]]
#
# FOLDER/complete is written last. A folder without it was left half-made and is made anew; one
# with it is brought up to date in place. Two calls at once wait for each other.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
python=${2:-python3}

if command -v flock > /dev/null; then
    exec 9< "$0"
    flock 9
fi
if [ -e "$venv/complete" ] && [ -z "$(find pyproject.toml constraints.txt "$0" -newer "$venv/complete")" ]; then
    exit 0 # the other call made it
fi
if [ ! -e "$venv/complete" ]; then
    found=$("$python" -c 'import platform; print(platform.python_version())') || found="none that runs"
    if [[ $found != 3.1[012].* ]]; then
        echo "error: $python: expected Python 3.10 to 3.12, got $found; try make PYTHON3=python3.12" >&2
        exit 3
    fi
    if [ -e "$venv" ]; then
        echo "$venv is half-made, making it anew"
        rm -rf "$venv"
    fi
    "$python" -m venv "$venv"
fi
rm -f "$venv/complete"

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pin() { grep "^$1==" constraints.txt; }

# torch alone and first: its CUDA builds require one exact Triton, which a constraint would refuse.
pip install "$(pin torch)"
"$venv/bin/python" -c 'import importlib.metadata as m; m.version("triton")' 2> /dev/null || pip install "$(pin triton)"
{ "$venv/bin/python" -m pip freeze | grep -E '^(torch|triton)=='; grep '^numpy' constraints.txt; } > "$venv/installed.txt"

# The dependencies of pyproject.toml with the extras dev and cluster, which the slow tests need, and
# on a machine with an NVIDIA GPU cuda.
extras=dev,cluster
if [ -e /dev/nvidiactl ]; then extras=$extras,cuda; fi
"$venv/bin/python" - "$extras" > "$venv/requirements.txt" << 'LIST'
import sys
try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as stream:
    project = tomllib.load(stream)["project"]
extras = [project["optional-dependencies"][name] for name in sys.argv[1].split(",")]
print("\n".join(sum(extras, project["dependencies"])))
LIST
pip install --constraint "$venv/installed.txt" --requirement "$venv/requirements.txt"

# Without its dependencies: what it needs is listed in pyproject.toml, but for flashinfer-python,
# hundreds of megabytes that only peers need. filelock, which it also imports, comes with torch.
pip install --no-deps "$(pin flashinfer-bench)"
touch "$venv/complete"
