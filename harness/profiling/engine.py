"""Runs profiles: a workload after the other, each kept before the next."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness import dataset, roofline
from harness.audit.engine import PoolFactory, jobs_of, make_ready, plan_target
from harness.audit.sanitizers import Runner, run_process
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.dataset.selection import parse_spec
from harness.devices import DeviceFacts, read_facts, require_gpu
from harness.errors import ExitCode, HarnessError, ToolMissing, UsageError
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import RoomPlan, torch_device
from harness.evaluate.pool import Pool
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job, Outcome, Status
from harness.evaluate.sweep import dataset_name, read_commit, require_commit
from harness.evaluate.verdicts import read_environment, utc_now
from harness.files import write_atomically
from harness.ncu import LaunchMetrics, NcuDenied, read_csv
from harness.profiling.collecting import (
    Counted,
    Counters,
    measure_latency,
    open_pools,
    read_shares,
)
from harness.profiling.display import describe_notes, describe_row
from harness.profiling.record import (
    DeviceLimits,
    ProfileRecord,
    ProfileRow,
    complete,
    find_profile,
    merge,
    write_profile,
)
from harness.profiling.representatives import describe_regime, main_regimes, representative
from harness.profiling.shares import KernelShare
from harness.records import HASH_CHARACTERS, DatasetIdentity, latest
from harness.roofline import CEILINGS, Floor
from harness.timing import require_timer

REGIME = "regime"  # of --workloads: the representative of each
TOOLS = ("torch", "ncu", "both")
NOT_ASKED = "not asked for"
# The gravest decides: what is missing might be worse than what failed, as in `evaluate`.
_GRAVITY = (ExitCode.OK, ExitCode.TOOL_MISSING, ExitCode.FAILED, ExitCode.INCOMPLETE)
_LOST = (Status.INFRASTRUCTURE, Status.REFERENCE_ERROR, Status.INVALID_REFERENCE)


@dataclass(frozen=True)
class ProfileRequest:
    """What the user asked for. No workloads: the representative of each regime. device: the slug
    that an imported table belongs to; None: this machine's."""

    room: str
    workloads: tuple[str, ...] = ()
    tool: str = "both"
    record: bool = False
    imported: Path | None = None
    device: str | None = None
    dataset: str | None = None
    commit: str | None = None


@dataclass
class Profiling:
    """A run under way. official: all workloads of the room. codes: of finished workloads."""

    workspace: Workspace
    request: ProfileRequest
    plan: RoomPlan
    facts: DeviceFacts
    progress: SweepProgress
    environment: dict[str, str]
    official: tuple[WorkloadRow, ...]
    codes: list[ExitCode] = field(default_factory=list)
    commit: str = ""

    @property
    def limits(self) -> DeviceLimits:
        ceilings = CEILINGS.get(self.facts.slug)
        return DeviceLimits(ceilings.launch_us if ceilings else None, self.facts.sm_count)

    def keep(self, row: ProfileRow) -> None:
        """Show a row and, where asked, put it into the room's record."""
        record = self._merged(row)
        merged = next(one for one in record.workloads if one.uuid == row.uuid)
        self.progress.note(f"{self.plan.room.name} {describe_row(merged)}")
        for text in describe_notes(merged):
            self.progress.note(f"    {text}")
        if self.request.record:
            path = write_profile(record, self.workspace.root)
            self.progress.note(f"    recorded in {path.relative_to(self.workspace.root)}")

    def _merged(self, row: ProfileRow) -> ProfileRecord:
        plan, facts = self.plan, self.facts
        record = ProfileRecord(
            room=plan.room.name,
            definition=plan.room.definition,
            device=facts.slug,
            hardware=facts.name,
            driver=facts.driver,
            libraries={name: text for name, text in self.environment.items() if name != "driver"},
            commit=self.commit,
            solution_name=plan.packed.name,
            solution_sha256=plan.packed.sha256,
            dataset=DatasetIdentity(dataset_name(self.workspace, plan), plan.dataset_sha256),
            workloads=(row,),
        )
        old = find_profile(self.workspace.root, facts.slug, plan.room.name)
        order = [one.uuid for one in self.official]
        return merge(old, record, order, self.limits) if self.request.record else record


class Found(NamedTuple):
    """What one workload gave; see ProfileRow."""

    latency_us: float | None
    shares: tuple[KernelShare, ...] | None
    no_shares: str | None
    launches: tuple[LaunchMetrics, ...] | None
    no_launches: str | None


