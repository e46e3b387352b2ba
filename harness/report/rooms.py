"""One chapter a definition: latencies, peers, regimes, and every workload against every peer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace

from harness.compare.analysis import NO_CONTROL_OF_OTHERS, REGIME_RATIOS, Comparison
from harness.compare.published import CHIP, Published
from harness.compare.record import CompareRow, Side
from harness.compare.scores import BASELINE
from harness.compare.statistics import WORDS
from harness.records import HASH_CHARACTERS, summarise
from harness.report.document import (
    Block,
    Column,
    Fold,
    Kind,
    Paragraph,
    Section,
    Table,
    Value,
    bounds,
    content_label,
    split_axes,
)
from harness.report.evidence import Compared, Evidence
from harness.report.head import TO_COMPARE, is_measured_peer
from harness.report.logs import one_line
from harness.report.summary import divide, of_room, summary_table, workloads_table

_AGAINST_COLUMNS = (
    Column("against"),
    Column("passed"),
    Column("mean µs", Kind.US),
    Column("median µs", Kind.US),
    Column("p95 µs", Kind.US),
    Column("mean ratio", Kind.SPEEDUP),
    Column("interval", Kind.INTERVAL),
    Column("ratio of means", Kind.SPEEDUP),
    Column("geometric mean", Kind.SPEEDUP),
    Column("wins", Kind.COUNT),
    Column("ties", Kind.COUNT),
    Column("losses", Kind.COUNT),
    *(Column(word, Kind.COUNT) for word in WORDS),
    Column("device"),
)
_SIDE_COLUMNS = (
    Column("side"),
    Column("kind"),
    Column("package"),
    Column("pinned"),
    Column("installed"),
    Column("prepared before the call"),
    Column("stands in"),
    Column("caveat"),
    Column("content", Kind.CONTENT),
    Column("state"),
)


def write_rooms(evidence: Evidence) -> Section:
    rooms = tuple(_room_section(evidence, room) for room in evidence.workspace.rooms)
    return Section("Definitions", "definitions", rooms)


def median_us(row: CompareRow, side: str) -> float | None:
    """Median over a side's rounds on one workload; None where it has none."""
    result = row.sides.get(side)
    return statistics.median(result.rounds_us) if result and result.rounds_us else None


def _room_section(evidence: Evidence, room: str) -> Section:
    definition = evidence.workspace.rooms[room].definition
    records = of_room(room, evidence.latest)
    blocks: list[Block] = [Paragraph(f"`{definition}`")]
    latency = summary_table([room], records, evidence.packed)
    blocks.append(replace(latency, name=f"latency-{room}", caption=f"{room}: the latest sweeps."))
    compared = evidence.compared.get(room)
    if compared is None:
        blocks.append(Paragraph(f"Not compared; run {TO_COMPARE.format(room=room)}"))
    else:
        blocks += _compared_blocks(evidence, compared)
    for record in records:
        table = workloads_table(record, f"sweep-{room}-{record.device}")
        title = f"{room} on {record.device}: the sweep's {record.total} workloads"
        blocks.append(Fold(title, (table,)))
    return Section(room, room, tuple(blocks))


def _compared_blocks(evidence: Evidence, compared: Compared) -> list[Block]:
    room, device = compared.record.room, compared.record.device
    blocks: list[Block] = [_against_table(compared), Paragraph(_control_text(compared))]
    blocks.append(_sides_table(evidence, compared))
    tried = compared.tried()
    if tried and tried[0].regimes:
        blocks += [_regimes_table(compared), Paragraph(REGIME_RATIOS)]
    total = len(compared.record.workloads)
    title = f"{room} on {device}: the comparison's {total} workloads"
    blocks.append(Fold(title, (_workloads_table(evidence, compared),)))
    return blocks


def _against_table(compared: Compared) -> Table:
    """Ours first, then one row a side that it was compared with."""
    ours = compared.ours
    device = compared.record.device
    empty = (None,) * (len(_AGAINST_COLUMNS) - 6)
    rows: list[tuple[Value, ...]] = [(*_side_latencies(compared, ours), *empty, device)]
    for other in compared.others:
        ran = compared.side(other.b).state != "missing"
        counts = (other.wins, other.ties, other.losses, *(other.words[word] for word in WORDS))
        rows.append(
            (
                *_side_latencies(compared, compared.side(other.b)),
                other.score,
                bounds(other.score_interval),
                other.ratio_of_means,
                other.geometric_mean,
                *(counts if ran else (None,) * len(counts)),
                device,
            )
        )
    caption = (
        f"{compared.record.room} on {compared.record.device}: {ours.name} and what it was "
        "compared with. Ratios are the other side's latency over ours."
    )
    return Table(_name("against", compared), caption, _AGAINST_COLUMNS, tuple(rows))


def _side_latencies(compared: Compared, side: Side) -> tuple[Value, ...]:
    """Label, passed, and mean, median and p95 in µs."""
    latencies_us = [median_us(row, side.name) for row in compared.record.workloads]
    summary = summarise(latencies_us)
    averages = (summary.mean_us, summary.median_us, summary.p95_us) if summary else (None,) * 3
    passed = sum(latency_us is not None for latency_us in latencies_us)
    counts = f"{passed}/{len(latencies_us)}" if side.state != "missing" else "not run"
    return (side.label, counts, *averages)


def _control_text(compared: Compared) -> str:
    control = next((other.control for other in compared.others if other.control), None)
    if control is None:
        return "Control: not measured."
    return (
        f"Control: two processes of {control.side} differ by "
        f"{100 * math.sqrt(control.spread.variance):.2g} % a workload beyond their rounds' noise; "
        f"without that, which every interval includes, {control.different} of "
        f"{control.compared} workloads would be called FAST or SLOW. {NO_CONTROL_OF_OTHERS}"
    )


