"""Runs replays: batches of seeded trials in a worker, each written down before the next."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import dataset
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.devices import DeviceFacts, read_facts
from harness.errors import ExitCode, UsageError
from harness.evaluate.alone import LOCK_WAIT_S, hold_device
from harness.evaluate.plan import Request, RoomPlan, make_plans, torch_device
from harness.evaluate.pool import Pool, WorkerCommand, build_caches, worker_environment
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job, Outcome, Stage, Status, trial_seed
from harness.evaluate.sweep import dataset_name, read_commit, require_commit, show_axes
from harness.evaluate.verdicts import read_environment, utc_now, whole_seconds
from harness.files import KEEPS_RESULTS, require_writable
from harness.records import DatasetIdentity, sole_writer
from harness.replay.batch import (
    DETAIL_CHARACTERS,
    BatchResult,
    Mismatch,
    batch_job,
    drawn_inputs,
    split,
)
from harness.replay.display import (
    describe_mismatch,
    describe_notes,
    describe_progress,
    describe_record,
    describe_row,
    describe_single,
)
from harness.replay.ledger import ReplayEntry, ReplayKey, ReplayLedger, choose_entries
from harness.replay.record import ReplayRecord, ReplayRow, add_replay, summarise_row
from harness.replay.suspicion import suspicion

BATCH_TRIALS = 100
MAX_TRIALS = 1_000_000  # of a workload: their margins are held in memory
PROGRESS_S = 10.0
MAX_CRASHES = 20  # of a workload: each costs a worker, which takes seconds to start
SHOWN_MISMATCHES = 5
OUT_OF_TIME = "the time limit passed"
REPLAYER_SOURCES = (
    *("replay/batch.py", "replay/margins.py", "replay/trials.py", "replay/worker.py"),
    *("evaluate/answering.py", "evaluate/official_rule.py"),
)

PoolFactory = Callable[[str, Path], Pool]


@dataclass(frozen=True)
class ReplayRequest:
    """What the user asked for. only_trial: that one alone, without ledger or record. limit_s:
    seconds after which no further batch is begun."""

    room: str
    workloads: tuple[str, ...] = ()
    trials: int = BATCH_TRIALS
    seed: int = 0
    only_trial: int | None = None
    resume: bool = False
    record: bool = False
    exit_zero: bool = False
    limit_s: float | None = None
    dataset: str | None = None
    commit: str | None = None


@dataclass
class Replay:
    """A replay under way. stopped: why a workload has no further trials, by UUID, and whether
    that is the solution's doing."""

    plan: RoomPlan
    request: ReplayRequest
    facts: DeviceFacts
    environment: dict[str, str]
    pool: Pool
    progress: SweepProgress
    deadline: float
    stopped: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def key(self, row: WorkloadRow) -> ReplayKey:
        return ReplayKey(
            self.plan.packed.sha256,
            self.plan.judge_sha256,
            replayer_sha256(),
            self.plan.dataset_sha256,
            tuple(sorted(self.environment.items())),
            self.facts.slug,
            self.request.seed,
            row.uuid,
        )

    def job(self, row: WorkloadRow) -> Job:
        return self.plan.job(row, torch_device(self.facts), Request(rooms=(self.request.room,)))


def replay_pool(device: str, root: Path) -> Pool:
    """A pool whose worker answers batches of trials."""
    argv = (sys.executable, "-m", "harness.replay.worker")
    return Pool(device, root, WorkerCommand(argv, worker_environment(device, root)))


def replayer_sha256() -> str:
    """Identity of the code that runs trials, beyond the judge's."""
    digest = hashlib.sha256()
    for name in REPLAYER_SOURCES:
        digest.update(Path(__file__).parents[1].joinpath(name).read_bytes())
    return digest.hexdigest()


