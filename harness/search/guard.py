"""What a proposer may not change while it works: the checkout itself. It gets copies."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessError

WATCHED = ("config.toml", "pack.py", "definitions", "harness", "peers", "solutions", "workloads")
MADE = ("__pycache__", "solution.json")  # by others, at any time


@contextlib.contextmanager
def checkout_unchanged(root: Path) -> Iterator[None]:
    """Raise HarnessError where the block changed the judge, another room or the tree's own room."""
    before = _digests(root)
    yield
    after = _digests(root)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if changed:
        raise HarnessError(
            f"{changed[0]}: changed while a proposer worked ({len(changed)} files in all); it gets "
            "copies and leaves a patch. The run ends here: restore the tree, then --resume"
        )


def _digests(root: Path) -> dict[str, str]:
    found = {}
    for name in WATCHED:
        top = root / name
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in paths:
            if path.is_file() and not set(path.parts) & set(MADE):
                label = path.relative_to(root).as_posix()
                found[label] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
