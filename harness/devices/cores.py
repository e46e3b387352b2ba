"""Which of a host's cores belong to which of its GPUs.

Processes that judge on several GPUs of a host, each with a thread for every core, wait for each
other's cores: two that added 16 MiB on 32 cores took 150 times as long (docs/scale.md).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from harness.devices.sources import Nvml, load_nvml

# Fewer are no share: a process that judges, the next one that imports beside it, the compiler's and
# the timer's threads would take turns.
LEAST_CORES = 4
TOPOLOGY = Path("/sys/devices/system/cpu")


def own_cores(gpu: str, nvml: Nvml | None = None) -> Sequence[int]:
    """This process's cores for one GPU, whether the host's other GPUs are at work or not.

    gpu: as CUDA_VISIBLE_DEVICES names it, the beginning of a UUID or a number, which is taken in
    NVML's order; among GPUs of one kind CUDA's is the same. All cores where NVML does not know it.
    """
    near = (nvml or load_nvml()).near_cores()
    named = [uuid for n, uuid in enumerate(near) if gpu == str(n) or (gpu and uuid.startswith(gpu))]
    available = _available()
    return _shares(near, available)[named[0]] if len(named) == 1 else available


def spare_cores(left: int, nvml: Nvml | None = None) -> Sequence[int]:
    """This process's cores but `left` of each GPU's; one at least."""
    available = _available()
    divided = _shares((nvml or load_nvml()).near_cores() or {"": ()}, available).values()
    reserved = {core for cores in divided for core in cores[:left]}
    return [core for core in available if core not in reserved] or available[-1:]


def _shares(
    near: Mapping[str, Sequence[int]], available: Collection[int]
) -> dict[str, Sequence[int]]:
    """The available cores, by UUID, divided evenly among the GPUs that are near to the same ones.

    near: by UUID; of one that none of the available cores is near to, all are. Threads of one
    physical core stay together. Where a share would have fewer than LEAST_CORES, nobody has one:
    all GPUs have all cores of the group.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for uuid, cores in near.items():
        usable = sorted(set(cores) & set(available), key=_place) or sorted(available, key=_place)
        groups.setdefault(tuple(usable), []).append(uuid)
    divided: dict[str, Sequence[int]] = {}
    for group, uuids in groups.items():
        parts = len(uuids) if len(group) >= LEAST_CORES * len(uuids) else 1
        for n, uuid in enumerate(uuids):
            part = n % parts
            first, end = (len(group) * at // parts for at in (part, part + 1))
            divided[uuid] = group[first:end]
    return divided


def _place(core: int) -> tuple[int, int]:
    """Orders threads of one physical core behind each other."""
    try:
        siblings = (TOPOLOGY / f"cpu{core}/topology/thread_siblings_list").read_text("ascii")
        return int(siblings.replace("-", ",").split(",")[0]), core
    except (OSError, ValueError):
        return core, core


def _available() -> list[int]:
    return sorted(os.sched_getaffinity(0))
