"""Watches the trajectory: what goes wrong, what no round may try again, what it should try next.

Pure: a function of the closed rounds. Blocks count in every run of the room, because memory
outlives runs; the shape of the trajectory is that of one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.controller.directions import Direction
from harness.controller.memory import ClosedRound, is_blocked

STALL_ROUNDS = 2  # in a row without one candidate past the gate
CYCLE_LENGTHS = (2, 3)  # of the directions, met twice in a row without a promotion
PLATEAU_ROUNDS = 4  # with a verdict, since the last promotion
REGRESSION_ROUNDS, REGRESSIONS = 3, 2  # of the last so many, so many were slower in the sweep
DIMINISHING_PROMOTIONS, DIMINISHING_GAIN = 2, 0.01  # the last so many brought less than that
EMPTY_ROUNDS = 2  # in a row without a new candidate, or as many as directions are open
PROMISING_GAIN = 0.005  # of what was only archived: worth another round


@dataclass(frozen=True)
class Budget:
    """When a run ends at the latest. rounds: count. device_s: seconds of measuring, or None."""

    rounds: int
    device_s: float | None = None


@dataclass(frozen=True)
class Supervision:
    """What the next round must know.

    findings: what is wrong with the trajectory, one line each, its kind first. blocked,
    recommended: names of directions. stop: why there is no next round, or None.
    """

    findings: tuple[str, ...]
    blocked: tuple[str, ...]
    recommended: tuple[str, ...]
    stop: str | None


def supervise(
    history: Sequence[ClosedRound],
    run: str,
    state: str,
    directions: Sequence[Direction],
    budget: Budget,
) -> Supervision:
    """history: every closed round of the room, oldest first. state: key of the present one."""
    names = [one.name for one in directions]
    rounds = [closed for closed in history if closed.run == run]
    judged = [closed for closed in rounds if not closed.is_lost]
    findings = [
        text
        for text in (
            _stalling(judged),
            _cycle(judged),
            _regressions(judged),
            _plateau(judged),
            _diminishing(judged),
        )
        if text is not None
    ]
    blocked = tuple(
        one.name for one in directions if one.is_hypothesis and is_blocked(history, state, one.name)
    )
    recommended = _recommend(history, state, names, blocked) if findings else ()
    return Supervision(
        tuple(findings), blocked, recommended, _stop(rounds, len(names), blocked, budget)
    )


def _stalling(rounds: Sequence[ClosedRound]) -> str | None:
    last = rounds[-STALL_ROUNDS:]
    if len(last) < STALL_ROUNDS or any(closed.passed_gate for closed in last):
        return None
    return f"stalling: no candidate passed the gate in {STALL_ROUNDS} rounds"


def _cycle(rounds: Sequence[ClosedRound]) -> str | None:
    for length in CYCLE_LENGTHS:
        last = rounds[-2 * length :]
        names = [closed.direction for closed in last]
        repeats = len(names) == 2 * length and names[:length] == names[length:]
        if repeats and len(set(names)) > 1 and not any(closed.is_promotion for closed in last):
            return f"cycle: {', '.join(names[:length])} twice in a row without a promotion"
    return None


def _regressions(rounds: Sequence[ClosedRound]) -> str | None:
    last = rounds[-REGRESSION_ROUNDS:]
    count = sum(closed.gain is not None and closed.gain < 0.0 for closed in last)
    if count < REGRESSIONS:
        return None
    return f"regressions: the best of {count} of the last {len(last)} rounds was slower"


def _plateau(rounds: Sequence[ClosedRound]) -> str | None:
    last = rounds[-PLATEAU_ROUNDS:]
    if len(last) < PLATEAU_ROUNDS or any(closed.is_promotion for closed in last):
        return None
    return f"plateau: nothing promoted in {PLATEAU_ROUNDS} rounds"


def _diminishing(rounds: Sequence[ClosedRound]) -> str | None:
    gains = [closed.gain or 0.0 for closed in rounds if closed.is_promotion]
    last = gains[-DIMINISHING_PROMOTIONS:]
    if len(last) < DIMINISHING_PROMOTIONS or sum(last) >= DIMINISHING_GAIN:
        return None
    return (
        f"diminishing returns: the last {len(last)} promotions brought {100 * sum(last):.2g} % "
        "together"
    )


def _recommend(
    history: Sequence[ClosedRound],
    state: str,
    directions: Sequence[str],
    blocked: Sequence[str],
) -> tuple[str, ...]:
    """Untried directions, else those with a gain that was only archived."""
    there = [closed for closed in history if closed.state.key == state]
    tried = {closed.direction for closed in there}
    untried = tuple(name for name in directions if name not in tried)
    if untried:
        return untried
    promising = {
        closed.direction
        for closed in there
        if not closed.is_promotion and (closed.gain or 0.0) >= PROMISING_GAIN
    }
    return tuple(name for name in directions if name in promising and name not in blocked)


def _stop(
    rounds: Sequence[ClosedRound],
    directions: int,
    blocked: Sequence[str],
    budget: Budget,
) -> str | None:
    if len(rounds) >= budget.rounds:
        return f"budget: {budget.rounds} rounds are done"
    spent_s = sum(closed.device_s for closed in rounds)
    if budget.device_s is not None and spent_s >= budget.device_s:
        return f"budget: {spent_s:.0f} s of measuring, of {budget.device_s:.0f}"
    if len(blocked) == directions:
        return "every direction is blocked in this state: change the profile, proposer or bounds"
    empty = max(EMPTY_ROUNDS, directions - len(blocked))
    if len(rounds) >= empty and not any(closed.candidates for closed in rounds[-empty:]):
        return f"nothing new was proposed in {empty} rounds"
    return None
