"""A comparison as lines of plain text. Pure: the same comparison gives the same lines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from harness.compare.analysis import (
    NO_CONTROL_OF_OTHERS,
    Comparison,
    RegimeComparison,
    RowComparison,
)
from harness.compare.record import CompareRecord, Side, SideResult
from harness.compare.scores import HOST_GAPS
from harness.compare.statistics import WORDS, Interval
from harness.records import ABSENT, format_digits, format_us

DIGITS = 4
EXTREMES = 5  # workloads shown at each end; a record holds all of them
_COLUMNS = ("against", "S [95 %]", "geo. mean", "wins/ties/losses", "words")


def describe_row(results: Mapping[str, SideResult]) -> str:
    """One finished workload: each side's median round, and what it is of the first side's."""
    first_us: float | None = None
    parts = []
    for index, (name, result) in enumerate(results.items()):
        if not result.rounds_us:
            parts.append(f"{name} {result.status}")
            continue
        latency_us = statistics.median(result.rounds_us)
        ratio = "" if first_us is None else f" (x{format_digits(latency_us / first_us, DIGITS)})"
        parts.append(f"{name} {format_us(latency_us)} us{ratio}")
        if index == 0:
            first_us = latency_us
    return "  ".join(parts)


def describe_failures(results: Mapping[str, SideResult]) -> list[str]:
    """Why sides of one workload have no latency."""
    return [
        f"{name}: {result.detail or result.status}"
        for name, result in results.items()
        if result.status != "PASSED"
    ]


def describe_room(comparisons: Sequence[Comparison]) -> list[str]:
    """A room's table, what is open about it, the control, and then each pair's detail."""
    record = comparisons[0].record
    missing = sum(side.state == "missing" for side in record.sides)
    state = f", open: {missing} missing" if missing else ""
    lines = [
        f"{record.room}: {comparisons[0].a} on {record.hardware}, {len(record.workloads)} "
        f"workloads, {record.protocol.rounds} rounds of {record.protocol.iterations} calls{state}"
    ]
    rows = [_COLUMNS, *(_table_row(comparison) for comparison in comparisons)]
    lines += [f"  {line}" for line in _align(rows)]
    lines += [f"  {line}" for line in _describe_open(record)]
    lines.append(f"  {_describe_control(comparisons[0])}")
    lines.append(
        f"  S and x: the other side's latency over that of {comparisons[0].a}, above 1 it is the "
        f"faster; within {comparisons[0].margin:g} of each other they are a tie; detects: the "
        "least difference that a workload's rounds tell from none four times in five"
    )
    lines.append(f"  {HOST_GAPS}")
    for comparison in comparisons:
        lines += _describe_pair(comparison)
    return lines


def describe_missing(sides: Sequence[Side]) -> list[str]:
    """Sides that could not be tried, one a line."""
    return [f"open: {side.name} is missing: {side.reason}" for side in sides]


def hint_without_peers(room: str) -> str:
    """What else a room can be compared with that has no peers."""
    return (
        f"{room} has no peers: write peers/{room}/<library>.py (docs/peers.md), or compare it with "
        f"a revision, `python -m harness compare ours HEAD {room}`, or with a packed JSON"
    )


def _describe_open(record: CompareRecord) -> list[str]:
    lines = describe_missing([side for side in record.sides if side.state == "missing"])
    for side in record.sides:
        if side.state == "failed":
            failed = [row for row in record.workloads if row.sides[side.name].status != "PASSED"]
            lines.append(
                f"open: {side.name} failed {len(failed)} of {len(record.workloads)} workloads, "
                f"the first {failed[0].uuid[:8]}: {side.reason}"
            )
    return lines


def _table_row(comparison: Comparison) -> tuple[str, ...]:
    mean = comparison.geometric_mean
    return (
        _label(comparison),
        _score(comparison),
        format_digits(mean, DIGITS),
        f"{comparison.wins}/{comparison.ties}/{comparison.losses}",
        _words(comparison.words),
    )


def _describe_control(comparison: Comparison) -> str:
    control = comparison.control
    if control is None or not control.compared:
        return "control: not measured"
    return (
        f"control: two processes of {control.side} differ by "
        f"{100 * math.sqrt(control.spread.variance):.2g} % a workload beyond their rounds' noise "
        f"({control.different} of {control.compared} would be called different), geometric mean "
        f"{format_digits(control.geometric_mean, DIGITS)}; every interval includes it. "
        f"{NO_CONTROL_OF_OTHERS}"
    )


def _describe_pair(comparison: Comparison) -> list[str]:
    compared = [row for row in comparison.rows if row.interval is not None]
    if not compared:
        return []
    lines = [f"{comparison.a} against {_label(comparison)}"]
    side = comparison.record.side(comparison.b)
    if side is not None and side.caveat:
        lines.append(f"  caveat: {side.caveat}")
    if comparison.score_reason:
        lines.append(f"  S: {comparison.score_reason}")
    by_axis: dict[str, list[RegimeComparison]] = {}
    for regime in comparison.regimes:
        by_axis.setdefault(regime.axis, []).append(regime)
    for axis, found in by_axis.items():
        lines.append(f"  {axis}: {', '.join(_describe_regime(regime) for regime in found)}")
    ordered = sorted(compared, key=lambda row: -row.interval.value if row.interval else 0.0)
    if len(ordered) <= 2 * EXTREMES:
        return lines + _describe_rows("", ordered)
    lines += _describe_rows("best", ordered[:EXTREMES])
    return lines + _describe_rows("worst", ordered[-EXTREMES:])


def _describe_regime(regime: RegimeComparison) -> str:
    mean = format_digits(regime.geometric_mean, DIGITS)
    return f"{regime.label} x{mean} ({_words(regime.words)})"


def _describe_rows(label: str, rows: Sequence[RowComparison]) -> list[str]:
    cells = [
        (
            label,
            row.uuid[:8],
            " ".join(f"{axis}={size}" for axis, size in row.axes.items()),
            f"{format_us(row.a_us)} us",
            f"{format_us(row.b_us)} us",
            f"x{_interval(row.interval)}",
            _detects(row.interval),
            row.word or ABSENT,
        )
        for row in rows
    ]
    return [f"  {line}".rstrip() for line in _align(cells)]


def _label(comparison: Comparison) -> str:
    side = comparison.record.side(comparison.b)
    return side.label if side is not None else comparison.b


def _score(comparison: Comparison) -> str:
    interval = comparison.score_interval
    return _interval(interval) if interval else format_digits(comparison.score, DIGITS)


def _detects(interval: Interval | None) -> str:
    return f"detects {100 * interval.mde:.2g} %" if interval else ""


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ABSENT
    value, low, high = (
        format_digits(number, DIGITS) for number in (interval.value, interval.low, interval.high)
    )
    return f"{value} [{low}, {high}]"


def _words(words: Mapping[str, int]) -> str:
    known = [f"{words[word]} {word}" for word in WORDS if words.get(word)]
    return " ".join(known) or ABSENT


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
