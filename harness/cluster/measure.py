"""The runs behind results/scale/: the evaluation on two GPUs of this host, on one, and with a
worker killed. Each phase is a run of its own and is kept as soon as it has ended. Before those
whose wall times are compared the host is warmed up, which is not timed."""

from __future__ import annotations

import ctypes
import datetime
import mmap
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from harness import dataset
from harness.cluster.connection import connect, load_ray
from harness.cluster.engine import RayEngine
from harness.cluster.scale import Phase, Scale, phase_of, read_scale, scale_path, write_scale
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.devices import DeviceFacts, load_cuda, read_facts
from harness.errors import EnvironmentUnfit, ExitCode, UsageError
from harness.evaluate.plan import Request, choose_workloads
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome
from harness.evaluate.sweep import read_commit, sweep_on
from harness.evaluate.verdicts import utc_now
from harness.records import TraceEntry, TraceLedger

GPUS = {"one": 1, "two": 2, "again": 1, "kill": 2}
# Compared by wall time: they begin on a warm host, but without compiled code, so that neither
# profits from the other.
COMPARED = ("one", "two")
WARM_ROOM = "gdn_prefill"  # one that nvcc compiles
WRITTEN_BYTES = 32 << 30  # of memory, before a compared run
OBJECT_STORE_BYTES = 1 << 28  # jobs are small; Ray would take a third of the memory
CACHES = (
    "FIB_CACHE_PATH",
    "TRITON_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
)


