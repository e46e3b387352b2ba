"""The archive as lines of text: what was tried in a room, and everything about one attempt."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.controller.archive import ATTEMPTS, DECISIONS, Archive
from harness.controller.decision import CONFIRMATION, GATE, PROPOSAL, SWEEP
from harness.controller.index import archives, open_index
from harness.controller.memory import is_blocked
from harness.errors import UsageError
from harness.records import ABSENT

SHOWN_MATCHES = 5
NOTHING_YET = "nothing was searched yet; `python -m harness tune ROOM` begins"


def describe_history(root: Path, rooms: Sequence[str]) -> list[str]:
    """Rounds of these rooms, all where none is named, oldest first; then their counts."""
    lines: list[str] = []
    with open_index(root) as index:
        known = [archive.room for archive in archives(root)]
        for room in rooms or known:
            rows = index.execute("SELECT * FROM round WHERE room = ?", (room,)).fetchall()
            counts = index.execute(
                "SELECT count(*), sum(refused IS NOT NULL) FROM candidate WHERE room = ?", (room,)
            ).fetchone()
            swept = index.execute(
                "SELECT count(DISTINCT candidate) FROM measurement WHERE room = ? "
                "AND stage = 'sweep'",
                (room,),
            ).fetchone()[0]
            lines.append(
                f"{room}: {len(rows)} rounds, {counts[0] - (counts[1] or 0)} candidates, "
                f"{counts[1] or 0} refused, {swept} swept"
            )
            lines += [f"  {text}" for text in _describe_runs(Archive(root, room))]
            lines += [f"  {_describe_round(row)}" for row in rows]
            lines += [f"  blocked: {text}" for text in _blocked(root, room)]
    return lines or [NOTHING_YET]


def explain(root: Path, attempt: str) -> list[str]:
    """One candidate, by its name or the first characters of its hash, or one round by its key, with
    its room in front where several rooms have it.

    Raises UsageError where that is none, or several.
    """
    with open_index(root) as index:
        found = index.execute(
            "SELECT DISTINCT room, name, sha256 FROM candidate "
            "WHERE name = ?1 OR (length(?1) >= 4 AND substr(sha256, 1, length(?1)) = lower(?1))",
            (attempt,),
        ).fetchall()
        if len(found) == 1:
            return _explain_candidate(index, Archive(root, found[0]["room"]), found[0]["name"])
        if found:
            names = ", ".join(row["name"] for row in found[:SHOWN_MATCHES])
            raise UsageError(f"attempt: {attempt} could be {names}; write more characters")
    room, _, key = attempt.rpartition("/r")  # gdn_decode/r001/003, or without the room
    if room:
        attempt = f"r{key}"
    rounds = [one for one in archives(root) if attempt in one.lines(DECISIONS)]
    rounds = [one for one in rounds if room in ("", one.room)]
    if len(rounds) > 1:
        names = " or ".join(f"{one.room}/{attempt}" for one in rounds)
        raise UsageError(f"{attempt}: several rooms have this round; write {names}")
    if not rounds:
        raise UsageError(_not_found(root, f"{room}/{attempt}" if room else attempt))
    return _explain_round(rounds[0], attempt)


def _not_found(root: Path, attempt: str) -> str:
    searched = archives(root)
    if not searched:
        return f"{attempt}: {NOTHING_YET}"
    room = next((one.room for one in searched if one.room == attempt), "[ROOM]")
    rounds = [key for one in searched for key in one.lines(DECISIONS)]
    names = [
        str(line["candidate"])
        for one in searched
        for line in one.lines(DECISIONS).values()
        if line["candidate"] is not None
    ]
    such = " or ".join((*rounds[-1:], *names[-1:])) or "r001/000"
    return (
        f"{attempt}: no such round, nor a candidate of that name or hash (4 characters or more). "
        f"`python -m harness history {room}` lists rounds, and `explain` of a round its "
        f"candidates; expected for instance {such}"
    )


def _describe_runs(archive: Archive) -> list[str]:
    """Each run: who proposed, and why it ended."""
    lines = []
    for run in archive.runs():
        manifest = archive.read_manifest(run)
        stop = manifest.get("stop") or "not finished; `tune --resume` goes on"
        lines.append(f"{run}: proposed by {manifest.get('proposer')}; {stop}")
    return lines


def _describe_round(row: sqlite3.Row) -> str:
    gain = ABSENT if row["gain"] is None else f"{100 * row['gain']:+.2f} %"
    parts = (row["round"], row["direction"], row["best"] or ABSENT, gain, row["label"])
    return "  ".join((*parts, f"{row['device_s']:.0f} s"))


def _blocked(root: Path, room: str) -> list[str]:
    """In the newest round's state, what no later round may try."""
    history = Archive(root, room).history()
    if not history:
        return []
    state = history[-1].state.key
    tried = dict.fromkeys(closed.direction for closed in history if closed.state.key == state)
    return [f"{name} in {state}" for name in tried if is_blocked(history, state, name)]


