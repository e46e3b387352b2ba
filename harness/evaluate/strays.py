"""Ends what a worker left running in sessions of its own, where no signal to its group reaches.

Whatever a worker starts inherits its environment, and that holds a mark. A process that replaced
its environment is not found: isolation is against accidents, not against intent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "HARNESS_WORKER"
POLL_S = 0.02


def kill_strays(mark: str, wait_s: float) -> None:
    """SIGKILL every process whose environment holds MARK=mark, until none is left or wait_s ends.

    Linux: where there is no /proc, nothing is found.
    """
    deadline = time.monotonic() + wait_s
    while (found := _find(f"{MARK}={mark}".encode())) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)  # one that was forked meanwhile is found by the next look


def _find(entry: bytes) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
