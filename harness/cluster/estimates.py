"""How long a workload is expected to take, from what earlier runs left. Only an order depends on
it: a wrong guess costs idle seconds at the end of a run, never a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.dataset import WorkloadRow
from harness.evaluate.plan import RoomPlan
from harness.records import TraceLedger, latest


@dataclass(frozen=True)
class Cost:
    """Seconds of a room on an H200. compile_s: once, where nothing is compiled yet. least_s and
    mean_s: of a workload, all stages; a process's first calls are in schedule.START_S. Source: one
    GPU alone, all rooms, compiling, at commit 4ae9831 (scripts/measure_scale.py --phase one)."""

    compile_s: float
    least_s: float
    mean_s: float


COSTS = {
    "moe": Cost(10.3, 0.22, 0.30),
    "dsa_indexer": Cost(7.3, 0.10, 0.18),
    "dsa_attention": Cost(8.3, 0.15, 0.20),
    "gdn_decode": Cost(0.8, 0.13, 0.21),
    "gdn_prefill": Cost(9.2, 0.04, 0.24),
}
OTHER_ROOM = Cost(7.0, 0.1, 0.3)


def expected_s(
    room: str,
    rows: Sequence[WorkloadRow],
    seconds: Mapping[str, float],
    latencies_us: Mapping[str, float],
) -> dict[str, float]:
    """Seconds of each row by UUID.

    seconds: what its stages took in an earlier run, which decides where it is known. latencies_us:
    recorded ones. The rest is the room's cost, spread over the rows by latency, or by axes where a
    latency is missing; the longest is the first to go out, and compiles.
    """
    cost = COSTS.get(room, OTHER_ROOM)
    if all(row.uuid in latencies_us for row in rows):
        sizes = {row.uuid: latencies_us[row.uuid] for row in rows}
    else:
        sizes = {row.uuid: math.prod(max(1, n) for n in row.axes.values()) for row in rows}
    mean = sum(sizes.values()) / len(sizes)
    expected = {
        uuid: cost.least_s + (cost.mean_s - cost.least_s) * size / mean
        for uuid, size in sizes.items()
    }
    expected[max(expected, key=lambda uuid: expected[uuid])] += cost.compile_s
    return {**expected, **{uuid: seconds[uuid] for uuid in expected if uuid in seconds}}


def recorded_seconds(root: Path, plan: RoomPlan, device: str) -> dict[str, float]:
    """What the stages of each workload took when it was last judged on this kind of device."""
    found = {}
    for entry in TraceLedger.of(root, device, plan.room.name).entries():
        stages = entry.measurement.get("stages_s")
        if not isinstance(stages, Mapping):
            continue
        seconds = [value for stage, value in stages.items() if stage != "total"]
        if not all(isinstance(value, (int, float)) for value in seconds):
            continue  # an estimate is not worth the end of a run
        total = math.fsum(seconds)
        if total > 0:
            found[entry.uuid] = float(total)
    return found


def recorded_latencies_us(root: Path, plan: RoomPlan, device: str) -> dict[str, float]:
    """The latencies that results/ shows for this kind of device."""
    record = latest(root, device, plan.room.name)
    rows = record.workloads if record is not None else ()
    return {row.uuid: row.latency_us for row in rows if row.latency_us is not None}
