"""The contest's score, as far as this device allows it, beside the averages it is taken for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.analysis import Comparison
from harness.compare.scores import BASELINE, expected_definitions, track_score
from harness.report.document import (
    Block,
    Bullets,
    Column,
    Kind,
    Paragraph,
    Section,
    Table,
    Value,
    content_label,
)
from harness.report.evidence import Compared, Evidence
from harness.report.head import NOT_COMPARED, TO_COMPARE
from harness.report.logs import one_line

_WHAT = (
    f"S_d is the mean over a definition's workloads of {BASELINE} latency over ours, and 0 where "
    "one of ours fails; S_track is the mean of S_d over a track's definitions. Long workloads "
    "decide the ratio of means, and the geometric mean alone keeps its verdict when the two sides "
    "change places. None of the three stands in for another."
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
    Column("device"),
    Column("content", Kind.CONTENT),
)
_TRACK_COLUMNS = (
    Column("track"),
    Column("device"),
    Column("definitions with S_d"),
    Column("S_track", Kind.SCORE),
)


def write_scores(evidence: Evidence) -> Section:
    """S_d of every room, S_track of every track and device."""
    rows = [_score_row(evidence, room) for room in evidence.workspace.rooms]
    scores = Table(
        "scores",
        f"S_d with the contest's baseline, {BASELINE}, and the best correct peer beside it.",
        _SCORE_COLUMNS,
        tuple(rows),
    )
    notes = tuple(note for room in evidence.workspace.rooms for note in _notes(evidence, room))
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
    return min(correct, key=lambda other: other.score.value if other.score else 0.0, default=None)


def _score_row(evidence: Evidence, room: str) -> tuple[Value, ...]:
    compared = evidence.compared.get(room)
    if compared is None:
        return (room, *[None] * (len(_SCORE_COLUMNS) - 3), NOT_COMPARED, None)
    official = _against_baseline(compared)
    score = official.score if official else None
    best = best_peer(compared)
    nearest = best.score if best else None
    sha256 = compared.ours.solution_sha256
    return (
        room,
        score.value if score else None,
        (score.low, score.high) if score else None,
        official.ratio_of_means if official else None,
        official.geometric_mean if official else None,
        best.b if best else None,
        nearest.value if nearest else None,
        (nearest.low, nearest.high) if nearest else None,
        compared.record.device,
        content_label(sha256, sha256 != evidence.packed.get(room)),
    )


def _against_baseline(compared: Compared) -> Comparison | None:
    return next((other for other in compared.others if other.b == BASELINE), None)


def _notes(evidence: Evidence, room: str) -> list[str]:
    """Why a room's S_d is 0 or undefined."""
    compared = evidence.compared.get(room)
    if compared is None:
        return [f"{room}: {NOT_COMPARED}; run {TO_COMPARE.format(room=room)}"]
    official = _against_baseline(compared)
    if official and official.score_reason is None:
        return []
    if official is None:
        reason = f"{BASELINE} was no side of the comparison"
    elif compared.side(BASELINE).state == "missing":
        reason = f"{BASELINE} could not be tried: {compared.side(BASELINE).reason}"
    else:
        reason = official.score_reason or ""
    value = "S_d is 0" if official and official.score else "S_d is undefined on this device"
    return [f"{room} on {compared.record.device}: {value}: {one_line(reason)}"]


def _track_table(evidence: Evidence) -> Table:
    """One row a track and device on which any of its definitions was compared."""
    rooms = evidence.workspace.rooms
    rows: list[tuple[Value, ...]] = []
    for track, expected in expected_definitions(rooms).items():
        names = [name for name, room in rooms.items() if room.track == track]
        devices = {evidence.compared[n].record.device for n in names if n in evidence.compared}
        rows += [_track_row(evidence, track, device, names, expected) for device in sorted(devices)]
        if not devices:
            rows.append((track, NOT_COMPARED, f"0/{expected}", None))
    return Table("tracks", "S_track of every track and device.", _TRACK_COLUMNS, tuple(rows))


def _track_row(
    evidence: Evidence, track: str, device: str, names: Sequence[str], expected: int
) -> tuple[Value, ...]:
    """A definition that was not compared here leaves its track undefined: nothing says it is 0."""
    here = {
        name: compared
        for name in names
        if (compared := evidence.compared.get(name)) and compared.record.device == device
    }
    official = {name: _against_baseline(compared) for name, compared in here.items()}
    scores = {
        name: found.score.value if (found := official.get(name)) and found.score else None
        for name in names
    }
    defined = sum(score is not None for score in scores.values())
    return (track, device, f"{defined}/{expected}", track_score(scores, expected))
