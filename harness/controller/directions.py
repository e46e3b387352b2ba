"""One bounded direction for a round: which hypothesis is tried next in a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.controller.memory import ClosedRound, failures_in_state
from harness.controller.state import BOTTLENECKS, UNPROFILED, StateMatch, StateSignature


@dataclass(frozen=True)
class Direction:
    """One hypothesis, small enough for one round.

    answers: the bottleneck classes that it could relieve; none means any. is_hypothesis: False for
    candidates that are measured as they were given, which no failure blocks.
    """

    name: str
    hypothesis: str
    answers: tuple[str, ...] = ()
    is_hypothesis: bool = True

    def fits(self, bottleneck: str) -> bool:
        return not self.answers or bottleneck in (UNPROFILED, *self.answers)


# For proposers that have no declared constants: what each class of bottleneck suggests.
CATALOGUE = (
    Direction(
        "fewer launches",
        "fuse kernels, or let them overlap: what lies between them is not work",
        ("launch",),
    ),
    Direction(
        "more in flight",
        "issue loads earlier and keep more bytes in flight: the first round trip is the cost",
        ("latency", "memory"),
    ),
    Direction(
        "more parallel work",
        "cut the work finer, so that every SM has some and the last wave is full",
        ("latency", "launch"),
    ),
    Direction(
        "fewer bytes",
        "read and write each byte once, in whole sectors, and keep intermediate values on chip",
        ("memory", "mixed"),
    ),
    Direction(
        "tensor cores",
        "larger tiles, deeper pipelines or another instruction, so that products never wait",
        ("tensor", "mixed"),
    ),
    Direction(
        "smaller footprint",
        "fewer registers and less shared memory a block, so that more blocks are resident",
        ("latency", "tensor", "mixed"),
    ),
    Direction(
        "dispatch by shape",
        "another route or launch for the regime whose limiter differs from the others'",
        BOTTLENECKS,
    ),
)


@dataclass(frozen=True)
class Choice:
    """The direction of a round and one line about why it is this one."""

    direction: Direction
    why: str


def choose_direction(
    directions: Sequence[Direction],
    state: StateSignature,
    matched: StateMatch,
    history: Sequence[ClosedRound],
    blocked: Sequence[str],
    recommended: Sequence[str],
) -> Choice | None:
    """The direction to try, None where all are blocked. Pure.

    Recommended ones come first, then those that answer the bottleneck, those that brought
    promotions in the matched state, those with fewer failures there, those tried less; in the end
    the order in which they are declared.
    """
    open_ones = [one for one in directions if one.name not in blocked]
    if not open_ones:
        return None
    known = matched.key or state.key

    def rank(one: Direction) -> tuple[bool, bool, int, int, int]:
        there = [r for r in history if r.direction == one.name and r.state.key == known]
        return (
            one.name not in recommended,
            not one.fits(state.bottleneck),
            -sum(r.is_promotion for r in there),
            failures_in_state(history, known, one.name),
            len(there),
        )

    best = min(open_ones, key=rank)
    away, unfit, promotions, failures, tried = rank(best)
    reasons = [] if away else ["recommended"]
    reasons.append("answers no known bottleneck" if unfit else f"answers {state.bottleneck}")
    reasons.append(f"tried {tried} times in this state" if tried else "not tried in this state")
    reasons += [f"{-promotions} promoted"] * bool(promotions)
    reasons += [f"{failures} failed"] * bool(failures)
    return Choice(best, ", ".join(reasons))
