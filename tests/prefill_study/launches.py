"""What the study times, and how.

Three clocks, each for what it shows. A call of the packed room by CUPTI, L2 cold, as the harness
times it, but with each launch's end: launches overlap, so a step is the time from the end of the
launch before to its own. The same call by events, several in one CUDA graph, L2 warm. And, in turns
with it, the filtering launch alone beside its two controls, also several in one graph. Medians
throughout.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from harness.errors import InfrastructureFailure
from harness.timing import Activity, CuptiTimer, Launch, _flush_buffer, _Recording
from tests.prefill_study.record import LAUNCHES

DEVICE = "cuda:0"
WARMUP, ITERATIONS, ROUNDS = 2, 20, 15
KERNELS = ("score_kernel", "threshold_kernel", "score_kernel", "select_kernel", "score_kernel")

Call = Callable[[], object]


def calls_of(
    windows: Iterable[tuple[int, int]], launches: Iterable[Launch], activities: Iterable[Activity]
) -> list[list[Activity]]:
    """The GPU's work of each window of host time, in order. Pure; as measure_spans finds it."""
    ordered = sorted(launches, key=lambda launch: launch.start_ns)
    times = [launch.start_ns for launch in ordered]
    by_id: dict[int, list[Activity]] = {}
    for activity in activities:
        by_id.setdefault(activity.correlation_id, []).append(activity)
    found = []
    for begin, end in windows:
        inside = ordered[bisect_left(times, begin) : bisect_right(times, end)]
        # A runtime call and the driver's below it may share an id.
        ids = {launch.correlation_id for launch in inside}
        work = [activity for one in ids for activity in by_id.get(one, ())]
        found.append(sorted(work, key=lambda activity: activity.start_ns))
    return found


def steps_of(calls: Sequence[Sequence[Activity]]) -> tuple[float, dict[str, float]]:
    """Medians, in µs: a call's span, and what each of its launches adds to it. Pure.

    Raises InfrastructureFailure where a call is not the five launches.
    """
    spans, steps = [], {name: list[float]() for name in LAUNCHES}
    for work in calls:
        names = [activity.name for activity in work]
        if len(names) != len(KERNELS) or any(
            kernel not in name for kernel, name in zip(KERNELS, names, strict=True)
        ):
            raise InfrastructureFailure(
                f"a call: expected the launches {', '.join(KERNELS)}, got "
                f"{', '.join(names) or 'none'}; the study is of the native route's"
            )
        last_ns = work[0].start_ns
        for name, activity in zip(LAUNCHES, work, strict=True):
            steps[name].append(max(activity.end_ns - last_ns, 0) / 1e3)
            last_ns = max(last_ns, activity.end_ns)
        spans.append((last_ns - work[0].start_ns) / 1e3)
    medians = {name: statistics.median(values) for name, values in steps.items()}
    return statistics.median(spans), medians


def time_steps(call: Call) -> tuple[float, dict[str, float]]:
    """steps_of() a call, L2 cold: the procedure of harness.timing.CuptiTimer."""
    cupti, flush = CuptiTimer(DEVICE)._cupti, _flush_buffer(DEVICE)
    for _ in range(WARMUP):
        flush.zero_()
        call()
    torch.cuda.synchronize(DEVICE)
    recording, windows = _Recording(cupti), []
    with recording:
        for _ in range(ITERATIONS):
            flush.zero_()
            torch.cuda.synchronize(DEVICE)
            begin = cupti.get_timestamp()
            call()
            end = cupti.get_timestamp()
            torch.cuda.synchronize(DEVICE)
            windows.append((begin, end))
    return steps_of(calls_of(windows, recording.launches, recording.activities))


def capture(call: Call, count: int) -> torch.cuda.CUDAGraph:
    """A graph of several calls, replayed once."""
    call()
    torch.cuda.synchronize(DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    torch.cuda.synchronize(DEVICE)
    return graph


def time_in_turns(calls: Mapping[str, Call], count: int) -> dict[str, float]:
    """µs of each call by events around graphs of `count`: all sides meet the same clocks."""
    graphs = {name: capture(call, count) for name, call in calls.items()}
    found = {name: list[float]() for name in calls}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize(DEVICE)
            found[name].append(begin.elapsed_time(end) * 1e3 / count)
    return {name: statistics.median(values) for name, values in found.items()}
