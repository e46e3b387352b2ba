"""Run records to tables: one row a room and device, or one row a workload.

A latency stands beside its device, its timer and the hash of the content it was measured on.
Where a room packs to other content now, the row says "stale, measured on <hash>". Pure: the same
records and hashes give the same text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.config import Room
from harness.records import HASH_CHARACTERS, RunRecord, WorkloadRow, summarise
from harness.report.document import (
    STALE,
    Column,
    Kind,
    Table,
    Value,
    content_label,
    split_axes,
)
from harness.report.tables import to_markdown

NOT_MEASURED = "not measured"
_COMPILERS = ("torch", "triton")  # of the libraries that a record names: what latency depends on
_SUMMARY_COLUMNS = (
    Column("room"),
    Column("passed"),
    Column("mean µs", Kind.US),
    Column("median µs", Kind.US),
    Column("p95 µs", Kind.US),
    Column("mean floor µs", Kind.US),
    Column("mean / floor", Kind.RATIO),
    Column("device"),
    Column("timer"),
    Column("content", Kind.CONTENT),
)
_WORKLOAD_COLUMNS = (
    Column("workload", Kind.CODE),
    Column("axes"),
    Column("status"),
    Column("latency µs", Kind.US),
    Column("floor µs", Kind.US),
    Column("latency / floor", Kind.RATIO),
    Column("max abs error", Kind.ERROR),
    Column("max rel error", Kind.ERROR),
)


def is_stale(record: RunRecord, packed_sha256: str | None) -> bool:
    """Whether the record describes other content than the room packs to (None: does not pack)."""
    return record.solution_sha256 != packed_sha256


def summary_table(
    rooms: Sequence[str], records: Sequence[RunRecord], packed: Mapping[str, str | None]
) -> Table:
    """One row a room and device, rooms in the order given, devices by name.

    packed: the content hash of each room now. A room without a record has a row that says so.
    """
    rows: list[tuple[Value, ...]] = []
    for room in rooms:
        measured = of_room(room, records)
        rows += [_summary_row(record, packed.get(room)) for record in measured]
        if not measured:
            rows.append((room, NOT_MEASURED, *[None] * (len(_SUMMARY_COLUMNS) - 2)))
    caption = "Latency of the latest full sweep of each room on each device."
    return Table("summary", caption, _SUMMARY_COLUMNS, tuple(rows))


def workloads_table(record: RunRecord, name: str = "workloads") -> Table:
    """Every workload of one run, in its order."""
    axes, shared = split_axes([row.axes for row in record.workloads])
    rows = tuple(
        (
            row.uuid[:HASH_CHARACTERS],
            label,
            row.status,
            row.latency_us,
            row.floor_us,
            divide(row.latency_us, row.floor_us),
            row.max_abs_error,
            row.max_rel_error,
        )
        for row, label in zip(record.workloads, axes, strict=True)
    )
    caption = f"{record.room} on {record.device}, every workload{shared}."
    return Table(name, caption, _WORKLOAD_COLUMNS, rows)


def front_rooms(rooms: Mapping[str, Room], records: Sequence[RunRecord]) -> list[str]:
    """Rooms of the front page, in order: the measured ones, and of a definition of the contest
    without any its first room. A room that was only just started has no row beside one that was
    measured."""
    measured = {record.room for record in records}
    answered = {room.definition for name, room in rooms.items() if name in measured}
    shown = []
    for name, room in rooms.items():
        if name in measured or (room.in_contest and room.definition not in answered):
            shown.append(name)
            answered.add(room.definition)
    return shown


def render_summary(
    rooms: Sequence[str], records: Sequence[RunRecord], packed: Mapping[str, str | None]
) -> str:
    """The front page's table as Markdown, then how each row was measured."""
    table = to_markdown(summary_table(rooms, records, packed))
    notes = [f"* {describe(record)}" for room in rooms for record in of_room(room, records)]
    return f"{table}\n\n" + "\n".join(notes) if notes else table


def render_workloads(record: RunRecord, packed_sha256: str | None) -> str:
    """One run's table as Markdown, under a line that says how it was measured."""
    label = STALE if is_stale(record, packed_sha256) else ""
    heading = (
        f"{record.room} on {record.device}, timer {record.timer}, content "
        f"{label}`{record.solution_sha256[:HASH_CHARACTERS]}`: "
        f"{record.passed}/{record.total} passed"
        f"{split_axes([row.axes for row in record.workloads])[1]}"
    )
    return f"{heading}\n\n{to_markdown(workloads_table(record))}"


def without_staleness(text: str) -> str:
    """A rendered text as it reads where no evidence is stale.

    Work in progress changes a room's content hash and thereby that label, and no number.
    """
    return text.replace(STALE, "")


def of_room(room: str, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The room's records, by device."""
    return sorted((record for record in records if record.room == room), key=lambda r: r.device)


def describe(record: RunRecord) -> str:
    """How one run was measured, in a line of Markdown."""
    protocol, dataset = record.protocol, record.dataset
    throttled = ""
    if not record.clocks:
        throttled = ", clocks not sampled"
    elif record.clocks["throttled"]:
        throttled = ", {throttled} of {samples} clock samples throttled".format_map(record.clocks)
    versions = "".join(
        f"{name} {record.libraries[name]}, " for name in _COMPILERS if name in record.libraries
    )
    return (
        f"{record.room}, {record.device}: {versions}"
        f"{protocol.warmup} + {protocol.iterations} calls, {protocol.trials} trials, "
        f"seed {record.seed}, workload data {dataset.name} "
        f"`{dataset.sha256[:HASH_CHARACTERS]}`, judge `{record.judge_sha256[:HASH_CHARACTERS]}`, "
        f"commit `{record.commit[:HASH_CHARACTERS]}`, {record.measured_at}{throttled}"
    )


def mean_floor_us(rows: Sequence[WorkloadRow]) -> float | None:
    """Mean floor over all workloads; None where any has none."""
    floors_us = [row.floor_us for row in rows if row.floor_us is not None]
    return math.fsum(floors_us) / len(rows) if rows and len(floors_us) == len(rows) else None


def divide(latency_us: float | None, floor_us: float | None) -> float | None:
    """Their ratio; None where either is unknown."""
    return None if latency_us is None or floor_us is None else latency_us / floor_us


def _summary_row(record: RunRecord, packed_sha256: str | None) -> tuple[Value, ...]:
    summary = summarise([row.latency_us for row in record.workloads])
    floor_us = mean_floor_us(record.workloads)
    averages = (summary.mean_us, summary.median_us, summary.p95_us) if summary else (None,) * 3
    return (
        record.room,
        f"{record.passed}/{record.total}",
        *averages,
        floor_us,
        divide(averages[0], floor_us),
        record.device,
        record.timer,
        content_label(record.solution_sha256, is_stale(record, packed_sha256)),
    )
