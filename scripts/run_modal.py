"""Judges rooms on a B200 of Modal, in the contest's container: modal run scripts/run_modal.py

    modal run scripts/run_modal.py --arguments "gdn_decode --workloads smoke"

`--arguments` are those of `python -m harness evaluate`; without them every workload is judged with
the official settings, resumed and recorded. Verdicts come back into traces/ as they are made,
records into results/. docs/submitting.md says what to set up once, and what differs from the
contest's own machines. What this file does not hold is in harness/container.py, and tested there.
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":  # Modal's own program imports this file under its name
    sys.stderr.write(
        "error: scripts/run_modal.py: expected Modal's own program, got python; install it, "
        "python -m pip install 'modal>=1.0', then modal run scripts/run_modal.py --help\n"
    )
    sys.exit(2)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # in the container PYTHONPATH leads

import modal

from harness import container
from harness.config import find_root, load_workspace
from harness.errors import UsageError, run_program
from harness.evaluate.sweep import read_commit

ROOT = find_root()
CHECKOUT, DATA = "/checkout", "/data"
TIMEOUT_S = 2 * 3600  # a full sweep takes minutes; the first one also compiles

app = modal.App("flashinfer-contest-kernels")
# The starter kit's volume. It is read only where --arguments has `--dataset /data/...`.
volume = modal.Volume.from_name("flashinfer-trace", create_if_missing=True)
image = (
    modal.Image.from_registry(container.OFFICIAL_IMAGE)
    .pip_install(*container.requirements(ROOT))
    .run_commands(f"python -m pip install --no-deps {container.pinned(ROOT, 'flashinfer-bench')}")
    .env({"PYTHONPATH": CHECKOUT})
    .add_local_dir(ROOT, CHECKOUT, ignore=list(container.LEFT_HERE))
)


@app.function(image=image, gpu="B200", timeout=TIMEOUT_S, volumes={DATA: volume})
def judge(arguments: list[str], ledgers: dict[str, str]) -> Iterator[container.Piece]:
    yield from container.judge(Path(CHECKOUT), arguments, ledgers)


@app.local_entrypoint()
def main(arguments: str = "") -> None:
    sys.exit(
        run_program(lambda: run(arguments))
    )  # its exit codes, and no traceback for what is known


def run(arguments: str) -> int:
    workspace = load_workspace(ROOT)
    try:
        wanted = shlex.split(arguments) or list(container.DEFAULT_ARGUMENTS)
    except ValueError as error:
        raise UsageError(f"--arguments: {error} in {arguments!r}; close the quotation") from error
    if not any(word.partition("=")[0] == "--commit" for word in wanted):
        wanted += ["--commit", read_commit(ROOT)]
    pieces = judge.remote_gen(wanted, container.read_ledgers(workspace))
    return container.take_in(workspace, pieces)
