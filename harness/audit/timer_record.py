"""results/timers/<room>.json: one call of each workload by three timers, and where they disagree.

The bounds stand beside the numbers, as they were when these were measured. Reading is strict: a key
too many, a wrong type or a contradiction is an error that names file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.audit.room_record import load_room_record, write_room_record
from harness.ncu import DENIED
from harness.records import format_us, read_subject
from harness.records.strict_json import Fields, encode

COMMAND = "python -m harness timers ROOM --record"
# The larger of both is how far a timer may be from CUPTI.
GRAPH_BOUND_US, GRAPH_BOUND_SHARE = 2.0, 0.15
NCU_BOUND_US, NCU_BOUND_SHARE = 2.0, 0.35  # the first for each kernel
PENDING = "NCU was not asked yet"  # of a run that ended before


@dataclass(frozen=True)
class TimerRow:
    """One workload by each timer, in µs.

    regime: the group it stands for, such as "batch_size 4". ncu_us: of each kernel, in order; None
    with a reason, no_ncu. graph_bound_us, ncu_bound_us: how far the sum may be from CUPTI's.
    measured_at: UTC.
    """

    uuid: str
    axes: Mapping[str, int]
    regime: str
    cupti_us: float
    graph_us: float
    graph_bound_us: float
    ncu_us: tuple[float, ...] | None
    ncu_bound_us: float | None
    no_ncu: str | None
    measured_at: str

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to ask: NCU has answered, or the host denies the counters."""
        return self.no_ncu is None or DENIED in self.no_ncu

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """Names of the timers that are farther from CUPTI than their bound."""
        return tuple(name for name, value_us, bound_us in self._others()
                     if abs(value_us - self.cupti_us) > bound_us)  # fmt: skip

    def disagreements(self) -> list[str]:
        """One line for each of them, with the numbers."""
        return [
            f"{name} {format_us(value_us)} us is farther from CUPTI's "
            f"{format_us(self.cupti_us)} us than {format_us(bound_us)} us"
            for name, value_us, bound_us in self._others()
            if name in self.disagreeing
        ]

    def with_ncu(self, found: Sequence[float] | str) -> TimerRow:
        """The row with NCU's durations in µs, or with why there are none."""
        if isinstance(found, str):
            return replace(self, ncu_us=None, ncu_bound_us=None, no_ncu=found)
        bound_us = max(NCU_BOUND_US * len(found), NCU_BOUND_SHARE * self.cupti_us)
        return replace(self, ncu_us=tuple(found), ncu_bound_us=bound_us, no_ncu=None)

    def _others(self) -> list[tuple[str, float, float]]:
        others = [("graph", self.graph_us, self.graph_bound_us)]
        if self.ncu_us is not None and self.ncu_bound_us is not None:
            others.append(("NCU", sum(self.ncu_us), self.ncu_bound_us))
        return others


def make_row(
    uuid: str,
    axes: Mapping[str, int],
    regime: str,
    cupti_us: float,
    graph_us: float,
    measured_at: str,
) -> TimerRow:
    """A row under today's bounds that NCU has no part in yet."""
    bound_us = max(GRAPH_BOUND_US, GRAPH_BOUND_SHARE * cupti_us)
    return TimerRow(
        uuid, dict(axes), regime, cupti_us, graph_us, bound_us, None, None, PENDING, measured_at
    )