def _sides_table(evidence: Evidence, compared: Compared) -> Table:
    room = compared.record.room
    now = {name: sha for (of, name), sha in evidence.packed_peers.items() if of == room}
    now |= {compared.ours.name: evidence.packed.get(room)}
    rows: list[tuple[Value, ...]] = [
        (
            side.name,
            side.kind,
            side.package,
            side.pinned,
            side.installed,
            *(
                one_line(text) if text else None
                for text in (side.prepared, side.stands_in, side.caveat)
            ),
            content_label(
                side.solution_sha256,
                (side == compared.ours or is_measured_peer(side))
                and side.solution_sha256 != now.get(side.name),
            ),
            side.state + (f": {one_line(side.reason)}" if side.reason else ""),
        )
        for side in compared.record.sides
    ]
    caption = f"{room} on {compared.record.device}: what each side is."
    return Table(_name("sides", compared), caption, _SIDE_COLUMNS, tuple(rows))


def _regimes_table(compared: Compared) -> Table:
    """Geometric mean of the ratios and counts of words in each range of each axis."""
    others = compared.tried()
    columns = [Column("axis"), Column("range"), Column("workloads", Kind.COUNT)]
    for other in others:
        columns += [Column(f"{other.b} / ours", Kind.SPEEDUP), Column(f"{other.b} words")]
    columns.append(Column("device"))
    rows: list[tuple[Value, ...]] = []
    for index, regime in enumerate(others[0].regimes):
        cells: list[Value] = [regime.axis, regime.label, regime.count]
        for other in others:
            found = other.regimes[index]
            cells += [found.geometric_mean, _words_text(found.words)]
        rows.append((*cells, compared.record.device))
    caption = (
        f"{compared.record.room} on {compared.record.device} by regime: geometric mean of the "
        "ratios, and how many workloads each word describes."
    )
    return Table(_name("regimes", compared), caption, tuple(columns), tuple(rows))


def _words_text(words: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in words.items() if count)


def _workloads_table(evidence: Evidence, compared: Compared) -> Table:
    """Every workload in the record's order, ours beside every side that ran, and what others
    published for another chip where that is known. A side that ran fewer rounds than ours stands
    beside ours of those rounds."""
    ours, others = compared.ours.name, compared.tried()
    columns = [
        Column("workload", Kind.CODE),
        Column("axes"),
        Column(f"{ours} µs", Kind.US),
        Column("floor µs", Kind.US),
        Column(f"{ours} / floor", Kind.RATIO),
    ]
    ours_us = [median_us(row, ours) for row in compared.record.workloads]
    shorter = {
        other.b
        for other in others
        if any(row.interval and row.a_us != us for row, us in zip(other.rows, ours_us, strict=True))
    }
    for other in others:
        if other.b in shorter:
            columns.append(Column(f"{ours} µs beside {other.b}", Kind.US))
        columns += [
            Column(f"{other.b} µs", Kind.US),
            Column(f"{other.b} / {ours}", Kind.SPEEDUP),
            Column(f"{other.b} interval", Kind.INTERVAL),
            Column(f"{other.b} detects", Kind.SHARE),
            Column(f"{other.b} word", Kind.WORD),
        ]
    elsewhere = _published_latencies(evidence, compared)
    columns += [Column(f"{name} µs on {CHIP}", Kind.US) for name in elsewhere]
    axes, shared = split_axes([row.axes for row in compared.record.workloads])
    rows: list[tuple[Value, ...]] = []
    for index, row in enumerate(compared.record.workloads):
        cells: list[Value] = [row.uuid[:HASH_CHARACTERS], axes[index], ours_us[index]]
        cells += [row.floor_us, divide(ours_us[index], row.floor_us)]
        for other in others:
            cells += [other.rows[index].a_us] if other.b in shorter else []
            cells += _against_cells(row, other, index)
        cells += [latencies_us[index] for latencies_us in elsewhere.values()]
        rows.append(tuple(cells))
    caption = (
        f"{compared.record.room} on {compared.record.device}, every workload{shared}. Detects: the "
        "least difference that these rounds tell from none four times in five."
    )
    return Table(_name("workloads", compared), caption, tuple(columns), tuple(rows))


def _published_latencies(evidence: Evidence, compared: Compared) -> dict[str, list[float | None]]:
    """By whose kernel, one latency a workload; nobody's where none of these was published."""
    nothing = Published(None, None)
    there = [evidence.published.get(row.uuid, nothing) for row in compared.record.workloads]
    found = {
        "contest entry": [one.paper_us for one in there],
        BASELINE: [one.flashinfer_us for one in there],
    }
    return {name: own for name, own in found.items() if any(own)}


def _against_cells(row: CompareRow, other: Comparison, index: int) -> tuple[Value, ...]:
    """Latency, ratio, interval, detectable effect and word; in the word's place the first status
    that is no pass."""
    found = other.rows[index]
    interval = found.interval
    statuses = [
        f"{name}: {row.sides[name].status if name in row.sides else 'not run'}"
        for name in (other.a, other.b)
        if name not in row.sides or row.sides[name].status != "PASSED"
    ]
    return (
        found.b_us,
        interval.value if interval else None,
        bounds(interval),
        interval.mde if interval else None,
        found.word or next(iter(statuses), None),
    )


def _name(kind: str, compared: Compared) -> str:
    return f"{kind}-{compared.record.room}-{compared.record.device}"
