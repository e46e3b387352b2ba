"""Run records to Markdown. Pure: the same records and hashes give the same text.

A latency stands beside its device, its timer and the hash of the content it was measured on.
Where a room packs to other content now, the row says "stale, measured on <hash>".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from harness.errors import UsageError
from harness.records import (
    ABSENT,
    HASH_CHARACTERS,
    RunRecord,
    WorkloadRow,
    format_digits,
    format_us,
    summarise,
)

README_BLOCK = "results"
RATIO_DIGITS = 3
ERROR_DIGITS = 2
NOT_MEASURED = "not measured"
STALE = "stale, measured on "
_SUMMARY_COLUMNS = (
    "room", "passed", "mean µs", "median µs", "p95 µs", "floor µs", "mean / floor",
    "device", "timer", "content",
)  # fmt: skip
_WORKLOAD_COLUMNS = (
    "workload", "axes", "status", "latency µs", "floor µs", "latency / floor", "max abs error",
    "max rel error",
)  # fmt: skip


def is_stale(record: RunRecord, packed_sha256: str | None) -> bool:
    """Whether the record describes other content than the room packs to (None: does not pack)."""
    return record.solution_sha256 != packed_sha256


def render_summary(
    rooms: Sequence[str], records: Sequence[RunRecord], packed: Mapping[str, str | None]
) -> str:
    """The front page's table: one row a room and device, then how each row was measured.

    rooms: short names in the order of the rows. packed: the content hash of each room now.
    """
    rows, notes = [], []
    for room in rooms:
        measured = sorted((r for r in records if r.room == room), key=lambda r: r.device)
        for record in measured:
            rows.append(_summary_row(record, packed.get(room)))
            notes.append(_note(record))
        if not measured:
            rows.append([room, NOT_MEASURED, *[""] * (len(_SUMMARY_COLUMNS) - 2)])
    table = _table(_SUMMARY_COLUMNS, rows)
    return f"{table}\n\n" + "\n".join(notes) if notes else table


def render_workloads(record: RunRecord, packed_sha256: str | None) -> str:
    """Every workload of one run, in its order, under a line that says how they were measured."""
    rows = [
        [
            f"`{row.uuid[:HASH_CHARACTERS]}`",
            " ".join(f"{axis}={size}" for axis, size in row.axes.items()),
            row.status,
            format_us(row.latency_us),
            format_us(row.floor_us),
            _ratio(row.latency_us, row.floor_us),
            _error(row.max_abs_error),
            _error(row.max_rel_error),
        ]
        for row in record.workloads
    ]
    heading = (
        f"{record.room} on {record.device}, timer {record.timer}, content "
        f"{_content(record, packed_sha256)}: {record.passed}/{record.total} passed"
    )
    return f"{heading}\n\n{_table(_WORKLOAD_COLUMNS, rows)}"


def replace_block(text: str, name: str, body: str) -> str:
    """`text` with what stands between the markers of block `name` replaced by `body`.

    Markers are the lines "<!-- name: begin … -->" and "<!-- name: end -->". Raises UsageError
    unless each occurs once, in that order.
    """
    begin, end = _find_block(text, name)
    return f"{text[:begin]}\n{body}\n\n{text[end:]}"  # blank lines, or Markdown sees no table


def read_block(text: str, name: str) -> str:
    """What stands between the markers of block `name`. Raises UsageError."""
    begin, end = _find_block(text, name)
    return text[begin:end].strip("\n")


def without_staleness(text: str) -> str:
    """A rendered text as it reads where no evidence is stale.

    Work in progress changes a room's content hash and thereby that label, and no number.
    """
    return text.replace(STALE, "")


def _find_block(text: str, name: str) -> tuple[int, int]:
    begins = list(re.finditer(rf"^<!-- {re.escape(name)}: begin\b.*-->\n", text, re.MULTILINE))
    ends = list(re.finditer(rf"^<!-- {re.escape(name)}: end -->$", text, re.MULTILINE))
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        raise UsageError(
            f'block {name}: expected one line "<!-- {name}: begin -->" before one line '
            f'"<!-- {name}: end -->", got {len(begins)} and {len(ends)}'
        )
    return begins[0].end(), ends[0].start()


def _summary_row(record: RunRecord, packed_sha256: str | None) -> list[str]:
    summary = summarise([row.latency_us for row in record.workloads])
    floor_us = _mean_floor_us(record.workloads)
    mean_us, median_us, p95_us = (
        (summary.mean_us, summary.median_us, summary.p95_us) if summary else (None,) * 3
    )
    return [
        record.room,
        f"{record.passed}/{record.total}",
        format_us(mean_us),
        format_us(median_us),
        format_us(p95_us),
        format_us(floor_us),
        _ratio(mean_us, floor_us),
        record.device,
        record.timer,
        _content(record, packed_sha256),
    ]


def _note(record: RunRecord) -> str:
    protocol, dataset = record.protocol, record.dataset
    clocks = record.clocks or {}
    throttled = (
        f", {clocks['throttled']} of {clocks['samples']} clock samples throttled"
        if clocks.get("throttled")
        else ""
    )
    return (
        f"* {record.room}, {record.device}: {protocol.warmup} + {protocol.iterations} calls, "
        f"{protocol.trials} trials, seed {record.seed}, workload data {dataset.name} "
        f"`{dataset.sha256[:HASH_CHARACTERS]}`, judge `{record.judge_sha256[:HASH_CHARACTERS]}`, "
        f"commit `{record.commit[:HASH_CHARACTERS]}`, {record.measured_at}{throttled}"
    )


def _mean_floor_us(rows: Sequence[WorkloadRow]) -> float | None:
    """Mean floor over all workloads; None where any has none."""
    floors_us = [row.floor_us for row in rows if row.floor_us is not None]
    return math.fsum(floors_us) / len(rows) if rows and len(floors_us) == len(rows) else None


def _ratio(latency_us: float | None, floor_us: float | None) -> str:
    if latency_us is None or floor_us is None:
        return ABSENT
    return format_digits(latency_us / floor_us, RATIO_DIGITS)


def _error(error: float | None) -> str:
    return ABSENT if error is None else f"{error:.{ERROR_DIGITS}g}"


def _content(record: RunRecord, packed_sha256: str | None) -> str:
    label = STALE if is_stale(record, packed_sha256) else ""
    return f"{label}`{record.solution_sha256[:HASH_CHARACTERS]}`"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---:" if _is_number(column) else "---" for column in columns]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))


def _is_number(column: str) -> bool:
    return "µs" in column or "/ floor" in column or "error" in column
