"""An evaluation in a container elsewhere: what goes there, what runs, and what comes back.

The container runs the same `python -m harness evaluate` on a copy of this checkout. Each line that
its ledger gains comes back at once and is appended to the ledger here, so that a container that is
taken away costs the workload at hand; run again, it goes on from there. Records come at the end and
pass the same checks as those made here. scripts/run_modal.py binds this to Modal; nothing here
needs it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.config import Workspace
from harness.errors import ConfigError, InfrastructureFailure, RecordError
from harness.records import (
    RunRecord,
    TraceEntry,
    TraceLedger,
    latest,
    latest_objection,
    sole_writer,
    write_latest,
    write_run,
)
from harness.records.strict_json import dump, parse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OFFICIAL_IMAGE = "flashinfer/flashinfer-ci-cu132:latest"  # EVALUATION.md of the starter kit
DEVICE = "nvidia-b200"
DEFAULT_ARGUMENTS = ("--workloads", "all", "--resume", "--record")
# Of a checkout, in the syntax of .dockerignore: what is made, and what this machine alone uses.
LEFT_HERE = (
    ".*",
    "blob",
    "traces",
    "dataset",
    "failures",
    "results/report",
    "**/__pycache__",
    "**/solution.json",
    "**/*.egg-info",
)
EVALUATE = (sys.executable, "-m", "harness", "evaluate")
POLL_S = 0.5
_LEDGER = re.compile(r"traces/(?P<device>[a-z0-9_.-]+)/(?P<room>\w+)(\.unjudged\.ndjson|\.jsonl)")

LINE, RECORD, END = "line", "record", "end"
Piece = tuple[str, str, str]  # what, path in the checkout, text; END: the exit code as text


def requirements(root: Path) -> list[str]:
    """What pip adds to the container: dependencies and the extra `cuda` of pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["cuda"]]


def pinned(root: Path, package: str) -> str:
    """`package==version` as constraints.txt pins it. Raises ConfigError."""
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{package}=="):
            return line
    raise ConfigError(f"{root / 'constraints.txt'}: expected a line {package}==VERSION")


def read_ledgers(workspace: Workspace, device: str = DEVICE) -> dict[str, str]:
    """Path in the checkout -> text of each ledger of the device: what --resume goes on from."""
    folder = workspace.root / "traces" / device
    paths = [*sorted(folder.glob("*.jsonl")), *sorted(folder.glob("*.unjudged.ndjson"))]
    return {
        path.relative_to(workspace.root).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
    }


def judge(checkout: Path, arguments: Sequence[str], ledgers: Mapping[str, str]) -> Iterator[Piece]:
    """In the container: evaluate a copy of the checkout, and yield what it learns as it learns it.

    arguments: of `harness evaluate`. ledgers: from `read_ledgers`. The last piece is END.
    """
    with tempfile.TemporaryDirectory(prefix="harness-container-") as folder:
        root = Path(folder) / "checkout"  # where the checkout lies may be read-only
        shutil.copytree(checkout, root)
        for name, text in ledgers.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sent = {root / name: _whole_bytes(text.encode()) for name, text in ledgers.items()}
        kept = set((root / "results" / "runs").rglob("*.json"))
        process = subprocess.Popen([*EVALUATE, *arguments], cwd=root)
        try:
            while True:
                code = process.poll()  # before reading: what it wrote last is then read as well
                yield from _new_lines(root, sent)
                if code is not None:
                    break
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        for path in sorted(set((root / "results" / "runs").rglob("*.json")) - kept):
            yield RECORD, path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        yield END, "", str(code)


def _new_lines(root: Path, sent: dict[Path, int]) -> Iterator[Piece]:
    """Whole lines that the ledgers gained; sent: bytes of each that were handed on, updated."""
    folder = root / "traces"
    for path in (*sorted(folder.rglob("*.jsonl")), *sorted(folder.rglob("*.unjudged.ndjson"))):
        with path.open("rb") as file:
            file.seek(sent.get(path, 0))
            data = file.read()
        whole = data[: _whole_bytes(data)]
        sent[path] = sent.get(path, 0) + len(whole)
        for line in whole.decode("utf-8").split("\n"):  # JSON may hold what else ends a line
            if line.strip():
                yield LINE, path.relative_to(root).as_posix(), line


def _whole_bytes(data: bytes) -> int:
    """Length of the lines that have their end. A torn one is moved away by the next append."""
    return data.rfind(b"\n") + 1


def take_in(workspace: Workspace, pieces: Iterable[Piece]) -> int:
    """Here: append the lines to the ledgers, keep the records. Returns evaluate's exit code.

    A line that is here already is passed over; a record becomes the latest if it is a full sweep
    and newer. Raises RecordError for what is no verdict of this checkout's rooms, and
    InfrastructureFailure where the pieces end without an exit code.
    """
    code = None
    known: dict[Path, set[str]] = {}
    with contextlib.ExitStack() as locks:
        for what, name, text in pieces:
            if what == LINE:
                _take_line(workspace, name, text, known, locks)
            elif what == RECORD:
                _take_record(workspace, name, text)
            else:
                code = int(text)
    if code is None:
        raise InfrastructureFailure(
            "the container ended without a result; what it judged is kept, run the command again"
        )
    return code


def _take_line(
    workspace: Workspace,
    name: str,
    text: str,
    known: dict[Path, set[str]],
    locks: contextlib.ExitStack,
) -> None:
    match = _LEDGER.fullmatch(name)
    if match is None or match["room"] not in workspace.rooms:
        raise RecordError(f"container: expected a ledger of a known room, got {name!r}")
    entry = TraceEntry.from_json(_parse(name, text), f"container: {name}")
    if (entry.device, entry.room) != (match["device"], match["room"]):
        raise RecordError(f"container: {name} holds {entry.room} on {entry.device}")
    ledger = TraceLedger.of(workspace.root, entry.device, entry.room)
    if ledger.path not in known:
        locks.enter_context(sole_writer(ledger.path))
        known[ledger.path] = {dump(old.to_json()) for old in ledger.entries()}
    line = dump(entry.to_json())
    if line not in known[ledger.path]:
        ledger.append(entry)
        known[ledger.path].add(line)


def _take_record(workspace: Workspace, name: str, text: str) -> None:
    record = RunRecord.from_json(_parse(name, text), f"container: {name}")
    workspace.room(record.room)
    write_run(record, workspace.root)
    former = latest(workspace.root, record.device, record.room)
    is_newer = former is None or former.measured_at <= record.measured_at
    if is_newer and latest_objection(record, workspace.root) is None:
        write_latest(record, workspace.root)


def _parse(name: str, text: str) -> object:
    try:
        return parse(text)
    except ValueError as error:
        raise RecordError(f"container: {name}: expected JSON: {error}") from error
