"""One JSON document a room: how results/audit and results/timers are read and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from harness.errors import RecordError
from harness.files import write_atomically
from harness.records import dump_document, read_json


class RoomRecord(Protocol):
    @property
    def room(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


Kind = TypeVar("Kind", bound=RoomRecord)


def load_room_record(
    path: Path, room: str, read: Callable[[Any, str], Kind], command: str
) -> Kind | None:
    """The room's record, or None where there is none. read: checks values, and names a source in
    its errors; command: what writes such a record. Raises RecordError."""
    if not path.exists():
        return None
    record = read(read_json(path, command), str(path))
    if record.room != room:
        raise RecordError(f"{path}: holds {record.room}; expected what its path says")
    return record


def write_room_record(
    path: Path, record: Kind, read: Callable[[Any, str], Kind], rows: str
) -> Path:
    """Replace the room's record; git keeps the former one. rows: the key of its list, of which each
    element has a line. Raises RecordError for a record that contradicts itself."""
    checked = read(record.to_json(), str(path))
    write_atomically(path, dump_document(checked.to_json(), (rows,)))
    return path
