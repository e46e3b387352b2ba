"""Which workloads a command means: ``all``, ``smoke``, or UUID prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from harness.config import Room
from harness.dataset.workloads import WorkloadRow
from harness.errors import UsageError

_SHOWN = 5


def plain_uuid(text: str) -> str:
    """Lower case without dashes: both official spellings of a UUID become one."""
    return text.replace("-", "").lower()


def parse_spec(spec: str | Iterable[str]) -> tuple[str, ...]:
    """A comma- or space-separated string, or several, as words. Raises UsageError if empty."""
    texts = [spec] if isinstance(spec, str) else spec
    words = tuple(word for text in texts for word in re.split(r"[,\s]+", text) if word)
    if not words:
        raise UsageError("workloads: expected all, smoke or UUID prefixes; got nothing")
    return words


def _matches(rows: Sequence[WorkloadRow], prefix: str) -> list[WorkloadRow]:
    wanted = plain_uuid(prefix)
    exact = [row for row in rows if plain_uuid(row.uuid) == wanted]
    return exact or [row for row in rows if wanted and plain_uuid(row.uuid).startswith(wanted)]


def _only(found: Sequence[WorkloadRow], prefix: str, candidates: Sequence[WorkloadRow]) -> str:
    uuids = list(dict.fromkeys(row.uuid for row in found))  # rooms may share a definition
    if len(uuids) == 1:
        return uuids[0]
    if uuids:
        shown = ", ".join(uuids[:_SHOWN])
        more = f" and {len(uuids) - _SHOWN} more" if len(uuids) > _SHOWN else ""
        raise UsageError(
            f"workloads: the prefix {prefix!r} is ambiguous: {shown}{more}; give more digits"
        )
    example = candidates[0].uuid if candidates else "none"
    raise UsageError(
        f"workloads: no UUID starts with {prefix!r} (all, smoke, or a prefix of one of "
        f"{len(candidates)} UUIDs such as {example})"
    )


def select(
    rows: Sequence[WorkloadRow], spec: str | Iterable[str], smoke: Sequence[str]
) -> list[WorkloadRow]:
    """The rows that ``spec`` means, in official order, each once.

    spec: "all", "smoke", UUID prefixes (with or without dashes, any case), or several of these,
    separated by commas or spaces. smoke: the prefixes that "smoke" stands for. Raises UsageError
    for an unknown or ambiguous prefix.
    """
    chosen: set[str] = set()
    for word in parse_spec(spec):
        if word == "all":
            return list(rows)
        for prefix in smoke if word == "smoke" else (word,):
            chosen.add(_only(_matches(rows, prefix), prefix, rows))
    return [row for row in rows if row.uuid in chosen]


def select_rooms(
    rows: Mapping[str, Sequence[WorkloadRow]],
    rooms: Mapping[str, Room],
    spec: str | Iterable[str],
    smoke: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, list[WorkloadRow]]:
    """As `select`, over several rooms: a prefix must mean one workload of one of them.

    rows: room name -> its workloads. smoke: room name -> prefixes, by default each room's own.
    Rooms without a chosen workload are left out.
    """
    words = parse_spec(spec)
    everywhere = [row for room_rows in rows.values() for row in room_rows]
    chosen: dict[str, set[str]] = {name: set() for name in rows}
    for word in words:
        if word in ("all", "smoke"):
            for name, room_rows in rows.items():
                prefixes = smoke[name] if smoke is not None else rooms[name].smoke
                chosen[name].update(row.uuid for row in select(room_rows, word, prefixes))
            continue
        uuid = _only(_matches(everywhere, word), word, everywhere)
        for name, room_rows in rows.items():
            chosen[name].update(row.uuid for row in room_rows if row.uuid == uuid)
    return {
        name: [row for row in room_rows if row.uuid in chosen[name]]
        for name, room_rows in rows.items()
        if chosen[name]
    }
