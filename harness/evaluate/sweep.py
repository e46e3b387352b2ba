"""Runs plans: one verdict a workload, written down before the next one starts."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import dataset
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.dataset.manifest import read_manifest
from harness.devices import (
    DeviceFacts,
    describe_throttling,
    device_lock,
    read_facts,
    require_idle,
    sample_clocks,
    summarise_clocks,
    throttled,
)
from harness.devices.sources import ClockSample
from harness.errors import EnvironmentUnfit, ExitCode, UsageError
from harness.evaluate.plan import (
    Request,
    RoomPlan,
    describe_settings,
    make_plans,
    torch_device,
)
from harness.evaluate.pool import Pool, build_cache
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.evaluate.verdicts import (
    entry_of,
    outcome_of,
    read_environment,
    resume_key,
    utc_now,
    whole_seconds,
)
from harness.records import (
    COMMIT,
    RETRIED_STATUSES,
    UNKNOWN_COMMIT,
    DatasetIdentity,
    Protocol,
    RunRecord,
    TraceLedger,
    format_us,
    load,
    run_path,
    sole_writer,
    summarise,
    write_latest,
    write_run,
)
from harness.records import WorkloadRow as RecordedRow
from harness.roofline import floor_us, read_data
from harness.timing import require_timer

LOCK_WAIT_S = 5.0
PoolFactory = Callable[[str, Path], Pool]


@dataclass(frozen=True)
class RoomResult:
    """A finished room: an outcome for each of the plan's rows, in their order.

    started_at: when the oldest of its verdicts was begun, UTC. is_reused: all are from the ledger.
    """

    plan: RoomPlan
    outcomes: tuple[Outcome, ...]
    clocks: tuple[ClockSample, ...]
    started_at: str
    is_reused: bool

    @property
    def passed(self) -> int:
        return sum(outcome.status is Status.PASSED for outcome in self.outcomes)


def run_sweep(
    workspace: Workspace,
    request: Request,
    progress: SweepProgress,
    make_pool: PoolFactory = Pool,
    facts: DeviceFacts | None = None,
) -> ExitCode:
    """Judge what `request` asks for; print as it goes. Returns the exit code."""
    require_commit(request.commit)
    facts = facts or read_facts()
    if facts.uuid is not None:
        require_timer(request.timer or "cupti")
    elif request.timer is not None:
        raise UsageError(f"timer: {request.timer} measures a GPU, and none is visible")
    plans = make_plans(workspace, request, facts)
    require_writable(build_cache(), workspace.root / "traces")
    for plan in plans:
        _refuse_unrecordable(plan, request, facts)
        dataset.ensure_blobs(plan.dataset_root, plan.room, list(plan.rows))
    progress.note(f"device: {facts.name} ({facts.slug}), timer {plans[0].settings.timer}")
    results = []
    if facts.uuid is None:
        results = [
            _run_room(workspace, plan, request, facts, progress, make_pool) for plan in plans
        ]
    else:
        with device_lock(facts.uuid, LOCK_WAIT_S):
            require_idle(facts)
            for plan in plans:
                results.append(_run_room(workspace, plan, request, facts, progress, make_pool))
    progress.summary([_summary_row(result) for result in results], _closing_note(facts, results))
    return _exit_code(results)


def require_writable(*folders: Path) -> None:
    """Raise EnvironmentUnfit for a folder that cannot be made or written into."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise EnvironmentUnfit(
                f"{folder}: expected a folder that can be written, got {error}; free it, or set "
                "FIB_CACHE_PATH for the build cache"
            ) from error


def require_commit(commit: str | None) -> None:
    """Raise UsageError for what cannot be the name of a commit."""
    if commit is not None and not COMMIT.fullmatch(commit):
        raise UsageError(
            f"--commit: expected 7 to 40 hexadecimal digits, and -dirty where the tree differs, "
            f"got {commit!r}; `git rev-parse HEAD` prints them"
        )


def _refuse_unrecordable(plan: RoomPlan, request: Request, facts: DeviceFacts) -> None:
    if not request.record:
        return
    official = plan.room.evaluation
    settings = plan.settings
    same = all(
        getattr(settings, key) == getattr(official, key)
        for key in ("warmup_runs", "iterations", "trials", "atol", "rtol", "required_matched_ratio")
    )
    as_packed = request.route is None and request.only_trial is None
    if facts.uuid is None or not (same and as_packed and settings.timer == "cupti"):
        raise UsageError(
            f"--record keeps evidence: expected all workloads and trials of {plan.room.name}, as "
            "packed, with the official settings and the CUPTI timer on a GPU; leave out --record, "
            "or the options that change these"
        )
    if not plan.is_full:
        raise UsageError(
            f"--record keeps evidence: expected all official workloads of {plan.room.name} in "
            f"their order, got {len(plan.rows)} of {plan.dataset_root}; leave out --record, or ask "
            "for all workloads of a whole data set"
        )


def _run_room(
    workspace: Workspace,
    plan: RoomPlan,
    request: Request,
    facts: DeviceFacts,
    progress: SweepProgress,
    make_pool: PoolFactory,
) -> RoomResult:
    ledger = TraceLedger.of(workspace.root, facts.slug, plan.room.name)
    with (
        sole_writer(ledger.path, LOCK_WAIT_S),
        make_pool(torch_device(facts), workspace.root) as pool,
    ):
        result = _judge_rows(pool, plan, request, facts, progress, ledger)
    if any(throttled(result.clocks)):
        progress.note(f"{plan.room.name}: {describe_throttling(result.clocks)}")
    lost = any(outcome.status.value in RETRIED_STATUSES for outcome in result.outcomes)
    if request.record and lost:
        progress.note(f"{plan.room.name}: not recorded, incomplete; run again with --resume")
    elif request.record:
        path = _keep(workspace, result, facts, request.commit)
        progress.note(f"{plan.room.name}: recorded in {path.relative_to(workspace.root)}")
    return result


