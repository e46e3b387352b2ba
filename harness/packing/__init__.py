"""A room's files as one official solution: the only way from solutions/ to anybody else.

    solutions/<room>/  +  what it reaches of solutions/common/   ->   solutions/<room>/solution.json

Reaching starts at the entry file and follows single-dot imports (`from .x import y`,
`from . import x`), quoted includes (`#include "x.cuh"`) and string constants that are the name of
a C++ or CUDA file. A name is looked up in the room, then on the shelf; files on the shelf see the
shelf alone. All files land flat in the solution, byte for byte. What cannot be followed, or is
there and not reached, is refused with file and line.

Routes. A room has a portable route and perhaps a native one. The native route is the module
`native.py` and what only it reaches; `--route portable` packs the room without it. kernel.py
takes it in, in this form and no other:

    try:
        from .native import run_native
    except ModuleNotFoundError:  # packed with --route portable
        run_native = None

native.py imports compilers and bindings inside the function that builds, never at its top: a
machine without them must fail there, and not be mistaken for a solution without the route.

Standard library only (tomli on Python 3.10, through harness.config).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import Room, SolutionConfig, Workspace, load_solution_config
from harness.errors import PackingError, UsageError
from harness.files import write_atomically
from harness.packing.closure import reach, refuse_unreached
from harness.packing.definitions import load_signature
from harness.packing.entry_point import check_entry, parse_entry_point
from harness.packing.folders import UNIT_SUFFIXES, SourceTree
from harness.packing.solution_config import COMPILED_LANGUAGES, check_config

PORTABLE = "portable"
ROUTES = (None, PORTABLE)
NAME_HASH_CHARACTERS = 8


@dataclass(frozen=True)
class Packed:
    """One packed solution. text: the JSON; path: where write() puts it; sources: file names."""

    name: str
    sha256: str
    text: str
    path: Path
    sources: tuple[str, ...] = ()


def pack(workspace: Workspace, room_name: str, route: str | None = None) -> Packed:
    """Pack one room; nothing is written.

    route: None for all of it, "portable" to leave the native route out.
    Raises UsageError (route), ConfigError (config.toml) or PackingError (files).
    """
    if route not in ROUTES:
        raise UsageError(f"route: expected {PORTABLE!r} or none, got {route!r}")
    room = _find_room(workspace, room_name)
    tree = SourceTree.scan(workspace.root, room.name)
    config = load_solution_config(tree.room_folder / "config.toml")
    check_config(workspace, room, config)
    entry_file, symbol = parse_entry_point(tree, config)
    starts = [entry_file]
    if config.language in COMPILED_LANGUAGES:  # their builders compile every unit in the folder
        starts += [name for name in tree.room_names if name.endswith(UNIT_SUFFIXES)]
    everything = reach(tree, starts)
    refuse_unreached(tree, everything, entry_file)
    sources = reach(tree, starts, without_native=True) if route == PORTABLE else everything
    signature = load_signature(workspace.root, room)
    check_entry(everything[entry_file], symbol, signature, config, workspace.root)
    texts = {name: sources[name].text for name in sorted(sources)}
    sha256 = content_sha256(config, texts)
    name = f"{room.name}-{sha256[:NAME_HASH_CHARACTERS]}"
    return Packed(
        name=name,
        sha256=sha256,
        text=_to_json(name, config, texts),
        path=tree.room_folder / "solution.json",
        sources=tuple(texts),
    )


def write(packed: Packed) -> Path:
    """Write solution.json whole or not at all. Returns its path. Raises PackingError."""
    try:
        write_atomically(packed.path, packed.text)
    except OSError as error:
        raise PackingError(f"{packed.path}: cannot be written: {error}") from error
    return packed.path


def content_sha256(config: SolutionConfig, texts: Mapping[str, str]) -> str:
    """The solution hash: what is built and called, no metadata such as author or description.

    JSON keeps the fields apart: neither a moved character nor a flipped flag can go unseen.
    """
    content: dict[str, Any] = {
        "definition": config.definition,
        "language": config.language,
        "entry_point": config.entry_point,
        "destination_passing_style": config.destination_passing_style,
        "sources": [[name, texts[name]] for name in sorted(texts)],
    }
    if config.language in COMPILED_LANGUAGES:  # only their builders read these two
        content["binding"] = config.binding
        content["target_hardware"] = config.target_hardware
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _to_json(name: str, config: SolutionConfig, texts: Mapping[str, str]) -> str:
    """The official schema's fields in its order, as ASCII so that every reader gets the text."""
    solution = {
        "name": name,
        "definition": config.definition,
        "author": config.author,
        "spec": {
            "language": config.language,
            "target_hardware": list(config.target_hardware),
            "entry_point": config.entry_point,
            "dependencies": list(config.dependencies),
            "destination_passing_style": config.destination_passing_style,
            "binding": config.binding,
        },
        "sources": [{"path": path, "content": text} for path, text in texts.items()],
        "description": config.description,
    }
    return json.dumps(solution, indent=2) + "\n"


def _find_room(workspace: Workspace, name: str) -> Room:
    """The room of that name. A definition or track in its place gets the room to use instead."""
    if name not in workspace.rooms:
        meant = [
            room.name for room in workspace.rooms.values() if name in (room.definition, room.track)
        ]
        if meant:
            raise UsageError(
                f"room: {name!r} is a definition or track; its room is {' or '.join(meant)}"
            )
    return workspace.room(name)
