"""One workload's evidence: its verdict and latency, its traces, NCU's table of one call."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.audit.engine import PoolFactory
from harness.audit.sanitizers import Runner
from harness.devices import DeviceFacts
from harness.errors import HarnessError
from harness.evaluate.plan import torch_device
from harness.evaluate.pool import MeasurementFailed, Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Job, Outcome, Status
from harness.evaluate.secrecy import without_secrets
from harness.ncu import (
    ABSENT,
    SECTIONS,
    LaunchMetrics,
    NcuDenied,
    find_ncu,
    ncu_command,
    profile_metrics,
    read_csv,
    read_log,
    refused_metrics,
)
from harness.profiling.shares import Activity, KernelShare, share_out

SINGLE_CALL = "harness.profiling.single_call"


@contextmanager
def open_pools(
    root: Path, device: str, call_file: Path, make_pool: PoolFactory
) -> Iterator[tuple[Pool, Pool]]:
    """A worker that judges and measures, and one that traces and leaves inputs in call_file."""
    environment = worker_environment(device, root)
    judging = WorkerCommand(environment=environment)
    argv = (sys.executable, "-m", "harness.profiling.worker", str(call_file))
    with (
        make_pool(device, root, judging) as first,
        make_pool(device, root, WorkerCommand(argv, environment)) as second,
    ):
        yield first, second


def measure_latency(judging: Pool, job: Job) -> tuple[float | None, Outcome | None]:
    """The latency in µs of a solution that passes, or the outcome of one that does not."""
    outcome = judging.run(replace(job, keep=True))
    if outcome.status is not Status.PASSED:
        return None, outcome
    settings = job.settings
    try:
        samples_us = judging.measure(settings.warmup_runs, settings.iterations, settings.timeout_s)
    except MeasurementFailed as error:
        return None, error.outcome
    return statistics.median(samples_us), None


def read_shares(outcome: Outcome) -> tuple[tuple[KernelShare, ...] | None, str | None]:
    """What Torch Profiler found in a worker's answer, or why nothing."""
    if outcome.status is not Status.PASSED:
        return None, f"Torch Profiler: {outcome.status.value}: {outcome.detail}"
    answer: dict[str, Any] = outcome.evaluation or {}
    shares = share_out([[Activity(**one) for one in call] for call in answer["calls"]])
    return (shares, None) if shares else (None, "Torch Profiler saw no GPU work")


@dataclass(frozen=True)
class Counted:
    """NCU's answer. launches: None with a reason. table: the text that they were read from."""

    launches: tuple[LaunchMetrics, ...] | None
    reason: str | None = None
    table: str = ""


class Counters:
    """Asks NCU. missing: why it is asked no more, None while it is: it is not installed, or the
    host denied the counters, which it would do each time. Metrics that this GPU does not have are
    left out once NCU has said so."""

    def __init__(self, root: Path, facts: DeviceFacts, run: Runner) -> None:
        self._root, self._device, self._run = root, torch_device(facts), run
        self._program = find_ncu()
        self.missing = None if self._program else ABSENT
        self._refused: frozenset[str] = frozenset()

    def count(self, call_file: Path) -> Counted:
        """The metrics of each launch of the call in a file that a tracing worker left."""
        if self._program is None or self.missing is not None:
            return Counted(None, self.missing)
        try:
            text = self._ask(self._program, call_file)
            refused = refused_metrics(text) - self._refused
            if refused:
                self._refused |= refused
                text = self._ask(self._program, call_file)
            return Counted(read_csv(text), None, text)
        except NcuDenied as error:
            self.missing = str(error)
            return Counted(None, self.missing)
        except HarnessError as error:
            return Counted(None, str(error))

    def _ask(self, program: str, call_file: Path) -> str:
        log = call_file.with_name("ncu.log")
        environment = without_secrets(worker_environment(self._device, self._root))
        metrics = profile_metrics(self._refused)
        command = ncu_command(program, log, SINGLE_CALL, call_file, metrics, *SECTIONS)
        return read_log(lambda: self._run(command, environment, self._root)[1], log)
