"""Reading a data set with a critical eye, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import Room
from harness.dataset.blobs import Fault, FaultKind, expected_tensors, find_faults
from harness.dataset.manifest import read_manifest
from harness.dataset.workloads import (
    WorkloadRow,
    is_checkout,
    pinned_hashes,
    read_definition,
    read_workloads,
)


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: faults in official order, of ``checked`` blobs that were looked for.

    hashed: how many of them were read whole and compared with the manifest. A blob of several
    rooms counts once.
    """

    faults: tuple[Fault, ...]
    checked: int
    hashed: int


def verify(
    root: Path,
    rooms: Iterable[Room],
    rows: Mapping[str, Sequence[WorkloadRow]] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Verdict:
    """Check the blobs of ``rooms``: presence, length, Git-LFS pointers, keys, dtypes and shapes.

    Content is compared with the manifest where the set has one; the official set has none, and
    its tensors are nobody's but its own. rows: fewer workloads, by room (default: all).
    progress: called with a room's name and how many blobs it added. Raises DatasetError where
    definitions or workload files themselves cannot be read.
    """
    manifest = pinned_hashes(root) or {}
    faults: list[Fault] = []
    seen: set[str] = set()
    checked = hashed = 0
    for room in rooms:
        definition = read_definition(root, room)
        chosen = read_workloads(root, room) if rows is None else rows.get(room.name, ())
        blobs = [
            (root / path, tensors, manifest.get(path))
            for row in chosen
            for path, tensors in expected_tensors(definition, row).items()
            if path not in seen
        ]
        seen.update(path for row in chosen for path in row.blob_paths)
        found = find_faults(blobs)
        faults += [fault for fault in found if fault is not None]
        checked += len(blobs)
        hashed += sum(
            sha256 is not None and (fault is None or fault.kind is FaultKind.WRONG_HASH)
            for (_, _, sha256), fault in zip(blobs, found, strict=True)
        )
        if progress is not None:
            progress(room.name, len(blobs))
    return Verdict(tuple(faults), checked, hashed)


def repair_step(root: Path, faults: Iterable[Fault]) -> str:
    """What the user does about the faults of a set."""
    if is_checkout(root):
        foreign = any(fault.kind is FaultKind.WRONG_HASH for fault in faults)
        return f"run `python -m harness dataset make{' --remake' if foreign else ''}`"
    if read_manifest(root) is not None:  # an export; the official set has no manifest
        return "export it anew with `python -m harness dataset export DIR`"
    return f"complete it with `python -m harness dataset fetch {root}`"
