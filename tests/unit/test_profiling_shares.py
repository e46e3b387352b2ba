"""Torch Profiler's traces to shares, and regimes to the workloads that stand for them."""

from types import SimpleNamespace

import pytest

from harness.compare.regimes import Regime
from harness.profiling.representatives import describe_regime, main_regimes, representative
from harness.profiling.shares import Activity, base_name, read_trace, share_out


def event(name, ts, dur, cat="kernel", **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


KERNEL = {"grid": [8, 4, 2], "block": [128, 2, 1], "registers per thread": 64, "shared memory": 96}


def test_a_traces_gpu_events_are_read_in_order_with_their_launch():
    trace = {
        "traceEvents": [
            event("merge", 9.0, 1.5, **KERNEL),
            event("cudaLaunchKernel", 1.0, 3.0, cat="cuda_runtime"),
            event("Memset (Device)", 2.0, 0.5, cat="gpu_memset", bytes=4),
            event("aten::add", 0.0, 20.0, cat="cpu_op"),
            {"ph": "M", "name": "process_name", "cat": "kernel"},
            event("split", 4.0, 3.25, **KERNEL),
        ]
    }
    assert read_trace(trace) == [
        Activity("Memset (Device)", 0.5),
        Activity("split", 3.25, 64, 256, 64, 96),
        Activity("merge", 1.5, 64, 256, 64, 96),
    ]
    assert read_trace({}) == []


def test_shares_are_medians_over_calls_and_the_largest_stands_first():
    calls = [
        [Activity("split", 6.0, 64), Activity("merge", 1.0), Activity("merge", 1.0)],
        [Activity("split", 8.0, 64), Activity("merge", 1.5), Activity("merge", 0.5)],
        [Activity("split", 90.0, 64), Activity("merge", 2.0), Activity("merge", 2.0)],
    ]
    split, merge = share_out(calls)
    assert (split.name, split.launches, split.time_us, split.grid_blocks) == ("split", 1, 8.0, 64)
    assert (merge.name, merge.launches, merge.time_us) == ("merge", 2, 2.0)
    assert (split.share, merge.share) == (0.8, 0.2)


def test_what_most_calls_do_not_launch_is_no_part_of_a_call():
    calls = [[Activity("step", 2.0)], [Activity("step", 2.0)], [Activity("stray", 9.0)]]
    assert [(one.name, one.share) for one in share_out(calls)] == [("step", 1.0)]
    half = [[Activity("step", 2.0), Activity("stray", 9.0)], [Activity("step", 2.0)]]
    assert [(one.name, one.share) for one in share_out(half)] == [("step", 1.0)]
    assert share_out([[], []]) == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_step", "_step"),
        ("void gdn::step<128, (bool)1>(const float *, float *, int)", "step"),
        ("(anonymous namespace)::merge(float*)", "merge"),
        ("void (anonymous namespace)::merge<4>(Args)", "merge"),
        ("<unnamed>::merge(Args)", "merge"),
        ("void at::native::vectorized_elementwise_kernel<4, at::F<int> >(int)",
         "vectorized_elementwise_kernel"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("Memset (Device)", "Memset"),
        ("<lambda>", "<lambda>"),
    ],
)  # fmt: skip
def test_a_kernel_has_one_bare_name_however_a_profiler_prints_it(name, expected):
    assert base_name(name) == expected


def rows(**axes):
    count = len(next(iter(axes.values())))
    return [
        SimpleNamespace(uuid=f"u{i}", axes={name: sizes[i] for name, sizes in axes.items()})
        for i in range(count)
    ]


def test_regimes_are_those_of_the_axis_that_splits_the_workloads_most():
    found = main_regimes(rows(batch=[1, 1, 2, 2, 2], pages=[1, 2, 3, 3, 8], fixed=[7] * 5))
    assert [describe_regime(one) for one in found] == ["pages 1", "pages 2", "pages 3", "pages 8"]
    assert [uuid for one in found for uuid in one.uuids] == ["u0", "u1", "u2", "u3", "u4"]


def test_workloads_of_one_shape_are_one_regime():
    (found,) = main_regimes(rows(batch=[4, 4]))
    assert describe_regime(found) == "all" and found.uuids == ("u0", "u1")


def test_the_median_latency_stands_for_a_regime():
    regime = Regime("batch", "4", ("a", "b", "c", "d"))
    assert representative(regime, {"a": 9.0, "b": 1.0, "c": 5.0, "d": 2.0, "x": 0.1}) == "c"
    assert representative(regime, {"a": 9.0, "b": 1.0, "c": 5.0}) == "c"
    assert representative(regime, {}) == "c"