def _judge_rows(
    pool: Pool,
    plan: RoomPlan,
    request: Request,
    facts: DeviceFacts,
    progress: SweepProgress,
    ledger: TraceLedger,
) -> RoomResult:
    """A verdict on each row, the ledger's where --resume may keep it."""
    known = ledger.verdicts() if request.resume else {}
    environment = read_environment(facts)
    keys = [resume_key(plan, facts, environment, row) for row in plan.rows]
    reused = sum(key in known for key in keys)
    progress.room_started(plan.room.name, len(plan.rows), reused, plan.packed.name)
    progress.note(f"{plan.room.name}: {describe_settings(plan, request)}")
    outcomes, started_at, clocks = [], [], [sample_clocks(facts)]
    for key, row in zip(keys, plan.rows, strict=True):
        if key in known:
            entry = known[key]
            outcome = outcome_of(entry)
        else:
            progress.workload_started(row.uuid, plan.settings.timeout_s)
            begin = utc_now(timespec="microseconds")
            outcome = pool.run(plan.job(row, torch_device(facts), request), progress.stage)
            entry = entry_of(plan, row, facts, environment, outcome, begin)
            ledger.append(entry)
            clocks.append(sample_clocks(facts))
        outcomes.append(outcome)
        started_at.append(entry.started_at)
        progress.workload_finished(row.uuid, show_axes(row), outcome, key in known)
    return RoomResult(
        plan, tuple(outcomes), tuple(clocks), min(started_at), reused == len(plan.rows)
    )


def _keep(workspace: Workspace, result: RoomResult, facts: DeviceFacts, commit: str | None) -> Path:
    """Write the run and make it the latest. One that is only read again stays as it was kept."""
    record = _record_of(workspace, result, facts, commit)
    path = run_path(workspace.root, record)
    if result.is_reused and path.exists():
        record = load(path)
    else:
        write_run(record, workspace.root)
    write_latest(record, workspace.root)
    return path


def _record_of(
    workspace: Workspace, result: RoomResult, facts: DeviceFacts, commit: str | None
) -> RunRecord:
    plan = result.plan
    settings = plan.settings
    environment = read_environment(facts)
    del environment["driver"]
    return RunRecord(
        room=plan.room.name,
        definition=plan.room.definition,
        solution_name=plan.packed.name,
        solution_sha256=plan.packed.sha256,
        judge_sha256=plan.judge_sha256,
        commit=commit or read_commit(workspace.root),
        device=facts.slug,
        driver=facts.driver,
        libraries=environment,
        clocks=summarise_clocks(result.clocks),
        timer=settings.timer,
        protocol=Protocol(
            settings.warmup_runs,
            settings.iterations,
            settings.trials,
            settings.atol,
            settings.rtol,
            settings.required_matched_ratio,
        ),
        dataset=DatasetIdentity(dataset_name(workspace, plan), plan.dataset_sha256),
        seed=settings.seed,
        workloads=tuple(
            RecordedRow(
                uuid=row.uuid,
                axes=dict(row.axes),
                status=outcome.status.value,
                latency_us=outcome.latency_us,
                floor_us=floor_us(
                    plan.room.name,
                    row.axes,
                    read_data(plan.room.name, row.inputs, plan.dataset_root),
                    facts.slug,
                ),
                max_abs_error=outcome.max_abs_error,
                max_rel_error=outcome.max_rel_error,
                matched_ratio=outcome.matched_ratio,
            )
            for row, outcome in zip(plan.rows, result.outcomes, strict=True)
        ),
        measured_at=whole_seconds(result.started_at),
    )


def dataset_name(workspace: Workspace, plan: RoomPlan) -> str:
    """A manifest marks this project's own blobs, in a checkout or an export of it."""
    if read_manifest(plan.dataset_root) is not None:
        return f"{workspace.dataset_name} workloads, generated blobs"
    return workspace.dataset_name


def _summary_row(result: RoomResult) -> tuple[str, ...]:
    summary = summarise([outcome.latency_us for outcome in result.outcomes])
    figures = (summary.mean_us, summary.median_us, summary.p95_us) if summary else (None,) * 3
    plan = result.plan
    return (
        plan.room.name,
        f"{result.passed}/{len(plan.rows)}",
        *(format_us(figure) for figure in figures),
        plan.packed.name,
    )


def _closing_note(facts: DeviceFacts, results: list[RoomResult]) -> str:
    if facts.uuid is None:
        return "no GPU: the Triton interpreter ran the kernels; correctness only, no latency"
    return f"latencies: {results[0].plan.settings.timer} on {facts.name}, L2 cold, mean of trials"


def _exit_code(results: list[RoomResult]) -> ExitCode:
    statuses = {outcome.status for result in results for outcome in result.outcomes}
    if Status.INFRASTRUCTURE in statuses:
        return ExitCode.INCOMPLETE
    return ExitCode.OK if statuses == {Status.PASSED} else ExitCode.FAILED


def show_axes(row: WorkloadRow) -> str:
    return " ".join(f"{name}={size}" for name, size in row.axes.items())


def read_commit(root: Path) -> str:
    """The checkout's commit, with "-dirty" where the working tree differs."""
    try:
        head = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_COMMIT
    return head.stdout.strip()
