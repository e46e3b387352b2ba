"""CUPTI's records of some calls: what the host asked for, and what ran on the GPU, with times.

The reading of records is pure, so that it can be tested without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.timing import Activity

# Of the runtime and the driver. Asynchronous copies and event queries do not wait.
_WAITS = re.compile(
    r"Synchronize|^cudaMemcpy(?!.*Async)|^cuMemcpy(?!.*Async)|^cudaMemset(?!.*Async)"
    r"|^cudaFree(?!Async|Host)|^cuMemFree(?!Async|Host)|^cu(da)?(Device|Ctx)Reset"
)
_BUFFER_BYTES = 8 << 20
MEMCPY, MEMSET = "memcpy", "memset"  # names of what is no kernel


@dataclass(frozen=True)
class ApiCall:
    """One call of the CUDA runtime or driver. Times in ns."""

    name: str
    correlation_id: int
    start_ns: int


@dataclass(frozen=True)
class Window:
    """A span of host time, on CUPTI's clock, in ns."""

    begin_ns: int
    end_ns: int

    def holds(self, call: ApiCall) -> bool:
        return self.begin_ns <= call.start_ns <= self.end_ns


def work_of(
    window: Window, calls: Iterable[ApiCall], activities: Iterable[Activity]
) -> list[Activity]:
    """GPU work whose launch lies in the window, in the order of its start."""
    launched = {call.correlation_id for call in calls if window.holds(call)}
    found = [each for each in activities if each.correlation_id in launched]
    return sorted(found, key=lambda each: each.start_ns)


def waits_of(window: Window, calls: Iterable[ApiCall]) -> list[str]:
    """Names of calls in the window that wait for the GPU."""
    return [call.name for call in calls if window.holds(call) and _WAITS.search(call.name)]


def describe_escapes(
    fence: Sequence[Activity], marker: Sequence[Activity], others: Iterable[Activity]
) -> str | None:
    """Work that began before the fence ended, or ended after the marker began, or None.

    fence, marker: what was put on the caller's stream before and after the call.
    """
    fence_end = max(each.end_ns for each in fence)
    marker_start = min(each.start_ns for each in marker)
    early = sorted({each.name for each in others if each.start_ns < fence_end})
    late = sorted({each.name for each in others if each.end_ns > marker_start})
    if early:
        return f"began before earlier work of its stream had ended: {', '.join(early)[:300]}"
    if late:
        return f"still ran when later work of its stream began: {', '.join(late)[:300]}"
    return None


def names_of(work: Iterable[Activity]) -> list[tuple[str, tuple[int, ...]]]:
    """Work as it can be compared between calls, sorted."""
    return sorted((each.name, each.detail) for each in work)


class CallLog:
    """Collects records while it is open. Close it before reading them."""

    def __init__(self) -> None:
        from cupti import cupti

        self._cupti = cupti
        kind = cupti.ActivityKind
        self._api_kinds = (kind.RUNTIME, kind.DRIVER)
        self._kinds = (*self._api_kinds, kind.CONCURRENT_KERNEL, kind.MEMCPY, kind.MEMSET)
        self.calls: list[ApiCall] = []
        self.activities: list[Activity] = []

    def now_ns(self) -> int:
        return int(self._cupti.get_timestamp())

    def __enter__(self) -> CallLog:
        self._cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._keep)
        for kind in self._kinds:
            self._cupti.activity_enable(kind)
        return self

    def __exit__(self, *_: object) -> None:
        self._cupti.activity_flush_all(0)
        for kind in self._kinds:
            self._cupti.activity_disable(kind)

    def _keep(self, records: Iterable[Any]) -> None:
        kind = self._cupti.ActivityKind
        for record in records:
            if record.kind in self._api_kinds:
                self.calls.append(ApiCall(self._name(record), record.correlation_id, record.start))
                continue
            detail: tuple[int, ...] = ()
            if record.kind == kind.CONCURRENT_KERNEL:
                name = record.name
            elif record.kind == kind.MEMCPY:
                name, detail = MEMCPY, (int(record.copy_kind), int(record.bytes))
            elif record.kind == kind.MEMSET:
                name, detail = MEMSET, (int(record.value), int(record.bytes))
            else:
                continue
            self.activities.append(
                Activity(record.correlation_id, record.start, record.end, name, detail)
            )

    def _name(self, record: Any) -> str:
        domain = self._cupti.CallbackDomain
        is_driver = record.kind == self._cupti.ActivityKind.DRIVER
        which = domain.DRIVER_API if is_driver else domain.RUNTIME_API
        return str(self._cupti.get_callback_name(which, record.cbid))