def run_profile(
    workspace: Workspace,
    request: ProfileRequest,
    progress: SweepProgress,
    facts: DeviceFacts | None = None,
    make_pool: PoolFactory = Pool,
    run: Runner = run_process,
) -> ExitCode:
    """Profile each workload; print and, where asked, keep each. Returns the exit code.

    1: a workload fails its judge; 4: NCU is not installed or may not read the counters; 6: a
    profiler gave nothing. Raises EnvironmentUnfit without a GPU, unless a table is imported.
    """
    require_commit(request.commit)
    facts = facts or read_facts()
    if request.imported is not None:
        named = _named_device(request, facts)
        return _import(workspace, request, request.imported, progress, named)
    if request.device is not None:
        raise UsageError("--device says whose an imported table is; expected --import with it")
    profiling = _begin(workspace, request, progress, facts)
    plan = profiling.plan
    require_gpu(facts, "profile", "--import reads a table made elsewhere")
    require_timer("cupti")
    counters = None if request.tool == "torch" else Counters(workspace.root, facts, run)
    if request.tool == "ncu" and counters is not None and counters.missing is not None:
        raise ToolMissing(counters.missing)
    make_ready(plan)
    progress.note(
        f"{plan.room.name}: {len(plan.rows)} workloads, solution {plan.packed.name}, device "
        f"{facts.name}"
    )
    with hold_device(facts), tempfile.TemporaryDirectory(prefix="profile-") as scratch:
        call_file = Path(scratch) / "call.pt"
        with open_pools(workspace.root, torch_device(facts), call_file, make_pool) as pools:
            for job, row in zip(jobs_of(plan, facts), plan.rows, strict=True):
                if request.tool == "ncu" and counters is not None and counters.missing:
                    break
                _profile(profiling, job, row, pools, counters, call_file)
    if counters is not None and counters.missing is not None:
        progress.note(counters.missing)
        profiling.codes.append(ExitCode.TOOL_MISSING)
    return max(profiling.codes, key=_GRAVITY.index, default=ExitCode.OK)


def choose_workloads(
    workspace: Workspace, request: ProfileRequest, device: str
) -> tuple[tuple[str, ...], tuple[WorkloadRow, ...]]:
    """Words that plan_target understands, with each regime's representative for REGIME, and all
    workloads of the room. Representatives go by the latest sweep on the device."""
    room = workspace.room(request.room)
    rows = tuple(dataset.read_workloads(dataset.locate(workspace, request.dataset), room))
    words = parse_spec(request.workloads or (REGIME,))
    if REGIME not in words:
        return words, rows
    record = latest(workspace.root, device, room.name)
    measured = record.workloads if record else ()
    latencies_us = {row.uuid: row.latency_us for row in measured if row.latency_us is not None}
    chosen = [representative(regime, latencies_us) for regime in main_regimes(rows)]
    return (*(word for word in words if word != REGIME), *chosen), rows


def _begin(
    workspace: Workspace, request: ProfileRequest, progress: SweepProgress, facts: DeviceFacts
) -> Profiling:
    if request.tool not in TOOLS:
        raise UsageError(f"--tool: expected one of {', '.join(TOOLS)}, got {request.tool!r}")
    room = workspace.room(request.room)
    words, official = choose_workloads(workspace, request, facts.slug)
    plan = plan_target(workspace, room.name, words, request.dataset, facts)
    return Profiling(
        workspace=workspace,
        request=request,
        plan=plan,
        facts=facts,
        progress=progress,
        # Libraries of this machine say nothing of a table made elsewhere.
        environment={} if request.imported else read_environment(facts),
        official=official,
        commit=request.commit or read_commit(workspace.root),
    )


def _profile(
    profiling: Profiling,
    job: Job,
    row: WorkloadRow,
    pools: tuple[Pool, Pool],
    counters: Counters | None,
    call_file: Path,
) -> None:
    """One workload by every tool; what one of them found is kept where another fails."""
    judging, tracing = pools
    tool = profiling.request.tool
    label = f"{profiling.plan.room.name} {row.uuid[:8]}"
    began = utc_now()
    latency_us, failed = measure_latency(judging, job)
    if failed is not None:
        _give_up(profiling, label, failed)
        return
    call_file.unlink(missing_ok=True)
    outcome = tracing.run(job)
    if not call_file.exists():  # it failed before its first traced call
        _give_up(profiling, label, outcome)
        return
    shares, no_shares = (None, NOT_ASKED) if tool == "ncu" else read_shares(outcome)
    counted = Counted(None, NOT_ASKED) if counters is None else counters.count(call_file)
    if counters is not None and counted.launches is None and counters.missing is None:
        profiling.codes.append(ExitCode.INCOMPLETE)
    if shares is None and tool != "ncu":
        profiling.codes.append(ExitCode.INCOMPLETE)
    if shares is None and counted.launches is None:
        profiling.progress.note(f"{label} no profile: {no_shares}; {counted.reason}")
        return
    if counted.launches is not None:
        write_atomically(table_path(profiling, row.uuid), counted.table)
    found = Found(latency_us, shares, no_shares, counted.launches, counted.reason)
    profiling.keep(_row_of(profiling, row, found, began))