@dataclass(frozen=True)
class TimerRecord:
    """One room as one solution on one device, workloads in official order.

    device: slug. hardware: its full name. libraries: name to version. command: what measured the
    newest row.
    """

    room: str
    definition: str
    solution_name: str
    solution_sha256: str
    commit: str
    device: str
    hardware: str
    driver: str | None
    libraries: Mapping[str, str]
    command: str
    workloads: tuple[TimerRow, ...]

    @property
    def identity(self) -> tuple[object, ...]:
        """What two records share whose rows may stand beside each other.

        A record that grows is itself a difference from its commit, which is why "-dirty" is none.
        """
        commit = self.commit.removesuffix("-dirty")
        libraries = tuple(sorted(self.libraries.items()))
        return self.room, self.solution_sha256, self.device, self.driver, libraries, commit

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values, keys in the committed order."""
        values = asdict(self)
        values["workloads"] = [
            {**asdict(row), "disagreeing": list(row.disagreeing)} for row in self.workloads
        ]
        encoded: dict[str, Any] = encode(values)
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "timer record") -> TimerRecord:
        """Check every key and value. Raises RecordError naming source and key."""
        return _read(Fields(source, "", values))

    def add(self, row: TimerRow, order: Sequence[str]) -> TimerRecord:
        """With the row in the place of an earlier one of its workload. order: the room's UUIDs."""
        rows = {one.uuid: one for one in (*self.workloads, row)}
        return replace(self, workloads=tuple(rows[uuid] for uuid in order if uuid in rows))


def record_path(root: Path, room: str) -> Path:
    return root / "results" / "timers" / f"{room}.json"


def load_timers(root: Path, room: str) -> TimerRecord | None:
    """A room's record, or None where there is none. Raises RecordError."""
    return load_room_record(record_path(root, room), room, TimerRecord.from_json, COMMAND)


def write_timers(record: TimerRecord, root: Path) -> Path:
    """Replace the room's record; git keeps the former one. Raises RecordError for a record that
    contradicts itself."""
    path = record_path(root, record.room)
    return write_room_record(path, record, TimerRecord.from_json, "workloads")


def _read(table: Fields) -> TimerRecord:
    rows = tuple(
        _read_row(Fields(table.source, f"workloads[{index}]", values))
        for index, values in enumerate(table.take("workloads", list))
    )
    record = TimerRecord(
        **read_subject(table),
        hardware=table.text("hardware"),
        command=table.text("command"),
        workloads=rows,
    )
    table.done()
    uuids = [row.uuid for row in rows]
    if not uuids or len(set(uuids)) < len(uuids):
        raise table.fail("workloads", "at least one, each once", uuids)
    return record


def _read_row(table: Fields) -> TimerRow:
    row = TimerRow(
        uuid=table.text("uuid"),
        axes=table.take("axes", dict),
        regime=table.text("regime"),
        cupti_us=table.number("cupti_us", 0.0),
        graph_us=table.number("graph_us", float("-inf")),  # a difference, which noise may turn
        graph_bound_us=table.number("graph_bound_us", 0.0),
        ncu_us=_read_durations(table),
        ncu_bound_us=None if table.is_null("ncu_bound_us") else table.number("ncu_bound_us", 0.0),
        no_ncu=None if table.is_null("no_ncu") else table.text("no_ncu"),
        measured_at=table.moment("measured_at"),
    )
    disagreeing = tuple(table.take("disagreeing", list))
    table.done()
    if not all(type(size) is int and size >= 0 for size in row.axes.values()):
        raise table.fail("axes", "sizes", row.axes)
    if (row.ncu_us is None) != (row.no_ncu is not None):
        raise table.fail("no_ncu", "a reason where NCU gave nothing, and only there", row.no_ncu)
    if (row.ncu_us is None) != (row.ncu_bound_us is None):
        raise table.fail("ncu_bound_us", "a bound beside durations", row.ncu_bound_us)
    if disagreeing != row.disagreeing:
        raise table.fail("disagreeing", f"{list(row.disagreeing)}", list(disagreeing))
    return row


def _read_durations(table: Fields) -> tuple[float, ...] | None:
    if table.is_null("ncu_us"):
        return None
    values = table.take("ncu_us", list)
    if not values or not all(type(one) in (int, float) and one > 0 for one in values):
        raise table.fail("ncu_us", "durations in µs, or null", values)
    return tuple(float(one) for one in values)
