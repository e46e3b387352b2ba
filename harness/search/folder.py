"""Candidates that lie in a folder: packed JSON files and patches, in the order of their names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.config import Workspace
from harness.controller.directions import Direction
from harness.errors import PackingError, UsageError
from harness.search.candidates import Proposal, read_candidate_file
from harness.search.patches import apply_patch
from harness.search.proposers import Plan

SUFFIXES = (".json", ".patch")
AS_GIVEN = Direction("as given", "what lies there is measured as it is", is_hypothesis=False)


class FolderProposer:
    """Offers a file, or every file of a folder. Patches are against the present baseline."""

    def __init__(self, workspace: Workspace, path: Path) -> None:
        self._workspace = workspace
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder; expected candidates there")
        if path.is_dir():
            self._paths = sorted(found for found in path.iterdir() if found.suffix in SUFFIXES)
        else:
            self._paths = [path] if path.is_file() and path.suffix in SUFFIXES else []
        if not self._paths:
            raise UsageError(
                f"{path}: expected a {' or '.join(SUFFIXES)} file, or a folder of them"
            )

    def describe(self) -> str:
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return f"folder {digest.hexdigest()[:8]}"

    @property
    def directions(self) -> Sequence[Direction]:
        return [AS_GIVEN]

    def propose(self, plan: Plan) -> Iterator[Proposal]:
        for path in self._paths:
            try:
                if path.suffix == ".json":
                    sources = read_candidate_file(self._workspace, plan.room, path)
                else:
                    patch = path.read_text(encoding="utf-8")
                    sources = apply_patch(self._workspace, plan.room, plan.baseline, patch)
            except (PackingError, UsageError, UnicodeDecodeError) as error:
                yield Proposal(None, note=path.name, refused=str(error))
            else:
                yield Proposal(sources, note=path.name)
