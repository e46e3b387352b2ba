"""What runs on a host: one worker for each GPU, one maker of blobs for each host. No Ray here.

A worker holds its GPU's lock from the first question to the last job, and judges in the same pool
as a sweep on this machine does: one process a room, the next one on standby meanwhile. The first
one makes its CUDA context while the driver plans and the host is looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import dataset
from harness.config import Room
from harness.devices import ClockSample, DeviceFacts, own_cores, sample_clocks, spare_cores
from harness.devices import read_facts as read_device_facts
from harness.errors import EnvironmentUnfit
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import JUDGE_SOURCES
from harness.evaluate.pool import Pool, WorkerCommand, build_caches
from harness.evaluate.protocol import Job, Outcome
from harness.evaluate.verdicts import read_environment
from harness.files import atomic_file, require_writable
from harness.rules import SOURCES
from harness.timing import require_timer

BUILT_NAME = re.compile(r"\w+_[0-9a-f]{16}\.so")
CORES_LEFT = 4  # of each GPU's, to its worker while blobs are made


@dataclass(frozen=True)
class Fingerprint:
    """Where a worker is and what it judges with. judge_sha256: of the sources of the judge and
    of all rules. cores: that it and its processes run on."""

    host: str
    pid: int
    facts: DeviceFacts
    environment: Mapping[str, str]
    judge_sha256: str
    cores: int

    def alike(self) -> tuple[Any, ...]:
        """What workers of one run must have in common."""
        facts = self.facts
        versions = tuple(sorted(self.environment.items()))
        return facts.slug, facts.name, facts.memory_bytes, versions, self.judge_sha256

    def __str__(self) -> str:
        return f"{self.facts.uuid or self.facts.name} of {self.host}"


def own_checkout() -> Path:
    """The checkout that this process imported the harness from."""
    return Path(__file__).resolve().parents[2]


def sources_sha256(root: Path) -> str:
    """Identity of the code that judges `root` on this host: its own, where it has any."""
    checkout = root if (root / "harness").is_dir() else own_checkout()
    digest = hashlib.sha256()
    further = [source for sources in SOURCES.values() for source in sources]
    for source in (*JUDGE_SOURCES, *further):
        digest.update(hashlib.sha256((checkout / source).read_bytes()).digest())
    return digest.hexdigest()


def own_gpu() -> str:
    """As CUDA_VISIBLE_DEVICES names it, where Ray puts one."""
    first, *_ = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return first.strip() or "0"


def own_builds() -> Path:
    """Where this GPU's worker compiles native routes. A folder takes one compiler at a time, and
    workers that share it would wait for each other's rooms."""
    name = re.sub(r"[^\w-]", "-", own_gpu())
    return build_caches()[1] / f"gpu-{name}"


def adopt_builds(own: Path) -> None:
    """Copy what the workers of the host's other GPUs have compiled: a name says what its file is
    made from (solutions/common/native_build.py), which puts it in place whole."""
    for built in own.parent.glob("gpu-*/*.so"):
        copy = own / built.name
        if BUILT_NAME.fullmatch(built.name) and not copy.exists():
            with contextlib.suppress(OSError), atomic_file(copy) as file:  # else compiled anew
                file.write(built.read_bytes())


def _take_cores(held: contextlib.ExitStack, cores: Iterable[int]) -> None:
    """Until `held` is closed: for this thread, and for processes that it starts."""
    held.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)


def _take_variable(held: contextlib.ExitStack, name: str, value: str | None) -> None:
    """Until `held` is closed: None takes it out of the environment."""

    def put(value: str | None) -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    held.callback(put, os.environ.get(name))
    put(value)


class Worker:
    """One GPU, or one CPU slot where there is none.

    root: the checkout on this host; None: where its harness lies. command: as for Pool.
    """

    def __init__(
        self, on_gpu: bool, root: str | None = None, command: WorkerCommand | None = None
    ) -> None:
        self._on_gpu, self._command = on_gpu, command
        self._root = Path(root) if root else own_checkout()
        self._held = contextlib.ExitStack()
        self._room = ""
        self._dataset = ""
        self._builds: Path | None = None

    def open(self) -> Fingerprint:
        """Take the GPU. Raises DeviceBusy, EnvironmentUnfit."""
        device = "cuda:0" if self._on_gpu else "cpu"
        with contextlib.ExitStack() as held:
            if self._on_gpu:
                _take_variable(held, "OMP_NUM_THREADS", None)  # Ray's; one for each core instead
                _take_cores(held, own_cores(own_gpu()))
                self._builds = own_builds()
                _take_variable(held, "TVM_FFI_CACHE_DIR", str(self._builds))
            self._pool = Pool(device, self._root, self._command)
            held.callback(self._pool.close)  # where the GPU is refused
            self._pool.stand_by()  # it imports, seconds long, while all else is looked at
            self._facts = read_device_facts(device)
            held.enter_context(hold_device(self._facts))
            held.enter_context(self._pool)  # behind the lock: ended before that is free
            self._pool.renew()  # on to its GPU once it has imported, whatever room comes first
            found = Fingerprint(
                platform.node(),
                os.getpid(),
                self._facts,
                read_environment(self._facts),
                sources_sha256(self._root),
                len(os.sched_getaffinity(0)),
            )
            self._held = held.pop_all()
        return found

    def begin(self, timer: str, dataset_root: str | None, rooms: Mapping[str, Room],
              identities: Mapping[str, str]) -> None:  # fmt: skip
        """Refuse what this host cannot judge. Raises EnvironmentUnfit, DatasetError.

        dataset_root: None for this host's checkout. identities: content_sha256 of each room's data.
        """
        if self._facts.uuid is not None:
            require_timer(timer)
        require_writable(*build_caches())
        self._dataset = dataset_root or str(self._root)
        for name, room in rooms.items():
            found = dataset.content_sha256(Path(self._dataset), room)
            if found != identities[name]:
                raise EnvironmentUnfit(
                    f"{platform.node()}: {self._dataset}: {name}: expected the driver's data set "
                    f"({identities[name][:8]}), got another ({found[:8]}); check out one commit "
                    "on every host"
                )

    def judge(
        self, texts: Mapping[str, str], values: Mapping[str, Any]
    ) -> tuple[Outcome, tuple[ClockSample, ...]]:
        """texts: the definition and solution of a room. values: the rest of a job, as JSON."""
        job = Job.from_json({**values, **texts, "dataset_root": self._dataset})
        clocks = []
        if job.room != self._room:
            if self._room:  # the process of the first room began in open
                self._pool.renew()
            self._room = job.room
            if self._builds is not None:
                adopt_builds(self._builds)
            clocks.append(sample_clocks(self._facts))
        self._pool.stand_by()
        outcome = self._pool.run(job)
        clocks.append(sample_clocks(self._facts))
        return outcome, tuple(clocks)

    def close(self) -> None:
        self._held.close()


class BlobMaker:
    """Makes the inputs that lie in files, while the workers of its host judge other rooms."""

    def __init__(self, on_gpu: bool, root: str | None = None) -> None:
        self._root = Path(root) if root else own_checkout()
        if on_gpu:  # its child processes inherit it
            os.sched_setaffinity(0, spare_cores(CORES_LEFT))

    def make(self, dataset_root: str | None, room: Room, uuids: Sequence[str]) -> float:
        """Seconds that the blobs of these workloads took. Raises DatasetError."""
        began, root = time.monotonic(), Path(dataset_root or self._root)
        wanted = set(uuids)
        rows = [row for row in dataset.read_workloads(root, room) if row.uuid in wanted]
        dataset.ensure_blobs(root, room, rows)
        return time.monotonic() - began
