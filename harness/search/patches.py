"""Patches against one room: applied to a scratch copy by git, refused where they reach further."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.config import Workspace
from harness.errors import PackingError, ToolMissing
from harness.packing.folders import ROOM_COMPANIONS

APPLY = ("git", "apply", "--whitespace=nowarn")


def apply_patch(
    workspace: Workspace, room: str, sources: Mapping[str, str], patch: str
) -> dict[str, str]:
    """The room's sources after the patch. Nothing of the tree is read or written.

    Raises PackingError for a patch that touches anything but files of solutions/<room>/ that are
    packed, that does not apply, or that is empty; ToolMissing without git.
    """
    if not patch.strip():
        raise PackingError("the patch is empty")
    with tempfile.TemporaryDirectory(prefix="harness-search-") as name:
        folder = Path(name)
        target = folder / "solutions" / room
        target.mkdir(parents=True)
        for file_name, text in sources.items():
            (target / file_name).write_bytes(text.encode())
        _refuse_other_paths(room, _git(folder, patch, "--numstat", "-z"))
        _git(folder, patch)
        result = {}
        for path in sorted(target.rglob("*")):
            if path.is_symlink() or not path.is_file():
                raise PackingError(f"{path.relative_to(folder)}: expected a plain file")
            result[path.name] = path.read_text(encoding="utf-8")
    if result == dict(sources):
        raise PackingError("the patch changes nothing")
    return result


def _refuse_other_paths(room: str, listing: str) -> None:
    """listing: of `git apply --numstat -z`."""
    for entry in filter(None, listing.split("\0")):
        path = entry.rsplit("\t", 1)[-1]
        folder, _, file_name = path.rpartition("/")
        if folder != f"solutions/{room}" or file_name in ROOM_COMPANIONS:
            raise PackingError(
                f"{path}: a candidate may touch sources of solutions/{room}/ only; nothing of the "
                "patch was applied"
            )


def _git(folder: Path, patch: str, *options: str) -> str:
    # A ceiling, so that git does not take a checkout above the scratch folder for its own.
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
    }
    try:
        done = subprocess.run(
            [*APPLY, *options],
            cwd=folder,
            env=environment,
            input=patch.encode(),
            capture_output=True,
        )
    except FileNotFoundError as error:
        raise ToolMissing("git applies patches and is not installed") from error
    if done.returncode != 0:
        words = " ".join(done.stderr.decode(errors="replace").split())
        raise PackingError(f"the patch does not apply: {words}")
    return done.stdout.decode(errors="replace")
