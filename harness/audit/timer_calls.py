"""A worker's part of the comparison of timers: CUPTI, and events around a graph."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

import torch

from harness.audit.case import Case
from harness.audit.counting import CALLS_VARIABLE
from harness.audit.single_call import save
from harness.evaluate.timed_call import TimedCall
from harness.timing import L2_FLUSH_FACTOR, CuptiTimer

WARMUP_RUNS, ITERATIONS = 10, 50
CALLS_IN_GRAPH, REPLAYS = 20, 21


def measure(case: Case) -> dict[str, float]:
    """cupti_us and graph_us of one call, cold L2; where NCU comes next, leaves it the call."""
    trial = case.trial(0)
    case.build()
    case.require_right(trial, case.call(trial.inputs), "the call")
    folder = os.environ.get(CALLS_VARIABLE)
    if folder is not None:
        save(case, f"{folder}/{case.job.uuid}.pt")
    timed = TimedCall(
        case.definition, case.runnable, trial.inputs, case.device, CuptiTimer(case.device)
    )
    cupti_us = timed.measure(WARMUP_RUNS, ITERATIONS).latency_us
    outputs = case.allocate(trial.inputs)
    return {
        "cupti_us": cupti_us,
        "graph_us": graph_us(lambda: case.launch(trial.inputs, outputs), case.device),
    }


def graph_us(call: Callable[[], Any], device: str) -> float:
    """Latency of a call in µs: a graph of many (flush, call) less one of as many flushes."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.empty(L2_FLUSH_FACTOR * l2_bytes, dtype=torch.int8, device=device)
    both = _capture([flush.zero_, call])
    flushes = _capture([flush.zero_])
    return (_replay_us(both) - _replay_us(flushes)) / CALLS_IN_GRAPH


def _capture(steps: list[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_IN_GRAPH):
            for step in steps:
                step()
    return graph


def _replay_us(graph: torch.cuda.CUDAGraph) -> float:
    """Median duration of a replay, after two that warm up."""
    samples_us: list[float] = []
    for _ in range(REPLAYS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples_us.append(start.elapsed_time(end) * 1e3)
    return float(statistics.median(samples_us[2:]))
