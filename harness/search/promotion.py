"""The one place that edits solutions/: a promoted candidate becomes its room, byte for byte.

A promotion may be killed between two files. Each file then holds its old or its new text, so the
same promotion can be finished, or undone, later; a file that holds neither is somebody's work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from harness.config import Workspace
from harness.errors import HarnessError
from harness.files import write_atomically
from harness.packing import pack
from harness.search.candidates import read_room


def promote(
    workspace: Workspace, room: str, before: Mapping[str, str], after: Mapping[str, str], sha: str
) -> None:
    """Replace a room's sources. sha: what they must pack to.

    Raises HarnessError, with the tree as it was, where the room is in neither state or packs to
    something else than what was measured.
    """
    _refuse_foreign(workspace, room, before, after)
    _write(workspace, room, after)
    try:
        found = pack(workspace, room).sha256
        if found != sha:
            raise HarnessError(
                f"solutions/{room}: packs to {found[:8]} after the promotion of {sha[:8]}; the "
                "shelf or config.toml changed since it was measured. Restored; measure again"
            )
    except BaseException:
        _write(workspace, room, before)
        raise


def restore(
    workspace: Workspace, room: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Bring a room back to `before`. Raises HarnessError where a file holds neither text."""
    _refuse_foreign(workspace, room, before, after)
    _write(workspace, room, before)


def require_unchanged(workspace: Workspace, room: str, expected: Mapping[str, str]) -> None:
    """Raise HarnessError unless the room's sources in the tree are these."""
    _refuse_foreign(workspace, room, expected, expected)


def _refuse_foreign(
    workspace: Workspace, room: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    found = read_room(workspace, room)
    for name in sorted({*found, *before, *after}):
        if found.get(name) not in (before.get(name), after.get(name)):
            raise HarnessError(
                f"solutions/{room}/{name}: changed since the run began; nothing was written. Put "
                "it back, or start a new run on the changed room"
            )


def _write(workspace: Workspace, room: str, wanted: Mapping[str, str]) -> None:
    """Changed files first, removals last. What a killed write leaves lies beside the room: inside
    it would keep the room from being packed, and elsewhere may be another filesystem."""
    folder = (workspace.root / "solutions" / room).resolve()
    outside = folder.parent / f".incoming-{room}"
    found = read_room(workspace, room)
    for name, text in wanted.items():
        if found.get(name) != text:
            write_atomically(outside / name, text)
            os.replace(outside / name, folder / name)
    for name in found.keys() - wanted.keys():
        (folder / name).unlink()
    shutil.rmtree(outside, ignore_errors=True)
