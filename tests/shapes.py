"""Latency between official sizes: results/shapes/<device>/<room>.json, a table in the room's page.

    python -m tests.shapes ROOM...     # measure on the GPU, keep and show
    python -m tests.shapes --show      # the tables of what is kept; run nothing

The timer is that of every recorded latency (docs/measuring.md), with the room's official warm-up
and iterations. Sizes take turns, PASSES times, and the median of the passes counts: a host that is
slow for a moment costs one pass, not one size. A size between the anchors is a cliff where it takes
more than CLIFF times what the line through the anchors beside it gives there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.config import load_workspace
from harness.devices import read_facts
from harness.evaluate.alone import hold_device
from harness.evaluate.sweep import read_commit
from harness.evaluate.verdicts import read_environment, utc_now
from harness.files import write_atomically
from harness.packing import pack
from harness.report.blocks import replace_block
from tests.shape_families import FAMILIES, Family

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "results" / "shapes"
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
    """Latency over what the anchors let expect; None for an anchor."""
    latencies = {row.size: row.latency_us for row in rows if row.family == family.name}
    anchors = {anchor: latencies[anchor] for anchor in family.anchors}
    return None if size in anchors else latencies[size] / interpolate(anchors, size)


def measure(room: str, passes: int = PASSES) -> list[Row]:
    """Every size of the room's families, on the GPU."""
    from harness.timing import select_timer
    from tests.packed import build, build_peer

    timer, settings = select_timer("cupti", "cuda:0"), load_workspace().room(room).evaluation
    points = []
    for family in FAMILIES[room]:
        for size in family.sizes:
            inputs, outputs = family.make(size, "cuda:0")
            libraries = family.peers if size in family.against else ()
            sides = {"": build(room)} | {name: build_peer(room, name) for name in libraries}
            points.append((family.name, size, sides, [*inputs, *outputs]))
    samples: dict[tuple[int, str], list[float]] = {}
    for turn in range(passes):
        for at, (name, size, sides, values) in enumerate(points):
            for side, run in sides.items():
                found = timer.measure(
                    lambda run=run, values=values: run(*values),
                    settings.warmup_runs,
                    settings.iterations,
                )
                samples.setdefault((at, side), []).append(found.latency_us)
            print(f"{room}: pass {turn + 1} of {passes}, {name}: {size}", flush=True)
    return [
        Row(name, size, statistics.median(samples[at, ""]),
            {side: statistics.median(samples[at, side]) for side in sides if side})
        for at, (name, size, sides, _) in enumerate(points)
    ]  # fmt: skip


def keep(room: str, rows: Sequence[Row], commit: str | None) -> Path:
    """Write the room's record, a row a line, whole or not at all."""
    workspace, facts = load_workspace(), read_facts()
    settings = workspace.room(room).evaluation
    head = {
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
    lines = ",\n".join(f"    {json.dumps(asdict(row))}" for row in rows)
    path = KEPT / facts.slug / f"{room}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f'{json.dumps(head, indent=2)[:-2]},\n  "rows": [\n{lines}\n  ]\n}}\n')
    return path


def load(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """A record's head and rows."""
    head = json.loads(path.read_text(encoding="utf-8"))
    return head, [Row(**row) for row in head.pop("rows")]


def render(room: str, head: dict[str, Any], rows: Sequence[Row], packed_sha256: str) -> str:
    """The table of a room's page. packed_sha256: what the room packs to now."""
    content = head["solution_sha256"]
    stale = "" if content == packed_sha256 else f", *stale: measured on `{content[:8]}`*"
    protocol = head["protocol"]
    lines = [
        f"{head['device']}, CUPTI, L2 cold, {protocol['iterations']} calls, median of "
        f"{protocol['passes']} passes, {head['measured_at'][:10]}{stale}.",
        "",
        "| what varies | size | µs | line through its neighbours, µs | ratio | others, µs |",
        "|---|---|---|---|---|---|",
    ]
    for family in FAMILIES[room]:
        for row in (row for row in rows if row.family == family.name):
            ratio = ratio_of(family, rows, row.size)
            line, times = "-", "-"
            if ratio is not None:
                line, times = f"{row.latency_us / ratio:.2f}", f"{ratio:.2f}"
            others = ", ".join(f"{name} {us:.1f}" for name, us in row.others_us.items()) or "-"
            measured = f"{row.latency_us:.2f} | {line} | {times} | {others}"
            lines.append(f"| {row.family} | {row.size} | {measured} |")
    return "\n".join(lines)


def cliffs(room: str, rows: Sequence[Row]) -> list[str]:
    """What lies above its neighbours' line by more than CLIFF, one text each."""
    found = []
    for family in FAMILIES[room]:
        for size in family.between:
            ratio = ratio_of(family, rows, size)
            if ratio is not None and ratio > CLIFF:
                found.append(f"{room}, {family.name}: {size} takes {ratio:.2f} of its neighbours")
    return found


def show(kept: Path = KEPT, pages: Path = ROOT / "docs" / "kernels") -> None:
    """Write the tables of all records into their rooms' pages."""
    for path in sorted(kept.glob("*/*.json")):
        head, rows = load(path)
        page, room = pages / f"{path.stem}.md", path.stem
        table = render(room, head, rows, pack(load_workspace(), room).sha256)
        write_atomically(page, replace_block(page.read_text(encoding="utf-8"), "shapes", table))


def main(arguments: Sequence[str]) -> int:
    """1 where a size is a cliff."""
    parser = argparse.ArgumentParser(prog="python -m tests.shapes")
    parser.add_argument("rooms", nargs="*", choices=[*FAMILIES, []], metavar="ROOM")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--commit", metavar="SHA", help="what a record names without a .git")
    options = parser.parse_args(arguments)
    if bool(options.rooms) == options.show:
        parser.error("expected ROOMs to measure, or --show alone")
    found = []
    for room in options.rooms:
        with hold_device(read_facts()):
            rows = measure(room)
        print(f"{room}: kept in {keep(room, rows, options.commit).relative_to(ROOT)}")
        found += cliffs(room, rows)
    show()
    print("\n".join(found or ["no cliffs"] if options.rooms else ["tables written"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
