"""A checkout whose workloads misbehave as their UUIDs say, and sweeps of it by the real pool."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO
from unittest import mock

from harness.config import Workspace, load_workspace
from harness.devices import DeviceFacts
from harness.errors import ExitCode
from harness.evaluate import plan as planning
from harness.evaluate.plan import Request
from harness.evaluate.pool import Pool, WorkerCommand
from harness.evaluate.progress import SweepProgress
from harness.evaluate.sweep import run_sweep
from harness.packing import Packed
from harness.records import TraceEntry, TraceLedger
from tests.small_checkout import small_checkout, workload_file

ROOM = "gdn_decode"
CPU = DeviceFacts("cpu", "a processor")
FAKE = WorkerCommand(argv=(sys.executable, str(Path(__file__).with_name("fake_worker.py"))))
TIMEOUT_S = 3
GRACE_S = 5.0  # after its time-out a workload has its verdict within this


def fault_checkout(root: Path, uuids: Sequence[str]) -> Workspace:
    """A small checkout whose room has one workload for each of `uuids`, with TIMEOUT_S."""
    workspace = small_checkout(root)
    config = root / "config.toml"
    text = config.read_text().replace("timeout_s = 300", f"timeout_s = {TIMEOUT_S}")
    config.write_text(text)
    path = workload_file(workspace, ROOM)
    first = json.loads(path.read_text().splitlines()[0])
    lines = []
    for uuid in uuids:
        first["workload"]["uuid"] = uuid
        lines.append(json.dumps(first) + "\n")
    path.write_text("".join(lines))
    for source in planning.JUDGE_SOURCES:
        target = root / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("rules")
    return load_workspace(root)


@contextlib.contextmanager
def stand_ins(workspace: Workspace, sha256: str = "a" * 64) -> Iterator[None]:
    """The room packs to nothing with this hash, and needs no blobs."""
    root = workspace.root

    def pack(_: Workspace, room: str, route: str | None = None) -> Packed:
        return Packed(f"{room}-x", sha256, "{}", root / "solution.json")

    with (
        mock.patch.object(planning, "pack", pack),
        mock.patch("harness.dataset.ensure_blobs", lambda *_: None, create=True),
        mock.patch.dict("os.environ", FIB_CACHE_PATH=str(root / "cache")),
    ):
        yield


def sweep(workspace: Workspace, resume: bool = False, stream: TextIO | None = None) -> ExitCode:
    """Judge every workload by the fake worker. stream: where the sweep prints to."""
    request = Request(rooms=(ROOM,), workloads=("all",), resume=resume)

    def make_pool(device: str, root: Path) -> Pool:
        return Pool(device, root, FAKE)

    return run_sweep(workspace, request, SweepProgress(stream or io.StringIO()), make_pool, CPU)


def ledger(workspace: Workspace) -> TraceLedger:
    return TraceLedger.of(workspace.root, CPU.slug, ROOM)


def judged(workspace: Workspace) -> list[TraceEntry]:
    """Every line that is a verdict on the solution, oldest first."""
    return [entry for entry in ledger(workspace).entries() if entry.is_judged]


def assert_one_verdict_each(workspace: Workspace, uuids: Sequence[str]) -> None:
    """Each workload has one line, in order, and the answer in it is its own."""
    entries = judged(workspace)
    assert [entry.uuid for entry in entries] == list(uuids)
    assert len(ledger(workspace).verdicts()) == len(uuids)
    for entry in entries:
        if entry.status == "PASSED":
            assert entry.max_abs_error == float(entry.uuid.partition("-")[2]), entry.uuid
