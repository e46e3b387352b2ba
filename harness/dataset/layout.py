"""A folder of its own in the official layout, with everything that the official tools validate."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import packing
from harness.config import Room, Workspace
from harness.dataset.blobs import expected_tensors
from harness.dataset.generation import Progress, ensure_blobs
from harness.dataset.manifest import read_manifest, write_manifest
from harness.dataset.selection import select_rooms
from harness.dataset.workloads import WorkloadRow, read_definition, read_workloads
from harness.errors import DatasetError, UsageError
from harness.files import expand_home


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote."""

    directory: Path
    definitions: int
    workloads: int
    solutions: int
    blobs: int
    size_bytes: int


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _workload_line(room: Room, row: WorkloadRow) -> str:
    inputs = {
        name: {**spec, "path": os.path.normpath(spec["path"])} if "path" in spec else dict(spec)
        for name, spec in row.inputs.items()
    }
    workload = {"axes": dict(row.axes), "inputs": inputs, "uuid": row.uuid}
    return json.dumps({"definition": room.definition, "workload": workload}) + "\n"


def _export_definition(
    source: Path, target: Path, room: Room, rows: Sequence[WorkloadRow]
) -> tuple[int, int]:
    """A room's definition with its workloads and blobs. Returns how many of the two there are."""
    definition = read_definition(source, room)
    place = f"{room.op_type}/{room.definition}"
    _write(target / f"definitions/{place}.json", json.dumps(definition, indent=2) + "\n")
    lines = "".join(_workload_line(room, row) for row in rows)
    _write(target / f"workloads/{place}.jsonl", lines)
    blobs = [path for row in rows for path in expected_tensors(definition, row)]
    for path in blobs:
        if Path(path).is_absolute():
            raise DatasetError(f"{source}: the blob {path} lies outside the set; it cannot travel")
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)
    return len(rows), len(blobs)


def _export_solution(target: Path, room: Room, packed: packing.Packed) -> None:
    author = json.loads(packed.text)["author"]
    folder = target / "solutions" / author / room.op_type / room.definition
    _write(folder / f"{packed.name}.json", packed.text)


def _check_target(directory: Path) -> Path:
    directory = expand_home(directory).resolve()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory}: expected a new or empty folder, got one in use; name another one"
        )
    return directory


def _by_definition(
    rooms: Mapping[str, Room],
    every: Mapping[str, Sequence[WorkloadRow]],
    chosen: Mapping[str, Sequence[WorkloadRow]],
) -> dict[str, tuple[Room, list[WorkloadRow]]]:
    """Definition -> a room that answers it, and the workloads chosen for any of those, in
    official order."""
    uuids: dict[str, set[str]] = {}
    for name, room in rooms.items():
        uuids.setdefault(room.definition, set()).update(row.uuid for row in chosen[name])
    return {
        room.definition: (room, [row for row in every[name] if row.uuid in uuids[room.definition]])
        for name, room in rooms.items()
    }


def export(
    workspace: Workspace,
    source: Path,
    directory: Path,
    workloads: str | Iterable[str] = "all",
    progress: Progress | None = None,
) -> ExportReport:
    """Write definitions/, workloads/, solutions/ and blob/ of the contest's rooms into a new
    folder.

    workloads: which of them, as `select_rooms` takes it; rooms without any are left out.
    source: the data set that definitions, workloads and blobs come from; blobs that a checkout
    lacks are made first. Solutions are packed anew. The folder appears whole or not at all.
    The checkout's manifest travels along, so that the export counts as the same content.
    Raises UsageError for a folder in use, DatasetError and PackingError for what cannot be
    exported.
    """
    directory = _check_target(directory)
    known = workspace.contest_rooms
    every = {name: read_workloads(source, room) for name, room in known.items()}
    chosen = select_rooms(every, known, workloads)
    rooms = {name: known[name] for name in chosen}
    # What can fail for want of a file fails first, before gigabytes are made and copied.
    solutions = {name: packing.pack(workspace, name) for name in rooms}
    definitions = _by_definition(rooms, every, chosen)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    except OSError as error:
        raise DatasetError(f"{directory}: cannot be written: {error}") from error
    try:
        for name, room in rooms.items():
            ensure_blobs(source, room, chosen[name], progress)
        num_workloads = blobs = 0
        for room, rows in definitions.values():
            room_workloads, room_blobs = _export_definition(source, partial, room, rows)
            num_workloads, blobs = num_workloads + room_workloads, blobs + room_blobs
        for name, room in rooms.items():
            _export_solution(partial, room, solutions[name])
        manifest = read_manifest(source)
        if manifest is not None:
            exported = {path: sha for path, sha in manifest.items() if (partial / path).exists()}
            write_manifest(partial, exported)
        size_bytes = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
        partial.chmod(0o755)
        if directory.is_dir():
            directory.rmdir()
        partial.rename(directory)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise DatasetError(f"{directory}: cannot be written: {error}") from error
        raise
    return ExportReport(directory, len(definitions), num_workloads, len(rooms), blobs, size_bytes)
