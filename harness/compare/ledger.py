"""The ledger of compared workloads: one a line, appended, fsynced and never rewritten.

traces/<device>/<room>.compare.ndjson. The suffix keeps official tools away: they take every .jsonl
below traces/ for traces of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.compare.record import SideResult
from harness.devices import ClockSample
from harness.errors import RecordError
from harness.records import RETRIED_STATUSES, STATUSES, append_line, read_lines
from harness.records.strict_json import Fields

SUFFIX = ".compare.ndjson"


class CompareKey(NamedTuple):
    """What the numbers of one workload depend on. Equal keys, equal measurement.

    sides: (name, solution sha256) of every side that runs, in order. environment: (name, version)
    of driver and libraries, the peers' packages among them.
    """

    sides: tuple[tuple[str, str], ...]
    judge_sha256: str
    dataset_sha256: str
    settings_sha256: str
    environment: tuple[tuple[str, str], ...]
    device: str
    uuid: str


@dataclass(frozen=True)
class CompareEntry:
    """One workload, all sides. clocks: just before and just after the rounds.

    started_at, ended_at: UTC in ISO form.
    """

    key: CompareKey
    results: Mapping[str, SideResult]
    clocks: tuple[ClockSample, ...]
    started_at: str
    ended_at: str

    @property
    def is_final(self) -> bool:
        """Whether every side has a verdict: a broken machine or reference is asked again."""
        return not any(result.status in RETRIED_STATUSES for result in self.results.values())

    def to_json(self) -> dict[str, Any]:
        key = self.key._asdict() | {
            "sides": dict(self.key.sides),
            "environment": dict(self.key.environment),
        }
        return {
            **key,
            "results": {name: asdict(result) for name, result in self.results.items()},
            "clocks": [asdict(sample) for sample in self.clocks],
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }

    @staticmethod
    def from_json(values: Any, source: str = "compared workload") -> CompareEntry:
        """Raises RecordError naming source and key."""
        return _read_entry(Fields(source, "", values))


class CompareLedger:
    """The compared workloads of one room on one device."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def of(root: Path, device: str, room: str) -> CompareLedger:
        """The ledger traces/<device>/<room>.compare.ndjson of a checkout."""
        return CompareLedger(root / "traces" / device / f"{room}{SUFFIX}")

    def append(self, entry: CompareEntry) -> None:
        """Add one line and wait until the disk has it. Raises InfrastructureFailure."""
        append_line(self.path, entry.to_json())

    def entries(self) -> list[CompareEntry]:
        """All lines, oldest first. Unreadable ones are left out with one warning each."""
        return read_lines(self.path, CompareEntry.from_json)

    def final(self) -> dict[CompareKey, CompareEntry]:
        """The newest line of each key that --resume may reuse."""
        return {entry.key: entry for entry in self.entries() if entry.is_final}


def _read_entry(table: Fields) -> CompareEntry:
    key = CompareKey(
        sides=tuple(table.texts("sides").items()),
        judge_sha256=table.text("judge_sha256"),
        dataset_sha256=table.text("dataset_sha256"),
        settings_sha256=table.text("settings_sha256"),
        environment=tuple(table.texts("environment").items()),
        device=table.text("device"),
        uuid=table.text("uuid"),
    )
    results = table.object("results")
    entry = CompareEntry(
        key=key,
        results={name: _read_result(results.object(name)) for name in list(results.values)},
        clocks=tuple(_read_clocks(table, values) for values in table.take("clocks", list)),
        started_at=table.text("started_at"),
        ended_at=table.text("ended_at"),
    )
    table.done()
    if tuple(entry.results) != tuple(name for name, _ in key.sides):
        raise table.fail("results", f"the sides {', '.join(dict(key.sides))}", list(entry.results))
    return entry


def _read_result(table: Fields) -> SideResult:
    result = SideResult(
        status=table.text("status"),
        detail=table.take("detail", str),
        rounds_us=tuple(table.take("rounds_us", list)),
    )
    table.done()
    if result.status not in STATUSES:
        raise table.fail("status", f"one of {', '.join(STATUSES)}", result.status)
    if not all(type(value) is float and value > 0 for value in result.rounds_us):
        raise table.fail("rounds_us", "latencies above 0", result.rounds_us)
    return result


def _read_clocks(table: Fields, values: Any) -> ClockSample:
    try:
        return ClockSample(**values)
    except TypeError as error:
        raise RecordError(f"{table.source}: clocks: {error}") from error
