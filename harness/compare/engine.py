"""Runs comparisons: all sides of a workload in turns on one GPU, written down before the next."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness import dataset
from harness.compare.analysis import Comparison, analyse
from harness.compare.display import (
    describe_failures,
    describe_missing,
    describe_room,
    describe_row,
    hint_without_peers,
)
from harness.compare.lanes import Lane, PoolFactory, open_lanes
from harness.compare.ledger import CompareEntry, CompareLedger
from harness.compare.plan import ComparePlan, CompareRequest, make_compare_plans
from harness.compare.record import (
    CONTROL,
    CompareRecord,
    CompareRow,
    Side,
    SideResult,
    write_compare,
)
from harness.compare.rounds import judge_sides, measure_sides
from harness.compare.sides import rooms_left_out
from harness.compare.statistics import SLOW, UNSURE
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.devices import (
    DeviceFacts,
    describe_throttling,
    other_users,
    read_facts,
    require_gpu,
    sample_clocks,
    summarise_clocks,
    throttled,
)
from harness.errors import ExitCode, InfrastructureFailure
from harness.evaluate.alone import LOCK_WAIT_S, hold_device
from harness.evaluate.plan import torch_device
from harness.evaluate.pool import Pool, build_caches
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Stage, Status
from harness.evaluate.sweep import dataset_name, read_commit, show_axes
from harness.evaluate.verdicts import utc_now, whole_seconds
from harness.files import KEEPS_RESULTS, require_writable
from harness.records import RETRIED_STATUSES, DatasetIdentity, sole_writer
from harness.roofline import floor_us, read_data
from harness.timing import require_timer

SETTLE_S, SETTLE_POLL_S = 3.0, 0.2
STRANGERS = "another process computed on the GPU; run again with --resume when it is idle"


@dataclass(frozen=True)
class RoomResult:
    """A finished room. comparisons: A against each other side; none where there is nobody to meet.

    distrust: why no word of this room counts, or None.
    """

    plan: ComparePlan
    comparisons: tuple[Comparison, ...] = ()
    distrust: str | None = None


def run_compare(
    workspace: Workspace,
    request: CompareRequest,
    progress: SweepProgress,
    make_pool: PoolFactory | None = None,
    facts: DeviceFacts | None = None,
) -> ExitCode:
    """Measure what `request` asks for; print as it goes. Returns the exit code.

    make_pool: only with one of its own does it run without a GPU. Raises HarnessError.
    """
    facts = facts or read_facts()
    plans = make_compare_plans(workspace, request, facts)
    if make_pool is None:
        require_gpu(facts, "compare: a comparison is made of latencies")
    if facts.uuid is not None:
        require_timer("cupti")
    require_writable(*build_caches())
    require_writable(workspace.root / "traces", advice=KEEPS_RESULTS)
    for plan in plans:
        if plan.can_run:
            dataset.ensure_blobs(plan.base.dataset_root, plan.base.room, list(plan.base.rows))
    progress.note(f"device: {facts.name} ({facts.slug}), timer {plans[0].base.settings.timer}")
    for room in rooms_left_out(workspace, request.a, request.b, request.rooms):
        progress.note(hint_without_peers(room))
    with hold_device(facts):
        results = [_run_room(workspace, plan, progress, make_pool or Pool) for plan in plans]
    return _exit_code(results, request, progress)


def has_strangers(facts: DeviceFacts) -> bool:
    """Whether anybody computes on the GPU now that our workers have ended.

    The driver may list a process for a moment after its end.
    """
    deadline = time.monotonic() + SETTLE_S
    while other_users(facts):
        if time.monotonic() >= deadline:
            return True
        time.sleep(SETTLE_POLL_S)
    return False


def _run_room(
    workspace: Workspace, plan: ComparePlan, progress: SweepProgress, make_pool: PoolFactory
) -> RoomResult:
    if not plan.can_run:
        progress.note(f"{plan.room}: open, nobody to compare with; nothing was measured")
        for line in describe_missing([one.side for one in plan.missing]):
            progress.note(f"  {line}")
        return RoomResult(plan)
    ledger = CompareLedger.of(workspace.root, plan.facts.slug, plan.room)
    with sole_writer(ledger.path, LOCK_WAIT_S):
        started_at = utc_now(timespec="microseconds")
        entries = _run_workloads(workspace, plan, ledger, progress, make_pool)
        distrust = STRANGERS if has_strangers(plan.facts) else None
        if distrust is not None:
            ledger.void(started_at, distrust)
    clocks = [sample for entry in entries for sample in entry.clocks]
    if any(throttled(clocks)):
        progress.note(f"{plan.room}: {describe_throttling(clocks)}")
    record = record_of(workspace, plan, entries)
    a = plan.sides[0].side.name
    comparisons = tuple(
        analyse(record, a, one.side.name, plan.request.margin) for one in plan.sides[1:]
    )
    if distrust is not None:
        comparisons = tuple(_withhold(comparison) for comparison in comparisons)
    for line in describe_room(comparisons):
        progress.note(line)
    if distrust is not None:
        progress.note(f"{plan.room}: every verdict is {UNSURE}: {distrust}")
    if _is_lost(record):
        progress.note(f"{plan.room}: incomplete; run again with --resume")
    if plan.request.record:
        _keep(workspace, record, distrust, progress)
    return RoomResult(plan, comparisons, distrust)


def _run_workloads(
    workspace: Workspace,
    plan: ComparePlan,
    ledger: CompareLedger,
    progress: SweepProgress,
    make_pool: PoolFactory,
) -> list[CompareEntry]:
    """An entry for each of the plan's rows, in their order; each is on the disk before the next."""
    rows, facts = plan.base.rows, plan.facts
    known = ledger.final() if plan.request.resume else {}
    reused = sum(plan.key(row) in known for row in rows)
    progress.room_started(plan.room, len(rows), reused, plan.sides[0].packed.name)
    for line in _introduce(plan):
        progress.note(f"  {line}")
    contents = {one.side.name: one.packed.sha256 for one in plan.running}
    entries = []
    with open_lanes(contents, torch_device(facts), workspace.root, make_pool) as lanes:
        for row in rows:
            entry = known.get(plan.key(row))
            is_reused = entry is not None
            if entry is None:
                progress.workload_started(row.uuid, plan.base.settings.timeout_s)
                entry = compare_row(plan, row, lanes, progress)
                ledger.append(entry)
            text = f"{show_axes(row)}  {describe_row(entry.results)}"
            progress.row_finished(row.uuid, text, describe_failures(entry.results), is_reused)
            entries.append(entry)
    return entries


