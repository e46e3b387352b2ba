"""Workload files as frozen rows, and the identity of what they describe.

Works on any root in the official layout: this checkout, an export, or the contest's own data set.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import Room, Workspace, find_root
from harness.dataset.manifest import MANIFEST, read_manifest
from harness.errors import ConfigError, DatasetError
from harness.files import expand_home

ENVIRONMENT_VARIABLE = "FIB_DATASET_PATH"
_SUFFIXES = {"definitions": ".json", "workloads": ".jsonl"}
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


class TornLineWarning(UserWarning):
    """The last line of a JSONL file is incomplete and was left out."""


@dataclass(frozen=True)
class WorkloadRow:
    """One workload. ``uuid`` is opaque: 32 hexadecimal digits or 36 characters with dashes.

    axes: the variable axes. inputs: the official input descriptions (random, scalar or
    safetensors). blob_paths: the distinct files that they name, relative to the data set's root
    (absolute where the data set says so), in normal form.
    """

    uuid: str
    axes: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Any]]
    blob_paths: tuple[str, ...]


def normal_path(path: str) -> str:
    """``./blob//x`` and ``blob/x`` are one file."""
    return posixpath.normpath(path)


def is_checkout(root: Path) -> bool:
    """True for a checkout of this project, whose blobs may be made; official sets are read only."""
    try:
        return find_root(root) == root.resolve()
    except ConfigError:
        return False


def pinned_hashes(root: Path) -> dict[str, str] | None:
    """The manifest, or None where the set is not ours. Raises DatasetError for a checkout without
    one: its blobs would be taken for official ones."""
    hashes = read_manifest(root)
    if hashes is None and is_checkout(root):
        raise DatasetError(
            f"{root / MANIFEST}: no such file, and nothing says what the blobs must hold; "
            f"restore it with `git checkout {MANIFEST}`"
        )
    return hashes


def locate(workspace: Workspace, override: str | Path | None = None) -> Path:
    """The data set's root: ``override``, else FIB_DATASET_PATH, else the checkout.

    Raises DatasetError where that folder has no definitions/ or no workloads/.
    """
    named = override or os.environ.get(ENVIRONMENT_VARIABLE) or None
    root = (expand_home(named) if named else workspace.root).resolve()
    for folder in ("definitions", "workloads"):
        if not (root / folder).is_dir():
            source = "--dataset" if override else ENVIRONMENT_VARIABLE if named else "the checkout"
            raise DatasetError(
                f"{root} (from {source}): expected a data set with definitions/ and workloads/, "
                f"got no {folder}/; `python -m harness dataset fetch DIR` takes the official one"
            )
    return root


def find_file(root: Path, kind: str, room: Room) -> Path:
    """The room's file of a kind, "definitions" or "workloads": in its canonical place, else the
    one file of that name, since the official loader ignores folders. Raises DatasetError."""
    path = root / kind / room.op_type / f"{room.definition}{_SUFFIXES[kind]}"
    if path.is_file():
        return path
    others = sorted((root / kind).rglob(path.name))
    if len(others) != 1:
        found = ", ".join(str(other) for other in others) or "none"
        raise DatasetError(f"{path}: expected this {kind} file, got {found}")
    return others[0]


def _read_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(LFS_POINTER):
        raise DatasetError(f"{path}: expected content, got a Git-LFS pointer; run `git lfs pull`")
    return content


def read_definition(root: Path, room: Room) -> dict[str, Any]:
    """The room's official definition as a dictionary. Raises DatasetError."""
    path = find_file(root, "definitions", room)
    try:
        definition = json.loads(_read_bytes(path))
    except ValueError as error:
        raise DatasetError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(definition, dict) or definition.get("name") != room.definition:
        raise DatasetError(f"{path}: expected a definition named {room.definition}")
    return definition


def _parse_row(document: Any, room: Room, where: str) -> WorkloadRow:
    try:
        name, workload = document["definition"], document["workload"]
        uuid, axes, inputs = workload["uuid"], workload["axes"], workload["inputs"]
        files = [spec for spec in inputs.values() if spec["type"] == "safetensors"]
        paths = dict.fromkeys(normal_path(spec["path"]) for spec in files)
        keyed = all(isinstance(spec["tensor_key"], str) for spec in files)
        natural = all(type(size) is int and size >= 0 for size in axes.values())
    except (AttributeError, KeyError, TypeError) as error:
        raise DatasetError(f"{where}: not a workload in the official form: {error!r}") from error
    if name != room.definition:
        raise DatasetError(f"{where}: expected the definition {room.definition}, got {name!r}")
    if document.get("solution") is not None or document.get("evaluation") is not None:
        raise DatasetError(f"{where}: expected a workload, got a trace; traces belong in traces/")
    if not (isinstance(uuid, str) and uuid and keyed and natural):
        raise DatasetError(
            f"{where}: expected a UUID, whole axes >= 0 and a tensor_key for every file, "
            f"got uuid {uuid!r}, axes {axes!r}"
        )
    return WorkloadRow(uuid, axes, inputs, tuple(paths))


def _read_documents(path: Path) -> list[tuple[int, Any]]:
    """(line number, value) of each line. A torn last line is left out with one warning."""
    lines = _read_bytes(path).split(b"\n")
    documents = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            documents.append((number, json.loads(line)))
        except ValueError as error:
            if number < len(lines):
                raise DatasetError(f"{path}:{number}: not valid JSON: {error}") from error
            warnings.warn(
                f"{path}:{number}: the last line is torn and was left out; restore the file",
                TornLineWarning,
                stacklevel=3,
            )
    return documents


def read_workloads(root: Path, room: Room) -> list[WorkloadRow]:
    """The room's workloads in official order. Raises DatasetError that names file and line."""
    path = find_file(root, "workloads", room)
    rows: dict[str, WorkloadRow] = {}
    for number, document in _read_documents(path):
        row = _parse_row(document, room, f"{path}:{number}")
        if row.uuid in rows:
            raise DatasetError(f"{path}:{number}: the UUID {row.uuid} occurs twice")
        rows[row.uuid] = row
    if not rows:
        raise DatasetError(f"{path}: expected workloads, got an empty file")
    return list(rows.values())


def _normal_input(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: normal_path(value) if key == "path" else value for key, value in spec.items()}


def content_sha256(root: Path, room: Room) -> str:
    """Identity of what a room is judged on: definition, workloads and the listed blob hashes.

    Insensitive to JSON formatting and to how paths are spelt. Two revisions that differ by one
    UUID, one axis or one blob hash differ here. A set without a manifest (the official one) is
    identified by its definition and workloads. Raises DatasetError.
    """
    rows = read_workloads(root, room)
    manifest = pinned_hashes(root)
    document = {
        "definition": read_definition(root, room),
        "workloads": [
            {
                "uuid": row.uuid,
                "axes": dict(row.axes),
                "inputs": {name: _normal_input(spec) for name, spec in row.inputs.items()},
            }
            for row in rows
        ],
        "blobs": None
        if manifest is None
        else {path: manifest.get(path) for row in rows for path in row.blob_paths},
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
