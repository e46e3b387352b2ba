"""Which of a host's cores belong to which of its GPUs.

Processes that judge on several GPUs of a host, each with a thread for every core, wait for each
other's cores: two that added 16 MiB on 32 cores took 150 times as long (docs/scale.md).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from harness.devices.sources import Nvml, load_nvml


def own_cores(gpu: str, nvml: Nvml | None = None) -> Sequence[int]:
    """This process's cores for one GPU, whether the host's other GPUs are at work or not.

    gpu: as CUDA_VISIBLE_DEVICES names it, a number or the beginning of a UUID. All cores where NVML
    does not know it.
    """
    near = (nvml or load_nvml()).near_cores()
    named = [uuid for n, uuid in enumerate(near) if gpu == str(n) or (gpu and uuid.startswith(gpu))]
    available = _available()
    return shares(near, available)[named[0]] if len(named) == 1 else available


def spare_cores(left: int, nvml: Nvml | None = None) -> Sequence[int]:
    """This process's cores but `left` of each GPU's; one at least."""
    available = _available()
    divided = shares((nvml or load_nvml()).near_cores() or {"": ()}, available).values()
    return sorted({core for cores in divided for core in cores[left:]}) or available[:1]


def shares(
    near: Mapping[str, Sequence[int]], available: Collection[int]
) -> dict[str, Sequence[int]]:
    """The available cores, by UUID, divided evenly among the GPUs that are near to the same ones.

    near: by UUID; of one that none of the available cores is near to, all are. More GPUs than cores
    take turns.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for uuid, cores in near.items():
        usable = sorted(set(cores) & set(available)) or sorted(available)
        groups.setdefault(tuple(usable), []).append(uuid)
    divided: dict[str, Sequence[int]] = {}
    for group, uuids in groups.items():
        each = max(1, len(group) // len(uuids))
        for n, uuid in enumerate(uuids):
            first = n * each % len(group)
            divided[uuid] = group[first : first + each]
    return divided


def _available() -> list[int]:
    return sorted(os.sched_getaffinity(0))
