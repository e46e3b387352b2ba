"""The archives of all rooms as one sqlite file, for questions across runs.

traces/search/index.sqlite holds nothing of its own: it is made again whenever a file of an archive
has changed, or it does not read as it was written, and may be deleted at any time. Where it cannot
be written, the index is in memory alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.controller.archive import ATTEMPTS, DECISIONS, Archive
from harness.files import file_sha256

TABLES = ("candidate", "measurement", "decision", "round")
SCHEMA = """
CREATE TABLE source (stamp TEXT NOT NULL, rows_sha256 TEXT NOT NULL);
CREATE TABLE candidate (
    room TEXT, name TEXT, sha256 TEXT, round TEXT, direction TEXT, parent TEXT, island INTEGER,
    lines_added INTEGER, refused TEXT
);
CREATE TABLE measurement (
    room TEXT, candidate TEXT, round TEXT, stage TEXT, geometric_mean REAL, score REAL, low REAL,
    high REAL, passed INTEGER, workloads INTEGER, failure TEXT, lost TEXT, record TEXT
);
CREATE TABLE decision (room TEXT, round TEXT, candidate TEXT, label TEXT, reason TEXT);
CREATE TABLE round (
    room TEXT, round TEXT, state TEXT, direction TEXT, label TEXT, best TEXT, gain REAL,
    device_s REAL
);
"""


def index_path(root: Path) -> Path:
    return root / "traces" / "search" / "index.sqlite"


@contextlib.contextmanager
def open_index(root: Path) -> Iterator[sqlite3.Connection]:
    """The index of a checkout, made again where an archive has changed since. Raises RecordError
    for an archive that is damaged."""
    path, stamp = index_path(root), _stamp(root)
    with contextlib.closing(_open_kept(path, stamp) or _make(root, path, stamp)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def archives(root: Path) -> list[Archive]:
    """Every room that was ever searched, by name."""
    folder = root / "results" / "search"
    names = sorted(path.name for path in folder.glob("*") if path.is_dir())
    return [Archive(root, name) for name in names]


def _stamp(root: Path) -> str:
    """What the index is made from. The schema is part of it: a newer harness makes the file
    anew."""
    contents = {
        path.relative_to(root).as_posix(): file_sha256(path)
        for path in sorted((root / "results" / "search").glob("*/*.jsonl"))
        if path.is_file()
    }
    return json.dumps([SCHEMA, contents])


def _open_kept(path: Path, stamp: str) -> sqlite3.Connection | None:
    """The file's index, where it is of this stamp and holds what was written."""
    try:
        if not path.is_file():
            return None
        connection = sqlite3.connect(path)
    except (OSError, sqlite3.Error):
        return None
    try:
        kept = connection.execute("SELECT stamp, rows_sha256 FROM source").fetchone()
        if kept == (stamp, _rows_sha256(connection)):
            return connection
    except sqlite3.Error:  # of another schema, or damaged
        pass
    connection.close()
    return None


def _make(root: Path, path: Path, stamp: str) -> sqlite3.Connection:
    """A new index, kept in the file where that can be written."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        for archive in archives(root):
            _insert(connection, archive)
        values = (stamp, _rows_sha256(connection))
        connection.execute("INSERT INTO source VALUES (?, ?)", values)
        connection.commit()
        with contextlib.suppress(OSError, sqlite3.Error):  # a full disk, a read-only tree
            _keep(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _rows_sha256(connection: sqlite3.Connection) -> str:
    """Reading every row is also what finds a damaged file."""
    digest = hashlib.sha256()
    for table in TABLES:
        for row in connection.execute(f"SELECT * FROM {table}"):
            digest.update(f"{table} {row!r}\n".encode())
    return digest.hexdigest()


def _keep(connection: sqlite3.Connection, path: Path) -> None:
    """Write the index to its file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    try:
        with contextlib.closing(sqlite3.connect(partial)) as file:
            connection.backup(file)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _insert(connection: sqlite3.Connection, archive: Archive) -> None:
    room = archive.room
    for line in archive.lines(ATTEMPTS).values():
        for proposal in line.get("proposals", ()):
            _add(connection, "candidate", (room, *_candidate(proposal, line)))
        for name, result in line.get("results", {}).items():
            _add(connection, "measurement", (room, name, *_measurement(result, line)))
    for line in archive.lines(DECISIONS).values():
        values = (line["key"], line["candidate"], line["label"], line["reason"])
        _add(connection, "decision", (room, *values))
    for closed in archive.history():
        head = (closed.key, closed.state.key, closed.direction, closed.label, closed.best)
        _add(connection, "round", (room, *head, closed.gain, closed.device_s))


def _candidate(proposal: dict[str, Any], line: dict[str, Any]) -> tuple[Any, ...]:
    keys = ("name", "sha256", "parent", "island", "lines_added", "refused")
    name, sha256, parent, island, added, refused = (proposal[key] for key in keys)
    return name, sha256, line["round"], line["direction"], parent, island, added, refused


def _measurement(result: dict[str, Any], line: dict[str, Any]) -> tuple[Any, ...]:
    keys = ("geometric_mean", "score", "low", "high", "passed", "workloads", "failure", "lost")
    return line["round"], line["stage"], *(result[key] for key in keys), line["record"]


def _add(connection: sqlite3.Connection, table: str, values: tuple[Any, ...]) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)
