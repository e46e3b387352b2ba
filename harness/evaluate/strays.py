"""Ends what a worker left running, also in sessions of its own that no signal to its group reaches.

Two ways find it. A worker adopts its orphaned descendants (subreaper), so that they stay below it
in the tree of processes while it lives. And whatever it starts inherits its environment, which
holds a mark: pid namespace, pid and start of the sweep, and a number of the worker's own. What
bears the mark of a sweep that has ended was left by one that was killed: the next one ends it.

Only a process that replaced its environment and outlived its worker is found by neither: isolation
is against accidents, not against intent.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

MARK = "HARNESS_WORKER"
POLL_S = 0.02
_PARENT, _START = 1, 19  # fields of /proc/<pid>/stat behind the command's name


def make_mark() -> str:
    """The value of MARK for one worker of this process: namespace-pid-start-number."""
    return f"{_namespace()}-{os.getpid()}-{_start_of(os.getpid())}-{secrets.token_hex(8)}"


def kill_descendants(root: int, wait_s: float) -> None:
    """SIGKILL every process below `root`, until none is left or wait_s ends; root itself lives.

    Linux: where there is no /proc, nothing is found.
    """
    _kill_all(lambda: _descendants(root), wait_s)


def kill_strays(mark: str, wait_s: float) -> None:
    """SIGKILL every process whose environment holds MARK=mark, as kill_descendants does."""
    _kill_all(lambda: [pid for pid, found in _marked() if found == mark], wait_s)


def kill_abandoned(wait_s: float) -> None:
    """SIGKILL what workers of sweeps left that have themselves ended."""
    _kill_all(lambda: [pid for pid, mark in _marked() if _is_abandoned(mark)], wait_s)


def _kill_all(find: Callable[[], list[int]], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while (found := find()) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)  # one that was forked meanwhile is found by the next look


def _marked() -> list[tuple[int, str]]:
    """(pid, mark) of every process that has one."""
    prefix = f"{MARK}=".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(prefix):
                    mark = entry.removeprefix(prefix).decode(errors="replace")
                    found.append((int(folder.name), mark))
    return found


def _descendants(root: int) -> list[int]:
    """Processes below `root` that still run."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields:
            children.setdefault(int(fields[_PARENT]), []).append(int(folder.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if (_stat(pid) or ["Z"])[0] != "Z"]


def _is_abandoned(mark: str) -> bool:
    """Whether the sweep that made a mark has ended. One of another namespace cannot be asked."""
    parts = mark.split("-")
    if len(parts) != 4 or parts[0] != _namespace() or not parts[1].isdigit():
        return False
    return _start_of(int(parts[1])) != parts[2]


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return "none"


def _start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty where there is none."""
    fields = _stat(pid)
    return fields[_START] if fields else ""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; empty where there is none."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []
