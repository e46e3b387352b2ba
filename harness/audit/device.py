"""Probes that need a GPU: streams, windows, graphs, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.audit.case import Case, Caught, clone, one_line, poison
from harness.audit.recording import (
    MEMCPY,
    MEMSET,
    CallLog,
    Window,
    describe_escapes,
    names_of,
    waits_of,
    work_of,
)
from harness.timing import Activity

PRODUCER_CYCLES = 100_000_000  # about 50 ms at 2 GHz: longer than any launch takes
FENCE_CYCLES = 40_000_000
REPLAYS = 3


def stream_honoured(case: Case) -> str | None:
    """Inputs arrive late on a side stream; whoever does not wait there reads zeros."""
    trial = case.trial(0)
    case.build()
    case.require_right(trial, case.call(trial.inputs), "first call")
    inputs = clone(trial.inputs)
    for value in inputs:
        if isinstance(value, torch.Tensor):
            value.zero_()
    outputs = case.allocate(inputs)
    torch.cuda.synchronize(case.device)
    side = torch.cuda.Stream(device=case.device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        torch.cuda._sleep(PRODUCER_CYCLES)  # type: ignore[no-untyped-call]
        for value, source in zip(inputs, trial.inputs, strict=True):
            if isinstance(value, torch.Tensor):
                value.copy_(source)
        found = clone(case.launch(inputs, outputs))
    side.synchronize()
    case.require_right(trial, found, "behind a slow producer on a side stream")
    return None


def work_inside_window(case: Case) -> str | None:
    """A slow kernel before the call and a marker after it, on a stream of their own."""
    trial = case.trial(0)
    case.build()
    case.call(trial.inputs)
    outputs = case.allocate(trial.inputs)
    marked = torch.ones(1, device=case.device)
    side = torch.cuda.Stream(device=case.device)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(case.device)
    log = CallLog()
    with log:
        with torch.cuda.stream(side):
            begin = log.now_ns()
            torch.cuda._sleep(FENCE_CYCLES)  # type: ignore[no-untyped-call]
            fenced = log.now_ns()
            case.launch(trial.inputs, outputs)
            called = log.now_ns()
            marked.zero_()
            end = log.now_ns()
        torch.cuda.synchronize(case.device)
    fence = work_of(Window(begin, fenced), log.calls, log.activities)
    marker = work_of(Window(called, end), log.calls, log.activities)
    if not fence or not marker:
        raise RuntimeError("CUPTI recorded neither the kernel before the call nor the one after it")
    own = {each.correlation_id for each in (*fence, *marker)}
    others = [each for each in log.activities if each.correlation_id not in own]
    escaped = describe_escapes(fence, marker, others)
    if escaped is not None:
        raise Caught(escaped)
    return f"{len(others)} activities"


def same_work_every_call(case: Case) -> str | None:
    """Four calls, the third on other values: what the first one does, the others must do too."""
    trial, other = case.trial(0), case.trial(1)
    case.build()
    inputs = clone(trial.inputs)
    outputs = [case.allocate(inputs) for _ in range(4)]
    torch.cuda.synchronize(case.device)
    log = CallLog()
    windows = []
    with log:
        for index, each in enumerate(outputs):
            source = other if index == 2 else trial
            for value, values in zip(inputs, source.inputs, strict=True):
                if isinstance(value, torch.Tensor):
                    value.copy_(values)
            torch.cuda.synchronize(case.device)
            begin = log.now_ns()
            case.launch(inputs, each)
            windows.append(Window(begin, log.now_ns()))
            torch.cuda.synchronize(case.device)
    works = [work_of(window, log.calls, log.activities) for window in windows]
    if not works[0]:
        raise Caught("the first call launched no GPU work in its thread")
    # Loading a module may copy and clear memory once: of the first call only kernels are compared.
    _require_alike("the second call", _kernels(works[1]), "the first", _kernels(works[0]))
    _require_alike("the fourth call", works[3], "the second", works[1])
    return f"{len(works[1])} activities a call"


def _kernels(work: Sequence[Activity]) -> list[Activity]:
    return [each for each in work if each.name not in (MEMCPY, MEMSET)]


def _require_alike(
    when: str, work: Sequence[Activity], other: str, expected: Sequence[Activity]
) -> None:
    """Raises Caught where the same values led to other GPU work."""
    if names_of(work) == names_of(expected):
        return
    names, wanted = ({each.name for each in part} for part in (work, expected))
    raise Caught(
        f"{when} ran {len(work)} activities on the same values, {other} {len(expected)}; missing "
        f"{sorted(wanted - names) or 'none'}, added {sorted(names - wanted) or 'none'}"[:600]
    )


def no_host_synchronisation(case: Case) -> str | None:
    """torch's own check, then CUPTI's records of what else the host asked for."""
    trial = case.trial(0)
    case.build()
    case.call(trial.inputs)
    outputs = case.allocate(trial.inputs)
    torch.cuda.synchronize(case.device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        case.launch(trial.inputs, outputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize(case.device)
    log = CallLog()
    with log:
        begin = log.now_ns()
        case.launch(trial.inputs, outputs)
        window = Window(begin, log.now_ns())
        torch.cuda.synchronize(case.device)
    waits = waits_of(window, log.calls)
    if waits:
        raise Caught(f"a call waits for the GPU: {', '.join(sorted(set(waits)))}")
    return None


def graph_capturable(case: Case) -> str | None:
    """One captured call, replayed on its own values and then on others in the same tensors."""
    trial, other = case.trial(0), case.trial(1)
    case.build()
    inputs = clone(trial.inputs)
    case.call(inputs)
    outputs = case.allocate(inputs)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            found = case.launch(inputs, outputs)
    except RuntimeError as error:
        raise Caught(f"it cannot be captured: {one_line(error)}") from error
    for source, when in ((trial, "a replay"), (other, "a replay on new values")):
        for value, values in zip(inputs, source.inputs, strict=True):
            if isinstance(value, torch.Tensor):
                value.copy_(values)
        for _ in range(REPLAYS):
            for output in found:
                poison(output)
            graph.replay()
        torch.cuda.synchronize(case.device)
        case.require_right(source, found, when)
    return None
