"""One worker a side, each driven by a thread of its own.

A worker ends with the thread that started it (the kernel's parent-death signal goes by thread), so
a lane's thread lives as long as its pool and nobody else touches the pool.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from harness.evaluate.pool import Pool

CLOSE_WAIT_S = 10.0
ABANDON_WAIT_S = 1.0  # after an error a busy lane is left to end with the process

PoolFactory = Callable[[str, Path], Pool]
_Answer = TypeVar("_Answer")


class Lane:
    """The pool of one side. Tasks run one after another on the lane's thread."""

    def __init__(self, side: str, content: str, pool: Pool) -> None:
        self.side, self.content = side, content  # content: the hash of what the side runs
        self.is_warm = False  # has passed a workload: its worker has built and loaded the solution
        self._tasks: queue.SimpleQueue[Callable[[Pool], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, args=(pool,), name=f"lane {side}", daemon=True
        )
        self._thread.start()

    def submit(self, task: Callable[[Pool], _Answer]) -> Future[_Answer]:
        """Run `task` on the pool; its result or exception is the future's."""
        future: Future[_Answer] = Future()

        def fulfil(pool: Pool) -> None:
            try:
                future.set_result(task(pool))
            except BaseException as error:  # it belongs to whoever waits
                future.set_exception(error)

        self._tasks.put(fulfil)
        return future

    def _work(self, pool: Pool) -> None:
        with pool:
            while (task := self._tasks.get()) is not None:
                task(pool)

    def close(self, deadline: float) -> None:
        """End the worker once the lane is idle; wait for that until `deadline` at most."""
        self._tasks.put(None)
        self._thread.join(max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def open_lanes(
    contents: Mapping[str, str], device: str, root: Path, make_pool: PoolFactory
) -> Iterator[tuple[Lane, ...]]:
    """A lane for each side, in their order. All workers end with the block.

    contents: side -> the hash of what it runs.
    """
    lanes = tuple(
        Lane(side, content, make_pool(device, root)) for side, content in contents.items()
    )
    wait_s = ABANDON_WAIT_S
    try:
        yield lanes
        wait_s = CLOSE_WAIT_S
    finally:
        deadline = time.monotonic() + wait_s
        for lane in lanes:
            lane.close(deadline)
