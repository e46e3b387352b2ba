"""One call by three timers: CUPTI's span, events around a graph, and NCU's durations.

They measure different things, so that a stated bound lies between them:

    CUPTI   first start to last end of a call's GPU work, cold L2: the number that is a result
    graph   events around a captured graph of many (flush, call), less one of as many flushes: the
            same work, and one gap between launches
    NCU     the sum of its kernels' durations, each alone, at its own clocks and with cold caches:
            no gaps, and no overlap of dependent kernels

The first two come from one worker, workload by workload; NCU looks at all calls in one process,
behind them. A record is written after each answer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import dataset
from harness.audit.counting import CALLS_VARIABLE, CallCounter
from harness.audit.engine import (
    PoolFactory,
    jobs_of,
    make_ready,
    plan_target,
    read_answer,
    subject_of,
    worker_command,
)
from harness.audit.sanitizers import Runner, run_process
from harness.audit.timer_record import (
    COMMAND,
    PENDING,
    TimerRecord,
    TimerRow,
    load_timers,
    make_row,
    record_path,
    write_timers,
)
from harness.config import Workspace
from harness.devices import DeviceFacts, read_facts, require_gpu
from harness.errors import (
    ExitCode,
    HarnessError,
    InfrastructureFailure,
    RecordError,
    UsageError,
)
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import RoomPlan, torch_device
from harness.evaluate.pool import Pool, worker_environment
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job
from harness.evaluate.sweep import require_commit
from harness.evaluate.verdicts import utc_now
from harness.files import require_writable
from harness.records import format_us
from harness.timing import require_timer


@dataclass(frozen=True)
class TimersRequest:
    """target: a room or a packed JSON file. No workloads: the room's smoke workloads. resume: take
    the complete rows of a record of the same content, device, driver, libraries and commit.
    command: as a record names it. regimes: what each workload stands for, such as "batch_size 4",
    by UUID."""

    target: str
    workloads: tuple[str, ...] = ()
    dataset: str | None = None
    commit: str | None = None
    record: bool = False
    resume: bool = False
    command: str = COMMAND
    regimes: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Session:
    """A run under way. order: the room's UUIDs. record: what is written, None where nothing is;
    without rows until the device is held. rows: of this run, by UUID."""

    workspace: Workspace
    request: TimersRequest
    plan: RoomPlan
    progress: SweepProgress
    order: list[str]
    record: TimerRecord | None
    rows: dict[str, TimerRow] = field(default_factory=dict)

    def read_rows(self) -> tuple[TimerRow, ...]:
        """What the room's file has of the same content, device, driver, libraries and commit. A
        damaged file is said: it is replaced."""
        if self.record is None:
            return ()
        try:
            old = load_timers(self.workspace.root, self.record.room)
        except RecordError as error:
            self.progress.note(f"{error}; nothing of it is kept")
            return ()
        return old.workloads if old is not None and old.identity == self.record.identity else ()

    def keep(self, row: TimerRow) -> None:
        """Take a row and, where asked, put it into the room's record."""
        self.rows[row.uuid] = row
        if self.record is not None:
            self.record = self.record.add(row, self.order)
            write_timers(self.record, self.workspace.root)

    def show(self, row: TimerRow) -> None:
        self.progress.note(f"{self.plan.room.name} {describe(row)}")
        for line in row.disagreements():
            self.progress.note(f"    {line}")


def run_timers(
    workspace: Workspace,
    request: TimersRequest,
    progress: SweepProgress,
    facts: DeviceFacts | None = None,
    make_pool: PoolFactory = Pool,
    run: Runner = run_process,
) -> ExitCode:
    """Measure each workload by every timer; print and, where asked, keep each. Returns the exit
    code.

    1: a timer disagrees; 4: NCU is not installed, or may not read the counters. Raises
    EnvironmentUnfit without a GPU or where no record can be written, HarnessError where the
    solution fails, InfrastructureFailure where a workload gives no number otherwise.
    """
    _refuse_contradictions(workspace, request)
    facts = facts or read_facts()
    plan = plan_target(workspace, request.target, request.workloads, request.dataset, facts)
    require_gpu(facts, "timers")
    require_timer("cupti")
    make_ready(plan)
    if request.record:
        folder = record_path(workspace.root, plan.room.name).parent
        require_writable(folder, advice="free it, or leave out --record")
    session = _begin(workspace, request, plan, progress, facts)
    progress.note(f"{plan.room.name}: solution {plan.packed.name}, device {facts.name}")
    jobs = jobs_of(plan, facts)
    for row in session.read_rows() if request.resume else ():
        if row.is_complete and row.uuid in {job.uuid for job in jobs}:
            session.rows[row.uuid] = row
            progress.note(f"{plan.room.name} {describe(row)}, kept")
    missing = _measure_all(
        session, [job for job in jobs if job.uuid not in session.rows], facts, make_pool, run
    )
    if missing is not None:
        progress.note(missing)
    if session.record is not None:
        path = record_path(workspace.root, plan.room.name)
        progress.note(f"{plan.room.name}: recorded in {path.relative_to(workspace.root)}")
    if any(row.disagreeing for row in session.rows.values()):
        return ExitCode.FAILED
    is_partial = any(row.ncu_us is None for row in session.rows.values())
    return ExitCode.TOOL_MISSING if is_partial else ExitCode.OK


