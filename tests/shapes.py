"""Latency between official sizes: results/shapes/<device>/<room>.json, a table in the room's page.

    python -m tests.shapes ROOM...     # measure on the GPU, keep and show
    python -m tests.shapes --show      # the tables of what is kept; run nothing
    python -m tests.shapes --check     # whether the pages show these; write nothing

The timer is that of every recorded latency (docs/measuring.md), with the room's official warm-up
and iterations. Sizes take turns, PASSES times, and the median of the passes counts: a host that is
slow for a moment costs one pass, not one size. A size between the anchors is a cliff where it takes
more than CLIFF times what the line through the anchors beside it gives there.

A room is kept when all of its sizes are measured, and shown at once: an interrupted run loses the
room it was in and no other. What is timed wrote every output; whether it was right, tests/gpu ask.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.config import load_workspace
from harness.devices import DeviceFacts, read_facts
from harness.errors import (
    HarnessError,
    InfrastructureFailure,
    RecordError,
    ToolMissing,
    run_program,
)
from harness.evaluate.alone import hold_device
from harness.evaluate.sweep import read_commit, require_commit
from harness.evaluate.verdicts import read_environment, utc_now
from harness.files import write_atomically
from harness.packing import pack
from harness.records import COMMIT_OR_UNKNOWN, HASH_CHARACTERS, NAME, SHA256, read_json
from harness.records.strict_json import LONGEST_US, SHORTEST_US, Fields
from harness.report.blocks import read_page_block, replace_block
from harness.timing import require_timer
from tests.shape_families import FAMILIES, RATE, Call, Family

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "results" / "shapes"
PAGES = ROOT / "docs" / "kernels"
BLOCK = "shapes"
COMMAND = "python -m tests.shapes"
CLIFF = 1.15
PASSES = 3


@dataclass(frozen=True)
class Row:
    """others_us: libraries' latencies by name."""

    family: str
    size: int
    latency_us: float
    others_us: dict[str, float]


def interpolate(anchors: dict[int, float], size: int) -> float:
    """The line through the anchors beside `size`; beyond the outermost one, its own value."""
    known = sorted(anchors)
    at = bisect_left(known, size)
    if at == 0 or at == len(known):
        return anchors[known[min(at, len(known) - 1)]]
    low, high = known[at - 1], known[at]
    return anchors[low] + (anchors[high] - anchors[low]) * (size - low) / (high - low)


def ratio_of(family: Family, rows: Sequence[Row], size: int) -> float | None:
    """Latency over what the anchors let expect; None for an anchor, and where one of the anchors
    was not measured: the line would be another one."""
    latencies = {row.size: row.latency_us for row in rows if row.family == family.name}
    if size in family.anchors or not {size, *family.anchors} <= latencies.keys():
        return None
    anchors = {anchor: latencies[anchor] for anchor in family.anchors}
    return latencies[size] / interpolate(anchors, size)


def describe(room: str, facts: DeviceFacts, commit: str | None) -> dict[str, Any]:
    """A record's head. Read before anything runs, as the content that is measured is."""
    workspace = load_workspace()
    settings = workspace.room(room).evaluation
    return {
        "room": room,
        "device": facts.slug,
        "environment": read_environment(facts),
        "timer": "cupti",
        "protocol": {
            "warmup": settings.warmup_runs, "iterations": settings.iterations, "passes": PASSES
        },
        "commit": commit or read_commit(workspace.root),
        "solution_sha256": pack(workspace, room).sha256,
        "measured_at": utc_now(),
    }  # fmt: skip


def measure(room: str) -> list[Row]:
    """Every size of the room's families, on the GPU. Raises HarnessError."""
    from harness.timing import select_timer

    timer, settings = select_timer("cupti", "cuda:0"), load_workspace().room(room).evaluation
    points = []
    for family in FAMILIES[room]:
        for size in family.sizes:
            call = family.make(size, "cuda:0")
            sides = _sides(room, family.peers if size in family.against else ())
            for side, run in sides.items():
                require_written(run, call, f"{room}{side and ', '}{side}, {family.name}: {size}")
            points.append((family.name, size, sides, [*call[0], *call[1]]))
    samples: dict[tuple[int, str], list[float]] = {}
    for turn in range(PASSES):
        for at, (name, size, sides, values) in enumerate(points):
            for side, run in sides.items():
                found = timer.measure(
                    lambda run=run, values=values: run(*values),
                    settings.warmup_runs,
                    settings.iterations,
                )
                samples.setdefault((at, side), []).append(found.latency_us)
            print(f"{room}: pass {turn + 1} of {PASSES}, {name}: {size}", flush=True)
    return [
        Row(name, size, statistics.median(samples[at, ""]),
            {side: statistics.median(samples[at, side]) for side in sides if side})
        for at, (name, size, sides, _) in enumerate(points)
    ]  # fmt: skip


