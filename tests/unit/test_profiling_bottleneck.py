"""From metrics to a class and a limit: each rule, its threshold, and what is missing."""

import pytest

from harness.ncu import LaunchMetrics
from harness.profiling.bottleneck import (
    BARRIERS,
    BLOCKS,
    GRID,
    LATENCY,
    LAUNCH_BOUND,
    MEMORY,
    MIXED,
    MIXED_SHARE,
    NEAR_FLOOR,
    OVERHEAD_SHARE,
    REGISTERS,
    SATURATED_SHARE,
    SHARED_MEMORY,
    TENSOR,
    CallMetrics,
    classify,
    find_limiters,
    overhead_share,
)
from harness.roofline import COPY, LAUNCH, READ, Floor

FLOOR = Floor(10.0, COPY)
BELOW = SATURATED_SHARE - 0.01


def call(sm=None, memory=None, tensor=None, dram=None, **changes):
    """A call of one kernel of 100 µs that takes all of it."""
    kernel = LaunchMetrics(
        "step", sm_share=sm, memory_share=memory, tensor_share=tensor, dram_share=dram
    )
    values = {
        "latency_us": 100.0, "busy_us": 100.0, "launches": 1, "launch_us": 0.8, "sm_count": 132,
        "kernel": kernel,
    }  # fmt: skip
    return CallMetrics(**{**values, **changes})


def kind(metrics, floor=FLOOR):
    return classify(metrics, floor).kind


@pytest.mark.parametrize(
    ("sm", "memory", "tensor", "expected"),
    [
        (0.3, SATURATED_SHARE, 0.0, MEMORY),
        (0.3, BELOW, 0.0, LATENCY),
        (0.7, 0.3, SATURATED_SHARE, TENSOR),
        (0.3, 0.3, 0.3, LATENCY),
        (0.7, 0.7, 0.7, MIXED),
        (0.5, MIXED_SHARE, MIXED_SHARE, MIXED),
        (0.5, MIXED_SHARE - 0.01, MIXED_SHARE, LATENCY),
        (0.7, 0.5, SATURATED_SHARE, TENSOR),
        (0.5, SATURATED_SHARE, 0.5, MEMORY),
        (SATURATED_SHARE, 0.3, 0.1, MIXED),
    ],
)
def test_the_busiest_unit_gives_the_class(sm, memory, tensor, expected):
    assert kind(call(sm, memory, tensor)) == expected


def test_published_profiles_get_the_class_that_was_published():
    """Of others' kernels on a B200: a grouped GEMM, gdn_decode and gdn_prefill. Their tensor
    cores' share was not published; the one here is below that of the SM."""
    assert kind(call(0.502, 0.411, 0.45)) == MIXED
    assert kind(call(0.44, 0.521, 0.0, 0.346)) == LATENCY
    assert kind(call(0.085, 0.24, 0.05)) == LATENCY


def test_dram_counts_as_memory_where_the_whole_is_missing():
    assert kind(call(0.2, None, 0.0, dram=0.8)) == MEMORY
    assert kind(call(0.2, 0.3, 0.0, dram=0.8)) == MEMORY


def test_launches_and_gaps_of_half_the_call_decide_before_any_counter():
    saturated = {"sm": 0.9, "memory": 0.9, "tensor": 0.9}
    short = {"latency_us": 8.0, "busy_us": 6.0, "launch_us": 0.8}
    # 2 µs of gaps and 0.8 µs a launch
    assert kind(call(**saturated, **short, launches=2)) != LAUNCH_BOUND
    found = classify(call(**saturated, **short, launches=3), FLOOR)
    assert found.kind == LAUNCH_BOUND and "55% of the call" in found.reason
    exact = call(0.1, 0.1, 0.0, latency_us=8.0, busy_us=4.0, launches=1, launch_us=0.0)
    assert overhead_share(exact) == OVERHEAD_SHARE and kind(exact) == LAUNCH_BOUND


def test_kernels_that_overlap_have_no_gaps():
    assert overhead_share(call(latency_us=10.0, busy_us=12.0)) == pytest.approx(0.08)


@pytest.mark.parametrize("missing", ["latency_us", "busy_us", "launches"])
def test_without_a_trace_or_a_latency_nobody_knows_the_overhead(missing):
    assert overhead_share(call(**{missing: None})) is None
    assert kind(call(0.1, 0.1, 0.0, **{missing: None})) == LATENCY


@pytest.mark.parametrize(
    ("roof", "expected"),
    [(LAUNCH, LAUNCH_BOUND), (READ, MEMORY), (COPY, MEMORY), ("bf16", TENSOR), ("fp8", TENSOR)],
)
def test_without_counters_a_call_near_its_floor_is_bound_by_its_roof(roof, expected):
    assert kind(call(), Floor(100.0 / NEAR_FLOOR, roof)) == expected
    assert kind(call(), Floor(99.0 / NEAR_FLOOR, roof)) is None


def test_without_counters_a_call_far_from_its_floor_is_unknown_and_says_so():
    found = classify(call(), FLOOR)
    assert found == (found.__class__)(None, None, "no counters, 10.00 x the floor")
    assert classify(call(), None).reason == "no counters"
    assert classify(call(latency_us=None), FLOOR).kind is None


def test_a_missing_counter_is_no_idle_unit():
    assert kind(call(sm=0.1, memory=None, tensor=0.0)) is None
    assert kind(call(sm=None, memory=0.1, tensor=0.0)) is None
    assert kind(call(sm=0.9, memory=0.1, tensor=None)) is None
    assert kind(call(sm=0.1, memory=0.1, tensor=None)) == LATENCY


def launch(registers=4, shared=4, blocks=32, warps=8, barriers=32, waves=2.0, **changes):
    return LaunchMetrics(
        "step", limit_registers=registers, limit_shared_memory=shared, limit_blocks=blocks,
        limit_warps=warps, limit_barriers=barriers, waves_per_sm=waves, **changes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (launch(registers=3), (REGISTERS,)),
        (launch(shared=1), (SHARED_MEMORY,)),
        (launch(1, 1, waves=1.0), (REGISTERS, SHARED_MEMORY)),
        (launch(40, 40, blocks=32, warps=64, barriers=64), (BLOCKS,)),
        (launch(barriers=2), (BARRIERS,)),
        (launch(warps=4), ()),
        (launch(waves=0.86), (GRID,)),
        (launch(registers=None), None),
        (launch(warps=None), None),
        (launch(registers=3, barriers=None), (REGISTERS,)),
    ],
)
def test_the_scarcest_resource_limits(kernel, expected):
    assert find_limiters(kernel, 132) == expected


def test_without_counters_a_grid_smaller_than_the_device_still_limits():
    assert find_limiters(LaunchMetrics("step", grid_blocks=131), 132) == (GRID,)
    assert find_limiters(LaunchMetrics("step", grid_blocks=132), 132) is None
    assert find_limiters(LaunchMetrics("step", grid_blocks=131), None) is None
    assert find_limiters(launch(waves=1.2, grid_blocks=131), 132) == (REGISTERS, SHARED_MEMORY)