def run_replay(
    workspace: Workspace,
    request: ReplayRequest,
    progress: SweepProgress,
    make_pool: PoolFactory = replay_pool,
    facts: DeviceFacts | None = None,
) -> ExitCode:
    """Run the trials that `request` asks for; print as it goes. Returns the exit code."""
    require_commit(request.commit)
    facts = facts or read_facts()
    _refuse_contradictions(request, facts)
    deadline = time.monotonic() + (math.inf if request.limit_s is None else request.limit_s)
    plan = make_plans(
        workspace,
        Request(
            rooms=(request.room,),
            workloads=request.workloads,
            seed=request.seed,
            dataset=request.dataset,
        ),
        facts,
    )[0]
    require_writable(*build_caches())
    require_writable(workspace.root / "traces", advice=KEEPS_RESULTS)
    dataset.ensure_blobs(plan.dataset_root, plan.room, list(plan.rows))
    progress.note(f"device: {facts.name} ({facts.slug}), seed {request.seed}")
    with hold_device(facts), make_pool(torch_device(facts), workspace.root) as pool:
        environment = read_environment(facts)
        replay = Replay(plan, request, facts, environment, pool, progress, deadline)
        if request.only_trial is not None:
            return _run_alone(replay, request.only_trial)
        ledger = ReplayLedger.of(workspace.root, facts.slug, plan.room.name)
        with sole_writer(ledger.path, LOCK_WAIT_S):
            rows, started_at = _run_workloads(replay, ledger)
    record = _record_of(workspace, replay, rows, started_at)
    _conclude(workspace, replay, record)
    return _exit_code(replay, record)


def replay_solution(
    workspace: Workspace,
    plan: RoomPlan,
    request: ReplayRequest,
    facts: DeviceFacts,
    progress: SweepProgress,
    make_pool: PoolFactory = replay_pool,
) -> ReplayRecord:
    """Trials of what `plan` packs, on a GPU that the caller holds; kept in the ledger alone."""
    with make_pool(torch_device(facts), workspace.root) as pool:
        replay = Replay(plan, request, facts, read_environment(facts), pool, progress, math.inf)
        ledger = ReplayLedger.of(workspace.root, facts.slug, plan.room.name)
        with sole_writer(ledger.path, LOCK_WAIT_S):
            rows, started_at = _run_workloads(replay, ledger)
    return _record_of(workspace, replay, rows, started_at)


def _refuse_contradictions(request: ReplayRequest, facts: DeviceFacts) -> None:
    if request.only_trial is not None and (request.record or request.resume):
        raise UsageError("--trial runs one trial alone: expected no --record and no --resume")
    if request.limit_s is not None and not request.limit_s >= 0.0:  # nor NaN
        raise UsageError(f"--limit-s: expected seconds of at least 0, got {request.limit_s}")
    if request.record and facts.uuid is None:
        raise UsageError("--record keeps evidence: expected a GPU, got none; leave it out")


def _run_workloads(replay: Replay, ledger: ReplayLedger) -> tuple[tuple[ReplayRow, ...], str]:
    """A row for each workload of the plan, and when the oldest of their batches began."""
    plan, trials = replay.plan, replay.request.trials
    known = ledger.entries() if replay.request.resume else {}
    replay.progress.room_started(plan.room.name, len(plan.rows), 0, plan.packed.name)
    definition = json.loads(plan.definition)
    rows, started_at = [], [utc_now(timespec="microseconds")]
    for row in plan.rows:
        kept, gaps = choose_entries(known.get(replay.key(row), ()), trials)
        entries = kept + _run_gaps(replay, ledger, row, gaps, kept)
        entries.sort(key=lambda entry: entry.first)
        started_at += [entry.started_at for entry in entries]
        reason = replay.stopped.get(row.uuid)
        found = summarise_row(
            row.uuid,
            row.axes,
            drawn_inputs(definition, plan.official_workload(row)),
            trials,
            [entry.result for entry in entries],
            reason[0] if reason else None,
        )
        text = f"{show_axes(row)}  {describe_row(found, plan.room.evaluation.trials)}"
        replay.progress.row_finished(row.uuid, text, describe_notes(found), not gaps)
        rows.append(found)
    return tuple(rows), min(started_at)


