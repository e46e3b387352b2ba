"""From a request to jobs: which sides meet on which workloads, how often, and what is reused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from harness import dataset
from harness.compare.ledger import CompareKey
from harness.compare.record import CONTROL, MIN_ROUNDS, CompareProtocol, CompareRecord, Side
from harness.compare.rounds import (
    SLOW_CALL_US,
    SLOW_ITERATIONS,
    SLOW_ROUNDS,
    SLOW_TURNS,
    SLOW_WARMUP_RUNS,
    Visits,
)
from harness.compare.sides import (
    OURS,
    PackedSide,
    choose_rooms,
    control_of,
    pack_sides,
    read_word,
)
from harness.compare.statistics import DEFAULT_MARGIN, DEFAULT_ROUNDS
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.devices import DeviceFacts
from harness.errors import UsageError
from harness.evaluate.plan import Request, RoomPlan, choose_workloads, plan_room, torch_device
from harness.evaluate.protocol import Job
from harness.evaluate.sweep import require_commit
from harness.evaluate.verdicts import read_environment
from harness.records import official_uuids, settings_sha256

DEFAULT_ITERATIONS = 10
MIN_RECORD_ROUNDS = 6  # of fewer an interval says next to nothing
WARMUP_RUNS = 2  # beside the one call that every turn begins with; the L2 is cold in all of them


@dataclass(frozen=True)
class CompareRequest:
    """What the user asked for. a, b: words that `sides.read_word` takes. No rooms: those that a
    side belongs to, else all. No workloads: all. trials: None for the official number. rounds:
    None for the first multiple of the number of processes from DEFAULT_ROUNDS on, so that each
    stands at each place equally often."""

    a: str
    b: str
    rooms: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    rounds: int | None = None
    iterations: int = DEFAULT_ITERATIONS
    trials: int | None = None
    seed: int = 0
    margin: float = DEFAULT_MARGIN
    resume: bool = False
    record: bool = False
    commit: str | None = None
    exit_zero: bool = False
    dataset: str | None = None


@dataclass(frozen=True)
class ComparePlan:
    """One room, ready to run.

    sides: A first, missing ones among them. base: how A is judged; for the others only what is
    judged differs. environment: versions by name, the peers' packages among them.
    """

    request: CompareRequest
    sides: tuple[PackedSide, ...]
    base: RoomPlan
    asked: Request
    visits: Visits
    settings_sha256: str
    facts: DeviceFacts
    environment: Mapping[str, str]

    @property
    def room(self) -> str:
        return self.base.room.name

    @property
    def running(self) -> tuple[PackedSide, ...]:
        """The sides that are measured, each in a process of its own; the control is the last."""
        present = [one for one in self.sides if not one.is_missing]
        return (*present, control_of(self.sides[0]))

    @property
    def missing(self) -> tuple[PackedSide, ...]:
        return tuple(one for one in self.sides if one.is_missing)

    @property
    def can_run(self) -> bool:
        """Whether there is an A and somebody to meet."""
        return not self.sides[0].is_missing and len(self.missing) < len(self.sides) - 1

    def jobs(self, row: WorkloadRow) -> dict[str, Job]:
        """What each running side is asked on a workload."""
        jobs = {}
        for one in self.running:
            plan = dataclasses.replace(self.base, packed=one.packed)
            job = plan.job(row, torch_device(self.facts), self.asked)
            jobs[one.side.name] = dataclasses.replace(job, keep=True)
        return jobs

    def key(self, row: WorkloadRow) -> CompareKey:
        return CompareKey(
            sides=tuple((one.side.name, one.packed.sha256) for one in self.running),
            judge_sha256=self.base.judge_sha256,
            dataset_sha256=self.base.dataset_sha256,
            settings_sha256=self.settings_sha256,
            environment=tuple(self.environment.items()),
            device=self.facts.slug,
            uuid=row.uuid,
        )

    @property
    def protocol(self) -> CompareProtocol:
        settings = self.base.settings
        return CompareProtocol(
            correctness_trials=settings.trials,
            atol=settings.atol,
            rtol=settings.rtol,
            required_matched_ratio=settings.required_matched_ratio,
            rounds=self.visits.rounds,
            warmup=self.visits.warmup_runs,
            iterations=self.visits.iterations,
        )


def make_compare_plans(
    workspace: Workspace, request: CompareRequest, facts: DeviceFacts
) -> list[ComparePlan]:
    """Read the words, pack the sides, choose the workloads. Raises HarnessError."""
    _check_numbers(request)
    a, b = (read_word(workspace, word) for word in (request.a, request.b))
    asked = Request(
        rooms=choose_rooms(workspace, a, b, request.rooms),
        workloads=request.workloads or ("all",),
        trials=request.trials,
        seed=request.seed,
        dataset=request.dataset,
    )
    root = dataset.locate(workspace, request.dataset)
    chosen = choose_workloads(workspace, asked, root, facts.uuid is None)
    sides = pack_sides(workspace, a, b, tuple(chosen))
    plans = []
    for room, rows in chosen.items():
        base = plan_room(workspace, room, sides[room][0].packed, rows, asked, root, facts)
        plans.append(complete_plan(request, asked, base, sides[room], facts))
    return plans


def _check_numbers(request: CompareRequest) -> None:
    rounds = DEFAULT_ROUNDS if request.rounds is None else request.rounds
    if rounds < MIN_ROUNDS or request.iterations < 1 or not 0 <= request.margin < 1:
        raise UsageError(
            f"compare: expected at least {MIN_ROUNDS} rounds of 1 iteration and a margin from 0 to "
            f"below 1, got {rounds}, {request.iterations} and {request.margin}"
        )
    require_commit(request.commit)


def complete_plan(
    request: CompareRequest,
    asked: Request,
    base: RoomPlan,
    sides: tuple[PackedSide, ...],
    facts: DeviceFacts,
) -> ComparePlan:
    """Sides that are packed already, A first, on `base`'s workloads. Raises UsageError where the
    request asks to record what is no evidence."""
    processes = sum(not one.is_missing for one in sides) + 1
    rounds = request.rounds or -(-DEFAULT_ROUNDS // processes) * processes
    visits = Visits(rounds, WARMUP_RUNS, request.iterations)
    slow = (SLOW_CALL_US, SLOW_TURNS, SLOW_ROUNDS, SLOW_WARMUP_RUNS, SLOW_ITERATIONS)
    packages = {package: version for one in sides for package, version in one.versions.items()}
    plan = ComparePlan(
        request=request,
        sides=sides,
        base=base,
        asked=asked,
        visits=visits,
        settings_sha256=settings_sha256(
            {**asdict(base.settings), "visits": asdict(visits), "slow": slow}
        ),
        facts=facts,
        environment={**read_environment(facts), **packages},
    )
    if request.record:
        _require_recordable(plan)
    return plan


def _require_recordable(plan: ComparePlan) -> None:
    sides = [one.side for one in (*plan.sides, control_of(plan.sides[0]))]
    objection = _objection(sides, plan.protocol, plan.base.settings.timer)
    trials = plan.base.room.evaluation.trials
    if objection is None and plan.protocol.correctness_trials != trials:
        objection = f"expected {trials} trials, got {plan.protocol.correctness_trials}"
    if objection is None and not plan.base.is_full:
        objection = f"expected all workloads of {plan.room}, got {len(plan.base.rows)}"
    if objection is not None:
        raise UsageError(
            f"--record keeps evidence: {objection}; leave out --record, or the options that "
            "change this"
        )


def record_objection(record: CompareRecord) -> str | None:
    """Why a record is no evidence, as `--record` would have said before it was measured, or None.

    Which workloads and how many trials are official only the workspace tells.
    """
    return _objection(record.sides, record.protocol, record.timer)


def official_objection(workspace: Workspace, record: CompareRecord) -> str | None:
    """Why no score may be computed from a record, or None: it must hold the official workloads,
    trials and tolerances of today, measured as `--record` asks for."""
    room = workspace.room(record.room)
    official = official_uuids(workspace.root, room.definition)
    got = tuple(row.uuid for row in record.workloads)
    if (record.definition, got) != (room.definition, official):
        missing = len(set(official) - set(got))
        return (
            f"expected the {len(official)} workloads of {room.definition} in official order, got "
            f"{len(got)} ({missing} missing) of {record.definition}"
        )
    objection = record_objection(record)
    if objection is not None:
        return objection
    asked, used = room.evaluation, record.protocol
    for key, expected, value in (
        ("correctness_trials", asked.trials, used.correctness_trials),
        ("atol", asked.atol, used.atol),
        ("rtol", asked.rtol, used.rtol),
        ("required_matched_ratio", asked.required_matched_ratio, used.required_matched_ratio),
    ):
        if expected != value:
            return f"protocol.{key}: expected the official {expected}, got {value}"
    return None


def _objection(sides: Sequence[Side], protocol: CompareProtocol, timer: str) -> str | None:
    if (sides[0].name, sides[0].kind) != (OURS, "room"):
        return f"expected {OURS} as the first side, got {sides[0].name} ({sides[0].kind})"
    strangers = [side.name for side in sides[1:] if side.kind not in ("peer", CONTROL)]
    if strangers:
        return f"expected libraries as the other sides, got {', '.join(strangers)}"
    if timer != "cupti":
        return f"expected the CUPTI timer on a GPU, got {timer}"
    if not any(side.name == CONTROL for side in sides):
        return f"expected the first side again as {CONTROL}, got no such side"
    if protocol.rounds < MIN_RECORD_ROUNDS:
        return f"expected at least {MIN_RECORD_ROUNDS} rounds, got {protocol.rounds}"
    if protocol.iterations < DEFAULT_ITERATIONS:
        return f"expected at least {DEFAULT_ITERATIONS} iterations, got {protocol.iterations}"
    return None