def _give_up(profiling: Profiling, label: str, outcome: Outcome) -> None:
    is_lost = outcome.status in _LOST
    profiling.codes.append(ExitCode.INCOMPLETE if is_lost else ExitCode.FAILED)
    profiling.progress.note(f"{label} {outcome.status.value}: {outcome.detail}")


def table_path(profiling: Profiling, uuid: str) -> Path:
    """Where NCU's table of a workload stays, for --import and for whoever wants the rest of it."""
    plan = profiling.plan
    name = f"{plan.room.name}-{uuid}-{plan.packed.sha256[:HASH_CHARACTERS]}.ncu.csv"
    return profiling.workspace.root / "traces" / profiling.facts.slug / "profiles" / name


def _named_device(request: ProfileRequest, facts: DeviceFacts) -> DeviceFacts:
    """Whose an imported table is. Raises UsageError where nobody says."""
    if request.device is None and facts.uuid is None:
        raise UsageError("--import: no GPU here; expected --device SLUG, the table's")
    if request.device in (None, facts.slug):
        return facts
    return DeviceFacts(str(request.device), str(request.device))


def _import(
    workspace: Workspace,
    request: ProfileRequest,
    path: Path,
    progress: SweepProgress,
    facts: DeviceFacts,
) -> ExitCode:
    """Take one workload's counters from a table made elsewhere, of the room as it packs now."""
    try:
        launches = read_csv(path.read_text(encoding="utf-8", errors="replace"))
    except NcuDenied:
        raise
    except HarnessError as error:
        raise UsageError(f"{path}: {error}") from error
    profiling = _begin(workspace, request, progress, facts)
    rows = profiling.plan.rows
    if len(rows) != 1:
        raise UsageError(
            f"--import: a table is of one workload; expected --workloads UUID, got {len(rows)}"
        )
    make_ready(profiling.plan)
    latency_us = _known_latencies_us(profiling).get(rows[0].uuid)
    began = utc_now()
    found = Found(latency_us, None, NOT_ASKED, launches, None)
    profiling.keep(_row_of(profiling, rows[0], found, began))
    return ExitCode.OK


def _known_latencies_us(profiling: Profiling) -> Mapping[str, float]:
    """Of the latest sweep, where it measured this very content."""
    record = latest(profiling.workspace.root, profiling.facts.slug, profiling.plan.room.name)
    if record is None or record.solution_sha256 != profiling.plan.packed.sha256:
        return {}
    return {row.uuid: row.latency_us for row in record.workloads if row.latency_us is not None}


def _row_of(profiling: Profiling, row: WorkloadRow, found: Found, measured_at: str) -> ProfileRow:
    regime = next(one for one in main_regimes(profiling.official) if row.uuid in one.uuids)
    floor = _floor_of(profiling, row)
    bare = ProfileRow(
        uuid=row.uuid,
        axes=row.axes,
        regime=describe_regime(regime),
        regime_workloads=len(regime.uuids),
        latency_us=found.latency_us,
        floor_us=floor.latency_us if floor else None,
        roof=floor.roof if floor else None,
        shares=found.shares,
        no_shares=found.no_shares,
        launches=found.launches,
        no_launches=found.no_launches,
        dominant="",
        dominant_share=None,
        kind=None,
        limiters=None,
        reason="",
        measured_at=measured_at,
    )
    return complete(bare, profiling.limits)


def _floor_of(profiling: Profiling, row: WorkloadRow) -> Floor | None:
    ceilings = CEILINGS.get(profiling.facts.slug)
    definition = profiling.plan.room.definition
    if ceilings is None or not roofline.is_counted(definition):
        return None
    data = roofline.read_data(definition, row.inputs, profiling.plan.dataset_root)
    return roofline.find_floor(roofline.count_work(definition, row.axes, data), ceilings)
