"""A run of the schedule on a cluster that is not there: how far one driver and five rooms scale.

Discrete events. A worker starts a process when it changes rooms, then judges; it compiles what no
other worker of its host has compiled by then. The driver gives out one workload and takes one
result at a time, which costs it DRIVER_S. Nothing else is modelled: no network, no deaths, no
blobs. A candidate is one solution of one room, so it is a room of its own to the schedule.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.cluster.estimates import COSTS
from harness.cluster.schedule import START_S, Item, Schedule

GPUS_OF_HOST = 8
DRIVER_S = 0.013  # a workload: 4 ms of its CPU, 8 ms until the disk has the verdict (docs/scale.md)
WORKLOADS = {
    "moe": 19,
    "dsa_indexer": 128,
    "dsa_attention": 23,
    "gdn_decode": 54,
    "gdn_prefill": 100,
}


@dataclass(frozen=True)
class Simulated:
    """One run. Shares are of all workers' time between the first workload and the last."""

    workers: int
    workloads: int
    wall_s: float
    judging_share: float
    starting_share: float
    driver_share: float

    @property
    def idle_share(self) -> float:
        return 1.0 - self.judging_share - self.starting_share


def official_load(candidates: int) -> list[Item]:
    """All 324 workloads for each of `candidates` solutions of every room, evenly spread between
    the room's least and as far beyond its mean."""
    items = []
    for candidate in range(candidates):
        for room, count in WORKLOADS.items():
            cost, name = COSTS[room], f"{room} {candidate}"
            for n in range(count):
                expected_s = cost.least_s + 2 * (cost.mean_s - cost.least_s) * n / (count - 1)
                items.append(Item(name, f"{name} {n}", expected_s))
    return items


def official_compilation_s(room: str) -> float:
    """Of a solution of official_load."""
    return COSTS[room.partition(" ")[0]].compile_s


def simulate(
    items: Sequence[Item],
    workers: int,
    driver_s: float = DRIVER_S,
    start_s: float = START_S,
    compilation_s: Callable[[str], float] = lambda room: 0.0,
) -> Simulated:
    """Run `items` on `workers` that are all there from the beginning.

    compilation_s: of a room, where it is not compiled on the worker's host.
    """
    schedule = Schedule(items, start_s)
    compiled_at_s: dict[tuple[int, str], float] = {}  # by host and room
    compiling_s = 0.0
    free = [(0.0, worker) for worker in range(workers)]
    rooms: dict[int, str] = {}
    driver_free_s = starting_s = wall_s = 0.0
    while free:
        now_s, worker = heapq.heappop(free)
        name = str(worker)
        if worker in rooms:
            schedule.finish(name)
        item = schedule.take(name)
        driver_free_s = max(now_s, driver_free_s) + driver_s
        wall_s = max(wall_s, driver_free_s)
        if item is None:
            continue
        extra_s = 0.0
        if rooms.get(worker) != item.room:
            rooms[worker] = item.room
            starting_s += start_s
            extra_s = start_s
            place = (worker // GPUS_OF_HOST, item.room)
            if compiled_at_s.get(place, math.inf) > driver_free_s:
                extra_s += compilation_s(item.room)
                compiling_s += compilation_s(item.room)
                there_s = driver_free_s + extra_s
                compiled_at_s[place] = min(compiled_at_s.get(place, math.inf), there_s)
        heapq.heappush(free, (driver_free_s + extra_s + item.expected_s, worker))
    all_s = workers * wall_s
    judging_s = compiling_s + sum(item.expected_s for item in items)
    return Simulated(
        workers,
        len(items),
        wall_s,
        judging_s / all_s,
        starting_s / all_s,
        driver_s * (len(items) + workers) / wall_s,
    )


@functools.cache
def curve(candidates: int, workers: tuple[int, ...]) -> tuple[Simulated, ...]:
    """The official load on each number of workers."""
    items = official_load(candidates)
    return tuple(simulate(items, count, compilation_s=official_compilation_s) for count in workers)
