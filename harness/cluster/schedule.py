"""Who judges what next. Pure: the engine and the simulation both run on it.

Workloads go out longest first, and a worker stays in its room while that has work: another room
costs it a new worker process of about START_S. A free worker takes the longest room that nobody is
in. Once there is none, it joins the room that it shortens most, if it shortens one at all.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

START_S = 1.2  # of a process in its room: CUDA context, compiled code loaded, first calls
ATTEMPTS = 3  # at a workload whose worker is lost each time


@dataclass(frozen=True, order=True)
class Item:
    """One workload to judge. key: what the caller knows it by."""

    room: str
    key: str
    expected_s: float


@dataclass
class _Queue:
    """What is still to be given out of one room, longest first; equal ones by key."""

    heap: list[tuple[float, str, Item]] = field(default_factory=list)
    left_s: float = 0.0

    def push(self, item: Item) -> None:
        heapq.heappush(self.heap, (-item.expected_s, item.key, item))
        self.left_s += item.expected_s

    def pop(self) -> Item:
        item = heapq.heappop(self.heap)[2]
        self.left_s -= item.expected_s
        return item


class Schedule:
    """The state of a run: what waits, what runs where, what is done."""

    def __init__(self, items: Iterable[Item], start_s: float = START_S) -> None:
        self._queues: dict[str, _Queue] = {}
        for item in items:
            self._queues.setdefault(item.room, _Queue()).push(item)
        self._start_s = start_s
        self._running: dict[str, Item] = {}
        self._room_of: dict[str, str] = {}
        self._crew: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()
        self.unfinished = sum(len(queue.heap) for queue in self._queues.values())

    def take(self, worker: str, open_rooms: Iterable[str] | None = None) -> Item | None:
        """The next workload of a free worker, or None where it should wait.

        open_rooms: whose inputs are there; all where None.
        """
        own = self._room_of.get(worker)
        if own is not None and self._queues[own].heap:  # it judged there: the inputs are there
            room: str | None = own
        else:
            room = self._choose(self._queues if open_rooms is None else set(open_rooms))
        if room is None:
            return None
        if room != own:
            self._leave(worker)
            self._room_of[worker] = room
            self._crew[room] += 1
        self._running[worker] = item = self._queues[room].pop()
        return item

    def finish(self, worker: str) -> Item:
        """The workload of `worker` has its outcome."""
        self.unfinished -= 1
        return self._running.pop(worker)

    def lose(self, worker: str) -> tuple[Item | None, bool]:
        """`worker` is gone: what it was at, and whether somebody else will judge that."""
        self._leave(worker)
        item = self._running.pop(worker, None)
        if item is None:
            return None, False
        self._losses[item.key] += 1
        if self._losses[item.key] >= ATTEMPTS:
            self.unfinished -= 1
            return item, False
        self._queues[item.room].push(item)
        return item, True

    def drain(self) -> list[Item]:
        """Everything that nobody will judge any more."""
        left = [item for queue in self._queues.values() for _, _, item in sorted(queue.heap)]
        for queue in self._queues.values():
            queue.heap.clear()
        self.unfinished -= len(left)
        return left

    def _leave(self, worker: str) -> None:
        room = self._room_of.pop(worker, None)
        if room is not None:
            self._crew[room] -= 1

    def _choose(self, allowed: Container[str]) -> str | None:
        """The room for a worker that has none. One that nobody is in is worth waiting for its
        inputs: to join another one means to start what is there already."""
        waiting = sorted(room for room, queue in self._queues.items() if queue.heap)
        untouched = [room for room in waiting if not self._crew[room]]
        if untouched:
            ready = (room for room in untouched if room in allowed)
            return max(ready, key=lambda room: self._queues[room].left_s, default=None)
        best = max((room for room in waiting if room in allowed), key=self._gain_s, default=None)
        return best if best is not None and self._gain_s(best) > 0 else None

    def _gain_s(self, room: str) -> float:
        """How much sooner the room ends with one worker more, which starts first."""
        crew, left_s = self._crew[room], self._queues[room].left_s
        return left_s / crew - (left_s + self._start_s) / (crew + 1)
