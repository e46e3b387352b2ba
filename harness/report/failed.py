"""What failed: one row a workload and side, and one log of each kind of failure."""

from __future__ import annotations

from harness.compare.record import CONTROL
from harness.records import HASH_CHARACTERS, RunRecord, TraceEntry
from harness.report.document import (
    Block,
    Column,
    Fold,
    Kind,
    Log,
    Paragraph,
    Section,
    Table,
    Value,
    axes_label,
)
from harness.report.evidence import Compared, Evidence
from harness.report.logs import one_line, shorten_log
from harness.report.summary import of_room

_COLUMNS = (
    Column("room"),
    Column("device"),
    Column("side"),
    Column("workload", Kind.CODE),
    Column("axes"),
    Column("status"),
    Column("detail"),
    Column("content", Kind.CODE),
)
NO_TRACE = "no trace of it on this machine"
PASSED_LATER = "its last trace on this machine passed"


def write_failures(evidence: Evidence) -> Section:
    """Sweeps by their last trace where this machine has one, comparisons as recorded."""
    rows: list[tuple[Value, ...]] = []
    for room in evidence.workspace.rooms:
        for record in of_room(room, evidence.latest):
            rows += _sweep_rows(evidence, record)
        if room in evidence.compared:
            rows += _compare_rows(evidence.compared[room])
    if not rows:
        return Section("Failures", "failures", (Paragraph("No workload failed."),))
    caption = "Workloads without a pass, of the content that was recorded."
    blocks: list[Block] = [Table("failures", caption, _COLUMNS, tuple(rows))]
    logs = _logs(evidence)
    if logs:
        blocks.append(Fold("The last log of each kind of failure", logs))
    return Section("Failures", "failures", tuple(blocks))


def _sweep_rows(evidence: Evidence, record: RunRecord) -> list[tuple[Value, ...]]:
    """Workloads that failed in the sweep or in their last trace; the trace says why."""
    traces = {entry.uuid: entry for entry in _verdicts(evidence, record.room, record.device)}
    rows: list[tuple[Value, ...]] = []
    for row in record.workloads:
        entry = traces.get(row.uuid)
        status, detail = row.status, PASSED_LATER if entry else NO_TRACE
        if entry and entry.status != "PASSED":
            status, detail = entry.status, one_line(entry.detail)
        if status != "PASSED":
            rows.append(
                (
                    record.room,
                    record.device,
                    "sweep",
                    row.uuid[:HASH_CHARACTERS],
                    axes_label(row.axes),
                    status,
                    detail,
                    record.solution_sha256[:HASH_CHARACTERS],
                )
            )
    return rows


def _compare_rows(compared: Compared) -> list[tuple[Value, ...]]:
    record = compared.record
    return [
        (
            record.room,
            record.device,
            side.name,
            row.uuid[:HASH_CHARACTERS],
            axes_label(row.axes),
            result.status,
            one_line(result.detail),
            side.solution_sha256[:HASH_CHARACTERS],
        )
        for side in record.sides
        if side.name != CONTROL
        for row in record.workloads
        if (result := row.sides.get(side.name)) is not None and result.status != "PASSED"
    ]


def _verdicts(evidence: Evidence, room: str, device: str) -> list[TraceEntry]:
    return [entry for entry in evidence.verdicts if (entry.room, entry.device) == (room, device)]


def _logs(evidence: Evidence) -> tuple[Log, ...]:
    """The newest log of each status of each room and device, of sweeps and then of each side."""
    newest: dict[tuple[str, str, str], TraceEntry] = {}
    for entry in evidence.verdicts:
        key = (entry.room, entry.device, entry.status)
        text = entry.log or entry.detail
        is_newer = key not in newest or entry.ended_at >= newest[key].ended_at
        if entry.status != "PASSED" and text and is_newer:
            newest[key] = entry
    root = str(evidence.workspace.root)
    of_sweeps = [
        Log(
            f"{room} on {device}: {status}, workload {entry.uuid[:HASH_CHARACTERS]}",
            shorten_log(entry.log or entry.detail, root),
        )
        for (room, device, status), entry in newest.items()
    ]
    return (*of_sweeps, *_side_logs(evidence, root))


def _side_logs(evidence: Evidence, root: str) -> list[Log]:
    """One log of each status of each side of a comparison."""
    found: dict[str, Log] = {}
    for room, compared in evidence.compared.items():
        for row in compared.record.workloads:
            for name, result in row.sides.items():
                text = evidence.side_logs.get((room, name, row.uuid))
                title = f"{room} on {compared.record.device}, {name}: {result.status}"
                if result.status != "PASSED" and text and title not in found:
                    uuid = row.uuid[:HASH_CHARACTERS]
                    found[title] = Log(f"{title}, workload {uuid}", shorten_log(text, root))
    return list(found.values())
