"""The chapter of plots: which numbers go into which figure, one device a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.compare.record import difference
from harness.records import RunRecord
from harness.report.document import Block, Bullets, Figure, Paragraph, Section
from harness.report.evidence import DECISIONS, Compared, Evidence
from harness.report.head import NOT_COMPARED
from harness.report.logs import one_line
from harness.report.plots import (
    FLOOR,
    Bar,
    Run,
    draw_history,
    draw_latencies,
    draw_roofline,
    draw_speedups,
)
from harness.report.rooms import median_us
from harness.report.summary import of_room
from harness.roofline import CEILINGS, Work

OURS = "ours"
STARS = "A star marks content that was promoted."
NO_STARS = f"No stars: there is no {DECISIONS}."

Points = Mapping[str, Sequence[tuple[int, float]]]


def write_figures(evidence: Evidence) -> Section:
    devices = {record.device for record in evidence.latest}
    devices |= {compared.record.device for compared in evidence.compared.values()}
    parts = tuple(_device_section(evidence, device) for device in sorted(devices))
    return Section("Plots", "plots", parts or (Paragraph("Nothing was measured."),))


def primary_axis(axes: Sequence[Mapping[str, int]]) -> str | None:
    """The axis with the most different sizes, the first of them; None where there is no axis."""
    names = dict.fromkeys(name for one in axes for name in one)
    sizes = {name: len({one[name] for one in axes if name in one}) for name in names}
    return max(sizes, key=lambda name: sizes[name], default=None)


def side_names(evidence: Evidence) -> list[str]:
    """Ours, then every other side of any comparison, by name: the order of their colours."""
    others = {other.b for one in evidence.compared.values() for other in one.others}
    return [OURS, *sorted(others - {OURS})]


def _device_section(evidence: Evidence, device: str) -> Section:
    notes: list[str] = []
    figures = [
        *_speedups(evidence, device, notes),
        *_latencies(evidence, device),
        *_roofline(evidence, device, notes),
        *_history(evidence, device, notes),
    ]
    blocks: list[Block] = [*figures]
    if notes:
        blocks.append(Bullets(tuple(notes)))
    return Section(f"Plots of {device}", f"plots-{device}", tuple(blocks))


def _speedups(evidence: Evidence, device: str, notes: list[str]) -> list[Figure]:
    bars = []
    for room in evidence.workspace.rooms:
        compared = evidence.compared.get(room)
        if compared is None or compared.record.device != device:
            notes.append(f"Speed-up: {room} {NOT_COMPARED} on {device}.")
            continue
        for other in compared.tried():
            side, interval = compared.side(other.b), other.score_interval
            if interval is None:
                notes.append(f"Speed-up: {room} against {other.b} has no bar: a workload failed.")
                continue
            bars.append(Bar(room, other.b, interval.value, interval.low, interval.high))
            if side.stands_in or side.caveat:
                notes.append(
                    f"Speed-up: {room}: {side.label}"
                    + (f": {one_line(side.caveat)}" if side.caveat else "")
                )
    if not bars:
        return []
    return [draw_speedups(f"speedup-{device}", device, bars, side_names(evidence))]


def _latencies(evidence: Evidence, device: str) -> list[Figure]:
    """One figure a room: the comparison's sides where there is one, else the last sweep."""
    figures = []
    for room in evidence.workspace.rooms:
        compared = evidence.compared.get(room)
        swept = [record for record in of_room(room, evidence.latest) if record.device == device]
        if compared is not None and compared.record.device == device:
            axis = primary_axis([row.axes for row in compared.record.workloads])
            points = _compared_points(compared, axis) if axis else {}
        elif swept:
            axis = primary_axis([row.axes for row in swept[0].workloads])
            points = _swept_points(swept[0], axis) if axis else {}
        else:
            continue
        points = {name: own for name, own in points.items() if own}
        if axis and points:
            name = f"latency-{room}-{device}"
            series = side_names(evidence)
            figures.append(draw_latencies(name, device, room, axis, points, series))
    return figures