def _run_gaps(
    replay: Replay,
    ledger: ReplayLedger,
    row: WorkloadRow,
    gaps: list[range],
    kept: list[ReplayEntry],
) -> list[ReplayEntry]:
    """The trials that are missing, batch after batch, until one of them cannot go on."""
    job, key = replay.job(row), replay.key(row)
    batches = split(gaps, BATCH_TRIALS)
    remainders: deque[range] = deque()
    entries: list[ReplayEntry] = []
    meter = _Meter(replay, row, sum(entry.result.done for entry in kept))
    crashes = 0
    while batch := remainders.popleft() if remainders else next(batches, None):
        if crashes == MAX_CRASHES:
            replay.stopped[row.uuid] = f"{crashes} trials ended the worker", True
            break
        if time.monotonic() >= replay.deadline:
            replay.stopped[row.uuid] = OUT_OF_TIME, False
            break
        begin = utc_now(timespec="microseconds")
        outcome, begun = _run_batch(replay.pool, job, batch, meter.show)
        first, result = batch.start, _result_of(outcome)
        if result is not None:
            rest = [range(first + result.done, batch.stop)]
        elif begun and outcome.status in (Status.RUNTIME_ERROR, Status.TIMEOUT):
            crashes += 1
            first = batch.start + begun - 1
            result = BatchResult(1, (_crash(replay, row, first, outcome),))
            rest = [range(batch.start, first), range(first + 1, batch.stop)]
        else:
            is_own = outcome.status not in (Status.INFRASTRUCTURE, Status.REFERENCE_ERROR)
            reason = f"{outcome.status.value}: {outcome.detail}"
            replay.stopped[row.uuid] = reason, is_own
            break
        entry = ReplayEntry(key, first, result, begin, utc_now(timespec="microseconds"))
        ledger.append(entry)
        entries.append(entry)
        meter.count(result)
        remainders.extendleft(part for part in reversed(rest) if part)
    return entries


def _run_batch(
    pool: Pool, job: Job, trials: range, show: Callable[[int], None] = lambda finished: None
) -> tuple[Outcome, int]:
    """What came back, and how many of the trials were begun."""
    begun = 0

    def on_stage(stage: Stage) -> None:
        nonlocal begun
        if stage is Stage.INPUTS:  # the batch begins, perhaps again in a fresh worker
            begun = 0
        elif stage is Stage.REFERENCE:
            if begun:
                show(begun)
            begun += 1

    outcome = pool.run(batch_job(job, trials.start, len(trials)), on_stage)
    return outcome, begun


def _result_of(outcome: Outcome) -> BatchResult | None:
    if outcome.status is not Status.PASSED or outcome.evaluation is None:
        return None
    return BatchResult.from_json(outcome.evaluation, "the worker's answer")


def _crash(replay: Replay, row: WorkloadRow, trial: int, outcome: Outcome) -> Mismatch:
    """A trial that the worker did not survive."""
    seed = trial_seed(replay.request.seed, row.uuid, trial)
    detail = outcome.detail[:DETAIL_CHARACTERS]
    return Mismatch(trial, seed, outcome.status.value, None, None, detail)


class _Meter:
    """Shows how far a workload is, every PROGRESS_S seconds, and its first mismatches."""

    def __init__(self, replay: Replay, row: WorkloadRow, done: int) -> None:
        self._replay, self._row = replay, row
        self._done, self._found, self._new = done, 0, 0
        self._begin = self._shown = time.monotonic()

    def count(self, result: BatchResult) -> None:
        request, note = self._replay.request, self._replay.progress.note
        for mismatch in result.mismatches[: max(0, SHOWN_MISMATCHES - self._found)]:
            note(f"  {describe_mismatch(request.room, self._row.uuid, request.seed, mismatch)}")
        if self._found <= SHOWN_MISMATCHES < self._found + len(result.mismatches):
            note(f"  {self._row.uuid[:8]} more wrong trials follow; they are counted, not shown")
        self._found += len(result.mismatches)
        self._done, self._new = self._done + result.done, self._new + result.done
        self.show(0)

    def show(self, finished: int) -> None:
        """`finished`: trials of a batch under way, whose verdicts come at its end."""
        now, trials, done = time.monotonic(), self._replay.request.trials, self._done + finished
        if now - self._shown >= PROGRESS_S and done < trials:
            self._shown = now
            speed = (self._new + finished) / (now - self._begin)
            found = None if finished else self._found
            text = describe_progress(self._row.uuid, done, trials, found, speed)
            self._replay.progress.note(text)


