"""A proposal becomes a candidate: packed in a scratch checkout, and refused if it is anything else
than the sources of one room.
"""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.config import Workspace, load_workspace
from harness.controller.archive import ATTEMPTS, Archive
from harness.errors import HarnessError, PackingError, UsageError
from harness.files import write_atomically
from harness.packing import Packed, pack
from harness.packing.folders import SHELF, SourceTree
from harness.packing.official import read_packed
from harness.records.strict_json import parse
from harness.search.patches import apply_patch


@dataclass(frozen=True)
class Proposal:
    """What a proposer offers.

    sources: file name to text, all sources of solutions/<room>/; None where it is refused, and then
    `refused` says why. parent: content hash of what it was made from. edits: constant to value,
    against the sources it began with. note: one line about the idea.
    """

    sources: Mapping[str, str] | None
    parent: str | None = None
    edits: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    refused: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A packed proposal. sources: as in the proposal. patch: against the baseline. lines_added:
    net, or 0."""

    packed: Packed
    sources: Mapping[str, str]
    proposal: Proposal
    patch: str
    lines_added: int

    def describe(self, island: int) -> dict[str, Any]:
        """As a line of the archive holds it."""
        return {
            "name": self.packed.name,
            "sha256": self.packed.sha256,
            "parent": self.proposal.parent,
            "island": island,
            "edits": dict(self.proposal.edits),
            "note": self.proposal.note,
            "lines_added": self.lines_added,
            "patch": self.patch,
            "refused": None,
        }


def describe_refusal(proposal: Proposal, reason: str, island: int) -> dict[str, Any]:
    """A proposal that is no candidate, as a line of the archive holds it."""
    return {
        "name": None,
        "sha256": None,
        "parent": proposal.parent,
        "island": island,
        "edits": dict(proposal.edits),
        "note": proposal.note,
        "lines_added": 0,
        "patch": "",
        "refused": reason,
    }


def read_room(workspace: Workspace, room: str) -> dict[str, str]:
    """The sources of a room as they lie in the tree, by file name. Raises PackingError."""
    tree = SourceTree.scan(workspace.root, room)
    return {name: tree.read(name, on_shelf=False).text for name in tree.room_names}


def make_candidate(
    workspace: Workspace, room: str, proposal: Proposal, baseline: Mapping[str, str]
) -> Candidate:
    """Pack a proposal. Raises PackingError where it does not pack or was refused before."""
    if proposal.sources is None:
        raise PackingError(proposal.refused or "no sources")
    packed = pack_sources(workspace, room, proposal.sources)
    return Candidate(
        packed=packed,
        sources=dict(proposal.sources),
        proposal=proposal,
        patch=unified_patch(room, baseline, proposal.sources),
        lines_added=max(0, _count_lines(proposal.sources) - _count_lines(baseline)),
    )


def pack_sources(workspace: Workspace, room: str, sources: Mapping[str, str]) -> Packed:
    """The solution that these sources of a room make, packed in a scratch checkout: the tree is not
    touched. Raises PackingError."""
    for name in sources:
        if Path(name).name != name:
            raise PackingError(f"{name}: a candidate may touch files of solutions/{room}/ only")
    with tempfile.TemporaryDirectory(prefix="harness-search-") as folder:
        scratch = copy_checkout(workspace, room, Path(folder))
        target = scratch.root / "solutions" / room
        for path in target.iterdir():
            if path.name != "config.toml":
                path.unlink()
        for name, text in sources.items():
            (target / name).write_bytes(text.encode())
        packed = pack(scratch, room)
    return Packed(
        packed.name,
        packed.sha256,
        packed.text,
        workspace.root / "solutions" / room / "solution.json",
        packed.sources,
    )


def copy_checkout(workspace: Workspace, room: str, folder: Path) -> Workspace:
    """A checkout with one room and the shelf, enough to pack it, in an empty folder."""
    root = workspace.root
    shutil.copy(root / "config.toml", folder)
    (folder / "definitions").symlink_to(root / "definitions")
    shelf = root / "solutions" / SHELF
    if shelf.is_dir():
        shutil.copytree(shelf, folder / "solutions" / SHELF)
    target = folder / "solutions" / room
    target.mkdir(parents=True)
    for name, text in read_room(workspace, room).items():
        (target / name).write_bytes(text.encode())
    shutil.copy(root / "solutions" / room / "config.toml", target)
    return load_workspace(folder)


def unified_patch(room: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What `git apply` takes from one set of a room's sources to the other."""
    parts: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        path = f"solutions/{room}/{name}"
        parts += difflib.unified_diff(
            _lines(old),
            _lines(new),
            "/dev/null" if old is None else f"a/{path}",
            "/dev/null" if new is None else f"b/{path}",
        )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in parts
    )


