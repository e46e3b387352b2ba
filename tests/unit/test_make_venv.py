"""scripts/make_venv.sh with a stand-in for Python and pip: order, pins, interrupted runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Logs its arguments; makes "environments" that hold a copy of itself; fails where told to.
PYTHON = """\
#!/usr/bin/env bash
echo "$*" >> "$LOG"
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"pip freeze") printf 'numpy==2.3.5\\ntorch==2.13.0+cpu\\ntriton==%s\\n' "${TRITON:-3.6.0}" ;;
    "-c import platform;"*) echo "${VERSION:-3.11.7}" ;;
    "-c "*) [ -n "${TRITON:-}" ] ;;
    "- "*) cat > /dev/null; echo "click>=8.1" ;;
    *"${FAIL:-never}"*) exit 1 ;;
esac
"""


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("pyproject.toml", "constraints.txt", "scripts/make_venv.sh"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        self.python = root / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)
        self.venv = root / "env"

    def make(self, **variables: str) -> tuple[int, list[str]]:
        """Exit code, and what Python was called with. `said` keeps what the script said."""
        log = self.root / "log"
        log.write_text("")
        child = subprocess.run(
            [str(self.root / "scripts" / "make_venv.sh"), "env", str(self.python)],
            env={"PATH": os.environ["PATH"], "LOG": str(log), **variables},
            capture_output=True,
            text=True,
        )
        self.said = child.stderr
        return child.returncode, log.read_text().splitlines()

    @property
    def is_complete(self) -> bool:
        return (self.venv / "complete").exists()


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def installs(calls):
    return [call.split("install ", 1)[1] for call in calls if " install " in call]


def test_torch_comes_first_and_the_bench_last_without_dependencies(checkout):
    code, calls = checkout.make()
    assert code == 0
    assert calls[1] == "-m venv env"
    assert installs(calls) == [
        "torch==2.13.0",
        "triton==3.6.0",
        "--constraint env/installed.txt --requirement env/requirements.txt",
        "--no-deps flashinfer-bench==0.1.2",
    ]
    assert checkout.is_complete


def test_the_triton_that_torch_brought_is_kept(checkout):
    code, calls = checkout.make(TRITON="3.8.0")
    assert code == 0
    assert not any("triton" in call for call in installs(calls))
    kept = (checkout.venv / "installed.txt").read_text()
    assert kept == "torch==2.13.0+cpu\ntriton==3.8.0\nnumpy<2.4\n"


@pytest.mark.parametrize("step", ["install torch", "install triton", "--requirement", "--no-deps"])
def test_an_interrupted_installation_is_made_anew(checkout, step):
    code, _ = checkout.make(FAIL=step)
    assert code != 0
    assert not checkout.is_complete
    left = checkout.venv / "left"
    left.touch()
    code, calls = checkout.make()
    assert (code, checkout.is_complete, left.exists()) == (0, True, False)
    assert calls[1] == "-m venv env"


def test_a_complete_environment_is_left_alone(checkout):
    checkout.make()
    assert checkout.make() == (0, [])


def test_changed_requirements_are_installed_in_place(checkout):
    checkout.make()
    kept = checkout.venv / "kept"
    kept.touch()
    complete = (checkout.venv / "complete").stat().st_mtime
    os.utime(checkout.root / "pyproject.toml", (complete + 10, complete + 10))
    code, calls = checkout.make()
    assert (code, kept.exists(), checkout.is_complete) == (0, True, True)
    assert "-m venv env" not in calls
    assert len(installs(calls)) == 4


def test_an_interrupted_update_is_made_anew(checkout):
    checkout.make()
    complete = (checkout.venv / "complete").stat().st_mtime
    os.utime(checkout.root / "constraints.txt", (complete + 10, complete + 10))
    assert checkout.make(FAIL="--no-deps")[0] != 0
    assert not checkout.is_complete
    code, calls = checkout.make()
    assert (code, calls[1]) == (0, "-m venv env")


@pytest.mark.parametrize("version", ["3.9.18", "3.13.1", "3.1.2", "2.7.18"])
def test_other_pythons_are_refused_before_anything_is_made(checkout, version):
    code, calls = checkout.make(VERSION=version)
    assert (code, len(calls), checkout.venv.exists()) == (3, 1, False)
    assert f"expected Python 3.10 to 3.12, got {version}" in checkout.said
    assert "make PYTHON3=python3.12" in checkout.said


@pytest.mark.parametrize("version", ["3.10.1", "3.12.13"])
def test_the_pythons_of_pyproject_are_taken(checkout, version):
    assert checkout.make(VERSION=version)[0] == 0


def test_a_python_that_does_not_run_is_refused(checkout):
    checkout.python.unlink()
    assert checkout.make()[0] == 3
    assert "got none that runs" in checkout.said


def test_cupti_is_for_machines_with_a_gpu(checkout):
    _, calls = checkout.make()
    extras = "dev,cluster" + (",cuda" if Path("/dev/nvidiactl").exists() else "")
    assert f"- {extras}" in calls