def _sides(room: str, libraries: Sequence[str]) -> dict[str, Any]:
    """The room, as "", and libraries, built. Raises ToolMissing for a library."""
    from tests.packed import build, build_peer

    sides = {"": build(room)}
    for library in libraries:
        try:
            sides[library] = build_peer(room, library)
        except HarnessError:
            raise
        except Exception as error:  # the builder's own, around whatever the library raised
            raise ToolMissing(
                f"{room}: {library}: expected a library that builds, got {error}; install what "
                f"docs/peers.md lists for it"
            ) from error
    return sides


def require_written(run: Any, call: Call, what: str) -> None:
    """Call once into poisoned outputs; raise InfrastructureFailure where poison is left: the time
    of work that is not done is no result."""
    import torch

    from tests.packed import poison

    inputs, outputs = call
    for output in outputs:
        poison(output)
    run(*inputs, *outputs)
    for number, output in enumerate(outputs):
        is_float = output.is_floating_point()
        left = output.isnan() if is_float else output == torch.iinfo(output.dtype).max
        if left.any():
            raise InfrastructureFailure(
                f"{what}: output {number}: expected every element written, got {int(left.sum())} "
                f"of {left.numel()} that were not, or are NaN; `python -m harness evaluate` says "
                "what is wrong"
            )


def keep(head: dict[str, Any], rows: Sequence[Row]) -> Path:
    """Write a room's record, a row a line, whole or not at all."""
    lines = ",\n".join(f"    {json.dumps(asdict(row))}" for row in rows)
    path = KEPT / head["device"] / f"{head['room']}.json"
    write_atomically(path, f'{json.dumps(head, indent=2)[:-2]},\n  "rows": [\n{lines}\n  ]\n}}\n')
    return path


