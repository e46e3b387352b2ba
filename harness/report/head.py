"""The report's first chapter: what was measured, how, what is out of date and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.compare.record import CompareRecord, Side
from harness.compare.scores import HOST_GAPS
from harness.compare.statistics import DEFAULT_MARGIN
from harness.records import HASH_CHARACTERS, RunRecord
from harness.report.document import (
    Block,
    Bullets,
    Column,
    Kind,
    Paragraph,
    Section,
    Table,
    Value,
    content_label,
)
from harness.report.evidence import Evidence
from harness.report.logs import one_line
from harness.report.summary import NOT_MEASURED, is_stale, of_room

TO_MEASURE = "`python -m harness evaluate {room} --workloads all --record`"
TO_COMPARE = "`python -m harness compare ours peers {room} --record`"
NOT_COMPARED = "not compared"
_WHAT = (
    "Kernels for the FlashInfer-Bench contest (MLSys 2026), judged by the official evaluator and "
    "timed beside what a user would call instead. Every number belongs to the device, the content "
    "and the workload data that its row or caption names."
)
_HOW = (
    "A latency is the span from the start of the first to the end of the last GPU activity of one "
    "call with a cold L2, in µs: median over the calls, then mean over the trials of a sweep or "
    "median over the rounds of a comparison. A ratio is the other side's latency over ours: above "
    f"1 ours is faster. {HOST_GAPS} A floor is the least time that bytes and flops allow on the "
    "device. "
    "`docs/measuring.md` says what is inside a number."
)
_WORDS = (
    f"FAST and SLOW: the whole interval lies beyond a margin of {DEFAULT_MARGIN * 100:g} % "
    "on that side. SAME: all of it lies within. UNSURE: neither."
)
_COLUMNS = (
    Column("room"),
    Column("evidence"),
    Column("device"),
    Column("content", Kind.CONTENT),
    Column("timer"),
    Column("calls"),
    Column("repeats"),
    Column("measured"),
    Column("clocks"),
    Column("driver"),
    Column("judge", Kind.CODE),
    Column("data", Kind.CODE),
    Column("commit", Kind.CODE),
)


def write_head(evidence: Evidence) -> Section:
    """What this is, the table of evidence, what is stale, what is missing."""
    stale, missing = list_stale(evidence), list_missing(evidence)
    blocks: list[Block] = [
        Paragraph(_WHAT),
        Paragraph(_HOW),
        Paragraph(_WORDS),
        _evidence_table(evidence),
        Section(
            "Out of date",
            "stale",
            (Bullets(stale) if stale else Paragraph("Nothing: every content is as it packs now."),),
        ),
        Section("Missing", "missing", (Bullets(missing) if missing else Paragraph("Nothing."),)),
    ]
    return Section("What was measured", "head", tuple(blocks))


def list_stale(evidence: Evidence) -> tuple[str, ...]:
    """One line for each record, or side of one, whose content is not what packs now, and for each
    record that is no full official one."""
    lines = []
    for room in evidence.workspace.rooms:
        now = evidence.packed.get(room)
        lines += [
            f"{room} on {record.device}: the sweep, {_measured_on(record.solution_sha256, now)}"
            for record in of_room(room, evidence.latest)
            if is_stale(record, now)
        ]
        lines += [
            f"{room} on {device}: the sweep is no full official one: {objection}; run "
            f"{TO_MEASURE.format(room=room)}"
            for (name, device), objection in evidence.unofficial.items()
            if name == room
        ]
        compared = evidence.compared.get(room)
        if compared is None:
            continue
        where = f"{room} on {compared.record.device}: the comparison"
        if compared.objection is not None:
            again = f"run {TO_COMPARE.format(room=room)} again"
            lines.append(f"{where} is no official one: {compared.objection}; {again}")
        if compared.ours.solution_sha256 != now:
            lines.append(f"{where}, {_measured_on(compared.ours.solution_sha256, now)}")
        for side in compared.record.sides:
            peer_now = evidence.packed_peers.get((room, side.name))
            if is_measured_peer(side) and side.solution_sha256 != peer_now:
                lines.append(
                    f"{where} with {side.name}, {_measured_on(side.solution_sha256, peer_now)}"
                )
    return tuple(lines)


def list_missing(evidence: Evidence) -> tuple[str, ...]:
    """What a complete report would also hold, and the command that measures it."""
    lines = []
    for room in evidence.workspace.rooms:
        if not of_room(room, evidence.latest):
            lines.append(f"{room}: {NOT_MEASURED}; run {TO_MEASURE.format(room=room)}")
        compared = evidence.compared.get(room)
        if compared is None:
            lines.append(f"{room}: {NOT_COMPARED}; run {TO_COMPARE.format(room=room)}")
            continue
        device = compared.record.device
        lines += [
            f"{room} on {device}: {side.name} could not be tried: {one_line(side.reason or '')}"
            for side in compared.record.sides
            if side.state == "missing"
        ]
        tried = {side.name for side in compared.record.sides}
        lines += [
            f"{room} on {device}: {library} is in peers/ and not in the comparison"
            for name, library in evidence.packed_peers
            if name == room and library not in tried
        ]
    return tuple(lines)


def is_measured_peer(side: Side) -> bool:
    """Whether the side is a file of peers/ that gave numbers, which another content would not."""
    return side.kind == "peer" and side.state != "missing"


def _measured_on(sha256: str, now: str | None) -> str:
    packs = f"packs to {now[:HASH_CHARACTERS]} now" if now else "does not pack now"
    return f"measured on {sha256[:HASH_CHARACTERS]}, {packs}"


def _evidence_table(evidence: Evidence) -> Table:
    rows: list[tuple[Value, ...]] = []
    for room in evidence.workspace.rooms:
        now = evidence.packed.get(room)
        for record in of_room(room, evidence.latest):
            protocol = record.protocol
            calls = f"{protocol.warmup} + {protocol.iterations}"
            rows.append(
                _row(
                    record, "sweep", calls, f"{protocol.trials} trials", record.solution_sha256, now
                )
            )
        compared = evidence.compared.get(room)
        if compared:
            used = compared.record.protocol
            rows.append(
                _row(
                    compared.record,
                    "comparison",
                    f"{used.warmup} + {used.iterations}",
                    f"{used.rounds} rounds",
                    compared.ours.solution_sha256,
                    now,
                )
            )
    caption = "Records that this report shows, and how each was measured."
    return Table("evidence", caption, _COLUMNS, tuple(rows))


def _row(
    record: RunRecord | CompareRecord,
    evidence: str,
    calls: str,
    repeats: str,
    sha256: str,
    now: str | None,
) -> tuple[Value, ...]:
    return (
        record.room,
        evidence,
        record.device,
        content_label(sha256, sha256 != now),
        record.timer,
        calls,
        repeats,
        record.measured_at,
        _clocks(record.clocks),
        record.driver,
        record.judge_sha256[:HASH_CHARACTERS],
        record.dataset.sha256[:HASH_CHARACTERS],
        record.commit[:HASH_CHARACTERS],
    )


def _clocks(clocks: Mapping[str, Any] | None) -> str:
    if not clocks or "samples" not in clocks:
        return "not sampled"
    return f"{clocks.get('throttled', 0)} of {clocks['samples']} throttled"
