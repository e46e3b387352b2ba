"""Latency of one call, measured as the official evaluator's main branch does.

CUPTI records every kernel, copy and memset of the GPU. Before each timed call a buffer of twice
the L2 size is written, so that inputs come from device memory. The span of a call runs from the
start of its first GPU activity to the end of its last one: host work and the latency of the
first launch are outside, gaps between kernels are inside. Reported is the median over the
iterations. The procedure follows flashinfer.testing.bench_gpu_time_with_cupti as
flashinfer-bench main calls it; the numbers of 0.1.2's event timer are not comparable.
"""

from __future__ import annotations

import importlib.metadata
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from harness.errors import EnvironmentUnfit, HarnessError, UsageError

ESTIMATION_CALLS = 5  # the official procedure makes them before its warm-up
L2_FLUSH_FACTOR = 2
TIMERS = ("cupti", "events")
CUPTI_PYTHON_MAJOR = 13  # what flashinfer's procedure asks for; older ones fall back to events


class NoGpuWork(HarnessError):
    """The timed call launched nothing that CUPTI could attribute to it."""


class InconsistentGpuWork(HarnessError):
    """The timed call launched other kernels in one iteration than in the first."""


@dataclass(frozen=True)
class Measurement:
    """One timed call. latency_us: median of samples_us; activities: names, in launch order."""

    latency_us: float
    samples_us: tuple[float, ...]
    activities: tuple[str, ...]


@dataclass(frozen=True)
class Launch:
    """A runtime or driver API call that may have started GPU work. Times in ns."""

    correlation_id: int
    start_ns: int


@dataclass(frozen=True)
class Activity:
    """One kernel, copy or memset on the GPU. detail tells copies and memsets apart."""

    correlation_id: int
    start_ns: int
    end_ns: int
    name: str
    detail: tuple[int, ...] = ()


class Timer(Protocol):
    """Measures a call of no arguments."""

    name: str

    def measure(
        self,
        call: Callable[[], Any],
        warmup_runs: int,
        iterations: int,
        *,
        estimation_calls: int = ESTIMATION_CALLS,
    ) -> Measurement:
        """Latency of `call`, in µs, after one call, the estimation calls and the warm-up.

        estimation_calls: fewer than the official number where a duration is known already.
        """


def measure_spans(
    windows: Iterable[tuple[int, int]], launches: Iterable[Launch], activities: Iterable[Activity]
) -> Measurement:
    """Spans from recorded events; pure.

    windows: host timestamps (ns) before and after each call, on CUPTI's clock.
    Raises NoGpuWork where a window launched nothing, InconsistentGpuWork where the set of
    (name, detail) differs from the first window's.
    """
    ordered = sorted(launches, key=lambda launch: launch.start_ns)
    starts = [launch.start_ns for launch in ordered]
    by_id: dict[int, list[Activity]] = {}
    for activity in activities:
        by_id.setdefault(activity.correlation_id, []).append(activity)
    samples_us: list[float] = []
    first: list[Activity] = []
    for begin, end in windows:
        inside = ordered[bisect_left(starts, begin) : bisect_right(starts, end)]
        work = [a for launch in inside for a in by_id.get(launch.correlation_id, ())]
        if not work:
            raise NoGpuWork(
                "no GPU work seen in a timed call: the result may be cached, the work may run on "
                "another thread, or every input may be of size zero"
            )
        first = first or work
        if {(a.name, a.detail) for a in work} != {(a.name, a.detail) for a in first}:
            raise InconsistentGpuWork(
                f"a timed call ran {sorted({a.name for a in work})}, the first one "
                f"{sorted({a.name for a in first})}; kernels may not depend on earlier calls"
            )
        span_ns = max(a.end_ns for a in work) - min(a.start_ns for a in work)
        samples_us.append(span_ns / 1e3)
    if not samples_us:
        raise UsageError("iterations: expected at least 1, got 0")
    names = tuple(a.name for a in sorted(first, key=lambda a: a.start_ns))
    return Measurement(statistics.median(samples_us), tuple(samples_us), names)