def load(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """A record's head and rows. Raises RecordError naming file and key."""
    values = read_json(path, f"{COMMAND} {path.stem}")
    table = Fields(str(path), "", values)
    rows = [
        _read_row(Fields(table.source, f"rows[{index}]", row))
        for index, row in enumerate(table.take("rows", list))
    ]
    sizes = [(row.family, row.size) for row in rows]
    if len(set(sizes)) != len(sizes) or not sizes:
        raise table.fail("rows", "each size of a family once, and one at least", len(sizes))
    head = {key: value for key, value in values.items() if key != "rows"}
    for key, wanted in (("room", path.stem), ("device", path.parent.name), ("timer", "cupti")):
        if table.text(key, NAME) != wanted:
            raise table.fail(key, f"{wanted!r}, as its place says", head[key])
    table.texts("environment")
    protocol = table.object("protocol")
    protocol.count("warmup"), protocol.count("iterations", 1), protocol.count("passes", 1)
    protocol.done()
    table.text("commit", COMMIT_OR_UNKNOWN), table.text("solution_sha256", SHA256)
    table.moment("measured_at")
    table.done()
    return head, rows


def _read_row(table: Fields) -> Row:
    others = table.object("others_us")
    row = Row(
        table.text("family"),
        table.count("size"),
        table.number("latency_us", SHORTEST_US, LONGEST_US),
        {name: others.number(name, SHORTEST_US, LONGEST_US) for name in list(others.values)},
    )
    table.done()
    return row


def render(room: str, head: dict[str, Any], rows: Sequence[Row], packed_sha256: str) -> str:
    """The table of a room's page. packed_sha256: what the room packs to now."""
    measured = head["solution_sha256"]
    content = f"content `{measured[:HASH_CHARACTERS]}`"
    if measured != packed_sha256:
        packed = packed_sha256[:HASH_CHARACTERS]
        content = f"*stale: measured on `{measured[:HASH_CHARACTERS]}`, packed now `{packed}`*"
    protocol = head["protocol"]
    lines = [
        f"{head['device']}, CUPTI, L2 cold, {protocol['iterations']} calls, median of "
        f"{protocol['passes']} passes, {head['measured_at'][:10]}, {content}.",
        "",
        "| what varies | size | µs | line through its neighbours, µs | ratio | others, µs |",
        "|---|---|---|---|---|---|",
    ]
    for family in FAMILIES[room]:
        for row in (row for row in rows if row.family == family.name):
            ratio = ratio_of(family, rows, row.size)
            line, times = "anchor" if row.size in family.anchors else "-", "-"
            if ratio is not None:
                line, times = f"{row.latency_us / ratio:.2f}", f"{ratio:.2f}"
            others = ", ".join(f"{name} {us:.1f}" for name, us in row.others_us.items()) or "-"
            measured = f"{row.latency_us:.2f} | {line} | {times} | {others}"
            lines.append(f"| {row.family} | {row.size} | {measured} |")
    return "\n".join([*lines, *_rates(room, rows), *_out_of_step(room, rows)])


def _rates(room: str, rows: Sequence[Row]) -> list[str]:
    """A line for each family that has rates, of those of its sizes that were measured: how
    latency, and each library's, grows with the size."""
    found = []
    for family in FAMILIES[room]:
        texts = []
        for row in (row for row in rows if row.family == family.name and row.size in family.rates):
            sides = {"": row.latency_us, **row.others_us}
            rates = (f"{us * RATE / row.size:.2f} {side}".strip() for side, us in sides.items())
            texts.append(f"{', '.join(rates)} at {row.size}")
        if texts:
            found += ["", f"µs per {RATE} {family.name}: {'; '.join(texts)}."]
    return found


def _out_of_step(room: str, rows: Sequence[Row]) -> list[str]:
    """What a record lacks of today's families, and what it has beside them; none where they are
    the same."""
    wanted = {f"{family.name}: {size}" for family in FAMILIES[room] for size in family.sizes}
    measured = {f"{row.family}: {row.size}" for row in rows}
    found = []
    for what, names in (
        ("Not measured yet", wanted - measured),
        ("No longer a size", measured - wanted),
    ):
        if names:
            found += ["", f"{what}: {'; '.join(sorted(names))}."]
    return found


def cliffs(room: str, rows: Sequence[Row]) -> list[str]:
    """What lies above its neighbours' line by more than CLIFF, one text each."""
    found = []
    for family in FAMILIES[room]:
        for size in family.between:
            ratio = ratio_of(family, rows, size)
            if ratio is not None and ratio > CLIFF:
                found.append(f"{room}, {family.name}: {size} takes {ratio:.2f} of its neighbours")
    return found


def tables(left_out: Collection[Path] = ()) -> dict[str, str]:
    """The table of each room that has a record, one below the other where several devices have.

    left_out: records that are about to be replaced. Raises RecordError.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(set(KEPT.glob("*/*.json")) - set(left_out)):
        room = path.stem
        if room not in FAMILIES:
            raise RecordError(
                f"{path}: expected a record of {', '.join(FAMILIES)}, got {room!r}; move it, or "
                "add its families to tests/shape_families.py"
            )
        head, rows = load(path)
        found.setdefault(room, []).append(
            render(room, head, rows, pack(load_workspace(), room).sha256)
        )
    return {room: "\n\n".join(parts) for room, parts in found.items()}


def shown(room: str) -> str:
    """What the block of a room's page holds. Raises UsageError naming the page."""
    return read_page_block(PAGES / f"{room}.md", BLOCK, COMMAND)


def show() -> None:
    """Write the tables of all records into their rooms' pages: all of them, or none."""
    texts = {}
    for room, table in tables().items():
        shown(room)
        page = PAGES / f"{room}.md"
        texts[page] = replace_block(page.read_text(encoding="utf-8"), BLOCK, table)
    for page, text in texts.items():
        write_atomically(page, text)


def differences() -> list[str]:
    """What --show would change, one text a page. Raises UsageError, RecordError."""
    return [
        f"{PAGES / room}.md: not the table of the records; run `{COMMAND} --show`"
        for room, table in tables().items()
        if shown(room) != table
    ]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description="Latency between official sizes: measured on a GPU, kept, shown."
    )
    parser.add_argument(
        "rooms", nargs="*", metavar="ROOM", help=f"to measure: {', '.join(FAMILIES)}"
    )
    parser.add_argument("--show", action="store_true", help="write the tables; run nothing")
    parser.add_argument("--check", action="store_true", help="exit 1 where a page shows other ones")
    parser.add_argument("--commit", metavar="SHA", help="what a record names without a .git")
    options = parser.parse_args(arguments)
    if [bool(options.rooms), options.show, options.check].count(True) != 1:
        parser.error("expected ROOMs to measure, or one of --show and --check alone")
    if options.commit and not options.rooms:
        parser.error("--commit: expected ROOMs, got --show or --check, which keep nothing")
    for room in options.rooms:
        if room not in FAMILIES:
            known = ", ".join(FAMILIES)
            parser.error(
                f"ROOM: expected one of {known}, got {room!r}; families of sizes are in "
                "tests/shape_families.py"
            )
        if options.rooms.count(room) > 1:
            parser.error(f"ROOM: expected each once, got {room} {options.rooms.count(room)} times")
    return options


def _run(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.show:
        show()
        print("tables written")
        return 0
    if options.check:
        found = differences()
        print("\n".join(found) or "the pages show the records")
        return 1 if found else 0
    # Whatever would keep the result from being shown is said before the GPU is used.
    require_commit(options.commit)
    facts = read_facts("cuda:0")
    require_timer("cupti")
    tables([KEPT / facts.slug / f"{room}.json" for room in options.rooms])
    for room in options.rooms:
        shown(room)
    found = []
    with hold_device(facts):  # once: from the first room on, this process is seen on the GPU
        for room in options.rooms:
            head = describe(room, facts, options.commit)
            rows = measure(room)
            print(f"{room}: kept in {keep(head, rows)}")
            show()
            found += cliffs(room, rows)
    print("\n".join(found or ["no cliffs"]))
    return 1 if found else 0


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where a size is a cliff or --check finds another table, else as
    harness.errors says."""
    return run_program(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