class _Killing(SweepProgress):
    """Kills one worker's process once a third of the workloads is done."""

    engine: RayEngine

    def __init__(self, workloads: int) -> None:
        super().__init__()
        self._left = max(1, workloads // 3)

    def workload_finished(self, uuid: str, axes: str, outcome: Outcome, reused: bool) -> None:
        super().workload_finished(uuid, axes, outcome, reused)
        self._left -= 1
        if self._left == 0:
            os.kill(self.engine.workers[-1].pid, signal.SIGKILL)


def measure_phase(
    workspace: Workspace, name: str, rooms: Sequence[str] = (), commit: str | None = None
) -> Path:
    """Run one phase on this host's first GPUs and keep it beside the others of this device.

    rooms: all where empty. commit: what the record names, by default the checkout's. The file that
    holds it is returned. Raises HarnessError.
    """
    for room in rooms:
        workspace.room(room)  # a name that is none is refused wherever it is asked
    facts = read_facts()
    with _first_gpus(GPUS[name]):
        path = scale_path(workspace.root, facts.slug)
        known = read_scale(path) if path.is_file() else None
        request = Request(tuple(rooms), _wanted(name, known, facts))
        root = dataset.locate(workspace, None)
        chosen = choose_workloads(workspace, request, root, on_cpu=False)
        for room, rows in chosen.items():
            dataset.ensure_blobs(root, workspace.room(room), rows)
        total = sum(len(rows) for rows in chosen.values())
        if name in COMPARED:
            _warm_up(workspace, name, chosen)
        progress = _Killing(total) if name == "kill" else SweepProgress()
        phase = _run(workspace, name, request, progress, total)
    phases = dict(known.phases) if known else {}
    commit = commit or read_commit(workspace.root)
    scale = Scale(facts.slug, facts.name, commit, {**phases, name: phase})
    write_scale(path, scale)
    return path


def _run(
    workspace: Workspace, name: str, request: Request, progress: SweepProgress, total: int
) -> Phase:
    load_ray()  # the clock runs from the start of the cluster: no import of the driver is timed
    began, began_s = utc_now(timespec="microseconds"), time.monotonic()
    engine, _ = _sweep(workspace, name, request, progress)
    wall_s = time.monotonic() - began_s
    entries = _entries_since(
        workspace, engine.facts, request.rooms or tuple(workspace.contest_rooms), began
    )
    starting_s = _seconds(began, min(entry.started_at for entry in entries))
    return phase_of(
        name, GPUS[name], total, entries, wall_s, _judging_s(entries), engine.lost_workers,
        starting_s,
    )  # fmt: skip


def _sweep(
    workspace: Workspace, name: str, request: Request, progress: SweepProgress
) -> tuple[RayEngine, ExitCode]:
    """One sweep on a cluster of its own; the engine that judged it, and how it ended."""
    with _caches(name), _own_cluster(GPUS[name]), progress:
        engine = RayEngine(workspace, progress)
        if isinstance(progress, _Killing):
            progress.engine = engine
        code = sweep_on(engine, workspace, request, progress)
    return engine, code


def _warm_up(workspace: Workspace, name: str, chosen: Mapping[str, Sequence[WorkloadRow]]) -> None:
    """What only the first run on a host would pay for: files that processes import and compile
    with, read from the disk, and memory that a virtual machine gets at the first touch.

    One workload, judged as it will be; its compiled code goes with the caches of this sweep.
    """
    room = WARM_ROOM if WARM_ROOM in chosen else next(iter(chosen))
    request = Request((room,), (chosen[room][0].uuid,))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(_write_memory)
        _, code = _sweep(workspace, name, request, SweepProgress())
        writing.result()
    if code is not ExitCode.OK:
        raise EnvironmentUnfit(
            f"scale: {room}: expected a workload that passes to warm this host up, got exit code "
            f"{int(code)}; `python -m harness evaluate {room} --workloads {request.workloads[0]}` "
            "says why"
        )


def _write_memory() -> int:
    """Write WRITTEN_BYTES, or half of what is free where that is less, and give them back."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size_bytes = min(WRITTEN_BYTES, free_bytes // 2)
    memory = (ctypes.c_char * size_bytes).from_buffer(mmap.mmap(-1, size_bytes))
    ctypes.memset(memory, 1, size_bytes)  # without the interpreter's lock
    return size_bytes


def _wanted(name: str, known: Scale | None, facts: DeviceFacts) -> tuple[str, ...]:
    """All workloads; for "again" those that the first GPU judged beside the other one."""
    if name != "again":
        return ("all",)
    two = known.phases.get("two") if known else None
    gpu = facts.uuid or ""
    mine = [uuid for uuid, of in (two.measured if two else {}).items() if gpu.startswith(of.gpu)]
    if not mine:
        raise UsageError(
            "phase again: expected phase two before it, got none of this GPU; run "
            "`python scripts/measure_scale.py --phase two`"
        )
    return tuple(mine)


def _entries_since(
    workspace: Workspace, facts: DeviceFacts, rooms: Sequence[str], began: str
) -> list[TraceEntry]:
    ledgers = [TraceLedger.of(workspace.root, facts.slug, room) for room in rooms]
    return [e for ledger in ledgers for e in ledger.entries() if e.started_at >= began]


def _judging_s(entries: Sequence[TraceEntry]) -> float:
    return _seconds(min(e.started_at for e in entries), max(e.ended_at for e in entries))


def _seconds(begin: str, end: str) -> float:
    """Between two stamps of utc_now."""
    at, until = (datetime.datetime.fromisoformat(stamp.removesuffix("Z")) for stamp in (begin, end))
    return (until - at).total_seconds()


@contextmanager
def _changed(values: Mapping[str, str]) -> Iterator[None]:
    """These variables, for what is started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _first_gpus(count: int) -> Iterator[None]:
    cuda = load_cuda()
    visible = cuda.count() if cuda is not None else 0
    if visible < count:
        raise EnvironmentUnfit(
            f"scale: expected {count} visible GPUs of this host, got {visible}; nvidia-smi lists "
            "what there is, CUDA_VISIBLE_DEVICES may hide some"
        )
    setting = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(visible)))
    with _changed({"CUDA_VISIBLE_DEVICES": ",".join(setting.split(",")[:count])}):
        yield


@contextmanager
def _caches(phase: str) -> Iterator[None]:
    """Empty ones for a sweep of the phases that are compared, deleted behind it."""
    if phase not in COMPARED:
        yield
        return
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
        held.enter_context(_changed({name: str(folder / name) for name in CACHES}))
        yield


@contextmanager
def _own_cluster(gpus: int) -> Iterator[None]:
    """A cluster of this host alone, whatever else runs."""
    ray: Any = load_ray()
    connect(
        ray,
        address="local",
        num_gpus=gpus,
        num_cpus=gpus + 1,  # Ray starts a process for each at once: workers and the maker of blobs
        object_store_memory=OBJECT_STORE_BYTES,
    )
    try:
        yield
    finally:
        ray.shutdown()
