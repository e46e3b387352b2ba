"""peers/<room>/<library>.py as an official solution: what a user would pick instead of a room.

A peer is one file. Its docstring says which calls it makes; constants at its top level are read,
not run. The first two are there in every file:

    PACKAGE = "fla-core"     the distribution that config.toml pins in [peers.<library>]
    PREPARED = "nothing"     what is prepared outside the timed call
    STANDS_IN = "top_k"      what is measured where the definition's own baseline has no kernels
    CAVEAT = "…"             what to know before its latency is read, one sentence
    REQUIRES = ("name",)     other distributions of requires in [peers.<library>]

`run` takes the definition's inputs, then its outputs, as a room's entry does. A peer may import
one sibling, `from .reference import run`: the packer adds the definition's reference under that
name, so that nobody copies it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
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
OPTIONAL = ("STANDS_IN", "CAVEAT")


@dataclass(frozen=True)
class PackedPeer:
    """One peer, packed. package, pinned: the distribution and its release in config.toml.

    prepared: the file's own words on what it prepares outside the timed call. stands_in: what it
    measures in the place of the official baseline, "" where it is that baseline or no rival to it.
    caveat: one sentence, or "". requires: (distribution, release) of what else it needs.
    """

    library: str
    room: str
    packed: Packed
    package: str
    pinned: str
    prepared: str
    stands_in: str = ""
    caveat: str = ""
    requires: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Constants:
    """What a peer's file says of itself."""

    prepared: str
    stands_in: str
    caveat: str
    requires: tuple[tuple[str, str], ...]


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
    constants = _check_constants(source, peer)
    check_function(source, "run", load_signature(workspace.root, entry), flag=True)
    texts = {source.name: source.text}
    if _wants_reference(source):
        texts[REFERENCE] = _read_reference(workspace.root, entry)
    packed = assemble(
        f"{room}-{library}",
        _solution_config(path, entry, peer, constants, ast.get_docstring(parse(source)) or ""),
        {name: texts[name] for name in sorted(texts)},
        path.with_suffix(".json"),
    )
    return PackedPeer(
        library=library,
        room=room,
        packed=packed,
        package=peer.package,
        pinned=peer.version,
        prepared=constants.prepared,
        stands_in=constants.stands_in,
        caveat=constants.caveat,
        requires=constants.requires,
    )


def _solution_config(
    path: Path, room: Room, peer: Peer, constants: _Constants, docstring: str
) -> SolutionConfig:
    pins = ((peer.package, peer.version), *constants.requires)
    return SolutionConfig(
        path=path,
        name=peer.name,
        definition=room.definition,
        author=peer.name,
        language="python",
        entry_point=f"{path.name}::run",
        destination_passing_style=True,
        description=docstring.partition("\n")[0],
        dependencies=tuple(f"{package}=={version}" for package, version in pins),
    )


def _check_constants(source: Source, peer: Peer) -> _Constants:
    """Raises PackingError for a missing header, a constant of another type or a foreign package."""
    tree = parse(source)
    if not ast.get_docstring(tree):
        raise PackingError(
            f"{source.label}:1: expected a docstring that says which calls of the library it makes"
        )
    found = _read_literals(tree)
    package = _take_string(source, found, "PACKAGE", peer.package)
    if package != peer.package:
        raise PackingError(
            f"{source.label}:{found['PACKAGE'][0]}: PACKAGE is {package!r}, but "
            f"[peers.{peer.name}] in config.toml pins {peer.package!r}"
        )
    return _Constants(
        prepared=_take_string(source, found, "PREPARED", "nothing"),
        stands_in=_take_string(source, found, "STANDS_IN", "the function measured"),
        caveat=_take_string(source, found, "CAVEAT", "one sentence"),
        requires=_take_requires(source, found, peer),
    )


def _read_literals(tree: ast.Module) -> dict[str, tuple[int, object]]:
    """(line, value) of each name that the file gives a literal at its top level."""
    found: dict[str, tuple[int, object]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                value = None
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = (node.lineno, value)
    return found


def _take_string(
    source: Source, found: Mapping[str, tuple[int, object]], name: str, example: str
) -> str:
    if name not in found and name in OPTIONAL:
        return ""
    line, value = found.get(name, (1, None))
    if not isinstance(value, str) or not value.strip():
        raise PackingError(
            f"{source.label}:{line}: expected {name} = {example!r} or another string "
            f"at its top level, got {value!r}"
        )
    return value


def _take_requires(
    source: Source, found: Mapping[str, tuple[int, object]], peer: Peer
) -> tuple[tuple[str, str], ...]:
    line, names = found.get("REQUIRES", (1, ()))
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise PackingError(
            f'{source.label}:{line}: expected REQUIRES = ("a-distribution",) or another tuple of '
            f"names, got {names!r}"
        )
    for name in names:
        if name not in peer.requires:
            raise PackingError(
                f"{source.label}:{line}: REQUIRES names {name!r}, but requires of "
                f"[peers.{peer.name}] in config.toml pins {', '.join(peer.requires) or 'nothing'}"
            )
    return tuple((name, peer.requires[name]) for name in names)


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
