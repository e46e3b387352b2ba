"""How long a workload is expected to take, from what earlier runs left. Only an order depends on
it: a wrong guess costs idle seconds at the end of a run, never a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.dataset import WorkloadRow
from harness.evaluate.plan import RoomPlan
from harness.evaluate.protocol import Settings
from harness.records import TraceLedger, latest

BASE_S = 0.5  # inputs, reference and correctness of a small workload on an H200
CALL_S = 1e-3  # flush of the L2, synchronisation and a kernel that the host waits for
ESTIMATION_CALLS = 6  # of the official procedure, beside warm-up and iterations


def expected_s(
    rows: Sequence[WorkloadRow],
    settings: Settings,
    seconds: Mapping[str, float],
    latencies_us: Mapping[str, float],
) -> dict[str, float]:
    """Seconds of each row by UUID.

    seconds: what its stages took in an earlier run, which decides where it is known. latencies_us:
    recorded ones; a row that has neither is placed by its axes between one base and two.
    """
    calls = settings.trials * (settings.warmup_runs + settings.iterations + ESTIMATION_CALLS)
    sizes = {row.uuid: math.prod(max(1, size) for size in row.axes.values()) for row in rows}
    largest = max(sizes.values(), default=1)
    expected = {}
    for row in rows:
        size_s = BASE_S * (1 + sizes[row.uuid] / largest)
        if row.uuid in latencies_us:
            size_s += calls * (CALL_S + latencies_us[row.uuid] / 1e6)
        expected[row.uuid] = seconds.get(row.uuid, size_s)
    return expected


def recorded_seconds(root: Path, plan: RoomPlan, device: str) -> dict[str, float]:
    """What the stages of each workload took when it was last judged on this kind of device."""
    found = {}
    for entry in TraceLedger.of(root, device, plan.room.name).entries():
        stages = entry.measurement.get("stages_s", {})
        total = sum(value for stage, value in stages.items() if stage != "total")
        if total > 0:
            found[entry.uuid] = float(total)
    return found


def recorded_latencies_us(root: Path, plan: RoomPlan, device: str) -> dict[str, float]:
    """The latencies that results/ shows for this kind of device."""
    record = latest(root, device, plan.room.name)
    rows = record.workloads if record is not None else ()
    return {row.uuid: row.latency_us for row in rows if row.latency_us is not None}
