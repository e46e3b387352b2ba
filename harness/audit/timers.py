"""One call by three timers: CUPTI's span, events around a graph, and NCU's durations.

They measure different things, so that a stated bound lies between them:

    CUPTI   first start to last end of a call's GPU work, cold L2: the number that is a result
    graph   events around a captured graph of many (flush, call), less one of as many flushes: the
            same work, and one gap between launches
    NCU     the sum of its kernels' durations, each alone, at its own clocks and with cold caches:
            no gaps, and no overlap of dependent kernels
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.audit.engine import (
    PoolFactory,
    jobs_of,
    plan_target,
    worker_command,
)
from harness.audit.sanitizers import Runner, prepare_call, run_process
from harness.config import Workspace
from harness.devices import DeviceFacts, describe_no_gpu, read_facts
from harness.errors import EnvironmentUnfit, ExitCode, InfrastructureFailure
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import torch_device
from harness.evaluate.pool import Pool, worker_environment
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job
from harness.ncu import (
    ABSENT,
    DURATION,
    NcuDenied,
    NcuUnreadable,
    durations_us,
    find_ncu,
    ncu_command,
    read_csv,
    read_log,
)
from harness.records import format_us
from harness.timing import require_timer

# The larger of both is how far a timer may be from CUPTI.
GRAPH_BOUND_US, GRAPH_BOUND_SHARE = 2.0, 0.15
NCU_BOUND_US, NCU_BOUND_SHARE = 2.0, 0.35  # the first for each kernel
SINGLE_CALL = "harness.audit.single_call"


@dataclass(frozen=True)
class Reading:
    """One workload by each timer, in µs. ncu_us: of each kernel; None where NCU is not there."""

    uuid: str
    cupti_us: float
    graph_us: float
    ncu_us: tuple[float, ...] | None = None

    def disagreements(self) -> list[str]:
        """Timers that are farther from CUPTI than their bound, with the numbers."""
        bounds = [("graph", self.graph_us, GRAPH_BOUND_US, GRAPH_BOUND_SHARE)]
        if self.ncu_us is not None:
            fixed_us = NCU_BOUND_US * len(self.ncu_us)
            bounds.append(("NCU", sum(self.ncu_us), fixed_us, NCU_BOUND_SHARE))
        found = []
        for name, value_us, fixed_us, share in bounds:
            bound_us = max(fixed_us, share * self.cupti_us)
            if abs(value_us - self.cupti_us) > bound_us:
                found.append(
                    f"{name} {format_us(value_us)} us is farther from CUPTI's "
                    f"{format_us(self.cupti_us)} us than {format_us(bound_us)} us"
                )
        return found


def run_timers(
    workspace: Workspace,
    target: str,
    workloads: tuple[str, ...],
    progress: SweepProgress,
    dataset: str | None = None,
    facts: DeviceFacts | None = None,
    make_pool: PoolFactory = Pool,
    run: Runner = run_process,
) -> ExitCode:
    """Measure each workload by every timer; print as it goes. Returns the exit code.

    1: a timer disagrees; 4: NCU is not installed, or may not read the counters.
    """
    facts = facts or read_facts()
    if facts.uuid is None:
        raise EnvironmentUnfit(f"timers: expected a GPU; {describe_no_gpu()}")
    require_timer("cupti")
    plan = plan_target(workspace, target, workloads, dataset, facts)
    program = find_ncu()
    missing = None if program else ABSENT
    progress.note(f"{plan.room.name}: solution {plan.packed.name}, device {facts.name}")
    disagree = False
    environment = worker_environment(torch_device(facts), workspace.root)
    command = worker_command("timer_calls:measure", 0, environment)
    with (
        hold_device(facts),
        tempfile.TemporaryDirectory(prefix="timers-") as scratch,
        make_pool(torch_device(facts), workspace.root, command) as pool,
    ):
        for job in jobs_of(plan, facts):
            ncu_us = None
            if program is not None and missing is None:
                path, failure = prepare_call(workspace, job, Path(scratch), make_pool)
                if failure is not None:
                    raise InfrastructureFailure(f"{job.uuid}: {failure}; evaluate it first")
                try:
                    ncu_us = _ask_ncu(program, path, environment, workspace.root, run)
                except (NcuDenied, NcuUnreadable) as error:
                    missing = str(error)
                path.unlink(missing_ok=True)
            reading = _measure(pool, job, ncu_us)
            progress.note(f"{plan.room.name} {describe(reading)}")
            for line in reading.disagreements():
                disagree = True
                progress.note(f"    {line}")
    if missing is not None:
        progress.note(missing)
    if disagree:
        return ExitCode.FAILED
    return ExitCode.TOOL_MISSING if missing is not None else ExitCode.OK


def describe(reading: Reading) -> str:
    """One line: every timer's number, in µs."""
    kernels = "absent"
    if reading.ncu_us is not None:
        kernels = f"{format_us(sum(reading.ncu_us))} us in {len(reading.ncu_us)} kernels"
    return (
        f"{reading.uuid[:8]} CUPTI {format_us(reading.cupti_us)} us, graph "
        f"{format_us(reading.graph_us)} us, NCU {kernels}"
    )


def _ask_ncu(
    program: str, call_file: Path, environment: Mapping[str, str], root: Path, run: Runner
) -> tuple[float, ...]:
    """Durations in µs of the call's kernels. Raises NcuDenied and NcuUnreadable."""
    log = call_file.with_suffix(".ncu.log")
    command = ncu_command(program, log, SINGLE_CALL, call_file, (DURATION,))
    return durations_us(read_csv(read_log(lambda: run(command, environment, root)[1], log)))


def _measure(pool: Pool, job: Job, ncu_us: Sequence[float] | None) -> Reading:
    """CUPTI's and the graph's number from a worker. Raises InfrastructureFailure."""
    outcome = pool.run(job)
    answer: dict[str, Any] = outcome.evaluation or {}
    values = answer.get("values")
    if not isinstance(values, dict):
        raise InfrastructureFailure(
            f"{job.uuid}: not measured: {outcome.detail or answer.get('detail')}"
        )
    kernels = None if ncu_us is None else tuple(ncu_us)
    return Reading(job.uuid, float(values["cupti_us"]), float(values["graph_us"]), kernels)
