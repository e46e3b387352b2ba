"""The contest's score, as far as this device allows it, beside the averages it is taken for."""

from __future__ import annotations

from collections.abc import Mapping

from harness.compare.analysis import Comparison, RowComparison
from harness.compare.scores import (
    BASELINE,
    TRACK_RULE,
    Definitions,
    definitions_of_tracks,
    geometric_mean,
    track_score,
)
from harness.report.document import (
    Block,
    Bullets,
    Column,
    Kind,
    Paragraph,
    Section,
    Table,
    Value,
    bounds,
    content_label,
)
from harness.report.evidence import Compared, Evidence
from harness.report.head import NOT_COMPARED, TO_COMPARE
from harness.report.logs import one_line

_WHAT = (
    f"S_d is the mean over a definition's workloads of {BASELINE} latency over ours, and 0 where "
    f"one of ours fails; S_track is the mean of S_d over a track's definitions. {TRACK_RULE} Long "
    "workloads decide the ratio of means, and the geometric mean alone keeps its verdict when the "
    "two sides change places. None of the three stands in for another."
)
_SCORE_COLUMNS = (
    Column("room"),
    Column("S_d", Kind.SCORE),
    Column("S_d interval", Kind.INTERVAL),
    Column("ratio of means", Kind.SPEEDUP),
    Column("geometric mean", Kind.SPEEDUP),
    Column("best correct peer"),
    Column("mean ratio to it", Kind.SPEEDUP),
    Column("its interval", Kind.INTERVAL),
    Column("hardest partial peer"),
    Column("device"),
    Column("content", Kind.CONTENT),
)
TRACK_COLUMNS = (
    Column("track"),
    Column("S_track", Kind.SCORE),
    Column("definitions compared"),
    Column("device"),
)
INCOMPLETE = ", incomplete: the rest counts as 0"


def write_scores(evidence: Evidence) -> Section:
    """S_d of every room of the contest, S_track of every track and device."""
    rooms = evidence.workspace.contest_rooms
    rows = [_score_row(evidence, room) for room in rooms]
    scores = Table(
        "scores",
        f"S_d with the contest's baseline, {BASELINE}; beside it the best correct peer and, of "
        "those that fail somewhere, the one that is hardest where it passes, by geometric mean.",
        _SCORE_COLUMNS,
        tuple(rows),
    )
    notes = tuple(note for room in rooms for note in _notes(evidence, room))
    blocks: list[Block] = [Paragraph(_WHAT), scores, _track_table(evidence)]
    if notes:
        blocks.append(Bullets(notes))
    return Section("Score", "score", tuple(blocks))


def best_peer(compared: Compared) -> Comparison | None:
    """The hardest of the peers that passed every workload: the one with the least mean ratio."""
    correct = [
        other
        for other in compared.others
        if compared.side(other.b).kind == "peer" and compared.side(other.b).state == "measured"
    ]
    if compared.ours.state != "measured":
        return None
    return min(correct, key=lambda other: other.score or 0.0, default=None)


def explain_score(compared: Compared) -> list[str]:
    """Why S_d is 0 or undefined, and what a reader of the scores must know of their sides."""
    official, best = compared.official(), best_peer(compared)
    where = f"{compared.record.room} on {compared.record.device}"
    lines = []
    if official.reason is not None:
        value = "0" if official.value == 0 else "undefined on this device"
        lines.append(f"{where}: S_d is {value}: {one_line(official.reason)}")
    shown = {other.b for other in (official.against, best) if other is not None}
    lines += [
        f"{where}: {side.label}: {one_line(side.caveat)}"
        for side in compared.record.sides
        if side.name in shown and side.caveat
    ]
    lines += [f"{where}: {line}" for line in _explain_partial_peers(compared)]
    return lines


def _explain_partial_peers(compared: Compared) -> list[str]:
    """One line a peer that passed some workloads only: such a one is never the best correct peer,
    and may yet be the hardest of all where it is right."""
    return [
        f"{compared.side(other.b).label} passes {len(both)} of {len(other.rows)} workloads, and so "
        f"is no correct peer; on those its latency is x{mean:.3g} of ours (geometric mean), with "
        f"{other.wins} wins, {other.ties} ties and {other.losses} losses of ours"
        for mean, other, both in _partial_peers(compared)
    ]


def _partial_peers(compared: Compared) -> list[tuple[float, Comparison, list[RowComparison]]]:
    """Peers that passed some workloads only, with these and the geometric mean of their latency
    over ours there."""
    found = []
    for other in compared.others:
        side = compared.side(other.b)
        both = [row for row in other.rows if row.interval is not None]
        if side.kind != "peer" or side.state != "failed" or not both:
            continue
        mean = geometric_mean([row.b_us for row in both], [row.a_us for row in both])
        if mean is not None:
            found.append((mean, other, both))
    return found


def hardest_partial(compared: Compared) -> str | None:
    """Of the peers that passed some workloads only, the one that is hardest there; None without."""
    found = min(_partial_peers(compared), key=lambda one: one[0], default=None)
    if found is None:
        return None
    mean, other, both = found
    return f"{compared.side(other.b).label} x{mean:.3g} on {len(both)} of {len(other.rows)}"


def track_row(
    track: str, definitions: Definitions, compared: Mapping[str, Compared], device: str
) -> tuple[Value, ...]:
    """S_track of the definitions that were compared on one device; TRACK_RULE says how."""
    scores = {
        one.record.room: one.official().value
        for one in compared_rooms(definitions, compared)
        if one.record.device == device
    }
    here = sum(any(room in scores for room in rooms) for rooms in definitions.values())
    held = f"{here}/{len(definitions)}"
    if here < len(definitions):
        held += INCOMPLETE
    return (track, track_score(definitions, scores), held, device)


def compared_rooms(definitions: Definitions, compared: Mapping[str, Compared]) -> list[Compared]:
    """Those of a track's rooms that were compared."""
    return [compared[room] for rooms in definitions.values() for room in rooms if room in compared]


def _score_row(evidence: Evidence, room: str) -> tuple[Value, ...]:
    compared = evidence.compared.get(room)
    if compared is None:
        return (room, *[None] * (len(_SCORE_COLUMNS) - 3), NOT_COMPARED, None)
    official, best = compared.official(), best_peer(compared)
    against = official.against
    sha256 = compared.ours.solution_sha256
    return (
        room,
        official.value,
        bounds(against.score_interval if against else None),
        against.ratio_of_means if against else None,
        against.geometric_mean if against else None,
        compared.side(best.b).label if best else None,
        best.score if best else None,
        bounds(best.score_interval if best else None),
        hardest_partial(compared),
        compared.record.device,
        content_label(sha256, sha256 != evidence.packed.get(room)),
    )


def _notes(evidence: Evidence, room: str) -> list[str]:
    compared = evidence.compared.get(room)
    if compared is None:
        return [f"{room}: {NOT_COMPARED}; run {TO_COMPARE.format(room=room)}"]
    return explain_score(compared)


def _track_table(evidence: Evidence) -> Table:
    """One row a track and device on which any of its definitions was compared."""
    rows: list[tuple[Value, ...]] = []
    for track, definitions in definitions_of_tracks(evidence.workspace.rooms).items():
        here = compared_rooms(definitions, evidence.compared)
        for device in sorted({one.record.device for one in here}):
            rows.append(track_row(track, definitions, evidence.compared, device))
        if not here:
            rows.append((track, None, f"0/{len(definitions)}{INCOMPLETE}", NOT_COMPARED))
    return Table("tracks", "S_track of every track and device.", TRACK_COLUMNS, tuple(rows))