def _compared_points(compared: Compared, axis: str) -> Points:
    rows = [row for row in compared.record.workloads if axis in row.axes]
    points: dict[str, list[tuple[int, float]]] = {}
    for label, side in (
        (OURS, compared.ours.name),
        *((other.b, other.b) for other in compared.tried()),
    ):
        pairs = [(row.axes[axis], median_us(row, side)) for row in rows]
        points[label] = [(size, us) for size, us in pairs if us is not None]
    floors = [(row.axes[axis], row.floor_us) for row in rows]
    points[FLOOR] = [(size, us) for size, us in floors if us is not None]
    return points


def _swept_points(record: RunRecord, axis: str) -> Points:
    rows = [row for row in record.workloads if axis in row.axes]
    pairs = {
        OURS: [(row.axes[axis], row.latency_us) for row in rows],
        FLOOR: [(row.axes[axis], row.floor_us) for row in rows],
    }
    return {name: [(size, us) for size, us in own if us is not None] for name, own in pairs.items()}


def _roofline(evidence: Evidence, device: str, notes: list[str]) -> list[Figure]:
    """The last sweeps under the device's ceilings. A workload without flops has no place there."""
    if device not in CEILINGS:
        notes.append(f"Roofline: nobody measured the ceilings of {device}.")
        return []
    points = {}
    for room in evidence.workspace.rooms:
        for record in of_room(room, evidence.latest):
            if record.device != device:
                continue
            data = (room, record.dataset.sha256)
            if data in evidence.without_work:
                notes.append(f"Roofline: {room} is left out: {evidence.without_work[data]}")
                continue
            work = evidence.work[data]
            points[room] = _rates(record, work)
            idle = sum(work[row.uuid].flops == 0 for row in record.workloads if row.uuid in work)
            if idle:
                notes.append(
                    f"Roofline: {idle} workloads of {room} need no flops and are left out."
                )
    points = {room: own for room, own in points.items() if own}
    if not points:
        return []
    rooms = list(evidence.workspace.rooms)
    return [draw_roofline(f"roofline-{device}", device, CEILINGS[device], points, rooms)]


def _rates(record: RunRecord, work: Mapping[str, Work]) -> list[tuple[float, float]]:
    """(flops / byte, flops / s) of each workload that passed and needs any."""
    return [
        (cost.flops / cost.bytes_moved, cost.flops / (row.latency_us * 1e-6))
        for row in record.workloads
        if row.latency_us is not None
        and (cost := work.get(row.uuid)) is not None
        and cost.flops > 0
    ]


def _history(evidence: Evidence, device: str, notes: list[str]) -> list[Figure]:
    """Runs that compare with the room's last sweep, over the same workloads, all passed."""
    runs = {}
    for room in evidence.workspace.rooms:
        for latest in of_room(room, evidence.latest):
            if latest.device != device:
                continue
            own = [run for run in evidence.runs if (run.room, run.device) == (room, device)]
            fitting = [run for run in own if _fits(run, latest)]
            if len(fitting) < len(own):
                notes.append(
                    f"History: {len(own) - len(fitting)} of {len(own)} runs of {room} are left "
                    "out: other workloads, data, timer or tolerances, or a workload failed."
                )
            if fitting:
                runs[room] = [_as_run(run, evidence.promoted) for run in fitting]
    if not runs:
        return []
    stars = NO_STARS if evidence.promoted is None else STARS
    rooms = list(evidence.workspace.rooms)
    return [draw_history(f"history-{device}", device, runs, rooms, stars)]


def _fits(run: RunRecord, latest: RunRecord) -> bool:
    same = [row.uuid for row in run.workloads] == [row.uuid for row in latest.workloads]
    return same and difference(run, latest) is None and run.mean_latency_us is not None


def _as_run(run: RunRecord, promoted: frozenset[tuple[str, str]] | None) -> Run:
    assert run.mean_latency_us is not None
    is_promoted = (run.room, run.solution_sha256) in (promoted or ())
    return Run(run.measured_at, run.mean_latency_us, is_promoted)
