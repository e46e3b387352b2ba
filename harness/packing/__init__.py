"""A room's files as one official solution: the only way from solutions/ to anybody else.

    solutions/<room>/  +  what it reaches of solutions/common/   ->   solutions/<room>/solution.json

Reaching starts at the entry file and follows single-dot imports (`from .x import y`,
`from . import x`), quoted includes (`#include "x.cuh"`) and string constants that are the name of
a C++ or CUDA file. A name is looked up in the room, then on the shelf; files on the shelf see the
shelf alone. All files land flat in the solution, byte for byte. What cannot be followed, or is
there and not reached, is refused with file and line.

Routes. A room has a portable route and perhaps a native one. The native route is the module
`native.py` and what only it reaches; `--route portable` packs the room without it. kernel.py
takes it in, in this form and no other, but for further names beside the first:

    try:
        from .native import run_native
    except ModuleNotFoundError:  # packed with --route portable
        run_native = None

native.py imports compilers and bindings inside the function that builds, never at its top: a
machine without them must fail there, and not be mistaken for a solution without the route.

What a user would pick instead packs the same way: one file, peers/<room>/<library>.py.

Standard library only (tomli on Python 3.10, through harness.config).
"""

from __future__ import annotations

from pathlib import Path

from harness.config import Room, Workspace, load_solution_config
from harness.errors import EnvironmentUnfit, UsageError
from harness.files import write_atomically
from harness.packing.closure import reach, refuse_unreached
from harness.packing.definitions import load_signature
from harness.packing.entry_point import check_entry, parse_entry_point
from harness.packing.folders import UNIT_SUFFIXES, SourceTree
from harness.packing.peers import PackedPeer, list_peers, pack_peer
from harness.packing.solution import Packed, assemble, content_sha256
from harness.packing.solution_config import COMPILED_LANGUAGES, check_config

__all__ = [
    "PORTABLE",
    "ROUTES",
    "Packed",
    "PackedPeer",
    "content_sha256",
    "list_peers",
    "pack",
    "pack_peer",
    "write",
]

PORTABLE = "portable"
ROUTES = (None, PORTABLE)


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
    return assemble(room.name, config, texts, tree.room_folder / "solution.json")


def write(packed: Packed) -> Path:
    """Write solution.json whole or not at all. Returns its path. Raises EnvironmentUnfit."""
    try:
        write_atomically(packed.path, packed.text)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{packed.path}: cannot be written: {error}; free the disk, or see who may write there"
        ) from error
    return packed.path


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
