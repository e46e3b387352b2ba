"""What Torch Profiler says of a call: which kernels it launches and how long each takes. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace's GPU events
_NO_KERNELS = ("Memcpy", "Memset")  # "Memcpy DtoD (Device -> Device)": no type before the name
_NAMELESS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")


@dataclass(frozen=True)
class Activity:
    """One kernel, copy or memset of one call.

    grid_blocks, block_threads, registers_per_thread, shared_bytes_per_block: of a kernel, None
    where the trace does not say.
    """

    name: str
    duration_us: float
    grid_blocks: int | None = None
    block_threads: int | None = None
    registers_per_thread: int | None = None
    shared_bytes_per_block: int | None = None


@dataclass(frozen=True)
class KernelShare:
    """All launches of one name in a call.

    launches: in one call, median over the calls. time_us: of all of them together, median over
    the calls. share: of the call's activities' time. The rest: of the longest launch.
    """

    name: str
    launches: int
    time_us: float
    share: float
    grid_blocks: int | None = None
    block_threads: int | None = None
    registers_per_thread: int | None = None
    shared_bytes_per_block: int | None = None


def base_name(name: str) -> str:
    """A kernel's bare name: no return type, namespace, template arguments or parameters. Profilers
    print the rest each in its own way."""
    stem = re.split(r"[<(]", _NAMELESS.sub("", name), maxsplit=1)[0].strip()
    if stem.startswith(_NO_KERNELS):
        return stem
    return stem.rpartition(" ")[2].rpartition("::")[2] or name.strip()


def read_trace(trace: Mapping[str, Any]) -> list[Activity]:
    """The GPU's activities of a Chrome trace as Torch Profiler exports it, in order of begin."""
    events = [
        event
        for event in trace.get("traceEvents", ())
        if event.get("ph") == "X" and event.get("cat") in _ACTIVITIES
    ]
    return [_read_event(event) for event in sorted(events, key=lambda event: event["ts"])]


def _read_event(event: Mapping[str, Any]) -> Activity:
    known = event.get("args") or {}
    return Activity(
        name=str(event["name"]),
        duration_us=float(event["dur"]),
        grid_blocks=prod(known["grid"]) if "grid" in known else None,
        block_threads=prod(known["block"]) if "block" in known else None,
        registers_per_thread=known.get("registers per thread"),
        shared_bytes_per_block=known.get("shared memory"),
    )


def share_out(calls: Sequence[Sequence[Activity]]) -> tuple[KernelShare, ...]:
    """Each name's part of a call, the largest first; nothing where no call has an activity.

    calls: the activities of several calls of the same inputs.
    """
    parts = []
    for name in dict.fromkeys(activity.name for call in calls for activity in call):
        found = [[activity for activity in call if activity.name == name] for call in calls]
        launches = round(statistics.median(len(one) for one in found))
        time_us = statistics.median(sum(a.duration_us for a in one) for one in found)
        if launches and time_us > 0.0:  # else most calls do without it
            longest = max((a for one in found for a in one), key=lambda a: a.duration_us)
            parts.append((time_us, launches, longest))
    total_us = sum(time_us for time_us, _, _ in parts)
    return tuple(
        KernelShare(
            name=longest.name,
            launches=launches,
            time_us=time_us,
            share=time_us / total_us,
            grid_blocks=longest.grid_blocks,
            block_threads=longest.block_threads,
            registers_per_thread=longest.registers_per_thread,
            shared_bytes_per_block=longest.shared_bytes_per_block,
        )
        for time_us, launches, longest in sorted(parts, key=lambda part: -part[0])
    )
