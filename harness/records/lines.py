"""Files of JSON lines that only grow: appended, fsynced and never rewritten."""

from __future__ import annotations

import contextlib
import fcntl
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import InfrastructureFailure, RecordError
from harness.files import hold_lock
from harness.records.strict_json import dump, parse

TORN_SUFFIX = ".torn"
LOCK_SUFFIX = ".lock"
_Entry = TypeVar("_Entry")


class LedgerWarning(UserWarning):
    """A line of a ledger could not be read and was left out."""


def append_line(path: Path, values: Any) -> None:
    """Add one line in one write and wait until the disk has it. Raises InfrastructureFailure.

    Safe against other writers and against a power cut: a torn last line is moved to <name>.torn
    first, and earlier lines are never touched.
    """
    line = (dump(values) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as descriptor:
            moved = _repair(path, descriptor)
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, line) != len(line):
                os.ftruncate(descriptor, size)
                raise OSError("the disk took only a part of the line")
            os.fsync(descriptor)
    except OSError as error:
        raise InfrastructureFailure(
            f"{path}: cannot append a trace: {error}; free space and run again with --resume"
        ) from error
    if moved:
        _warn(f"{path}: {moved}")


def _warn(text: str) -> None:
    with contextlib.suppress(LedgerWarning):  # under -W error the other verdicts count more
        warnings.warn(text, LedgerWarning, stacklevel=4)


def read_lines(path: Path, read: Callable[[Any, str], _Entry]) -> list[_Entry]:
    """The entries of a ledger, oldest first; none where there is no file.

    read: takes a line's value and where it stands, and raises RecordError for what is no entry.
    Unreadable lines are left out with one warning each. Raises RecordError for what is no file.
    """
    if not path.exists():
        return []
    if not path.is_file():  # reading a pipe would wait for ever
        raise RecordError(f"{path}: expected a file of JSON lines, got a folder or a pipe; move it")
    entries = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        source = f"{path}:{number}"
        try:
            entries.append(read(parse(line.decode()), source))
        except (ValueError, RecordError) as error:
            _warn(f"{source}: left out a line that is no trace: {error}")
    return entries


@contextlib.contextmanager
def sole_writer(path: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Hold a ledger against other runs; the system frees it if the process dies.

    The lock is <name>.lock: the file itself is locked by each append. wait_s: how long to wait
    for the present holder. Raises DeviceBusy naming its pid.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + LOCK_SUFFIX)
    with open(lock, "a+", encoding="utf-8") as file, hold_lock(file, wait_s, str(path)):
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """A descriptor for reading and appending that no other writer holds."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_new:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the new name itself must survive a power cut
            finally:
                os.close(folder)
        yield descriptor
    finally:
        os.close(descriptor)


def _repair(path: Path, descriptor: int) -> str | None:
    """End a last line that lacks its newline, or move it aside where it is not even JSON.

    Returns what there is to say about a line that was moved.
    """
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return None
    tail = path.read_bytes().rpartition(b"\n")[2]
    try:
        parse(tail.decode())
    except ValueError:
        with open(path.with_name(path.name + TORN_SUFFIX), "ab") as torn:
            torn.write(tail + b"\n")
        os.ftruncate(descriptor, size - len(tail))
        return f"moved a torn last line of {len(tail)} bytes to {torn.name}"
    os.write(descriptor, b"\n")
    return None
