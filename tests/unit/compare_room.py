"""A room of two small workloads compared by scripted workers: no torch, no GPU, no real packing."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.compare.engine import run_compare
from harness.compare.plan import CompareRequest
from harness.config import Workspace
from harness.dataset import read_workloads
from harness.devices import DeviceFacts
from harness.evaluate import plan as planning
from harness.evaluate.pool import MeasurementFailed
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.packing import Packed, PackedPeer
from tests.small_checkout import small_checkout

ROOM = "gdn_decode"
GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test", driver="1.0")
CPU = DeviceFacts("cpu", "a processor")
PASSED = Outcome(Status.PASSED)
CRASH = Outcome(Status.RUNTIME_ERROR, detail="the worker was killed by SIGSEGV in stage timing")

Script = Callable[[str, str, int], float | Outcome | BaseException]


def steady(**latencies_us: float) -> Script:
    """The same latency in each turn, by side; the control is the first side."""
    first = next(iter(latencies_us.values()))
    return lambda side, uuid, turn: latencies_us.get(side, first)


@dataclass
class FakeGpu:
    """Stands in for all workers. `script` says what a side's turn on a workload gives.

    order: who was measured, as (side, uuid, warmup_runs, iterations). verdicts: of the judge, by
    (side, uuid); a list holds one for each time it is asked. judged: (side, uuid) in the order in
    which the judge began.
    """

    sides: tuple[str, ...]
    script: Script
    verdicts: dict[tuple[str, str], Outcome | list[Outcome]] = field(default_factory=dict)
    order: list[tuple[str, str, int, int]] = field(default_factory=list)
    judged: list[tuple[str, str]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    jobs: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pools = 0
        self.lock = threading.Lock()
        self.users = 0

    def __call__(self, device: str, root: Path) -> FakePool:
        side = self.sides[self.pools % len(self.sides)]
        self.pools += 1
        return FakePool(self, side)

    def turns(self, uuid: str) -> list[str]:
        """Sides in the order in which they were measured on a workload."""
        return [side for side, other, *_ in self.order if other == uuid]


class FakePool:
    def __init__(self, gpu: FakeGpu, side: str) -> None:
        self.gpu, self.side, self.uuid, self.count = gpu, side, "", 0

    def __enter__(self) -> FakePool:
        self.thread = threading.current_thread()
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.events.append(f"{self.side} closed")

    def run(self, job, on_stage):
        assert threading.current_thread() is self.thread, "a worker ends with its starter's thread"
        assert job.keep
        self.gpu.judged.append((self.side, job.uuid))
        self.gpu.events.append(f"{self.side} begins {job.uuid}")
        self.gpu.jobs.append(job)
        self.uuid, self.count = job.uuid, 0
        outcome = self.gpu.verdicts.get((self.side, job.uuid), PASSED)
        if isinstance(outcome, list):
            outcome = outcome.pop(0)
        self.gpu.events.append(f"{self.side} ends {job.uuid}")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def measure(self, warmup_runs, iterations, timeout_s):
        assert threading.current_thread() is self.thread
        assert timeout_s == 300
        gpu = self.gpu
        with gpu.lock:
            gpu.users += 1
            assert gpu.users == 1, "somebody else runs while a side is timed"
            gpu.order.append((self.side, self.uuid, warmup_runs, iterations))
        latency = gpu.script(self.side, self.uuid, self.count)
        self.count += 1
        with gpu.lock:
            gpu.users -= 1
        if isinstance(latency, Outcome):
            raise MeasurementFailed(latency)
        if isinstance(latency, BaseException):
            raise latency
        return (latency,) * iterations


class CompareRoom:
    """A checkout whose room packs to content "a" and whose peers pack to what `peers` says.

    peers: library -> (content character, pinned, installed or None). notes: further fields of every
    PackedPeer. packages: what is installed beside the libraries.
    """

    def __init__(self, root: Path, monkeypatch) -> None:
        self.workspace: Workspace = small_checkout(root / "checkout")
        self.content = "a"
        self.peers: dict[str, tuple[str, str, str | None]] = {"lib": ("b", "1.2", "1.2")}
        self.notes: dict[str, object] = {}
        self.packages: dict[str, str] = {}
        for source in planning.JUDGE_SOURCES:
            path = self.workspace.root / source
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("rules")
        self.workspace.__dict__["peers"] = {"lib": None, "other": None}
        self.others = ()
        monkeypatch.setenv("FIB_CACHE_PATH", str(root / "cache"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
        for name, stand_in in {
            "sides.pack": lambda _, room: self.packed("", self.content),
            "sides.pack_peer": self.pack_peer,
            "sides.list_peers": lambda _, room: tuple(self.peers) if room == ROOM else (),
            "sides.installed_version": self.installed_version,
            "engine.dataset.ensure_blobs": lambda *_: None,
            "engine.read_data": lambda *_: {},
            "engine.require_timer": lambda name: None,
            "engine.other_users": lambda facts: self.others,
        }.items():
            monkeypatch.setattr(f"harness.compare.{name}", stand_in)
        monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda facts: None)

    def packed(self, label: str, content: str) -> Packed:
        name = f"{ROOM}-{label}{content * 8}"
        return Packed(name, content * 64, "{}", self.workspace.root / "solution.json")

    def pack_peer(self, _, room: str, library: str) -> PackedPeer:
        content, pinned, _ = self.peers[library]
        packed = self.packed(f"{library}-", content)
        values = {"stands_in": "", "caveat": "", "requires": (), **self.notes}
        return PackedPeer(library, room, packed, library, pinned, "nothing", **values)

    def installed_version(self, package: str) -> str | None:
        return self.peers[package][2] if package in self.peers else self.packages.get(package)

    @property
    def uuids(self) -> list[str]:
        return [row.uuid for row in read_workloads(self.workspace.root, self.workspace.room(ROOM))]

    def compare(self, script: Script, facts: DeviceFacts = GPU, verdicts=None, **request):
        """Compare ours with lib. Returns the exit code, the GPU and what was printed."""
        values = {"a": "ours", "b": "lib", "rooms": (ROOM,), "rounds": 12, **request}
        present = [name for name, (*_, installed) in self.peers.items() if installed]
        others = present if values["b"] == "peers" else [values["b"]]
        sides = (values["a"], *others, "control")
        gpu, text = FakeGpu(sides, script, verdicts or {}), io.StringIO()
        with SweepProgress(text) as progress:
            try:
                code = run_compare(self.workspace, CompareRequest(**values), progress, gpu, facts)
            except BaseException:
                self.gpu = gpu
                raise
        return code, gpu, text.getvalue()
