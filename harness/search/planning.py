"""What a round is given: where its run stands, its state, its direction, its candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.config import Workspace
from harness.controller.archive import ATTEMPTS, DECISIONS, Archive
from harness.controller.decision import PROPOSAL, REPLAY
from harness.controller.directions import Choice, choose_direction
from harness.controller.memory import ClosedRound, round_key
from harness.controller.regimes import Regimes
from harness.controller.state import Profile, StateMatch, StateSignature, match, signature
from harness.controller.supervisor import Budget, Supervision, supervise
from harness.errors import PackingError
from harness.search.candidates import (
    CandidateStore,
    Proposal,
    describe_refusal,
    make_candidate,
)
from harness.search.evaluator import Evaluator
from harness.search.population import Population
from harness.search.promotion import require_unchanged
from harness.search.proposers import Parent, Plan, Proposer, RoundInput

PROPOSALS_A_CANDIDATE = 30  # that are drawn at most for each new one
PAST_ROUNDS = 8  # told to a proposer


@dataclass(frozen=True)
class Settings:
    """How a run searches. candidates: new ones a round. sweeps: of a round's candidates, how many
    reach the full sweep at most. until: the last stage, REPLAY for all. device_s: see Budget."""

    rounds: int = 8
    candidates: int = 8
    sweeps: int = 1
    islands: int = 2
    seed: int = 0
    device_s: float | None = None
    until: str = REPLAY

    @property
    def budget(self) -> Budget:
        return Budget(self.rounds, self.device_s)


@dataclass(frozen=True)
class Search:
    """Everything that a run works with. clock: UTC, as records are dated. note: prints a line."""

    workspace: Workspace
    room: str
    settings: Settings
    proposer: Proposer
    evaluator: Evaluator
    profile: Profile
    regimes: Regimes
    archive: Archive
    store: CandidateStore
    clock: Callable[[], str]
    note: Callable[[str], None]


@dataclass(frozen=True)
class Position:
    """Where a run stands. speedup: of the present baseline over the run's first. stop: why the run
    is over, or None."""

    run: str
    next_round: int
    baseline_sha256: str
    speedup: float
    population: Population
    stop: str | None = None

    @property
    def key(self) -> str:
        return round_key(self.run, self.next_round)


@dataclass(frozen=True)
class Brief:
    """What a round knows before anything is proposed."""

    key: str
    state: StateSignature
    matched: StateMatch
    told: Supervision
    choice: Choice
    history: Sequence[ClosedRound]
    island: int


def begin(search: Search, position: Position) -> Brief | str:
    """The round's direction, or why there is no round."""
    history = [
        closed
        for closed in search.archive.history()
        if closed.run != position.run or closed.round < position.next_round
    ]
    state = signature(search.profile)
    matched = match(state, [closed.state for closed in history])
    directions = list(search.proposer.directions)
    budget = search.settings.budget
    told = supervise(history, position.run, state.key, directions, budget)
    if told.stop is not None:
        return told.stop
    choice = choose_direction(directions, state, matched, history, told.blocked, told.recommended)
    if choice is None:
        return "no direction is open"
    island = position.next_round % position.population.islands
    return Brief(position.key, state, matched, told, choice, history, island)


def propose(search: Search, position: Position, brief: Brief) -> dict[str, Any]:
    """The line with the round's proposals; every candidate's packed text is kept before it."""

    def make() -> dict[str, Any]:
        if brief.key not in search.archive.lines(DECISIONS):
            baseline = search.store.sources(position.baseline_sha256)
            require_unchanged(search.workspace, search.room, baseline)
        parent, plan = _plan(search, position, brief)
        proposals, known = _take_new(search, position, plan)
        return {
            "round": brief.key,
            "stage": PROPOSAL,
            "direction": brief.choice.direction.name,
            "hypothesis": brief.choice.direction.hypothesis,
            "baseline_sha256": position.baseline_sha256,
            "parent": parent,
            "known": known,
            "proposals": proposals,
            "results": {},
            "record": None,
            "device_s": 0.0,
            "made_at": search.clock(),
        }

    return search.archive.step(ATTEMPTS, f"{brief.key}/{PROPOSAL}", make)


def _plan(search: Search, position: Position, brief: Brief) -> tuple[str | None, Plan]:
    seed = f"{search.settings.seed}/{brief.key}"
    chosen = position.population.parent(brief.island, position.speedup, f"{seed}/parent")
    sha256 = None if chosen is None else chosen.sha256
    baseline = search.store.sources(position.baseline_sha256)
    sources = baseline if sha256 is None else search.store.sources(sha256)
    plan = Plan(
        room=search.room,
        round=brief.key,
        direction=brief.choice.direction,
        island=brief.island,
        count=search.settings.candidates,
        parent=Parent(sha256, sources),
        baseline=baseline,
        seed=seed,
        facts=_facts(search, position, brief),
    )
    return sha256, plan


def _facts(search: Search, position: Position, brief: Brief) -> RoundInput:
    regimes, profile = search.regimes, search.profile
    workloads = sum(len(regime.uuids) for regime in regimes.regimes)
    total_us = sum(regime.mean_us * len(regime.uuids) for regime in regimes.regimes)
    past = [closed for closed in brief.history if closed.state.key == brief.state.key]
    return RoundInput(
        definition=search.workspace.room(search.room).definition,
        state=brief.state.key,
        match=brief.matched.kind,
        baseline=search.store.get(position.baseline_sha256).name,
        mean_latency_us=total_us / workloads / position.speedup,
        regimes=[
            f"{regime.label}: {len(regime.uuids)} workloads, {regime.mean_us:.4g} us, "
            f"{100 * regime.share:.0f} % of the time, represented by {regime.representative}"
            for regime in regimes.regimes
        ],
        profile=[f"{key}: {value}" for key, value in asdict(profile).items() if value is not None],
        findings=brief.told.findings,
        blocked=brief.told.blocked,
        recommended=brief.told.recommended,
        past=[
            f"{closed.key} {closed.direction}: {closed.label}: {closed.reason}"
            for closed in past[-PAST_ROUNDS:]
        ],
    )


def _take_new(search: Search, position: Position, plan: Plan) -> tuple[list[dict[str, Any]], int]:
    """Described proposals, until enough of them are new in this run; and how many were known."""
    lines = [
        line
        for line in search.archive.lines(ATTEMPTS).values()
        if str(line["round"]).startswith(f"{position.run}/")
    ]
    seen = {position.baseline_sha256}
    seen |= {str(line["baseline_sha256"]) for line in lines}
    seen |= {str(one["sha256"]) for line in lines for one in line.get("proposals", ())}
    taken: list[dict[str, Any]] = []
    known = new = 0
    for drawn, proposal in enumerate(search.proposer.propose(plan), 1):
        described = _describe(search, plan, proposal, seen)
        if described is None:
            known += 1
        else:
            taken.append(described)
            new += described["refused"] is None
        if new >= plan.count or drawn >= PROPOSALS_A_CANDIDATE * plan.count:
            break
    return taken, known


def _describe(
    search: Search, plan: Plan, proposal: Proposal, seen: set[str]
) -> dict[str, Any] | None:
    """A proposal as the archive holds it, None for one that the run has had."""
    try:
        candidate = make_candidate(search.workspace, search.room, proposal, plan.baseline)
    except PackingError as error:
        search.note(f"{plan.round}: refused: {error}")
        return describe_refusal(proposal, str(error), plan.island)
    if candidate.packed.sha256 in seen:
        return None
    seen.add(candidate.packed.sha256)
    search.store.put(candidate.packed)
    return candidate.describe(plan.island)
