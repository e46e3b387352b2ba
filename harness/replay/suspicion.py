"""What in a room's replay stands against its solution. Pure, but for reading the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.config import Workspace
from harness.errors import RecordError
from harness.packing import pack
from harness.records import HASH_CHARACTERS
from harness.replay.record import ReplayRecord, ReplayRow, load_replay, replay_path


def suspicion(record: ReplayRecord) -> str | None:
    """One line about why the record's solution may not be promoted, or None.

    A mismatch; a boundary at which the solution's own score error may exchange tokens by more
    than the rule allows; or fewer trials than were asked for.
    """
    wrong = [row for row in record.workloads if row.mismatches]
    if wrong:
        worst = max(wrong, key=lambda row: row.rate)
        first = worst.listed[0]
        return (
            f"{_count(wrong, record)} wrong in some trial, most often {worst.uuid[:8]}, in "
            f"{worst.mismatches} of {worst.trials}: first trial {first.trial} (seed {first.seed}), "
            f"{first.status}"
        )
    exposed = [row for row in record.workloads if is_exposed(row, record.atol)]
    if exposed:
        worst = max(exposed, key=lambda row: row.margins.epsilon if row.margins else 0.0)
        margins = worst.margins
        assert margins is not None
        return (
            f"{_count(exposed, record)} so near a tie that rounding may cost more than the rule "
            f"forgives: {worst.uuid[:8]}, where {margins.below} of {margins.trials} trials are "
            f"within {2 * margins.epsilon:.2g} of one and the rule's atol is {record.atol:g}"
        )
    if not record.is_complete:
        stopped = [row for row in record.workloads if row.stopped is not None]
        return (
            f"{_count(stopped, record)} had fewer trials than were asked for, the first "
            f"{stopped[0].uuid[:8]}, {stopped[0].trials} of {stopped[0].asked}: "
            f"{stopped[0].stopped}"
        )
    return None


def is_exposed(row: ReplayRow, atol: float) -> bool:
    """Whether a boundary was seen that an error of epsilon can cross, to a loss beyond `atol`.

    Sorted scores of two selections that differ by exchanges across a margin differ by at most that
    margin: up to atol the rule accepts any of them, and near-ties of random scores are harmless.
    """
    margins = row.margins
    return margins is not None and margins.below > 0 and 2.0 * margins.epsilon > atol


def replay_note(root: Path, room: str, solution_sha256: str) -> str | None:
    """One line about results/replay/<room>.json for who looks at this content; None where there
    is no record, or nothing against it."""
    path = replay_path(root, room)
    if not path.exists():
        return None
    try:
        record = load_replay(path)
    except RecordError as error:
        return f"{room}: replay: {error}"
    if record.solution_sha256 != solution_sha256:
        return (
            f"{room}: replay: measured on {record.solution_sha256[:HASH_CHARACTERS]}, not on "
            f"{solution_sha256[:HASH_CHARACTERS]}; run `python -m harness replay {room} --record`"
        )
    problem = suspicion(record)
    return None if problem is None else f"{room}: replay: suspicious: {problem}"


def replay_notes(
    workspace: Workspace, rooms: Sequence[str] = (), route: str | None = None
) -> list[str]:
    """The notes on what `rooms` (all where none is named) pack to by `route`, a line a room that
    has a record."""
    replayed = [name for name in rooms or workspace.rooms if _has_record(workspace, name)]
    hashes = {name: pack(workspace, name, route).sha256 for name in dict.fromkeys(replayed)}
    notes = (replay_note(workspace.root, name, sha256) for name, sha256 in hashes.items())
    return [note for note in notes if note is not None]


def _has_record(workspace: Workspace, room: str) -> bool:
    return replay_path(workspace.root, room).exists()


def _count(rows: list[ReplayRow], record: ReplayRecord) -> str:
    return f"{len(rows)} of {len(record.workloads)} workloads"
