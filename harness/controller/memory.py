"""Closed rounds: what was tried in which state, and what came of it, good or bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.controller.decision import LABELS, PROMOTE
from harness.controller.state import StateSignature
from harness.records.strict_json import Fields

FAILURES_THAT_BLOCK = 2


@dataclass(frozen=True)
class ClosedRound:
    """One round of a run, as it ended.

    match: how memory knew the state beforehand. candidates: names of all that were new. known: how
    many proposals were not. refused: how many were no candidates at all. passed_gate: of the
    candidates. best: the one that the decision is about, None where nothing was proposed. gain: of
    the best in the sweep, or by the gate's geometric mean; None where it has none. device_s:
    seconds of measuring. findings, blocked, recommended: what the supervisor said when the round
    began.
    """

    run: str
    round: int
    state: StateSignature
    match: str
    direction: str
    why: str
    baseline_sha256: str
    candidates: tuple[str, ...]
    known: int
    refused: int
    passed_gate: int
    best: str | None
    label: str
    reason: str
    is_lost: bool
    gain: float | None
    device_s: float
    findings: tuple[str, ...]
    blocked: tuple[str, ...]
    recommended: tuple[str, ...]
    closed_at: str

    @property
    def key(self) -> str:
        return round_key(self.run, self.round)

    @property
    def is_promotion(self) -> bool:
        return self.label == PROMOTE

    @property
    def is_failure(self) -> bool:
        """Whether the direction brought nothing, or had nothing to try. A lost round is neither."""
        return not self.is_promotion and not self.is_lost

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, **asdict(self)}

    @staticmethod
    def from_json(values: Any, source: str) -> ClosedRound:
        """Raises RecordError naming source and key."""
        table = Fields(source, "", values)
        table.text("key")
        closed = ClosedRound(
            run=table.text("run"),
            round=table.count("round"),
            state=StateSignature.from_json(table.object("state")),
            match=table.text("match"),
            direction=table.text("direction"),
            why=table.text("why"),
            baseline_sha256=table.text("baseline_sha256"),
            candidates=tuple(table.take("candidates", list)),
            known=table.count("known"),
            refused=table.count("refused"),
            passed_gate=table.count("passed_gate"),
            best=table.optional_text("best"),
            label=table.text("label"),
            reason=table.text("reason"),
            is_lost=table.take("is_lost", bool),
            gain=None if table.is_null("gain") else table.number("gain", -1.0),
            device_s=table.number("device_s", 0.0),
            findings=tuple(table.take("findings", list)),
            blocked=tuple(table.take("blocked", list)),
            recommended=tuple(table.take("recommended", list)),
            closed_at=table.text("closed_at"),
        )
        table.done()
        if closed.label not in LABELS:
            raise table.fail("label", f"one of {', '.join(LABELS)}", closed.label)
        return closed


def round_key(run: str, number: int) -> str:
    """What a run's round is called in every file of the archive."""
    return f"{run}/{number:03d}"


def failures_in_state(history: Sequence[ClosedRound], state: str, direction: str) -> int:
    """Failed rounds of a direction in a state since it was last promoted there."""
    count = 0
    for closed in history:
        if (closed.state.key, closed.direction) != (state, direction):
            continue
        if closed.is_promotion:
            count = 0
        count += closed.is_failure
    return count


def is_blocked(history: Sequence[ClosedRound], state: str, direction: str) -> bool:
    """Whether a direction failed so often in a state that another round would repeat itself."""
    return failures_in_state(history, state, direction) >= FAILURES_THAT_BLOCK
