"""A record's side A against its side B: ratios, words, scores, regimes and the control.

Pure. A ratio is latency_B / latency_A: above 1, A is the faster. Everything in a comparison comes
from the rounds that both sides have, so that round n of one stands beside round n of the other.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compare.record import CONTROL, CompareRecord, CompareRow, Side
from harness.compare.regimes import regimes
from harness.compare.scores import BASELINE, geometric_mean, ratio_of_means
from harness.compare.statistics import (
    DEFAULT_MARGIN,
    FAST,
    NO_SPREAD,
    SLOW,
    WORDS,
    Interval,
    ProcessSpread,
    process_spread,
    ratio_intervals,
    score_interval,
    word,
)
from harness.errors import UsageError

NO_CONTROL_OF_OTHERS = "Other sides have no control: theirs are taken to differ as much."
REGIME_RATIOS = (
    "A ratio of a regime is that of the sides' median rounds, as in their averages; one of a "
    "workload is the mean of the middle half of its rounds' log ratios. Where rounds scatter, the "
    "two differ."
)
STANDS_IN = (
    "FlashInfer's own kernels for this definition do not run on this device; measured in their "
    "place: {}"
)


@dataclass(frozen=True)
class RowComparison:
    """One workload. a_us, b_us: medians over the common rounds, None where a side did not pass.

    interval and word are None where there is no ratio, and then `reason` says why.
    """

    uuid: str
    axes: Mapping[str, int]
    a_us: float | None
    b_us: float | None
    interval: Interval | None
    word: str | None
    reason: str | None


@dataclass(frozen=True)
class RegimeComparison:
    """The workloads of one range of one axis. geometric_mean: of the ratios, None where a workload
    of the range has none. words: how many workloads each word describes."""

    axis: str
    label: str
    count: int
    geometric_mean: float | None
    words: Mapping[str, int]


@dataclass(frozen=True)
class ControlComparison:
    """The first side against itself in another process: what two equal things differ by here.

    compared: workloads with a ratio. spread: what the processes differ by, which every interval of
    the comparison includes. different: how many workloads would be called FAST or SLOW without it.
    """

    side: str
    compared: int
    different: int
    geometric_mean: float | None
    spread: ProcessSpread


@dataclass(frozen=True)
class Comparison:
    """Side `a` against side `b` on every workload of a record.

    score: mean of the ratios, S_d where b is the official baseline; None where b lacks a workload,
    and score_reason says so. It is 0, without an interval, where a fails one, and score_reason
    names the first. ratio_of_means, geometric_mean: of b / a, None where any latency is missing.
    wins, ties, losses: workloads whose interval is centred above, within and below the margin,
    however wide it is. control: None where not measured.
    """

    record: CompareRecord
    a: str
    b: str
    margin: float
    rows: tuple[RowComparison, ...]
    score: float | None
    score_interval: Interval | None
    score_reason: str | None
    ratio_of_means: float | None
    geometric_mean: float | None
    wins: int
    ties: int
    losses: int
    words: Mapping[str, int]
    regimes: tuple[RegimeComparison, ...]
    control: ControlComparison | None


@dataclass(frozen=True)
class OfficialScore:
    """S_d of the room on the record's device. value: None where it is undefined. reason: why it is
    that or 0. against: the comparison that it comes from, None where it is undefined."""

    value: float | None
    reason: str | None
    against: Comparison | None


def official_score(comparisons: Sequence[Comparison]) -> OfficialScore:
    """S_d from the room's comparisons, of which one may be with the contest's baseline."""
    found = next((one for one in comparisons if one.b == BASELINE), None)
    if found is None or _side(found.record, BASELINE).kind != "peer":  # a file may bear its name
        return OfficialScore(None, f"{BASELINE} was no side of the comparison", None)
    if found.score == 0.0:
        return OfficialScore(found.score, found.score_reason, found)
    side = _side(found.record, BASELINE)
    if side.stands_in is not None:
        return OfficialScore(None, STANDS_IN.format(side.stands_in), None)
    if side.state == "missing":
        return OfficialScore(None, f"{BASELINE} could not be tried: {side.reason}", None)
    if found.score is None:
        return OfficialScore(None, found.score_reason, None)
    return OfficialScore(found.score, None, found)


def analyse(record: CompareRecord, a: str, b: str, margin: float = DEFAULT_MARGIN) -> Comparison:
    """Compare two sides of a record. margin: a fraction of latency that does not matter.

    Raises UsageError unless `a` and `b` are two sides of the record.
    """
    side_a, side_b = _side(record, a), _side(record, b)
    if a == b:
        raise UsageError(f"compare: expected two sides, got {a} twice")
    control = _control(record, margin)
    spread = NO_SPREAD if control is None or CONTROL in (a, b) else control.spread
    rows = _compare_rows(record, side_a, side_b, margin, spread)
    a_us, b_us = [row.a_us for row in rows], [row.b_us for row in rows]
    score, interval, score_reason = _score(record, rows, side_a, side_b, spread)
    ratios = [row.interval.value for row in rows if row.interval]
    wins = sum(ratio >= 1 + margin for ratio in ratios)
    losses = sum(ratio <= 1 / (1 + margin) for ratio in ratios)
    return Comparison(
        record=record,
        a=a,
        b=b,
        margin=margin,
        rows=rows,
        score=score,
        score_interval=interval,
        score_reason=score_reason,
        ratio_of_means=ratio_of_means(b_us, a_us),
        geometric_mean=geometric_mean(b_us, a_us),
        wins=wins,
        ties=len(ratios) - wins - losses,
        losses=losses,
        words=_count_words(rows),
        regimes=_compare_regimes(rows),
        control=control,
    )


def _side(record: CompareRecord, name: str) -> Side:
    side = record.side(name)
    if side is None:
        known = ", ".join(side.name for side in record.sides)
        raise UsageError(f"{record.room}: expected one of the sides {known}; got {name!r}")
    return side


def _compare_rows(
    record: CompareRecord, a: Side, b: Side, margin: float, spread: ProcessSpread = NO_SPREAD
) -> tuple[RowComparison, ...]:
    """Every workload of the record, in its order. Workloads with as many rounds go together."""
    rounds = {row.uuid: _common_rounds(row, a.name, b.name) for row in record.workloads}
    by_length: dict[int, list[str]] = {}
    for uuid, (a_us, b_us) in rounds.items():
        if a_us and b_us:
            by_length.setdefault(len(a_us), []).append(uuid)
    intervals: dict[str, Interval] = {}
    for uuids in by_length.values():
        found = ratio_intervals(
            [rounds[uuid][0] for uuid in uuids],
            [rounds[uuid][1] for uuid in uuids],
            spread=spread,
        )
        intervals |= zip(uuids, found, strict=True)
    rows = []
    for row in record.workloads:
        interval = intervals.get(row.uuid)
        medians_us = [statistics.median(us) if us else None for us in rounds[row.uuid]]
        rows.append(
            RowComparison(
                uuid=row.uuid,
                axes=row.axes,
                a_us=medians_us[0],
                b_us=medians_us[1],
                interval=interval,
                word=word(interval, margin) if interval else None,
                reason=_reason(row, a) or _reason(row, b),
            )
        )
    return tuple(rows)


def _common_rounds(row: CompareRow, a: str, b: str) -> tuple[Sequence[float], Sequence[float]]:
    """Rounds of both sides, cut to the shorter where both passed; empty for one that did not."""
    a_us, b_us = (row.sides[name].rounds_us if name in row.sides else () for name in (a, b))
    common = min(len(a_us), len(b_us)) or max(len(a_us), len(b_us))
    return a_us[:common], b_us[:common]


def _reason(row: CompareRow, side: Side) -> str | None:
    """Why a side has no latency on a workload, or None."""
    if side.state == "missing":
        return f"{side.name} is missing: {side.reason}"
    result = row.sides.get(side.name)
    if result is None:
        return f"{side.name} was not run on this workload"
    if result.status != "PASSED":
        return f"{side.name}: {result.status}" + (f": {result.detail}" if result.detail else "")
    return None


def _score(
    record: CompareRecord,
    rows: Sequence[RowComparison],
    a: Side,
    b: Side,
    spread: ProcessSpread,
) -> tuple[float | None, Interval | None, str | None]:
    """Mean ratio of `a` with `b` as the baseline, its interval, and why it is 0 or undefined."""
    for side, latencies_us, value in (
        (a, [row.a_us for row in rows], 0.0),
        (b, [row.b_us for row in rows], None),
    ):
        absent = [index for index, us in enumerate(latencies_us) if us is None]
        if absent:
            reason = _reason(record.workloads[absent[0]], side)
            counted = f"{len(absent)} of {len(rows)} workloads of {side.name} have no latency"
            return value, None, f"{counted}; the first: {reason}"
    rounds = [_common_rounds(row, a.name, b.name) for row in record.workloads]
    a_us, b_us = zip(*rounds, strict=True)
    interval = score_interval(a_us, b_us, spread=spread)
    return interval.value, interval, None


def _count_words(rows: Sequence[RowComparison]) -> dict[str, int]:
    counts = Counter(row.word for row in rows)
    return {name: counts[name] for name in WORDS}


def _compare_regimes(rows: Sequence[RowComparison]) -> tuple[RegimeComparison, ...]:
    by_uuid = {row.uuid: row for row in rows}
    found = []
    for regime in regimes(rows):
        members = [by_uuid[uuid] for uuid in regime.uuids]
        mean = geometric_mean([row.b_us for row in members], [row.a_us for row in members])
        found.append(
            RegimeComparison(regime.axis, regime.label, len(members), mean, _count_words(members))
        )
    return tuple(found)


def _control(record: CompareRecord, margin: float) -> ControlComparison | None:
    control = record.side(CONTROL)
    if control is None:
        return None
    first = record.sides[0]
    rows = _compare_rows(record, first, control, margin)
    words = _count_words(rows)
    ratios = [row.interval.value for row in rows if row.interval]
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None
    spread = _spread([_common_rounds(row, first.name, CONTROL) for row in record.workloads])
    return ControlComparison(first.name, len(ratios), words[FAST] + words[SLOW], mean, spread)


def _spread(rounds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> ProcessSpread:
    """From the workloads with the most common number of rounds: a matrix has one length, and a slow
    workload's three rounds tell little."""
    measured = [pair for pair in rounds if pair[0] and pair[1]]
    if not measured:
        return NO_SPREAD
    length = Counter(len(first) for first, _ in measured).most_common(1)[0][0]
    first_us, again_us = zip(*(pair for pair in measured if len(pair[0]) == length), strict=True)
    return process_spread(first_us, again_us)