def sources_of(workspace: Workspace, room: str, packed: Packed) -> dict[str, str]:
    """The room's own sources in a packed solution, by file name.

    Raises PackingError where it brings another shelf than this checkout's.
    """
    texts = {source["path"]: source["content"] for source in parse(packed.text)["sources"]}
    tree = SourceTree.scan(workspace.root, room)
    own = {}
    for name, text in texts.items():
        if name not in tree.shelf_names:
            own[name] = text
        elif tree.read(name, on_shelf=True).text != text:
            raise PackingError(
                f"{packed.name}: {name} differs from solutions/{SHELF}/{name}, which all rooms "
                f"share; a candidate may touch files of solutions/{room}/ only"
            )
    return own


def read_candidate_file(workspace: Workspace, room: str, path: Path) -> dict[str, str]:
    """The sources in a packed JSON of the room. Raises UsageError and PackingError."""
    packed, definition = read_packed(path)
    if definition != workspace.room(room).definition:
        raise UsageError(
            f"{path}: solves {definition}; expected {workspace.room(room).definition}, the "
            f"definition of {room}"
        )
    return sources_of(workspace, room, packed)


class CandidateStore:
    """Packed candidates by content, kept on the machine: traces/search/<room>/candidates/. What is
    not there is made again from the archive's baselines and patches."""

    def __init__(self, workspace: Workspace, room: str) -> None:
        self._workspace, self._room = workspace, room
        self._folder = workspace.root / "traces" / "search" / room / "candidates"

    def path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.json"

    def put(self, packed: Packed) -> None:
        if not self.path(packed.sha256).exists():
            write_atomically(self.path(packed.sha256), packed.text)

    def get(self, sha256: str) -> Packed:
        """Raises HarnessError where it is changed, or can no longer be made."""
        path = self.path(sha256)
        if not path.is_file():
            self.put(self._make_again(sha256))
        packed = read_packed(path)[0]
        if packed.sha256 != sha256:
            raise HarnessError(f"{path}: holds {packed.sha256[:8]}; remove it")
        return packed

    def _make_again(self, sha256: str) -> Packed:
        archive = Archive(self._workspace.root, self._room)
        kept = archive.baseline_path(sha256)
        if kept.is_file():
            packed = read_packed(kept)[0]
        else:
            baseline, patch = self._find_patch(archive, sha256)
            sources = apply_patch(self._workspace, self._room, self.sources(baseline), patch)
            packed = pack_sources(self._workspace, self._room, sources)
        if packed.sha256 != sha256:
            raise HarnessError(
                f"{self._room} {sha256[:8]}: its patch now packs to {packed.sha256[:8]}: the "
                f"shelf, the room's config.toml or {kept.parent} has changed since. Put that back, "
                f"or start a new run with `python -m harness tune {self._room} --abandon`"
            )
        return packed

    def _find_patch(self, archive: Archive, sha256: str) -> tuple[str, str]:
        """The content that a candidate's patch is against, and the patch."""
        for line in archive.lines(ATTEMPTS).values():
            for one in line.get("proposals", ()):
                if one["sha256"] == sha256:
                    return str(line["baseline_sha256"]), str(one["patch"])
        raise HarnessError(
            f"{self._room} {sha256[:8]}: neither {self.path(sha256)} nor {archive.folder} has this "
            f"content. Start a new run with `python -m harness tune {self._room} --abandon`"
        )

    def sources(self, sha256: str) -> dict[str, str]:
        return sources_of(self._workspace, self._room, self.get(sha256))


def _lines(text: str | None) -> list[str]:
    """By line feeds alone, as git counts lines."""
    return re.findall(r"[^\n]*\n|[^\n]+", text or "")


def _count_lines(sources: Mapping[str, str]) -> int:
    return sum(text.count("\n") for text in sources.values())