def _introduce(plan: ComparePlan) -> list[str]:
    """What meets what: contents, versions, and what to know about a library's latencies."""
    lines = []
    first = plan.sides[0]
    for one in plan.sides:
        side = one.side
        parts = [f"{side.name}: {side.solution_name}"]
        if side.package is not None:
            parts += [f"{package} {version}" for package, version in one.versions.items()]
            parts.append(f"prepared outside the call: {side.prepared}")
        if side.stands_in is not None:
            parts.append(f"in place of the official baseline: {side.stands_in}")
        if side.caveat is not None:
            parts.append(side.caveat)
        if one is not first and one.packed.sha256 == first.packed.sha256:
            parts.append(f"the same content as {first.side.name}")
        lines.append(", ".join(parts))
    return lines


def compare_row(
    plan: ComparePlan, row: WorkloadRow, lanes: Sequence[Lane], progress: SweepProgress
) -> CompareEntry:
    """All sides of one workload: judged, then measured in turns."""
    started_at = utc_now(timespec="microseconds")
    outcomes = judge_sides(lanes, plan.jobs(row), progress.stage)
    progress.stage(Stage.TIMING)
    before = sample_clocks(plan.facts)
    results, logs = measure_sides(lanes, outcomes, plan.visits, plan.base.settings.timeout_s)
    after = sample_clocks(plan.facts)
    packed_now = {one.side.name for one in plan.sides if one.side.kind == "room"}
    return CompareEntry(
        key=plan.key(row),
        results={
            name: result if name in packed_now else _without_command(result)
            for name, result in results.items()
        },
        logs=logs,
        clocks=(before, after),
        started_at=started_at,
        ended_at=utc_now(timespec="microseconds"),
    )


def _without_command(result: SideResult) -> SideResult:
    """A failure without the command that repeats it: `evaluate` judges rooms as packed only."""
    return dataclasses.replace(result, detail=result.detail.partition("; repeat: ")[0])


