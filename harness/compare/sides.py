"""What two words of a command line mean, and the packed solutions that they stand for."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.compare.display import hint_without_peers
from harness.compare.record import CONTROL, Side
from harness.compare.revisions import find_commit, pack_revision
from harness.config import Workspace
from harness.errors import UsageError
from harness.files import expand_home
from harness.packing import Packed, list_peers, pack, pack_peer
from harness.packing.official import read_packed

OURS, PEERS = "ours", "peers"
SHOWN_CHARACTERS = 80  # of a word that means nothing


@dataclass(frozen=True)
class PackedSide:
    """One thing to measure: how a record names it, and its solution.

    versions: of the packages that a peer needs, as installed; none of those that are not.
    """

    side: Side
    packed: Packed
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_missing(self) -> bool:
        return self.side.state == "missing"


@dataclass(frozen=True)
class Meaning:
    """What one word stands for. kind: as in a record, "peers" for several libraries.

    room: the only one that it fits, or None. commit: of a revision. path: of a packed JSON.
    libraries: that are named; of "peers", none are all of a room's.
    """

    word: str
    kind: str
    room: str | None = None
    commit: str | None = None
    path: Path | None = None
    libraries: tuple[str, ...] = ()


def read_word(workspace: Workspace, word: str) -> Meaning:
    """The one thing that `word` means. Raises UsageError listing what it could be."""
    possible = _possible(workspace, word)
    if len(possible) == 1:
        return possible[0]
    if possible:
        meanings = " or ".join(_describe(meaning) for meaning in possible)
        raise UsageError(
            f"side: {word!r} could be {meanings}; write ./{word} for a file and "
            f"refs/heads/{word} or refs/tags/{word} for a revision, or rename one of them"
        )
    raise UsageError(
        f"side: expected {OURS}, {PEERS} (second place only), a room "
        f"({', '.join(workspace.rooms)}), a library ({', '.join(workspace.peers) or 'none'}), "
        "libraries joined by commas (second place only), a packed JSON file or a git revision; got "
        f"{_shorten(word)!r}, which is none of them"
    )


def _possible(workspace: Workspace, word: str) -> list[Meaning]:
    found = []
    if word == OURS or word in workspace.rooms:
        found.append(Meaning(word, "room", room=None if word == OURS else word))
    if word == PEERS:
        found.append(Meaning(word, PEERS))
    libraries = tuple(dict.fromkeys(word.split(",")))
    if all(name in workspace.peers for name in libraries):
        kind = "peer" if word in workspace.peers else PEERS
        found.append(Meaning(word, kind, libraries=libraries))
    path = expand_home(word)
    if _is_file(path):
        found.append(Meaning(word, "json", path=path))
    commit = find_commit(workspace.root, word)
    if commit is not None:
        found.append(Meaning(word, "revision", commit=commit))
    return found


def _shorten(word: str) -> str:
    if len(word) <= SHOWN_CHARACTERS:
        return word
    return f"{word[:SHOWN_CHARACTERS]}... ({len(word)} characters)"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long a name for any
        return False


def _describe(meaning: Meaning) -> str:
    names = {
        "room": "the room as packed now",
        PEERS: "several libraries",
        "peer": "the library",
        "json": f"the file {meaning.path}",
        "revision": f"the revision {(meaning.commit or '')[:8]}",
    }
    return names[meaning.kind]


def choose_rooms(
    workspace: Workspace, a: Meaning, b: Meaning, named: Sequence[str]
) -> tuple[str, ...]:
    """The rooms to compare: those named, else the one that a side belongs to, else all that have
    the libraries asked for. Raises UsageError where a side does not fit."""
    rooms = tuple(dict.fromkeys(workspace.room(name).name for name in named))
    own = {meaning.word: _room_of(workspace, meaning, rooms) for meaning in (a, b)}
    bound = {word: room for word, room in own.items() if room is not None}
    if not rooms:
        rooms = tuple(dict.fromkeys(bound.values())) or _fitting_rooms(workspace, a, b)
    for word, room in bound.items():
        if rooms != (room,):
            others = ", ".join(name for name in rooms if name != room)
            raise UsageError(
                f"side: {word} belongs to the room {room} and cannot be compared in {others}"
            )
    return rooms


def _room_of(workspace: Workspace, meaning: Meaning, named: Sequence[str]) -> str | None:
    """The only room that a side fits, or None. A packed JSON fits each room of its definition: the
    one that is named, else the first."""
    if meaning.path is None:
        return meaning.room
    definition = read_packed(meaning.path)[1]
    for name in (*named, *workspace.rooms):
        if workspace.room(name).definition == definition:
            return name
    raise UsageError(
        f"side: {meaning.path}: solves {definition}; expected the definition of one of "
        f"{', '.join(workspace.rooms)}"
    )


def _fitting_rooms(workspace: Workspace, a: Meaning, b: Meaning) -> tuple[str, ...]:
    libraries = {*a.libraries, *b.libraries}
    rooms = []
    for name in workspace.contest_rooms:
        there = list_peers(workspace, name)
        if libraries.issubset(there) and (there or b.kind != PEERS):
            rooms.append(name)
    if not rooms:
        raise UsageError(
            f"side: no room has {' and '.join(sorted(libraries)) or 'a peer'}; expected "
            "peers/<room>/<library>.py"
        )
    return tuple(rooms)


def pack_sides(
    workspace: Workspace, a: Meaning, b: Meaning, rooms: Sequence[str]
) -> dict[str, tuple[PackedSide, ...]]:
    """The sides of each room, A first. Raises UsageError and PackingError.

    A library that is not installed, or installed in another version than pinned, is a side in the
    state "missing".
    """
    if a.kind == PEERS:
        raise UsageError(f"side: {a.word} stands for several libraries; expected it second only")
    revisions = {
        word: pack_revision(workspace, word, commit, rooms)
        for word, commit in {a.word: a.commit, b.word: b.commit}.items()
        if commit is not None
    }
    sides = {}
    for room in rooms:
        first = _pack_side(workspace, a, room, revisions)
        if b.kind == PEERS:
            names = b.libraries or _peers_beside(workspace, a, room)
            others = [_pack_library(workspace, name, room) for name in names]
        else:
            others = [_pack_side(workspace, b, room, revisions)]
        sides[room] = (first, *(_distinct(first, other) for other in others))
        if any(one.side.name == CONTROL for one in sides[room]):
            raise UsageError(f"side: {CONTROL} is the first side measured again; name another")
    return sides


def _peers_beside(workspace: Workspace, a: Meaning, room: str) -> list[str]:
    names = [name for name in list_peers(workspace, room) if name != a.word]
    if not names:
        if not list_peers(workspace, room):
            raise UsageError(f"side: {hint_without_peers(room)}")
        raise UsageError(f"side: the room {room} has no other peer; add peers/{room}/<library>.py")
    return names


def rooms_left_out(workspace: Workspace, a: str, b: str, named: Sequence[str]) -> list[str]:
    """Rooms that `ours peers` without names passes over, because they have no peers."""
    if (a, b) != (OURS, PEERS) or named:
        return []
    return [name for name in workspace.contest_rooms if not list_peers(workspace, name)]


def _distinct(first: PackedSide, other: PackedSide) -> PackedSide:
    """`other` under a name that differs from the first side's."""
    if other.side.name != first.side.name:
        return other
    name = f"{other.side.name} again"
    return dataclasses.replace(other, side=dataclasses.replace(other.side, name=name))


