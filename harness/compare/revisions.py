"""Rooms as a git revision packs them, from an archive of it: the working tree is never touched."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.config import Workspace, load_workspace
from harness.errors import HarnessError, PackingError, UsageError
from harness.evaluate.sweep import git_environment
from harness.packing import Packed, pack

ARCHIVED = ("config.toml", "definitions", "solutions")  # what packing reads


def find_commit(root: Path, name: str) -> str | None:
    """The commit that `name` means to git, or None; also where there is no git, or no repository.

    name: whatever git rev-parse takes, such as HEAD~1, a branch or the start of a hash.
    """
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    try:
        found = _git(root, *arguments)
    except OSError:
        return None
    return found.stdout.strip() if found.returncode == 0 else None


def pack_revision(
    workspace: Workspace, name: str, commit: str, rooms: Sequence[str]
) -> dict[str, Packed]:
    """Pack rooms as `commit` has them, by this checkout's packer.

    name: what messages call it. Raises UsageError for a tree without the room or with another
    definition of it, PackingError for files that do not pack.
    """
    with tempfile.TemporaryDirectory(prefix="harness-revision-") as temporary:
        folder = Path(temporary).resolve()
        _extract(workspace.root, name, commit, folder)
        try:
            then = load_workspace(folder)
            return {room: _pack_room(workspace, then, name, room) for room in rooms}
        except UsageError:
            raise
        except HarnessError as error:
            words = str(error).replace(f"{folder}/", f"{name}:")
            raise PackingError(f"revision {name} does not pack: {words}") from error


def _pack_room(workspace: Workspace, then: Workspace, name: str, room: str) -> Packed:
    if room not in then.rooms or not (then.root / "solutions" / room).is_dir():
        there = [known for known in then.rooms if (then.root / "solutions" / known).is_dir()]
        raise UsageError(
            f"revision {name}: expected the room {room}, got a tree with "
            f"{', '.join(there) or 'no room'}; name another revision or other rooms"
        )
    definition, expected = then.room(room).definition, workspace.room(room).definition
    if definition != expected:
        raise UsageError(
            f"revision {name}: its room {room} answers {definition}; expected {expected}, on "
            "which it would be judged"
        )
    return pack(then, room)


def _extract(root: Path, name: str, commit: str, folder: Path) -> None:
    """Lay config.toml, definitions/ and solutions/ of a commit into an empty folder."""
    archive = folder / "archive.tar"
    made = _git(root, "archive", "--format=tar", f"--output={archive}", commit, "--", *ARCHIVED)
    if made.returncode != 0:
        raise UsageError(
            f"revision {name}: expected a tree with {', '.join(ARCHIVED)}; git archive says: "
            f"{' '.join(made.stderr.split())}"
        )
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:  # a link that leads out of the tree
        raise UsageError(f"revision {name}: holds what cannot be laid out here: {error}") from error
    archive.unlink()


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git on the checkout, whoever owns it: its code is being run anyway."""
    command = ["git", "-c", f"safe.directory={root.resolve()}", *arguments]
    environment = git_environment()
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment)
