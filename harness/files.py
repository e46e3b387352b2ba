"""Paths that users name, files that appear whole or not at all, folders, locks and hashes.

No dependencies."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harness.errors import DeviceBusy, EnvironmentUnfit, UsageError

_READ_BYTES = 1 << 22
_LOCK_POLL_S = 0.1
MOVED_BY = (
    "free it, or set FIB_CACHE_PATH for the build cache, "
    + "TVM_FFI_CACHE_DIR for that of native routes"
)
KEEPS_RESULTS = "what is measured is kept there; free it, or let this user write there"
PARTIAL_MARK = ".partial-"  # in the names of files that are being written


def expand_home(path: str | Path) -> Path:
    """``~`` and ``~name`` as folders. Raises UsageError where that user has none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{path}: no such user's home folder; write the path out") from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes ``path`` when the block ends well, and vanishes otherwise.

    Temporary file in the same folder, fsync, rename: readers see the old or the new content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{PARTIAL_MARK}")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def hold_lock(file: IO[str], wait_s: float, what: str) -> Iterator[None]:
    """Hold an open lock file against other runs; the system frees it if the process dies.

    file: opened with "a+"; it holds the pid of its holder. wait_s: how long to wait for the present
    holder. what: what is held, for the message. Raises DeviceBusy naming the holder's pid.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            left_s = deadline - time.monotonic()
            if left_s <= 0.0:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise DeviceBusy(
                    f"{what}: another run (pid {holder}) holds it; wait for that to end"
                ) from error
        time.sleep(min(_LOCK_POLL_S, left_s))
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    yield


def file_sha256(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def require_writable(*folders: Path, advice: str = MOVED_BY) -> None:
    """Raise EnvironmentUnfit for a folder that cannot be made or written into. advice: what to do
    then; by default which variable moves the builders' caches."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise EnvironmentUnfit(
                f"{folder}: expected a folder that can be written, got {error}; {advice}"
            ) from error
