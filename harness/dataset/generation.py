"""Making blobs: what is missing, in parallel, each checked against the manifest.

Only a checkout of this project is written into; a set that lies elsewhere is read as it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from harness.config import Room
from harness.dataset.blobs import (
    FaultKind,
    TensorSpec,
    expected_tensors,
    find_fault,
    find_faults,
    write_blob,
)
from harness.dataset.facts import Facts, read_facts
from harness.dataset.manifest import MANIFEST, read_manifest, write_manifest
from harness.dataset.recipes import generate
from harness.dataset.verification import repair_step, verify
from harness.dataset.workloads import (
    WorkloadRow,
    is_checkout,
    pinned_hashes,
    read_definition,
    read_workloads,
)
from harness.errors import DatasetError, InfrastructureFailure
from harness.files import PARTIAL_MARK

_INLINE_BYTES = 1 << 26  # below this, starting worker processes takes longer than the work
_SPARE_BYTES = 1 << 28  # left free on the disk
_LEFTOVER_AGE_S = 3600
BLOB_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Made:
    """One finished blob. index counts from 1 to total; seconds is what this blob took."""

    room: str
    uuid: str
    path: Path
    sha256: str
    size_bytes: int
    seconds: float
    index: int
    total: int


Progress = Callable[[Made], None]


@dataclass(frozen=True)
class MakeReport:
    """What `make` did: blobs made and blobs found in order, with the bytes of each."""

    made: int
    made_bytes: int
    kept: int
    kept_bytes: int


@dataclass(frozen=True)
class _Blob:
    """One blob to look at and, where needed, to make."""

    room: str
    definition: str
    row: WorkloadRow
    facts: Facts
    relative: str
    path: Path
    expected: Mapping[str, TensorSpec]
    sha256: str | None

    @property
    def size_bytes(self) -> int:
        return sum(spec.size_bytes for spec in self.expected.values())


def blob_path(room: Room, uuid: str) -> str:
    """Where the official layout keeps the tensors of one workload, relative to the root."""
    name = room.definition
    return f"blob/workloads/{room.op_type}/{name}/{name}_{uuid}{BLOB_SUFFIX}"


def _room_blobs(
    root: Path, room: Room, rows: Sequence[WorkloadRow], hashes: Mapping[str, str] | None
) -> list[_Blob]:
    """hashes: what the blobs must hash to; None where they are about to be recorded."""
    definition = read_definition(root, room)
    facts = read_facts(root)
    blobs = []
    for row in rows:
        for relative, expected in expected_tensors(definition, row).items():
            if relative != blob_path(room, row.uuid):
                raise DatasetError(
                    f"{room.name}: workload {row.uuid}: expected the blob "
                    f"{blob_path(room, row.uuid)}, got {relative}; only that place is written"
                )
            if hashes is not None and relative not in hashes:
                raise DatasetError(f"{root / MANIFEST}: expected a line for {relative}, got none")
            known = facts.get(row.uuid, {})
            blobs.append(
                _Blob(
                    room.name,
                    room.definition,
                    row,
                    known,
                    relative,
                    root / relative,
                    expected,
                    hashes[relative] if hashes is not None else None,
                )
            )
    return blobs


def _survey(blobs: Sequence[_Blob], remake: bool) -> list[_Blob]:
    """The blobs to make. Whole files with other content are replaced only when asked for."""
    faults = find_faults((blob.path, blob.expected, blob.sha256) for blob in blobs)
    foreign = [fault for fault in faults if fault and fault.kind is FaultKind.WRONG_HASH]
    if foreign and not remake:
        raise DatasetError(
            f"{len(foreign)} blob(s) hold other tensors than the manifest names, the first is "
            f"{foreign[0]}; `python -m harness dataset make --remake` replaces them, an official "
            f"set belongs into a folder of its own (FIB_DATASET_PATH)"
        )
    return [blob for blob, fault in zip(blobs, faults, strict=True) if fault]


def _make_one(blob: _Blob) -> tuple[str, float]:
    started = time.perf_counter()
    tensors = generate(blob.definition, blob.row, blob.facts)
    try:
        sha256 = write_blob(blob.path, tensors, blob.sha256)
    except OSError as error:
        raise DatasetError(
            f"{blob.path}: cannot be written: {error}; expected a checkout on a disk with room"
        ) from error
    fault = find_fault(blob.path, blob.expected)
    if fault is not None:
        raise DatasetError(f"{fault}; the generator and the definition disagree")
    return sha256, time.perf_counter() - started


def _remove_leftovers(blobs: Sequence[_Blob]) -> None:
    """Delete the temporary files of writers that were killed, an hour ago or more."""
    oldest = time.time() - _LEFTOVER_AGE_S
    for folder in {blob.path.parent for blob in blobs}:
        for path in folder.glob(f".*{BLOB_SUFFIX}{PARTIAL_MARK}*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _job_count(jobs: int | None) -> int:
    if jobs is not None:
        return max(1, jobs)
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


def _check_space(root: Path, blobs: Sequence[_Blob]) -> None:
    needed_bytes = sum(blob.size_bytes for blob in blobs)
    free_bytes = shutil.disk_usage(root).free
    if blobs and free_bytes < needed_bytes + _SPARE_BYTES:
        raise DatasetError(
            f"{root}: expected {needed_bytes / 1e9:.1f} GB free for {len(blobs)} blobs, got "
            f"{free_bytes / 1e9:.1f} GB; free some, or name fewer workloads"
        )


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _in_parallel(
    blobs: Sequence[_Blob], jobs: int | None
) -> Iterator[tuple[_Blob, tuple[str, float]]]:
    """Each blob as it is finished. A failure or an interrupt starts no further ones."""
    workers = min(_job_count(jobs), len(blobs))
    if workers < 2 or sum(blob.size_bytes for blob in blobs) < _INLINE_BYTES:
        for blob in blobs:
            yield blob, _make_one(blob)
        return
    largest_first = sorted(blobs, key=lambda blob: -blob.size_bytes)
    # Workers are spawned: a fork of a process that has started threads can hang.
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent
    )
    try:
        futures = {pool.submit(_make_one, blob): blob for blob in largest_first}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise InfrastructureFailure(
            "a process that makes blobs died, for want of memory perhaps; "
            "`python -m harness dataset make --jobs 1` goes on where it ended"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _make_blobs(
    blobs: Sequence[_Blob], jobs: int | None, progress: Progress | None
) -> dict[str, str]:
    """Make each blob; its path relative to the root -> its sha256."""
    _remove_leftovers(blobs)
    hashes = {}
    for index, (blob, (sha256, seconds)) in enumerate(_in_parallel(blobs, jobs), 1):
        hashes[blob.relative] = sha256
        if progress is not None:
            size_bytes = blob.path.stat().st_size
            made = (blob.room, blob.row.uuid, blob.path, sha256, size_bytes, seconds)
            progress(Made(*made, index=index, total=len(blobs)))
    return hashes


def ensure_blobs(
    root: Path, room: Room, rows: Sequence[WorkloadRow], progress: Progress | None = None
) -> None:
    """See to it that every blob of ``rows`` is there and is what the manifest says.

    In a checkout the missing ones are made. Elsewhere they are only looked at, as `verify` does.
    Raises DatasetError.
    """
    if is_checkout(root):
        missing = _survey(_room_blobs(root, room, rows, pinned_hashes(root)), remake=False)
        _check_space(root, missing)
        _make_blobs(missing, None, progress)
        return
    faults = verify(root, [room], {room.name: rows}).faults
    if faults:
        raise DatasetError(
            f"{root}: {len(faults)} blob(s) of this data set are unfit, the first is {faults[0]}; "
            f"a set outside the checkout is never written into: {repair_step(root, faults)}, or "
            "leave out --dataset and FIB_DATASET_PATH"
        )


def make(
    root: Path,
    rooms: Mapping[str, Room],
    rows: Mapping[str, Sequence[WorkloadRow]] | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    remake: bool = False,
    update_manifest: bool = False,
) -> MakeReport:
    """Make the blobs of a checkout that are not there yet.

    rooms: what the manifest lists, by name. rows: the workloads to make, by room (default: all).
    jobs: worker processes (default: one for each usable core). remake: replace files whose content
    is not what the manifest says. update_manifest: for maintainers who change a generator; makes
    every blob anew and records its hash instead of checking it.
    Raises DatasetError, also where a made blob does not hash to its line of the manifest.
    """
    if not is_checkout(root):
        raise DatasetError(
            f"{root}: blobs are made in a checkout only; leave out --dataset and FIB_DATASET_PATH"
        )
    if rows is None:
        rows = {name: read_workloads(root, room) for name, room in rooms.items()}
    hashes = None if update_manifest else pinned_hashes(root)
    listed = [blob for name in rows for blob in _room_blobs(root, rooms[name], rows[name], hashes)]
    blobs = list({blob.relative: blob for blob in listed}.values())  # rooms may share a definition
    wanted = blobs if update_manifest else _survey(blobs, remake)
    _check_space(root, wanted)
    made_hashes = _make_blobs(wanted, jobs, progress)
    if update_manifest:
        _record(root, rooms, made_hashes)
    made = {blob.relative for blob in wanted}
    kept = [blob for blob in blobs if blob.relative not in made]
    return MakeReport(
        len(wanted),
        sum(blob.size_bytes for blob in wanted),
        len(kept),
        sum(blob.size_bytes for blob in kept),
    )


def _record(root: Path, rooms: Mapping[str, Room], hashes: Mapping[str, str]) -> None:
    """Merge new hashes into the manifest; lines in the order of rooms and workloads."""
    known = {**(read_manifest(root) or {}), **hashes}
    order = dict.fromkeys(
        path
        for room in rooms.values()
        for row in read_workloads(root, room)
        for path in row.blob_paths
    )
    write_manifest(root, {path: known[path] for path in order if path in known})
