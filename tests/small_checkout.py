"""A checkout of a few kilobytes: real definitions, facts and hashes, the first workloads only."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from harness.cli.rooms import config_table
from harness.config import Workspace, load_workspace
from harness.dataset.manifest import MANIFEST, read_manifest, write_manifest
from tests.official_rooms import official_config

# Official positions of workloads with small tensors, by room.
SMALL = {
    "moe": (0, 1),
    "dsa_indexer": (0, 1, 2),
    "dsa_attention": (0, 1),
    "gdn_decode": (0, 1),
    "gdn_prefill": (0, 1),
}


def lines_of(workspace: Workspace, room: str) -> list[str]:
    """The workload lines of a room, in official order."""
    return workload_file(workspace, room).read_text().splitlines()


def workload_file(workspace: Workspace, room: str) -> Path:
    entry = workspace.room(room)
    return workspace.root / "workloads" / entry.op_type / f"{entry.definition}.jsonl"


def definition_file(workspace: Workspace, room: str) -> Path:
    entry = workspace.room(room)
    return workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"


def add_room(root: Path, name: str, like: str) -> Workspace:
    """Put another room of the same definition into config.toml; it gets no files."""
    table = config_table(replace(load_workspace(root).room(like), name=name))
    path = root / "config.toml"
    path.write_text(f"{path.read_text()}\n{table}")
    return load_workspace(root)


def small_checkout(root: Path) -> Workspace:
    """Build the checkout in an empty folder; no blob is made."""
    real = load_workspace()
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.toml").write_text(official_config(), encoding="utf-8")
    (root / "workloads").mkdir()
    shutil.copy(real.root / "workloads" / "facts.csv", root / "workloads")
    small = load_workspace(root)
    kept = []
    for room, positions in SMALL.items():
        lines = [lines_of(real, room)[position] for position in positions]
        target = workload_file(small, room)
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(lines) + "\n")
        definition = definition_file(small, room)
        definition.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(definition_file(real, room), definition)
        kept += lines
    hashes = read_manifest(real.root)
    assert hashes is not None, f"the repository lacks {MANIFEST}"
    text = "\n".join(kept)
    write_manifest(root, {path: sha for path, sha in hashes.items() if path in text})
    return small
