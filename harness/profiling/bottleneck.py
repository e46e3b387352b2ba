"""From a call's metrics to what bounds it and what limits its occupancy. Pure.

The class is that of the dominant kernel, but for `launch`, which is a property of the whole call.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.ncu import LaunchMetrics
from harness.roofline import COPY, LAUNCH, READ, Floor

LAUNCH_BOUND, LATENCY, MEMORY, TENSOR, MIXED = "launch", "latency", "memory", "tensor", "mixed"
CLASSES = (LAUNCH_BOUND, LATENCY, MEMORY, TENSOR, MIXED)
GRID, REGISTERS, SHARED_MEMORY, BLOCKS, BARRIERS = (
    "grid", "registers", "shared memory", "blocks", "barriers",
)  # fmt: skip
LIMITERS = (GRID, REGISTERS, SHARED_MEMORY, BLOCKS, BARRIERS)

# More than half of the call is neither traffic nor arithmetic: nothing that is done inside a kernel
# can be worth as much as a launch that is saved.
OVERHEAD_SHARE = 0.5
# Nsight Compute's own rules call a unit well used from 60 % of its peak on, and a kernel below that
# on every unit bound by latency. Peaks cannot be reached: a streaming copy has some 90 %.
SATURATED_SHARE = 0.6
# Two units above 40 % at once cannot both have much idle time left: what is bound is their overlap,
# and freeing one of them alone gains little.
MIXED_SHARE = 0.4
# At most a quarter above what bytes or flops alone allow, the roof is the answer whatever the
# counters say. Latencies vary by some per cent, a floor leaves out what no kernel can avoid.
NEAR_FLOOR = 1.25
# Fewer blocks than fit at once: slots of SMs stay empty, and no resource of a block is scarce.
FULL_WAVE = 1.0


@dataclass(frozen=True)
class CallMetrics:
    """One call. None where nobody measured it.

    latency_us: first start to last end, cold L2. busy_us: its activities' durations together.
    launches: how many activities. launch_us: what the device needs for a kernel that does nothing.
    sm_count: the device's SMs. kernel: a launch of the dominant kernel; its grid alone is known
    where NCU is not there.
    """

    latency_us: float | None
    busy_us: float | None
    launches: int | None
    launch_us: float | None
    sm_count: int | None
    kernel: LaunchMetrics


@dataclass(frozen=True)
class Bottleneck:
    """kind: one of CLASSES, or None where the metrics do not tell. limiters: of LIMITERS, what
    keeps more warps from an SM; empty where nothing does, None where that is unknown. reason: the
    numbers that decided."""

    kind: str | None
    limiters: tuple[str, ...] | None
    reason: str


def classify(metrics: CallMetrics, floor: Floor | None) -> Bottleneck:
    """What bounds a call. floor: the least latency of its workload on the device, if known."""
    kind, reason = _find_class(metrics, floor)
    return Bottleneck(kind, find_limiters(metrics.kernel, metrics.sm_count), reason)


def find_limiters(kernel: LaunchMetrics, sm_count: int | None) -> tuple[str, ...] | None:
    """What keeps more warps from an SM: a small grid, or the scarcest resource of a block.

    Empty where a block's own size is what fills the SM. sm_count: stands in for the waves that NCU
    counts: fewer blocks than SMs are less than one.
    """
    if kernel.waves_per_sm is not None:
        if kernel.waves_per_sm < FULL_WAVE:
            return (GRID,)
    elif kernel.grid_blocks is not None and sm_count is not None and kernel.grid_blocks < sm_count:
        return (GRID,)
    limits = {
        REGISTERS: kernel.limit_registers,
        SHARED_MEMORY: kernel.limit_shared_memory,
        BLOCKS: kernel.limit_blocks,
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if len(known) < len(limits) or kernel.limit_warps is None:
        return None
    if kernel.limit_barriers is not None:
        known[BARRIERS] = kernel.limit_barriers
    least = min(known.values())
    if kernel.limit_warps <= least:
        return ()
    return tuple(name for name, limit in known.items() if limit == least)


def overhead_share(metrics: CallMetrics) -> float | None:
    """The part of a call that launches and gaps take, from 0 to 1; None where it is unknown."""
    if metrics.latency_us is None or metrics.launches is None or metrics.busy_us is None:
        return None
    gaps_us = max(0.0, metrics.latency_us - metrics.busy_us)
    fixed_us = metrics.launches * (metrics.launch_us or 0.0)
    return min(1.0, (gaps_us + fixed_us) / metrics.latency_us)


def _find_class(metrics: CallMetrics, floor: Floor | None) -> tuple[str | None, str]:
    overhead = overhead_share(metrics)
    if overhead is not None and overhead >= OVERHEAD_SHARE:
        return LAUNCH_BOUND, f"launches and gaps {overhead:.0%} of the call"
    kernel = metrics.kernel
    known = [share for share in (kernel.memory_share, kernel.dram_share) if share is not None]
    memory, tensor, sm = max(known, default=None), kernel.tensor_share, kernel.sm_share
    text = ", ".join(
        f"{name} {share:.0%}"
        for name, share in (("SM", sm), ("memory", memory), ("tensor", tensor))
        if share is not None
    )
    if memory is not None and tensor is not None and min(memory, tensor) >= MIXED_SHARE:
        if tensor >= SATURATED_SHARE > memory:
            return TENSOR, text
        if memory >= SATURATED_SHARE > tensor:
            return MEMORY, text
        return MIXED, text
    if memory is not None and memory >= SATURATED_SHARE:
        return MEMORY, text
    if tensor is not None and tensor >= SATURATED_SHARE:
        return TENSOR, text
    if sm is None or memory is None:
        return _by_floor(metrics, floor, text)
    if sm < SATURATED_SHARE:
        return LATENCY, f"{text}: no unit at {SATURATED_SHARE:.0%}"
    if tensor is None:
        return None, f"{text}; the tensor cores' part of it is missing"
    return MIXED, f"{text}: other instructions than the tensor cores'"


def _by_floor(metrics: CallMetrics, floor: Floor | None, text: str) -> tuple[str | None, str]:
    """Where counters are missing, a call near its floor is bound by the floor's roof."""
    missing = f"{text}; the other counters are missing" if text else "no counters"
    if floor is None or metrics.latency_us is None:
        return None, missing
    ratio = metrics.latency_us / floor.latency_us
    if ratio > NEAR_FLOOR:
        return None, f"{missing}, {ratio:.2f} x the floor"
    kind = {LAUNCH: LAUNCH_BOUND, READ: MEMORY, COPY: MEMORY}.get(floor.roof, TENSOR)
    return kind, f"{missing}, {ratio:.2f} x the floor of {floor.roof}"