def _pack_side(
    workspace: Workspace, meaning: Meaning, room: str, revisions: Mapping[str, Mapping[str, Packed]]
) -> PackedSide:
    if meaning.kind == "peer":
        return _pack_library(workspace, meaning.word, room)
    if meaning.path is not None:
        name, packed = meaning.path.name, read_packed(meaning.path)[0]
        if name in (OURS, *workspace.peers):
            raise UsageError(f"{meaning.path}: {name} names another side; rename the file")
    elif meaning.kind == "revision":
        name, packed = meaning.word, revisions[meaning.word][room]
    else:
        name, packed = OURS, pack(workspace, room)
    return PackedSide(Side(name, meaning.kind, packed.name, packed.sha256), packed)


def _pack_library(workspace: Workspace, library: str, room: str) -> PackedSide:
    peer = pack_peer(workspace, room, library)
    pins = ((peer.package, peer.pinned), *peer.requires)
    versions = {
        package: installed
        for package, _ in pins
        if (installed := installed_version(package)) is not None
    }
    reason = _why_missing(pins, versions)
    side = Side(
        name=library,
        kind="peer",
        solution_name=peer.packed.name,
        solution_sha256=peer.packed.sha256,
        package=peer.package,
        pinned=peer.pinned,
        installed=versions.get(peer.package),
        prepared=peer.prepared,
        stands_in=peer.stands_in or None,
        caveat=peer.caveat or None,
        state="measured" if reason is None else "missing",
        reason=reason,
    )
    return PackedSide(side, peer.packed, versions)


def installed_version(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _why_missing(pins: Sequence[tuple[str, str]], versions: Mapping[str, str]) -> str | None:
    """One line about the first package that is not here as pinned, or None.

    A build label such as +cu130 names no other release.
    """
    for package, pinned in pins:
        installed = versions.get(package, "none")
        if installed.partition("+")[0] != pinned:
            return (
                f"{package}: installed {installed}, pinned {pinned}; "
                f"pip install --no-deps '{package}=={pinned}' (docs/peers.md)"
            )
    return None


def control_of(first: PackedSide) -> PackedSide:
    """The first side again, to be measured in a process of its own."""
    side = dataclasses.replace(first.side, name=CONTROL, kind=CONTROL)
    return dataclasses.replace(first, side=side)
