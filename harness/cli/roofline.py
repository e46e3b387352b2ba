"""``harness roofline``: what each workload must move and multiply, and how close ours is to it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from harness import dataset
from harness.cli.report import packed_hashes
from harness.compare.published import CHIP, Published, read_published
from harness.config import Room, Workspace, load_workspace
from harness.errors import DatasetError, EnvironmentUnfit, ExitCode
from harness.records import HASH_CHARACTERS, RunRecord, latest
from harness.report import NOT_MEASURED
from harness.report.document import Column, Kind, Table, Value, axes_label, content_label
from harness.report.head import TO_MEASURE
from harness.report.tables import to_markdown
from harness.roofline import (
    CEILINGS,
    Floor,
    Work,
    count_work,
    find_floor,
    is_counted,
    needs_data,
    read_data,
)

MEGA = 1e6
_PUBLISHED = (Column(f"paper µs ({CHIP})", Kind.US), Column(f"FlashInfer µs ({CHIP})", Kind.US))
_COSTS = (
    Column("read MB", Kind.RATIO),
    Column("written MB", Kind.RATIO),
    Column("MFLOP", Kind.RATIO),
    Column("floor µs", Kind.US),
    Column("binds"),
    Column("ours µs", Kind.US),
    Column("ours / floor", Kind.RATIO),
)
_ROOM_COLUMNS = (
    *(Column("room"), Column("workloads", Kind.COUNT)),
    *(Column(f"mean {column.name}", column.kind) for column in _COSTS[:4]),
    *_COSTS[4:],
    Column("our content", Kind.CONTENT),
    *_PUBLISHED,
)
_WORKLOAD_COLUMNS = (Column("workload", Kind.CODE), Column("axes"), *_COSTS, *_PUBLISHED)


@dataclass(frozen=True)
class Cost:
    """One workload. ours_us: of the latest sweep of the same workload data, None without."""

    uuid: str
    axes: str
    work: Work
    floor: Floor
    ours_us: float | None
    published: Published


@dataclass(frozen=True)
class RoomCosts:
    """A room's workloads in official order. content: the label of what `ours` was measured on;
    None where there is no `ours`, and then `reason` says why."""

    room: str
    costs: tuple[Cost, ...]
    content: str | None
    reason: str | None


@click.command()
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
@click.option("--device", metavar="SLUG", default=next(iter(CEILINGS)), show_default=True)
@click.option("--workloads", is_flag=True, help="One table a room, one row a workload.")
def roofline(rooms: tuple[str, ...], device: str, workloads: bool) -> int:
    """Print bytes, flops, floor, what binds it and our latest sweep of ROOMs (default: the
    contest's).

    Measures nothing and needs no GPU. Published latencies of another chip stand in columns of
    their own and enter no ratio.
    """
    workspace = load_workspace()
    asked = [workspace.room(name) for name in dict.fromkeys(rooms or workspace.contest_rooms)]
    if device not in CEILINGS:
        raise EnvironmentUnfit(
            f"device: expected one whose ceilings were measured, {', '.join(CEILINGS)}; got "
            f"{device!r}; measure it and add it to harness/roofline.py"
        )
    published = read_published(workspace.root)
    root = dataset.locate(workspace)
    counted, without = [], []
    for room in asked:
        try:
            require_countable(root, room)
            counted.append(count_costs(workspace, root, room, device, published))
        except DatasetError as error:
            without.append(f"error: {room.name}: {error}")
    if counted:
        click.echo(
            render_workloads(counted, device) if workloads else render_rooms(counted, device)
        )
    for line in without:
        click.echo(line, err=True)
    return ExitCode.UNFIT if without else ExitCode.OK


def require_countable(root: Path, room: Room) -> None:
    """Raise DatasetError, with what to do about it, where a room's work cannot be counted."""
    if not is_counted(room.definition):
        raise DatasetError(
            f"nobody counted the bytes and flops of {room.definition}; do so in harness/roofline.py"
        )
    if not needs_data(room.definition):
        return
    paths = [path for row in dataset.read_workloads(root, room) for path in row.blob_paths]
    missing = [path for path in paths if not (root / path).is_file()]
    if missing:
        step = f"make {room.name}" if dataset.is_checkout(root) else f"fetch {root}"
        raise DatasetError(
            f"{len(missing)} of {len(paths)} blobs are missing; "
            f"run `python -m harness dataset {step}`"
        )


def count_costs(
    workspace: Workspace, root: Path, room: Room, device: str, published: dict[str, Published]
) -> RoomCosts:
    """Count a room's workloads from the data set at `root`.

    Raises DatasetError where a blob is missing or damaged.
    """
    record = latest(workspace.root, device, room.name)
    ours_us: dict[str, float | None] = {}
    content = reason = None
    if record is None:
        reason = f"{NOT_MEASURED} on {device}; run {TO_MEASURE.format(room=room.name)} there"
    elif record.dataset.sha256 != dataset.content_sha256(root, room):
        reason = f"measured on other workload data than {root} holds"
    else:
        ours_us = {row.uuid: row.latency_us for row in record.workloads}
        content = _content(workspace, record)
    costs = []
    for row in dataset.read_workloads(root, room):
        data = read_data(room.definition, row.inputs, root)
        work = count_work(room.definition, row.axes, data)
        costs.append(
            Cost(
                uuid=row.uuid,
                axes=axes_label(row.axes),
                work=work,
                floor=find_floor(work, CEILINGS[device]),
                ours_us=ours_us.get(row.uuid),
                published=published.get(row.uuid, Published(None, None)),
            )
        )
    return RoomCosts(room.name, tuple(costs), content, reason)


def _content(workspace: Workspace, record: RunRecord) -> str:
    packed_sha256 = packed_hashes(workspace, [record.room])[record.room]
    return content_label(record.solution_sha256, record.solution_sha256 != packed_sha256)


def render_rooms(rooms: Sequence[RoomCosts], device: str) -> str:
    """One row a room; means over its workloads, none where any lacks a number."""
    rows = [
        (
            one.room,
            len(one.costs),
            *_numbers(one.costs),
            ", ".join(f"{roof} {count}" for roof, count in _roofs(one.costs)),
            *_ours(one.costs),
            one.content,
            *_published(one.costs),
        )
        for one in rooms
    ]
    parts = [_heading(device), to_markdown(Table("", "", _ROOM_COLUMNS, tuple(rows)))]
    notes = [f"* {one.room}: {one.reason}" for one in rooms if one.reason]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def render_workloads(rooms: Sequence[RoomCosts], device: str) -> str:
    """One table a room, one row a workload in official order."""
    parts = [_heading(device)]
    for one in rooms:
        rows: list[tuple[Value, ...]] = [
            (
                cost.uuid[:HASH_CHARACTERS],
                cost.axes,
                *_numbers([cost]),
                cost.floor.roof,
                *_ours([cost]),
                *_published([cost]),
            )
            for cost in one.costs
        ]
        table = to_markdown(Table("", "", _WORKLOAD_COLUMNS, tuple(rows)))
        parts.append(f"{one.room}, ours: {one.reason or one.content}\n\n{table}")
    return "\n\n".join(parts)


def _heading(device: str) -> str:
    ceilings = CEILINGS[device]
    rates = ", ".join(
        f"{operands} {rate / 1e12:g} TFLOP/s" for operands, rate in ceilings.flop_rates.items()
    )
    return (
        f"{device}: launch {ceilings.launch_us:g} µs, memory {ceilings.read_bandwidth / 1e12:g} "
        f"TB/s read and {ceilings.copy_bandwidth / 1e12:g} TB/s copy, {rates}, as measured. A "
        "floor is launch and the longer of bytes and flops; the largest of the three binds."
    )


def _numbers(costs: Sequence[Cost]) -> tuple[float | None, ...]:
    """Means of bytes read, bytes written, flops and floor."""
    return (
        _mean([cost.work.bytes_read / MEGA for cost in costs]),
        _mean([cost.work.bytes_written / MEGA for cost in costs]),
        _mean([cost.work.flops / MEGA for cost in costs]),
        _mean([cost.floor.latency_us for cost in costs]),
    )


def _ours(costs: Sequence[Cost]) -> tuple[float | None, float | None]:
    """Mean latency, and its ratio to the mean floor."""
    ours_us = _mean([cost.ours_us for cost in costs])
    floor_us = _mean([cost.floor.latency_us for cost in costs])
    return ours_us, ours_us / floor_us if ours_us is not None and floor_us else None


def _published(costs: Sequence[Cost]) -> tuple[float | None, float | None]:
    return (
        _mean([cost.published.paper_us for cost in costs]),
        _mean([cost.published.flashinfer_us for cost in costs]),
    )


def _roofs(costs: Sequence[Cost]) -> list[tuple[str, int]]:
    return Counter(cost.floor.roof for cost in costs).most_common()


def _mean(values: Sequence[float | None]) -> float | None:
    """None where any is missing: the rest would be a mean of other workloads."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
