"""Calls of a built solution under Torch Profiler, a profile a call, cold L2."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.audit.case import Case
from harness.profiling.shares import Activity, read_trace
from harness.timing import L2_FLUSH_FACTOR

WARMUP_CALLS = 3  # the first one compiles
TRACED_CALLS = 10


def trace_calls(case: Case) -> list[list[Activity]]:
    """The GPU's activities of each of TRACED_CALLS calls on trial 0. case: built."""
    inputs = case.trial(0).inputs
    outputs = case.allocate(inputs)
    flush = flush_buffer(case.device)
    for _ in range(WARMUP_CALLS):
        case.call(inputs, outputs)
    _trace(case, inputs, outputs, flush)  # the first profile of a process starts its machinery
    return [_trace(case, inputs, outputs, flush) for _ in range(TRACED_CALLS)]


def flush_buffer(device: str) -> torch.Tensor:
    """A buffer whose writing evicts everything else from the L2."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    return torch.empty(L2_FLUSH_FACTOR * l2_bytes, dtype=torch.int8, device=device)


def _trace(
    case: Case, inputs: Sequence[Any], outputs: Sequence[torch.Tensor], flush: torch.Tensor
) -> list[Activity]:
    """One call. The flush ends before the profile begins, or it would be one of its kernels."""
    flush.zero_()
    torch.cuda.synchronize(case.device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        case.call(inputs, outputs)
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return read_trace(json.loads(path.read_text(encoding="utf-8", errors="replace")))
