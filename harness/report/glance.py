"""What a reader asks first: a room's numbers at the top of its page, and of what content the
comparisons are that the front page leads to. Pure: the same records and hashes give the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compare.scores import geometric_mean
from harness.records import HASH_CHARACTERS, RunRecord, summarise
from harness.report.document import (
    STALE,
    Column,
    Kind,
    Table,
    Value,
    bounds,
    content_label,
    format_value,
)
from harness.report.evidence import Compared
from harness.report.head import TO_COMPARE, TO_MEASURE
from harness.report.logs import one_line
from harness.report.scored import best_peer, hardest_partial
from harness.report.summary import NOT_MEASURED, is_stale, of_room, render_summary
from harness.report.tables import markdown_text, to_markdown

GLANCE_BLOCK = "glance"
_TO_ROOT = "../.."  # from a room's page, docs/kernels/<room>.md
_COLUMNS = (
    Column("mean µs", Kind.US),
    Column("median µs", Kind.US),
    Column("p95 µs", Kind.US),
    Column("latency / floor, geometric mean", Kind.RATIO),
    Column("passed"),
    Column("device"),
    Column("timer"),
    Column("content", Kind.CONTENT),
    Column("throttled clock samples"),
)


@dataclass(frozen=True)
class Standing:
    """What pages say of rooms at once. latest: last full sweeps. compared: by room. packed: content
    hash of each room now, None where it does not pack; packed_peers: the same of (room, library).
    """

    latest: Sequence[RunRecord]
    compared: Mapping[str, Compared]
    packed: Mapping[str, str | None]
    packed_peers: Mapping[tuple[str, str], str | None]


def render_front(rooms: Sequence[str], standing: Standing) -> str:
    """The front page's block: the table of latest sweeps, how each was measured, and the content
    of each comparison."""
    summary = render_summary(rooms, standing.latest, standing.packed)
    found = {room: standing.compared[room] for room in rooms if room in standing.compared}
    labels = [f"{room} {_content_of_ours(standing, one)}" for room, one in found.items()]
    parts = [f"comparisons with others are of content: {', '.join(labels)}"] if labels else []
    without = [room for room in rooms if room not in found]
    parts += [f"not compared: {', '.join(without)}"] if without else []
    gap = "\n" if standing.latest else "\n\n"  # behind a list, or a table
    return f"{summary}{gap}* {'; '.join(parts)}"


def render_glance(room: str, standing: Standing) -> str:
    """The block at the top of a room's page: is it fast, measured on what, and beside whom."""
    records = of_room(room, standing.latest)
    lines = [_sweep_line(record) for record in records]
    lines = lines or [f"* {NOT_MEASURED}; run {TO_MEASURE.format(room=room)}"]
    lines += _compared_lines(room, standing)
    rows = tuple(_row(record, standing) for record in records)
    tables = [to_markdown(Table(GLANCE_BLOCK, "", _COLUMNS, rows))] if rows else []
    return "\n\n".join([*tables, "\n".join(lines)])


def _row(record: RunRecord, standing: Standing) -> tuple[Value, ...]:
    latencies_us = [row.latency_us for row in record.workloads]
    summary = summarise(latencies_us)
    averages = (summary.mean_us, summary.median_us, summary.p95_us) if summary else (None,) * 3
    now = standing.packed.get(record.room)
    return (
        *averages,
        geometric_mean(latencies_us, [row.floor_us for row in record.workloads]),
        f"{record.passed}/{record.total}",
        record.device,
        record.timer,
        content_label(record.solution_sha256, is_stale(record, now)),
        _throttled(record),
    )


def _throttled(record: RunRecord) -> str:
    if not record.clocks or not record.clocks["samples"]:
        return "not sampled"
    throttled, samples = record.clocks["throttled"], record.clocks["samples"]
    return f"{throttled} of {samples} ({format_value(Kind.SHARE, throttled / samples)})"


def _sweep_line(record: RunRecord) -> str:
    path = f"results/latest/{record.device}/{record.room}.json"
    used = record.protocol
    return (
        f"* sweep: [{path}]({_TO_ROOT}/{path}), {record.measured_at[:10]}, cold L2, "
        f"{used.warmup} + {used.iterations} calls, {used.trials} trials; "
        f"{TO_MEASURE.format(room=record.room)}"
    )


def _compared_lines(room: str, standing: Standing) -> list[str]:
    """The hardest peer that is right everywhere, and one that is harder where it is right."""
    compared = standing.compared.get(room)
    if compared is None:
        return [f"* not compared with others; run {TO_COMPARE.format(room=room)}"]
    text = _describe_best(room, compared, standing)
    partial = hardest_partial(compared)
    if partial is not None:
        text += f"; the hardest that fails some: {markdown_text(partial)} (geometric mean)"
    if compared.objection is not None:
        text += f"; no official comparison: {markdown_text(one_line(compared.objection))}"
    path, record = f"results/compare/{room}.json", compared.record
    return [
        f"* {text}; content of ours: {_content_of_ours(standing, compared)}",
        f"* comparison: [{path}]({_TO_ROOT}/{path}), {record.measured_at[:10]}, {record.device}; "
        f"{TO_COMPARE.format(room=room)}",
    ]


def _describe_best(room: str, compared: Compared, standing: Standing) -> str:
    best = best_peer(compared)
    if best is None:
        return "no peer passes every workload"
    side = compared.side(best.b)
    is_changed = side.solution_sha256 != standing.packed_peers.get((room, side.name))
    ratio = format_value(Kind.SPEEDUP, best.score)
    interval = format_value(Kind.INTERVAL, bounds(best.score_interval))
    return (
        f"best peer that passes every workload: {markdown_text(side.label)} {side.installed}, "
        f"latency x{ratio} of ours ({interval}) in the mean of the ratios; its content: "
        f"{_content(side.solution_sha256, is_changed)}"
    )


def _content_of_ours(standing: Standing, compared: Compared) -> str:
    sha256 = compared.ours.solution_sha256
    return _content(sha256, sha256 != standing.packed.get(compared.record.room))


def _content(sha256: str, is_stale: bool) -> str:
    """A content's label in a line of Markdown, as a cell of a CONTENT column shows it."""
    return f"{STALE if is_stale else ''}`{sha256[:HASH_CHARACTERS]}`"
