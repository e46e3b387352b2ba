"""The archives of all rooms as one sqlite file, for questions across runs.

traces/search/index.sqlite holds nothing of its own: it is made again whenever a file of an archive
has changed, and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.controller.archive import ATTEMPTS, DECISIONS, Archive

SCHEMA = """
CREATE TABLE source (stamp TEXT NOT NULL);
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
CREATE INDEX candidate_name ON candidate (name);
CREATE INDEX measurement_candidate ON measurement (candidate);
"""


def index_path(root: Path) -> Path:
    return root / "traces" / "search" / "index.sqlite"


@contextlib.contextmanager
def open_index(root: Path) -> Iterator[sqlite3.Connection]:
    """The index of a checkout, made again where an archive has changed since."""
    path, stamp = index_path(root), _stamp(root)
    if _read_stamp(path) != stamp:
        _rebuild(root, path, stamp)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def archives(root: Path) -> list[Archive]:
    """Every room that was ever searched, by name."""
    folder = root / "results" / "search"
    names = sorted(path.name for path in folder.glob("*") if path.is_dir())
    return [Archive(root, name) for name in names]


def _stamp(root: Path) -> str:
    """Append-only files are known by their sizes. The schema is part of it: a newer harness makes
    the file anew."""
    sizes = {
        path.relative_to(root).as_posix(): path.stat().st_size
        for path in sorted((root / "results" / "search").glob("*/*.jsonl"))
    }
    return json.dumps([SCHEMA, sizes])


def _read_stamp(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            row = connection.execute("SELECT stamp FROM source").fetchone()
    except sqlite3.DatabaseError:  # of another schema, or damaged: it is made again
        return None
    return None if row is None else str(row[0])


def _rebuild(root: Path, path: Path, stamp: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    try:
        with contextlib.closing(sqlite3.connect(partial)) as connection:
            connection.executescript(SCHEMA)
            connection.execute("INSERT INTO source VALUES (?)", (stamp,))
            for archive in archives(root):
                _insert(connection, archive)
            connection.commit()
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
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
