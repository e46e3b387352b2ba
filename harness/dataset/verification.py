"""Reading a data set with a critical eye, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.config import Room
from harness.dataset.blobs import Fault, expected_tensors, find_fault
from harness.dataset.manifest import read_manifest
from harness.dataset.workloads import WorkloadRow, read_definition, read_workloads

_THREADS = 4


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: faults in official order, of ``checked`` blobs.

    hashed: how many of them had a line in a manifest to be compared with.
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
    progress: called with a room's name and its number of blobs. Raises DatasetError where
    definitions or workload files themselves cannot be read.
    """
    manifest = read_manifest(root) or {}
    faults: list[Fault] = []
    checked = hashed = 0
    for room in rooms:
        definition = read_definition(root, room)
        chosen = read_workloads(root, room) if rows is None else rows.get(room.name, ())
        blobs = [
            (root / path, tensors, manifest.get(path))
            for row in chosen
            for path, tensors in expected_tensors(definition, row).items()
        ]
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(lambda blob: find_fault(*blob), blobs))
        faults += [fault for fault in found if fault is not None]
        checked += len(blobs)
        hashed += sum(sha256 is not None for _, _, sha256 in blobs)
        if progress is not None:
            progress(room.name, len(blobs))
    return Verdict(tuple(faults), checked, hashed)
