"""Paths that users name, files that appear whole or not at all, and hashes. No dependencies."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harness.errors import UsageError

_READ_BYTES = 1 << 22
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


def file_sha256(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()
