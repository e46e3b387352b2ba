"""What is known about a candidate, what must be measured next, and the one label it ends with.

Pure. A ratio is baseline latency / candidate latency: above 1 the candidate is the faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.compare.analysis import Comparison
from harness.compare.statistics import FAST, SLOW
from harness.records import RETRIED_STATUSES
from harness.records.strict_json import Fields

ARCHIVE, PROMOTE, REJECT = "archive only", "promote globally", "reject and restore"
LABELS = (ARCHIVE, PROMOTE, REJECT)
PROPOSAL = "proposal"  # a step that measures nothing
GATE, SWEEP, CONFIRMATION, REPLAY = "gate", "sweep", "confirmation", "replay"
STAGES = (GATE, SWEEP, CONFIRMATION, REPLAY)

SMALL_GAIN = 0.02  # of latency: below it a change must be small too
MANY_LINES = 20
# A choice: what is as fast as the baseline on a few workloads may be faster elsewhere. In some
# rooms the controls of results/compare are further off: docs/controller.md, "The gate's 1 %".
GATE_TOLERANCE = 0.01


@dataclass(frozen=True)
class Result:
    """A candidate beside the baseline of the same rounds, over some workloads.

    passed: of `workloads`. failure: the first verdict against the candidate. lost: why machine,
    reference or baseline leave no verdict. score: mean ratio, with its interval low to high.
    geometric_mean, ratio_of_means: None, as score is, where a latency is missing. fast, slow:
    workloads called so, by the first characters of their UUIDs.
    """

    workloads: int
    passed: int
    failure: str | None = None
    lost: str | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    geometric_mean: float | None = None
    ratio_of_means: float | None = None
    fast: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()

    @property
    def gain(self) -> float | None:
        """The share of latency that is gone, by the mean ratio: 0.02 is 2 % faster."""
        return None if self.score is None else self.score - 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(table: Fields) -> Result:
        """Raises RecordError naming source and key."""
        result = Result(
            workloads=table.count("workloads"),
            passed=table.count("passed"),
            failure=table.optional_text("failure"),
            lost=table.optional_text("lost"),
            score=_number(table, "score"),
            low=_number(table, "low"),
            high=_number(table, "high"),
            geometric_mean=_number(table, "geometric_mean"),
            ratio_of_means=_number(table, "ratio_of_means"),
            fast=tuple(table.take("fast", list)),
            slow=tuple(table.take("slow", list)),
        )
        table.done()
        for key, value in (("low", result.low), ("high", result.high)):
            if (value is None) != (result.score is None):
                raise table.fail(key, "a number where score is one, else null", value)
        return result


@dataclass(frozen=True)
class Evidence:
    """Everything about one candidate. lines_added: more lines than the baseline has, or 0.

    replay: what stands against the candidate in many fresh trials, "" where nothing does or the
    room is not flagged, None where nobody has looked.
    """

    lines_added: int = 0
    gate: Result | None = None
    sweep: Result | None = None
    confirmation: Result | None = None
    replay: str | None = None


@dataclass(frozen=True)
class Decision:
    """One of LABELS and why. is_lost: nothing was learnt, because the machine failed."""

    label: str
    reason: str
    is_lost: bool = False


def summarise(comparison: Comparison, distrust: str | None = None) -> Result:
    """A comparison of the candidate (a) with the baseline (b) as a Result.

    distrust: why no latency of it counts, or None.
    """
    record = comparison.record
    failure = lost = None
    passed = 0
    for row in record.workloads:
        ours, base = row.sides[comparison.a], row.sides[comparison.b]
        passed += ours.status == "PASSED"
        if ours.status in RETRIED_STATUSES or base.status != "PASSED":
            side = ours if ours.status in RETRIED_STATUSES else base
            lost = lost or f"{row.uuid[:8]}: {side.status}: {side.detail or 'no detail'}"
        elif ours.status != "PASSED":
            failure = failure or f"{row.uuid[:8]}: {ours.status}: {ours.detail or 'no detail'}"
    interval = comparison.score_interval
    return Result(
        workloads=len(record.workloads),
        passed=passed,
        failure=failure,
        lost=distrust or lost,
        score=interval.value if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        geometric_mean=comparison.geometric_mean,
        ratio_of_means=comparison.ratio_of_means,
        fast=tuple(row.uuid[:8] for row in comparison.rows if row.word == FAST),
        slow=tuple(row.uuid[:8] for row in comparison.rows if row.word == SLOW),
    )


def next_evidence(evidence: Evidence) -> str | None:
    """What must be measured before `decide` can promote; None where no measurement could help."""
    stages: Mapping[str, Result | None] = {
        GATE: evidence.gate,
        SWEEP: evidence.sweep,
        CONFIRMATION: evidence.confirmation,
    }
    for stage, result in stages.items():
        if result is None:
            return stage
        if objection(stage, result, evidence.lines_added) is not None:
            return None
    return REPLAY if evidence.replay is None else None


def decide(evidence: Evidence) -> Decision:
    """The one label that the evidence carries. An incomplete one never promotes."""
    stages = ((GATE, evidence.gate), (SWEEP, evidence.sweep), (CONFIRMATION, evidence.confirmation))
    for stage, result in stages:
        if result is None:
            return Decision(ARCHIVE, f"no {stage}: it was not asked for")
        against = objection(stage, result, evidence.lines_added)
        if against is not None:
            return against
    if evidence.replay is None:
        return Decision(ARCHIVE, "no replay: nobody has looked whether the room is flagged")
    if evidence.replay:
        return Decision(ARCHIVE, f"the replay stands against it: {evidence.replay}")
    assert evidence.sweep is not None and evidence.confirmation is not None
    return Decision(
        PROMOTE,
        f"all {evidence.sweep.workloads} workloads pass and none is slower; mean ratio "
        f"{_show(evidence.sweep)}, confirmed as {_show(evidence.confirmation)}",
    )


def is_too_long(gain: float, lines_added: int) -> bool:
    """The simplicity rule: a small gain does not pay for many lines."""
    return gain < SMALL_GAIN and lines_added > MANY_LINES


def objection(stage: str, result: Result, lines_added: int = 0) -> Decision | None:
    """What a stage's result decides against the candidate, or None where it goes on."""
    if result.failure is not None:
        return Decision(
            REJECT,
            f"{stage}: {result.passed} of {result.workloads} workloads pass; {result.failure}",
        )
    if result.lost is not None:
        return Decision(ARCHIVE, f"{stage}: incomplete, no verdict: {result.lost}", is_lost=True)
    if stage == GATE:
        return _object_to_gate(result)
    assert result.score is not None and result.low is not None and result.high is not None
    words = f"mean ratio {_show(result)}"
    if result.high < 1.0:
        return Decision(REJECT, f"{stage}: slower over the full distribution, {words}")
    if is_too_long(result.score - 1.0, lines_added):
        return Decision(
            REJECT,
            f"{stage}: {100 * (result.score - 1):.2g} % for {lines_added} more lines; below "
            f"{100 * SMALL_GAIN:g} % at most {MANY_LINES} are worth it",
        )
    if result.slow:
        which = f"{len(result.slow)} of {result.workloads} workloads are slower ({result.slow[0]})"
        if result.fast:
            return Decision(
                ARCHIVE, f"{stage}: a local win, {len(result.fast)} faster, but {which}; {words}"
            )
        return Decision(REJECT, f"{stage}: {which}, {words}")
    if result.low <= 1.0:
        return Decision(ARCHIVE, f"{stage}: the interval includes no difference, {words}")
    if result.ratio_of_means is None or result.ratio_of_means <= 1.0:
        return Decision(ARCHIVE, f"{stage}: the mean latency does not improve, {words}")
    return None


def _object_to_gate(result: Result) -> Decision | None:
    """Representatives filter; they never promote. So the mean alone decides, and no interval."""
    if result.slow:
        return Decision(REJECT, f"gate: slower on {', '.join(result.slow)}")
    least, mean = 1.0 - GATE_TOLERANCE, result.geometric_mean or 0.0
    if mean < least:
        return Decision(REJECT, f"gate: geometric mean ratio {mean:.4f}, below {least:g}")
    return None


def _show(result: Result) -> str:
    return f"{result.score:.4f} [{result.low:.4f}, {result.high:.4f}]"


def _number(table: Fields, key: str) -> float | None:
    return None if table.is_null(key) else table.number(key, 0.0)
