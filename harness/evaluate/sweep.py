"""Runs plans: one verdict a workload, written down as it arrives."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.dataset.manifest import read_manifest
from harness.devices import (
    DeviceFacts,
    describe_throttling,
    read_facts,
    summarise_clocks,
    throttled,
)
from harness.devices.sources import ClockSample
from harness.errors import EnvironmentUnfit, ExitCode, UsageError
from harness.evaluate.alone import LOCK_WAIT_S
from harness.evaluate.engine import Engine, LocalEngine, PoolFactory
from harness.evaluate.plan import (
    Request,
    RoomPlan,
    describe_settings,
    make_plans,
    torch_device,
)
from harness.evaluate.pool import Pool
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.evaluate.verdicts import (
    entry_of,
    outcome_of,
    resume_key,
    whole_seconds,
)
from harness.files import KEEPS_RESULTS, require_writable
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

# Of git's variables only these reach it: who tags, and how a remote is reached. The others, such as
# GIT_DIR or GIT_INDEX_FILE of a hook, would turn it to another repository or state.
_KEPT_VARIABLES = (
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_ASKPASS",
    "GIT_HTTP_",
    "GIT_PROXY_",
    "GIT_SSH",
    "GIT_SSL_",
    "GIT_TERMINAL_PROMPT",
)


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


@dataclass
class _Book:
    """A room while it is judged: its ledger, what is known and what is still to come."""

    plan: RoomPlan
    ledger: TraceLedger
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    started_at: list[str] = field(default_factory=list)
    clocks: list[ClockSample] = field(default_factory=list)
    reused: int = 0

    @property
    def rows(self) -> dict[str, WorkloadRow]:
        return {row.uuid: row for row in self.plan.rows}

    @property
    def missing(self) -> list[WorkloadRow]:
        return [row for row in self.plan.rows if row.uuid not in self.outcomes]

    def result(self) -> RoomResult:
        outcomes = tuple(self.outcomes[row.uuid] for row in self.plan.rows)
        is_reused = self.reused == len(self.plan.rows)
        return RoomResult(self.plan, outcomes, tuple(self.clocks), min(self.started_at), is_reused)


def run_sweep(
    workspace: Workspace,
    request: Request,
    progress: SweepProgress,
    make_pool: PoolFactory = Pool,
    facts: DeviceFacts | None = None,
) -> ExitCode:
    """Judge what `request` asks for on this machine; print as it goes. Returns the exit code."""
    engine = LocalEngine(workspace.root, facts or read_facts(), progress, make_pool)
    return sweep_on(engine, workspace, request, progress)


def sweep_on(
    engine: Engine, workspace: Workspace, request: Request, progress: SweepProgress
) -> ExitCode:
    """As run_sweep, wherever `engine` judges. Only this process writes the ledgers."""
    require_commit(request.commit)
    require_writable(workspace.root / "traces", advice=KEEPS_RESULTS)
    with engine, contextlib.ExitStack() as held:
        facts = engine.facts
        plans = make_plans(workspace, request, facts, engine.environment)
        if facts.uuid is None and request.timer is not None:
            raise EnvironmentUnfit(
                f"--timer {request.timer}: expected a GPU, got {engine.describe()}; leave it out: "
                "correctness is judged without one"
            )
        for plan in plans:
            _refuse_unrecordable(plan, request, facts)
        engine.prepare(plans)
        progress.note(f"device: {engine.describe()}, timer {plans[0].settings.timer}")
        books = {}
        for plan in plans:
            ledger = TraceLedger.of(workspace.root, facts.slug, plan.room.name)
            held.enter_context(sole_writer(ledger.path, LOCK_WAIT_S))
            books[plan.room.name] = _open(_Book(plan, ledger), engine, request, progress)
        results = [
            _finish(workspace, book, engine, request, progress)
            for book in _fill(books, engine, request, progress)
        ]
    order = [plan.room.name for plan in plans]
    results.sort(key=lambda result: order.index(result.plan.room.name))
    progress.summary([_summary_row(result) for result in results], _closing_note(facts, results))
    return _exit_code(results)


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


def _open(book: _Book, engine: Engine, request: Request, progress: SweepProgress) -> _Book:
    """Show the room, and take over what an earlier run judged where --resume may keep it."""
    plan = book.plan
    known = book.ledger.verdicts() if request.resume else {}
    keys = [resume_key(plan, engine.facts, engine.environment, row) for row in plan.rows]
    book.reused = sum(key in known for key in keys)
    progress.room_started(plan.room.name, len(plan.rows), book.reused, plan.packed.name)
    progress.note(f"{plan.room.name}: {describe_settings(plan, request)}")
    for key, row in zip(keys, plan.rows, strict=True):
        if key in known:
            book.outcomes[row.uuid] = outcome_of(known[key])
            book.started_at.append(known[key].started_at)
            progress.workload_finished(row.uuid, show_axes(row), book.outcomes[row.uuid], True)
    return book


def _fill(
    books: Mapping[str, _Book], engine: Engine, request: Request, progress: SweepProgress
) -> Iterator[_Book]:
    """Judge what is missing, write each verdict down, and give each room when it is complete."""
    jobs = [
        book.plan.job(row, torch_device(engine.facts), request)
        for book in books.values()
        for row in book.missing
    ]
    yield from (book for book in books.values() if not book.missing)
    with contextlib.closing(engine.judge(jobs)) as verdicts:
        for judged in verdicts:
            book, outcome = books[judged.job.room], judged.outcome
            row = book.rows[judged.job.uuid]
            entry = entry_of(book.plan, row, engine.facts, engine.environment, judged)
            book.ledger.append(entry)
            book.outcomes[row.uuid] = outcome
            book.started_at.append(judged.started_at)
            book.clocks += judged.clocks
            progress.focus(book.plan.room.name)
            progress.workload_finished(row.uuid, show_axes(row), outcome, False)
            if not book.missing:
                yield book


def _finish(
    workspace: Workspace, book: _Book, engine: Engine, request: Request, progress: SweepProgress
) -> RoomResult:
    """Say how a complete room went, and keep it where it is asked for."""
    result, room = book.result(), book.plan.room.name
    if any(throttled(result.clocks)):
        progress.note(f"{room}: {describe_throttling(result.clocks)}")
    lost = any(outcome.status.value in RETRIED_STATUSES for outcome in result.outcomes)
    if request.record and lost:
        progress.note(f"{room}: not recorded, incomplete; run again with --resume")
    elif request.record:
        path = _keep(workspace, result, engine, request.commit)
        progress.note(f"{room}: recorded in {path.relative_to(workspace.root)}")
    return result


def _keep(workspace: Workspace, result: RoomResult, engine: Engine, commit: str | None) -> Path:
    """Write the run and make it the latest. One that is only read again stays as it was kept."""
    record = _record_of(workspace, result, engine, commit)
    path = run_path(workspace.root, record)
    if result.is_reused and path.exists():
        record = load(path)
    else:
        write_run(record, workspace.root)
    write_latest(record, workspace.root)
    return path


def _record_of(
    workspace: Workspace, result: RoomResult, engine: Engine, commit: str | None
) -> RunRecord:
    plan, facts = result.plan, engine.facts
    settings = plan.settings
    environment = {name: of for name, of in engine.environment.items() if name != "driver"}
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
                    plan.room.definition,
                    row.axes,
                    read_data(plan.room.definition, row.inputs, plan.dataset_root),
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


def git_environment() -> dict[str, str]:
    """The environment without what would turn git to another repository than the folder's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_KEPT_VARIABLES)
    }


def read_commit(root: Path) -> str:
    """The checkout's commit, with "-dirty" where the working tree differs."""
    git = ["git", "-c", f"safe.directory={root.resolve()}"]  # its owner may be somebody else
    try:
        head = subprocess.run(
            [*git, "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            env=git_environment(),
        )
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_COMMIT
    return head.stdout.strip()
