"""``harness score``: the contest's score of each room and track, from results/compare alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from harness.cli.report import packed_hashes
from harness.compare.analysis import Comparison
from harness.compare.record import CompareRecord, all_compare
from harness.compare.scores import BASELINE, expected_definitions, track_score
from harness.config import Room, Workspace, load_workspace
from harness.errors import ExitCode, HarnessError, RecordError
from harness.packing import pack_peer
from harness.records import official_uuids
from harness.report.document import Column, Kind, Table, Value, content_label
from harness.report.evidence import Compared, pair_with_others
from harness.report.head import NOT_COMPARED, TO_COMPARE
from harness.report.logs import one_line
from harness.report.scored import best_peer
from harness.report.tables import to_markdown

_WHAT = (
    f"S_d, the official score: mean over a definition's workloads of {BASELINE} latency / our "
    "latency, 0 where one of ours fails.\n"
    "S_track: sum of S_d / number of the track's definitions; one that was not compared counts "
    "as 0.\n"
    "The ratio of means and the geometric mean are other averages of the same latencies, and no "
    "official score. Above 1 ours is faster."
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
_TRACK_COLUMNS = (
    Column("track"),
    Column("S_track", Kind.SCORE),
    Column("definitions compared"),
    Column("device"),
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
    """Print S_d of ROOMs (default: all) and S_track of each track whose rooms are all asked for.

    Reads results/compare and measures nothing. Where the official baseline did not run on the
    device S_d is undefined, and the ratio to the best correct peer is printed under its name.
    """
    workspace = load_workspace()
    asked = {name: workspace.room(name) for name in rooms or workspace.rooms}
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
    counts = expected_definitions(workspace.rooms)
    click.echo(render_scores(asked, counts, compared, contents))
    return ExitCode.OK


def require_one_measurement(records: Sequence[CompareRecord]) -> None:
    """Raise RecordError that names what differs, unless all share device, timer and data set."""
    for record in records[1:]:
        first = records[0]
        for fact, one, other in (
            ("device", first.device, record.device),
            ("timer", first.timer, record.timer),
            ("data set", first.dataset.name, record.dataset.name),
        ):
            if one != other:
                raise RecordError(
                    f"results/compare: scores do not mix, and the {fact} is {one} in {first.room} "
                    f"and {other} in {record.room}; compare both alike, or ask for one room"
                )


def require_official(workspace: Workspace, record: CompareRecord) -> None:
    """Raise RecordError unless the record holds the official workloads and tolerances."""
    room = workspace.room(record.room)
    official = official_uuids(workspace.root, room.definition)
    got = tuple(row.uuid for row in record.workloads)
    again = f"run {TO_COMPARE.format(room=record.room)} again"
    if (record.definition, got) != (room.definition, official):
        missing = len(set(official) - set(got))
        raise RecordError(
            f"results/compare/{record.room}.json: expected the {len(official)} workloads of "
            f"{room.definition} in official order, got {len(got)} ({missing} missing) of "
            f"{record.definition}; {again}"
        )
    for key in ("atol", "rtol", "required_matched_ratio"):
        expected, value = getattr(room.evaluation, key), getattr(record.protocol, key)
        if expected != value:
            raise RecordError(
                f"results/compare/{record.room}.json: protocol.{key}: expected the official "
                f"{expected}, got {value}; {again}"
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
    asked: Mapping[str, Room],
    counts: Mapping[str, int],
    compared: Mapping[str, Compared],
    contents: Contents,
) -> str:
    """Tables of rooms and tracks, and why a score is 0 or undefined.

    asked: the rooms, in their order. counts: how many definitions each track has.
    """
    scored, peers, notes = [], [], []
    official: dict[str, Comparison | None] = {}
    for room in asked:
        found = compared.get(room)
        if found is None:
            notes.append(f"{room}: {NOT_COMPARED}; run {TO_COMPARE.format(room=room)}")
            continue
        against = next((other for other in found.others if other.b == BASELINE), None)
        official[room] = against
        scored.append(_row(found, against, contents))
        if against is not None and against.score is not None and against.score_reason is None:
            continue
        notes.append(f"{room}: {_why(found, against)}")
        best = best_peer(found)
        if best is not None:
            peers.append(_row(found, best, contents))
        elif against is None or against.score is None:
            notes.append(f"{room}: no peer passed every workload beside ours")
    tracks = _track_rows(asked, counts, compared, official)
    tables = [(_COLUMNS, scored), (_PEER_COLUMNS, peers), (_TRACK_COLUMNS, tracks)]
    parts = [_WHAT]
    parts += [to_markdown(Table("", "", columns, tuple(rows))) for columns, rows in tables if rows]
    if notes:
        parts.append("\n".join(f"* {note}" for note in notes))
    return "\n\n".join(parts)


def _row(found: Compared, other: Comparison | None, contents: Contents) -> tuple[Value, ...]:
    """Ours against one side; without it, the baseline that was no side."""
    room, score = found.record.room, other.score if other else None
    its = found.side(other.b) if other else None
    ours_sha256 = found.ours.solution_sha256
    return (
        room,
        other.b if other else BASELINE,
        score.value if score else None,
        (score.low, score.high) if score else None,
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


def _why(found: Compared, official: Comparison | None) -> str:
    """Why S_d is 0 or undefined."""
    if official is None:
        return f"S_d is undefined on this device: {BASELINE} was no side of the comparison"
    baseline = found.side(BASELINE)
    if official.score is not None:
        return f"S_d is 0: {one_line(official.score_reason or '')}"
    reason = baseline.reason if baseline.state == "missing" else official.score_reason
    return f"S_d is undefined on this device: {BASELINE}: {one_line(reason or '')}"


def _track_rows(
    asked: Mapping[str, Room],
    counts: Mapping[str, int],
    compared: Mapping[str, Compared],
    official: Mapping[str, Comparison | None],
) -> list[tuple[Value, ...]]:
    """S_track of the tracks whose definitions were all asked for and not all without comparison."""
    rows: list[tuple[Value, ...]] = []
    for track, expected in counts.items():
        names = [name for name, room in asked.items() if room.track == track]
        here = [name for name in names if name in compared]
        if len(names) < expected or not here:
            continue
        scores = {name: _score_value(official[name]) for name in here}
        device = compared[here[0]].record.device
        rows.append((track, track_score(scores, expected), f"{len(here)}/{expected}", device))
    return rows


def _score_value(official: Comparison | None) -> float | None:
    return official.score.value if official is not None and official.score is not None else None
