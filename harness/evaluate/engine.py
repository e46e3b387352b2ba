"""Who runs a sweep's jobs: this process on one device, or whatever else keeps the same promise.

An engine is open between __enter__ and __exit__. It says what device it judges on before there is
a plan, because a plan depends on that; every worker of an engine has the same device and versions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness import dataset
from harness.devices import DeviceFacts, sample_clocks
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import RoomPlan, torch_device
from harness.evaluate.pool import Pool, build_caches
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job
from harness.evaluate.verdicts import Judged, read_environment, utc_now
from harness.files import require_writable
from harness.timing import require_timer

PoolFactory = Callable[[str, Path], Pool]


class Engine(Protocol):
    """Runs jobs and hands back one Judged for each, in whatever order they finish."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def facts(self) -> DeviceFacts:
        """The device that is judged on; one of several that are alike."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Versions that a verdict depends on, by name."""

    def describe(self) -> str:
        """What judges, for the sweep's first line."""

    def prepare(self, plans: Sequence[RoomPlan]) -> None:
        """Refuse what cannot be judged here. Raises HarnessError, before anything is judged."""

    def judge(self, jobs: Sequence[Job]) -> Generator[Judged, None, None]:
        """Closing the iterator stops the rest. Raises HarnessError where nothing can be judged."""


class LocalEngine:
    """One job after another on this machine's device, in a new worker for each room."""

    def __init__(
        self, root: Path, facts: DeviceFacts, progress: SweepProgress, make_pool: PoolFactory = Pool
    ) -> None:
        self.facts, self.environment = facts, read_environment(facts)
        self._root, self._progress, self._make_pool = root, progress, make_pool

    def __enter__(self) -> LocalEngine:
        self._pool = self._make_pool(torch_device(self.facts), self._root)
        self._pool.stand_by()  # while the plan is made; not beside what is timed
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def describe(self) -> str:
        return f"{self.facts.name} ({self.facts.slug})"

    def prepare(self, plans: Sequence[RoomPlan]) -> None:
        if self.facts.uuid is not None:
            require_timer(plans[0].settings.timer)
        require_writable(*build_caches())
        for plan in plans:
            dataset.ensure_blobs(plan.dataset_root, plan.room, list(plan.rows))

    def judge(self, jobs: Sequence[Job]) -> Generator[Judged, None, None]:
        with hold_device(self.facts), self._pool:
            for room, group in itertools.groupby(jobs, key=lambda job: job.room):
                self._progress.focus(room)
                self._pool.renew()
                yield from self._judge_room(group)

    def _judge_room(self, jobs: Iterator[Job]) -> Generator[Judged, None, None]:
        worker = {"gpu": self.facts.uuid} if self.facts.uuid else {}
        clocks = [sample_clocks(self.facts)]
        for job in jobs:
            self._progress.workload_started(job.uuid, job.settings.timeout_s)
            begin = utc_now(timespec="microseconds")
            outcome = self._pool.run(job, self._progress.stage)
            clocks.append(sample_clocks(self.facts))
            yield Judged(job, outcome, begin, tuple(clocks), worker)
            clocks = []
