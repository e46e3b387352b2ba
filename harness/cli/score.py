"""``harness score``: the contest's score of each room and track, from results/compare alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from harness.cli.report import packed_hashes
from harness.compare.analysis import Comparison
from harness.compare.plan import official_objection
from harness.compare.record import CompareRecord, all_compare, difference
from harness.compare.scores import (
    BASELINE,
    HOST_GAPS,
    TRACK_RULE,
    Definitions,
    definitions_of_tracks,
)
from harness.config import Room, Workspace, load_workspace
from harness.errors import ExitCode, HarnessError, RecordError, UsageError
from harness.packing import pack_peer
from harness.report.document import Column, Kind, Table, Value, bounds, content_label
from harness.report.evidence import Compared, pair_with_others
from harness.report.head import NOT_COMPARED, TO_COMPARE
from harness.report.scored import (
    TRACK_COLUMNS,
    best_peer,
    compared_rooms,
    explain_score,
    track_row,
)
from harness.report.tables import to_markdown

_WHAT = (
    f"S_d, the official score: mean over a definition's workloads of {BASELINE} latency / our "
    "latency, 0 where one of ours fails.\n"
    f"S_track: sum of S_d / number of the track's definitions. {TRACK_RULE}\n"
    "The ratio of means and the geometric mean are other averages of the same latencies, and no "
    f"official score. Above 1 ours is faster. {HOST_GAPS}"
)
_COLUMNS = (
    Column("room"),
    Column("against"),
    Column("S_d (official)", Kind.SCORE),
    Column("95 % interval", Kind.INTERVAL),
    Column("ratio of means", Kind.SPEEDUP),
    Column("geometric mean", Kind.SPEEDUP),
    Column("device"),
    Column("timer"),
    Column("our content", Kind.CONTENT),
    Column("its content", Kind.CONTENT),
)
_PEER_COLUMNS = (
    Column("room"),
    Column("best correct peer"),
    Column("mean ratio to it, no S_d", Kind.SPEEDUP),
    *_COLUMNS[3:],
)


@dataclass(frozen=True)
class Contents:
    """Content hashes as everything packs now, None where it does not: of rooms, and of peers by
    (room, library)."""

    rooms: Mapping[str, str | None]
    peers: Mapping[tuple[str, str], str | None]


@click.command()
@click.argument("rooms", nargs=-1, metavar="[ROOM]...")
def score(rooms: tuple[str, ...]) -> int:
    """Print S_d of ROOMs (default: the contest's) and S_track of each track they answer whole.

    Reads results/compare and measures nothing. Where the official baseline did not run on the
    device S_d is undefined, and the ratio to the best correct peer is printed under its name.
    """
    workspace = load_workspace()
    asked = {name: workspace.room(name) for name in rooms or workspace.contest_rooms}
    require_contest(asked.values())
    records = [record for record in all_compare(workspace.root) if record.room in asked]
    require_one_measurement(records)
    for record in records:
        require_official(workspace, record)
    compared = {
        record.room: found for record in records if (found := pair_with_others(record)) is not None
    }
    if not compared:
        raise RecordError(
            f"{workspace.root / 'results' / 'compare'}: expected a comparison of "
            f"{', '.join(asked)}, got none; run {TO_COMPARE.format(room=next(iter(asked)))} on a "
            "GPU"
        )
    contents = read_contents(workspace, compared)
    tracks = definitions_of_tracks(workspace.rooms)
    click.echo(render_scores(tuple(asked), tracks, compared, contents))
    return ExitCode.OK


def require_contest(rooms: Iterable[Room]) -> None:
    """Raise UsageError for a room that is not in the contest, whose baseline is nobody's."""
    for room in rooms:
        if not room.in_contest:
            raise UsageError(
                f"{room.name}: not in the contest, which alone has scores; results/compare holds "
                f"its latencies, {TO_COMPARE.format(room=room.name)} measures them"
            )


def require_one_measurement(records: Sequence[CompareRecord]) -> None:
    """Raise RecordError that names what differs, unless all were measured alike."""
    for record in records[1:]:
        found = difference(records[0], record)
        if found is not None:
            raise RecordError(
                f"results/compare: scores do not mix, and the {found}; compare both alike, or ask "
                "for one room"
            )


def require_official(workspace: Workspace, record: CompareRecord) -> None:
    """Raise RecordError unless the record holds the official workloads, trials and tolerances,
    measured as --record asks for."""
    objection = official_objection(workspace, record)
    if objection is not None:
        raise RecordError(
            f"results/compare/{record.room}.json: {objection}; run "
            f"{TO_COMPARE.format(room=record.room)} again"
        )


def read_contents(workspace: Workspace, compared: Mapping[str, Compared]) -> Contents:
    """What the compared rooms and their peers pack to now."""
    peers: dict[tuple[str, str], str | None] = {}
    for room, found in compared.items():
        for side in found.record.sides:
            if side.kind == "peer":
                peers[room, side.name] = _peer_hash(workspace, room, side.name)
    return Contents(packed_hashes(workspace, list(compared)), peers)


def _peer_hash(workspace: Workspace, room: str, library: str) -> str | None:
    try:
        return pack_peer(workspace, room, library).packed.sha256
    except HarnessError:
        return None


def render_scores(
    asked: Sequence[str],
    tracks: Mapping[str, Definitions],
    compared: Mapping[str, Compared],
    contents: Contents,
) -> str:
    """Tables of rooms and tracks, why a score is 0 or undefined, and caveats of its sides.

    asked: the rooms, in their order. A track is shown where a room of each of its definitions was
    asked for and one was compared.
    """
    scored, peers, notes = [], [], []
    for room in asked:
        found = compared.get(room)
        if found is None:
            notes.append(f"{room}: {NOT_COMPARED}; run {TO_COMPARE.format(room=room)}")
            continue
        official, best = found.official(), best_peer(found)
        scored.append(_row(found, official.against, contents))
        notes += explain_score(found)
        if official.reason is None:
            continue
        if best is not None:
            peers.append(_row(found, best, contents))
        elif official.value is None:
            notes.append(f"{room}: no peer passed every workload beside ours")
    rows = [
        track_row(track, definitions, compared, here[0].record.device)
        for track, definitions in tracks.items()
        if all(set(rooms) & set(asked) for rooms in definitions.values())
        and (here := compared_rooms(definitions, compared))
    ]
    tables = [(_COLUMNS, scored), (_PEER_COLUMNS, peers), (TRACK_COLUMNS, rows)]
    parts = [_WHAT]
    parts += [to_markdown(Table("", "", columns, tuple(rows))) for columns, rows in tables if rows]
    if notes:
        parts.append("\n".join(f"* {note}" for note in notes))
    return "\n\n".join(parts)


def _row(found: Compared, other: Comparison | None, contents: Contents) -> tuple[Value, ...]:
    """Ours against one side; without it, the baseline that has no ratio."""
    room = found.record.room
    its = found.side(other.b) if other else None
    ours_sha256 = found.ours.solution_sha256
    return (
        room,
        its.label if its else BASELINE,
        other.score if other else None,
        bounds(other.score_interval if other else None),
        other.ratio_of_means if other else None,
        other.geometric_mean if other else None,
        found.record.device,
        found.record.timer,
        content_label(ours_sha256, ours_sha256 != contents.rooms.get(room)),
        content_label(
            its.solution_sha256, its.solution_sha256 != contents.peers.get((room, its.name))
        )
        if its
        else None,
    )