class CuptiTimer:
    """CUPTI spans with a cold L2: the only timer whose numbers are results."""

    name = "cupti"

    def __init__(self, device: str) -> None:
        """device: a torch device string such as "cuda:0". Raises EnvironmentUnfit."""
        try:
            from cupti import cupti
        except ImportError as error:
            raise EnvironmentUnfit(
                f"CUPTI timer: cannot import cupti ({error}); install cupti-python>=13, or ask "
                "for --timer events, whose numbers are not comparable"
            ) from error
        self._cupti = cupti
        self._device = device

    def measure(
        self,
        call: Callable[[], Any],
        warmup_runs: int,
        iterations: int,
        *,
        estimation_calls: int = ESTIMATION_CALLS,
    ) -> Measurement:
        import torch

        flush = _flush_buffer(self._device)
        call()
        for _ in range(estimation_calls + warmup_runs):
            flush.zero_()
            call()
        torch.cuda.synchronize(self._device)
        recording = _Recording(self._cupti)
        windows = []
        with recording:
            for _ in range(iterations):
                flush.zero_()
                torch.cuda.synchronize(self._device)
                begin = self._cupti.get_timestamp()
                call()
                end = self._cupti.get_timestamp()
                torch.cuda.synchronize(self._device)
                windows.append((begin, end))
        return measure_spans(windows, recording.launches, recording.activities)


class _Recording:
    """Collects CUPTI activity records while it is open."""

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        kind = cupti.ActivityKind
        self._launch_kinds = (kind.RUNTIME, kind.DRIVER)
        self._work_kinds = (kind.CONCURRENT_KERNEL, kind.MEMCPY, kind.MEMSET)
        self.launches: list[Launch] = []
        self.activities: list[Activity] = []

    def __enter__(self) -> _Recording:
        self._cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._keep)
        for kind in self._launch_kinds + self._work_kinds:
            self._cupti.activity_enable(kind)
        return self

    def __exit__(self, *_: object) -> None:
        self._cupti.activity_flush_all(0)
        for kind in self._launch_kinds + self._work_kinds:
            self._cupti.activity_disable(kind)

    def _keep(self, records: Iterable[Any]) -> None:
        kind = self._cupti.ActivityKind
        for record in records:
            if record.kind in self._launch_kinds:
                self.launches.append(Launch(record.correlation_id, record.start))
                continue
            detail: tuple[int, ...] = ()
            if record.kind == kind.CONCURRENT_KERNEL:
                name = record.name
            elif record.kind == kind.MEMCPY:
                name, detail = "memcpy", (int(record.copy_kind), int(record.bytes))
            elif record.kind == kind.MEMSET:
                name, detail = "memset", (int(record.value), int(record.bytes))
            else:
                continue
            self.activities.append(
                Activity(record.correlation_id, record.start, record.end, name, detail)
            )


class EventTimer:
    """CUDA events around the call, cold L2: for machines without CUPTI, never for results."""

    name = "events"

    def __init__(self, device: str) -> None:
        self._device = device

    def measure(
        self,
        call: Callable[[], Any],
        warmup_runs: int,
        iterations: int,
        *,
        estimation_calls: int = ESTIMATION_CALLS,
    ) -> Measurement:
        import torch

        flush = _flush_buffer(self._device)
        for _ in range(1 + estimation_calls + warmup_runs):
            call()
        pairs = []
        for _ in range(iterations):
            flush.zero_()
            pair: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
            pair[0].record()
            call()
            pair[1].record()
            pairs.append(pair)
        torch.cuda.synchronize(self._device)
        samples_us = tuple(start.elapsed_time(end) * 1e3 for start, end in pairs)
        return Measurement(statistics.median(samples_us), samples_us, ())


def require_timer(name: str) -> None:
    """Raise UsageError for an unknown timer, EnvironmentUnfit for one that cannot run here.

    Imports neither torch nor CUPTI, so that a sweep can ask before its first worker starts.
    """
    if name not in TIMERS:
        raise UsageError(f"timer: expected one of {', '.join(TIMERS)}, got {name!r}")
    if name != "cupti":
        return
    try:
        version = importlib.metadata.version("cupti-python")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < CUPTI_PYTHON_MAJOR:
        raise EnvironmentUnfit(
            f"CUPTI timer: expected cupti-python {CUPTI_PYTHON_MAJOR} or newer, got {version}; "
            "install it, or ask for --timer events, whose numbers are not comparable"
        )


def select_timer(name: str, device: str) -> Timer:
    """The timer called `name` for a CUDA device. Raises UsageError, EnvironmentUnfit."""
    require_timer(name)
    return CuptiTimer(device) if name == "cupti" else EventTimer(device)


def _flush_buffer(device: str) -> Any:
    """A buffer whose writing evicts everything else from the L2."""
    import torch

    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    return torch.empty(L2_FLUSH_FACTOR * l2_bytes, dtype=torch.int8, device=device)
