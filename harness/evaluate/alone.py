"""A GPU for one run alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from harness.devices import DeviceFacts, device_lock, require_idle
from harness.errors import DeviceBusy
from harness.evaluate.strays import kill_abandoned

LOCK_WAIT_S = 5.0
KILL_WAIT_S = 2.0
IDLE_WAIT_S, IDLE_POLL_S = 5.0, 0.2  # what was killed needs a moment to leave the GPU


@contextlib.contextmanager
def hold_device(facts: DeviceFacts) -> Iterator[None]:
    """The lock of the GPU, idle, once what killed runs left on it has been ended.

    Nothing to hold on a CPU. Raises DeviceBusy.
    """
    if facts.uuid is None:
        yield
        return
    with device_lock(facts.uuid, LOCK_WAIT_S):
        kill_abandoned(KILL_WAIT_S)
        _wait_until_idle(facts)
        yield


def _wait_until_idle(facts: DeviceFacts) -> None:
    deadline = time.monotonic() + IDLE_WAIT_S
    while True:
        try:
            require_idle(facts)
            return
        except DeviceBusy:
            if time.monotonic() >= deadline:
                raise
        time.sleep(IDLE_POLL_S)