def describe(row: TimerRow) -> str:
    """One line: every timer's number, in µs."""
    kernels = "follows" if row.no_ncu == PENDING else "absent"
    if row.ncu_us is not None:
        kernels = f"{format_us(sum(row.ncu_us))} us in {len(row.ncu_us)} kernels"
    return (
        f"{row.uuid[:8]} CUPTI {format_us(row.cupti_us)} us, graph "
        f"{format_us(row.graph_us)} us, NCU {kernels}"
    )


def _refuse_contradictions(workspace: Workspace, request: TimersRequest) -> None:
    require_commit(request.commit)
    if request.resume and not request.record:
        raise UsageError("--resume goes on with a record: expected --record with it")
    if request.record and request.target not in workspace.rooms:
        raise UsageError(
            f"--record keeps the evidence of a room as packed now; expected one of "
            f"{', '.join(workspace.rooms)}, got {request.target!r}"
        )


def _begin(
    workspace: Workspace,
    request: TimersRequest,
    plan: RoomPlan,
    progress: SweepProgress,
    facts: DeviceFacts,
) -> _Session:
    order = [row.uuid for row in dataset.read_workloads(plan.dataset_root, plan.room)]
    record = _bare_record(workspace, request, plan, facts) if request.record else None
    return _Session(workspace, request, plan, progress, order, record)


def _bare_record(
    workspace: Workspace, request: TimersRequest, plan: RoomPlan, facts: DeviceFacts
) -> TimerRecord:
    """The record without rows."""
    return TimerRecord(
        **subject_of(workspace, plan, facts, request.commit),
        hardware=facts.name,
        command=request.command,
        workloads=(),
    )


def _measure_all(
    session: _Session,
    jobs: list[Job],
    facts: DeviceFacts,
    make_pool: PoolFactory,
    run: Runner,
) -> str | None:
    """Every timer's number of each job. Returns why NCU gave none, None where it did."""
    if not jobs:
        return None
    device, root = torch_device(facts), session.workspace.root
    environment = worker_environment(device, root)
    axes = {row.uuid: row.axes for row in session.plan.rows}
    with hold_device(facts), tempfile.TemporaryDirectory(prefix="timers-") as scratch:
        if session.record is not None:  # another run may have written while this one waited
            session.record = replace(session.record, workloads=session.read_rows())
        counter = CallCounter(Path(scratch), environment, root, run)
        if counter.missing is None:
            environment = {**environment, CALLS_VARIABLE: scratch}
        command = worker_command("timer_calls:measure", 0, environment)
        with make_pool(device, root, command) as pool:
            for job in jobs:
                began = utc_now()
                cupti_us, graph_us = _time(pool, job)
                regime = session.request.regimes.get(job.uuid, "all")
                row = make_row(job.uuid, axes[job.uuid], regime, cupti_us, graph_us, began)
                session.keep(row)
                if counter.missing is None:
                    session.progress.note(f"{session.plan.room.name} {describe(row)}")
                if counter.gather(job.uuid):
                    _count(session, counter)
        _count(session, counter)
        return counter.missing


def _count(session: _Session, counter: CallCounter) -> None:
    """Ask NCU for the calls that have gathered, and keep what it says."""
    for uuid, found in counter.count().items():
        row = session.rows[uuid].with_ncu(found)
        session.keep(row)
        session.show(row)


def _time(pool: Pool, job: Job) -> tuple[float, float]:
    """CUPTI's and the graph's number in µs from a worker. Raises HarnessError where the solution
    fails, InfrastructureFailure where the machine does."""
    outcome = pool.run(job)
    answer: dict[str, Any] = outcome.evaluation or {}
    values = answer.get("values")
    if not isinstance(values, dict):
        verdict, detail = read_answer(outcome)
        kind = HarnessError if verdict == "FAILED" else InfrastructureFailure
        raise kind(f"{job.uuid}: not measured: {detail}")
    return float(values["cupti_us"]), float(values["graph_us"])
