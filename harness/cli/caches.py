"""Where this project leaves files that it can make again, on this machine.

In the checkout:

    solutions/<room>/solution.json    packed by pack.py
    .*.partial-*                      what a writer that was killed has left of a file
    traces/                           verdicts that --resume goes on from; held while a run writes

Shared with every other checkout:

    FIB_CACHE_PATH/<builder>/fib_<builder>_<solution>_<hash6>/     builds of flashinfer-bench
    FIB_CACHE_PATH/build_locks/<hash>.lock                         one for each of these builds
    the lock folder of harness.devices/*.lock                      one for each GPU

Build folders and locks of other projects are told apart by their names.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.config import Workspace
from harness.devices.sharing import lock_folder
from harness.evaluate.pool import build_cache
from harness.files import PARTIAL_MARK

_WRITING_S = 60.0  # a file that is being written is no older
_HASH6 = 6  # digits of flashinfer-bench's own hash at the end of a build folder's name
_WRITTEN = ("definitions", "docs", "results", "solutions", "workloads")
_LOCK_NAMES = ("*.lock", "lock", "*_lock")  # filelock, tvm-ffi, flashinfer-bench's tvm-ffi builder


@dataclass(frozen=True)
class Cache:
    """One file or folder. option: the one of `harness clean` that must name it, None where none
    must. age_s: seconds since it changed. is_held: a live process locks it."""

    kind: str
    option: str | None
    path: Path
    size_bytes: int
    age_s: float
    is_held: bool = False

    def remove(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink()


def find_caches(workspace: Workspace) -> list[Cache]:
    """All of them that exist, locks last."""
    packed = sorted((workspace.root / "solutions").glob("*/solution.json*"))
    found = [_cache("solution", None, path) for path in packed]
    found += [cache for folder in _WRITTEN for cache in _partials(workspace.root / folder)]
    traces = workspace.root / "traces"
    if traces.is_dir():
        writing = any(is_held(path) for path in traces.rglob("*.lock"))
        found.append(_cache("traces", "traces", traces, writing))
    builds = {path.name[-_HASH6:]: path for path in sorted(_builds(workspace))}
    locks = [
        path
        for path in sorted((build_cache() / "build_locks").glob("*.lock"))
        if path.name[:_HASH6] in builds
    ]
    building = {path.name[:_HASH6] for path in locks if is_held(path)}
    for digits, path in builds.items():
        found.append(_cache("build", "shared", path, digits in building or _is_any_held(path)))
    locks += sorted(lock_folder().glob("*.lock"))
    return found + [_cache("lock", "shared", path, is_held(path)) for path in locks]


def _partials(folder: Path) -> Iterator[Cache]:
    for path in sorted(folder.rglob(f".*{PARTIAL_MARK}*")):
        cache = _cache("partial", None, path)
        yield dataclasses.replace(cache, is_held=cache.age_s < _WRITING_S)


def _builds(workspace: Workspace) -> Iterator[Path]:
    """Build folders of the rooms' solutions and of their definitions' references."""
    folders = sorted((workspace.root / "solutions").glob("*/"))
    rooms = {*workspace.rooms, *(path.name for path in folders if path.name != "common")}
    definitions = {room.definition for room in workspace.rooms.values()}
    names = [rf"{re.escape(room)}_[0-9a-f]{{8}}" for room in rooms]
    names += [rf"{re.escape(definition)}__reference" for definition in definitions]
    ours = re.compile(rf"fib_[a-z_]+?_(?:{'|'.join(names)})_[0-9a-f]{{{_HASH6}}}\Z")
    for path in build_cache().glob("*/fib_*"):
        if ours.match(path.name) and path.is_dir() and not path.is_symlink():
            yield path


def is_held(lock: Path) -> bool:
    """Whether a live process has locked the file; the system frees it when the process dies."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_any_held(folder: Path) -> bool:
    return any(
        is_held(path) for name in _LOCK_NAMES for path in folder.rglob(name) if path.is_file()
    )


def _cache(kind: str, option: str | None, path: Path, held: bool = False) -> Cache:
    files = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    facts = [file.lstat() for file in files]
    age_s = max(0.0, time.time() - max(fact.st_mtime for fact in facts))
    return Cache(kind, option, path, sum(fact.st_size for fact in facts), age_s, held)


def format_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def format_age(age_s: float) -> str:
    for seconds, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if age_s >= seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