def _explain_candidate(index: sqlite3.Connection, archive: Archive, name: str) -> list[str]:
    lines = []
    for line in archive.lines(ATTEMPTS).values():
        for one in line.get("proposals", ()):
            if one["name"] == name:
                lines += _describe_proposal(archive, line, one)
    for row in index.execute(
        "SELECT * FROM measurement WHERE room = ? AND candidate = ?", (archive.room, name)
    ):
        lines.append(f"{row['round']} {row['stage']}: {_describe_measurement(row)}")
    for row in index.execute(
        "SELECT * FROM decision WHERE room = ? AND candidate = ?", (archive.room, name)
    ):
        lines += [f"{row['round']}: {row['label']}: {row['reason']}"]
    return lines


def _describe_proposal(archive: Archive, line: dict[str, Any], one: dict[str, Any]) -> list[str]:
    text = [
        f"{one['name']} ({archive.room}), content {one['sha256']}",
        f"  round {line['round']}, island {one['island']}, direction {line['direction']}: "
        f"{line['hypothesis']}",
        f"  {one['note'] or 'no note'}; {one['lines_added']} lines added",
        f"  lineage: {' <- '.join(lineage(archive, one['sha256']))}",
    ]
    return text + [f"  | {row}" for row in one["patch"].splitlines()]


def lineage(archive: Archive, sha256: str) -> list[str]:
    """Names from a candidate back to the baseline that it descends from."""
    parents: dict[str, tuple[str, str | None]] = {}
    for line in archive.lines(ATTEMPTS).values():
        for one in line.get("proposals", ()):
            if one["sha256"] is not None:
                parents.setdefault(one["sha256"], (one["name"], one["parent"]))
    names: list[str] = []
    at: str | None = sha256
    while at is not None and at in parents and parents[at][0] not in names:
        name, at = parents[at]
        names.append(name)
    return [*names, "baseline"]


def _describe_measurement(row: sqlite3.Row) -> str:
    text = f"{row['passed']}/{row['workloads']} pass"
    if row["failure"] or row["lost"]:
        return f"{text}; {row['failure'] or row['lost']}"
    if row["score"] is not None:
        text += f", mean ratio {row['score']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
    return f"{text}; {row['record']}"


def _explain_round(archive: Archive, key: str) -> list[str]:
    decision = archive.lines(DECISIONS)[key]
    closed = next((one for one in archive.history() if one.key == key), None)
    lines = [f"{archive.room} {key}: {decision['label']}: {decision['reason']}"]
    if closed is not None:
        lines += [
            f"  state: {closed.state.key} ({closed.match})",
            f"  direction: {closed.direction} ({closed.why})",
            f"  candidates: {len(closed.candidates)} new, {closed.known} known, "
            f"{closed.refused} refused, {closed.passed_gate} past the gate",
            *(f"  {text}" for text in closed.findings),
            *(f"  blocked: {text}" for text in closed.blocked),
            *(f"  recommended: {text}" for text in closed.recommended),
        ]
    lines += [f"  {text}" for text in _describe_candidates(archive, key)]
    lines.append(f"  decided about: {decision['candidate'] or ABSENT}")
    for label in ("record", "confirmation"):
        if decision[label]:
            lines.append(f"  {label}: {decision[label]}")
    for uuid, base_us, ours_us, ratio, word in decision["matrix"]:
        lines.append(f"  {uuid}  {base_us} us -> {ours_us} us  x{ratio}  {word or ABSENT}")
    return lines


def _describe_candidates(archive: Archive, key: str) -> list[str]:
    """What the round proposed, and the last stage that each candidate was measured in."""
    lines = archive.lines(ATTEMPTS)
    stages = [
        lines[f"{key}/{stage}"]
        for stage in (GATE, SWEEP, CONFIRMATION)
        if f"{key}/{stage}" in lines
    ]
    found = []
    for one in lines.get(f"{key}/{PROPOSAL}", {}).get("proposals", ()):
        if one["refused"] is not None:
            found.append(f"refused: {one['note']}: {one['refused']}")
            continue
        reached = [line for line in stages if one["name"] in line["results"]]
        text = "not measured"
        if reached:
            text = (
                f"{reached[-1]['stage']}: {_describe_result(reached[-1]['results'][one['name']])}"
            )
        found.append(f"{one['name']}  {one['note'] or 'no note'}  {text}")
    return found


def _describe_result(result: dict[str, Any]) -> str:
    against = result["failure"] or result["lost"]
    if against or result["score"] is None:
        return f"{result['passed']}/{result['workloads']} pass; {against or 'no ratio'}"
    return f"mean ratio {result['score']:.4f} [{result['low']:.4f}, {result['high']:.4f}]"