def record_of(
    workspace: Workspace, plan: ComparePlan, entries: Sequence[CompareEntry]
) -> CompareRecord:
    """The record of a plan whose rows are all measured. Raises InfrastructureFailure for entries
    of other rows or sides."""
    base, facts = plan.base, plan.facts
    running = [one.side.name for one in plan.running]
    versions = {name: text for name, text in plan.environment.items() if name != "driver"}
    for row, entry in zip(base.rows, entries, strict=True):
        if (entry.key.uuid, list(entry.results)) != (row.uuid, running):
            raise InfrastructureFailure(
                f"{plan.room} {row.uuid}: expected results of {', '.join(running)}, got "
                f"{', '.join(entry.results)} of {entry.key.uuid}"
            )
    control = plan.running[-1]
    return CompareRecord(
        room=plan.room,
        definition=base.room.definition,
        device=facts.slug,
        hardware=facts.name,
        driver=facts.driver,
        libraries=versions,
        clocks=summarise_clocks([sample for entry in entries for sample in entry.clocks]),
        timer=base.settings.timer,
        commit=plan.request.commit or read_commit(workspace.root),
        judge_sha256=base.judge_sha256,
        dataset=DatasetIdentity(dataset_name(workspace, base), base.dataset_sha256),
        seed=base.settings.seed,
        protocol=plan.protocol,
        sides=tuple(_with_state(one.side, entries) for one in (*plan.sides, control)),
        workloads=tuple(
            CompareRow(row.uuid, dict(row.axes), _floor_us(plan, row), entry.results)
            for row, entry in zip(base.rows, entries, strict=True)
        ),
        measured_at=whole_seconds(min(entry.started_at for entry in entries)),
    )


def _with_state(side: Side, entries: Sequence[CompareEntry]) -> Side:
    """What became of a side: "failed" with the first failure where any workload did not pass."""
    if side.state == "missing":
        return side
    for entry in entries:
        result = entry.results[side.name]
        if result.status != Status.PASSED.value:
            reason = result.detail or result.status
            return dataclasses.replace(side, state="failed", reason=reason)
    return side


def _floor_us(plan: ComparePlan, row: WorkloadRow) -> float | None:
    definition = plan.base.room.definition
    data = read_data(definition, row.inputs, plan.base.dataset_root)
    return floor_us(definition, row.axes, data, plan.facts.slug)


def _withhold(comparison: Comparison) -> Comparison:
    """The same numbers, without a verdict on any of them."""
    return dataclasses.replace(
        comparison,
        rows=tuple(
            dataclasses.replace(row, word=UNSURE if row.word else None) for row in comparison.rows
        ),
        words={UNSURE: sum(comparison.words.values())},
        regimes=tuple(
            dataclasses.replace(regime, words={UNSURE: sum(regime.words.values())})
            for regime in comparison.regimes
        ),
    )


def _is_lost(record: CompareRecord) -> bool:
    """Whether the machine or the reference, not a side, failed somewhere."""
    results = (result for row in record.workloads for result in row.sides.values())
    return any(result.status in RETRIED_STATUSES for result in results)


def _keep(
    workspace: Workspace, record: CompareRecord, distrust: str | None, progress: SweepProgress
) -> None:
    if distrust is not None or _is_lost(record):
        what = "its verdicts are unsure" if distrust else "incomplete"
        progress.note(f"{record.room}: not recorded, {what}")
        return
    path = write_compare(record, workspace.root)
    progress.note(f"{record.room}: recorded in {path.relative_to(workspace.root)}")


def _exit_code(
    results: Sequence[RoomResult], request: CompareRequest, progress: SweepProgress
) -> ExitCode:
    measured = [result for result in results if result.comparisons]
    if any(r.distrust is not None or _is_lost(r.comparisons[0].record) for r in measured):
        return ExitCode.INCOMPLETE
    complaints = [text for result in measured for text in _complain(result)]
    for text in complaints:
        progress.note(text)
    if complaints and not request.exit_zero:
        return ExitCode.FAILED
    alone = [result for result in results if not _has_met(result)]
    for result in alone:
        progress.note(f"{result.plan.room}: nothing was compared, no B passed a workload")
    return ExitCode.TOOL_MISSING if alone else ExitCode.OK


def _has_met(result: RoomResult) -> bool:
    """Whether any B of a room has a latency."""
    rows = (row for comparison in result.comparisons for row in comparison.rows)
    return any(row.b_us is not None for row in rows)


def _complain(result: RoomResult) -> list[str]:
    """What is wrong with side A: workloads it fails, in either process, or is slower in."""
    room, complaints = result.plan.room, []
    record = result.comparisons[0].record
    for side in (record.sides[0], record.side(CONTROL)):
        if side is not None and side.state == "failed":
            complaints.append(f"{room}: {side.name} failed: {side.reason}")
    for comparison in result.comparisons:
        slow = [row.uuid[:8] for row in comparison.rows if row.word == SLOW]
        if slow:
            complaints.append(
                f"{room}: {comparison.a} is {SLOW} against {comparison.b} in {len(slow)} "
                f"workload{'s' * (len(slow) > 1)}, the first {slow[0]}"
            )
    return complaints
