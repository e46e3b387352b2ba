"""peers/<room>/<library>.py as an official solution: what a user would pick instead of a room.

A peer is one file. Its docstring says which calls it makes; two constants at its top level are
read, not run:

    PACKAGE = "fla-core"     the distribution that config.toml pins in [peers.<library>]
    PREPARED = "nothing"     what is prepared outside the timed call

`run` takes the definition's inputs, then its outputs, as a room's entry does. A peer may import
one sibling, `from .reference import run`: the packer adds the definition's reference under that
name, so that nobody copies it.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from harness.config import Peer, Room, SolutionConfig, Workspace
from harness.errors import PackingError, UsageError
from harness.packing.definitions import load_signature
from harness.packing.entry_point import check_function
from harness.packing.folders import PASSED_OVER, Source, read_source
from harness.packing.python_source import parse, python_references
from harness.packing.solution import Packed, assemble

FOLDER = "peers"
REFERENCE = "reference.py"


@dataclass(frozen=True)
class PackedPeer:
    """One peer, packed. package, pinned: the distribution and its release in config.toml.

    prepared: the file's own words on what it prepares outside the timed call.
    """

    library: str
    room: str
    packed: Packed
    package: str
    pinned: str
    prepared: str


def list_peers(workspace: Workspace, room: str) -> tuple[str, ...]:
    """The libraries that a room is compared with, in config.toml's order; () where it has none.

    Raises ConfigError for an unknown room, PackingError for a file that belongs to no library.
    """
    folder = workspace.root / FOLDER / workspace.room(room).name
    if not folder.is_dir():
        return ()
    names = {path.name for path in folder.iterdir() if path.name not in PASSED_OVER}
    known = {f"{library}.py": library for library in workspace.peers}
    foreign = sorted(names - set(known))
    if foreign:
        raise PackingError(
            f"{FOLDER}/{room}/{foreign[0]}: expected <library>.py, one of "
            f"{', '.join(workspace.peers) or 'none'}; a new library needs a table "
            f"[peers.<library>] in config.toml"
        )
    return tuple(library for name, library in known.items() if name in names)


def pack_peer(workspace: Workspace, room: str, library: str) -> PackedPeer:
    """Pack one peer; nothing is written.

    Raises ConfigError (room), UsageError (library) or PackingError (file).
    """
    entry = workspace.room(room)
    there = list_peers(workspace, room)
    if library not in there:
        what = "has no file" if library in workspace.peers else "is no library of config.toml"
        raise UsageError(
            f"peer: {library!r} {what} for the room {room}; expected one of "
            f"{', '.join(there) or 'none'}, or a new {FOLDER}/{room}/{library}.py"
        )
    path = workspace.root / FOLDER / room / f"{library}.py"
    label = path.relative_to(workspace.root).as_posix()
    source = Source(path.name, label, read_source(path, label), on_shelf=False)
    peer = workspace.peers[library]
    prepared = _check_constants(source, peer)
    check_function(source, "run", load_signature(workspace.root, entry), flag=True)
    texts = {source.name: source.text}
    if _wants_reference(source):
        texts[REFERENCE] = _read_reference(workspace.root, entry)
    packed = assemble(
        f"{room}-{library}",
        _solution_config(path, entry, peer, ast.get_docstring(parse(source)) or ""),
        {name: texts[name] for name in sorted(texts)},
        path.with_suffix(".json"),
    )
    return PackedPeer(library, room, packed, peer.package, peer.version, prepared)


def _solution_config(path: Path, room: Room, peer: Peer, docstring: str) -> SolutionConfig:
    return SolutionConfig(
        path=path,
        name=peer.name,
        definition=room.definition,
        author=peer.name,
        language="python",
        entry_point=f"{path.name}::run",
        destination_passing_style=True,
        description=docstring.partition("\n")[0],
        dependencies=(f"{peer.package}=={peer.version}",),
    )


def _check_constants(source: Source, peer: Peer) -> str:
    """Raises PackingError for a missing header or a foreign package. Returns PREPARED."""
    tree = parse(source)
    if not ast.get_docstring(tree):
        raise PackingError(
            f"{source.label}:1: expected a docstring that says which calls of the library it makes"
        )
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = (node.lineno, node.value.value)
    for name, example in (("PACKAGE", peer.package), ("PREPARED", "nothing")):
        line, value = found.get(name, (1, None))
        if not isinstance(value, str) or not value.strip():
            raise PackingError(
                f"{source.label}:{line}: expected {name} = {example!r} or another string "
                f"at its top level, got {value!r}"
            )
    line, package = found["PACKAGE"]
    if package != peer.package:
        raise PackingError(
            f"{source.label}:{line}: PACKAGE is {package!r}, but [peers.{peer.name}] in "
            f"config.toml pins {peer.package!r}"
        )
    return str(found["PREPARED"][1])


def _wants_reference(source: Source) -> bool:
    """Whether it imports the reference. Raises PackingError for any other file."""
    references = python_references(source, frozenset({REFERENCE}))
    for reference in references:
        if reference.file_name != REFERENCE:
            raise PackingError(
                f"{source.label}:{reference.line}: reaches {reference.file_name}; a peer is one "
                f"file, and only {REFERENCE} is added to it"
            )
    return bool(references)


def _read_reference(root: Path, room: Room) -> str:
    """The reference's text. The definition was read before, so that it is there and JSON."""
    path = root / "definitions" / room.op_type / f"{room.definition}.json"
    text = json.loads(path.read_text(encoding="utf-8")).get("reference")
    if not isinstance(text, str) or not text:
        label = path.relative_to(root).as_posix()
        raise PackingError(f"{label}: expected the text of a reference, got {text!r}")
    return text