def _run_alone(replay: Replay, trial: int) -> ExitCode:
    """One trial of each chosen workload, shown and not kept."""
    request, codes = replay.request, [ExitCode.OK]
    for row in replay.plan.rows:
        outcome, begun = _run_batch(replay.pool, replay.job(row), range(trial, trial + 1))
        result = _result_of(outcome)
        if result is None and begun and outcome.status in (Status.RUNTIME_ERROR, Status.TIMEOUT):
            result = BatchResult(1, (_crash(replay, row, trial, outcome),))
        if result is None:
            replay.progress.note(f"{row.uuid[:8]} {outcome.status.value}: {outcome.detail}")
            is_lost = outcome.status in (Status.INFRASTRUCTURE, Status.REFERENCE_ERROR)
            codes.append(ExitCode.INCOMPLETE if is_lost else ExitCode.FAILED)
        elif result.mismatches:
            found = result.mismatches[0]
            replay.progress.note(describe_mismatch(request.room, row.uuid, request.seed, found))
            codes.append(ExitCode.FAILED)
        else:
            seed = trial_seed(request.seed, row.uuid, trial)
            replay.progress.note(describe_single(row.uuid, trial, seed, result))
    code = max(codes)
    return ExitCode.OK if request.exit_zero and code is ExitCode.FAILED else code


def _record_of(
    workspace: Workspace, replay: Replay, rows: tuple[ReplayRow, ...], started_at: str
) -> ReplayRecord:
    plan, facts = replay.plan, replay.facts
    libraries = {name: text for name, text in replay.environment.items() if name != "driver"}
    evaluation = plan.room.evaluation
    return ReplayRecord(
        room=plan.room.name,
        definition=plan.room.definition,
        device=facts.slug,
        hardware=facts.name,
        driver=facts.driver,
        libraries=libraries,
        commit=replay.request.commit or read_commit(workspace.root),
        solution_name=plan.packed.name,
        solution_sha256=plan.packed.sha256,
        judge_sha256=plan.judge_sha256,
        dataset=DatasetIdentity(dataset_name(workspace, plan), plan.dataset_sha256),
        seed=replay.request.seed,
        official_trials=evaluation.trials,
        atol=evaluation.atol,
        rtol=evaluation.rtol,
        required_matched_ratio=evaluation.required_matched_ratio,
        total=len(dataset.read_workloads(plan.dataset_root, plan.room)),
        workloads=rows,
        measured_at=whole_seconds(started_at),
    )


def _conclude(workspace: Workspace, replay: Replay, record: ReplayRecord) -> None:
    note = replay.progress.note
    for line in describe_record(record):
        note(line)
    problem = suspicion(record)
    if problem is not None:
        note(f"{record.room}: suspicious: {problem}")
    if replay.request.record:
        rows = dataset.read_workloads(replay.plan.dataset_root, replay.plan.room)
        path, kept = add_replay(record, workspace.root, [row.uuid for row in rows])
        also = f"; workloads kept from before: {kept}" if kept else ""
        note(f"{record.room}: recorded in {path.relative_to(workspace.root)}{also}")


def _exit_code(replay: Replay, record: ReplayRecord) -> ExitCode:
    """Incomplete before wrong, as in `evaluate`: what is missing might be worse."""
    if any(not is_own for _, is_own in replay.stopped.values()):
        return ExitCode.INCOMPLETE
    failed = record.mismatches > 0 or bool(replay.stopped)
    return ExitCode.FAILED if failed and not replay.request.exit_zero else ExitCode.OK
