"""The ledger of compared workloads: one a line, appended, fsynced and never rewritten.

traces/<device>/<room>.compare.ndjson. The suffix keeps official tools away: they take every .jsonl
below traces/ for traces of their own. What turns out later not to count is taken back by a further
line, {"void_since", "reason"}: every workload begun since then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.compare.record import SideResult, read_result
from harness.devices import ClockSample
from harness.errors import RecordError
from harness.records import RETRIED_STATUSES, append_line, read_lines
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

    logs: the end of what a side that did not pass has printed, by side; a line from before they
    were kept has none. started_at, ended_at: UTC in ISO form.
    """

    key: CompareKey
    results: Mapping[str, SideResult]
    logs: Mapping[str, str]
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
            "logs": dict(self.logs),
            "clocks": [asdict(sample) for sample in self.clocks],
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }

    @staticmethod
    def from_json(values: Any, source: str = "compared workload") -> CompareEntry:
        """Raises RecordError naming source and key."""
        return _read_entry(Fields(source, "", values))


class _Void(NamedTuple):
    """A line that takes back every workload begun since a time, UTC in ISO form."""

    since: str


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

    def void(self, since: str, reason: str) -> None:
        """Take back every workload begun since then, UTC in ISO form as `started_at` is."""
        append_line(self.path, {"void_since": since, "reason": reason})

    def entries(self) -> list[CompareEntry]:
        """All workloads that count, oldest first. Unreadable lines are left out with one warning
        each."""
        entries: list[CompareEntry] = []
        for line in read_lines(self.path, _read_line):
            if isinstance(line, _Void):
                entries = [entry for entry in entries if entry.started_at < line.since]
            else:
                entries.append(line)
        return entries

    def final(self) -> dict[CompareKey, CompareEntry]:
        """The newest line of each key that --resume may reuse."""
        return {entry.key: entry for entry in self.entries() if entry.is_final}

    def final_logs(self) -> dict[tuple[str, str, str], str]:
        """What failed sides printed, by (UUID, side, solution sha256); the newest final lines'."""
        logs: dict[tuple[str, str, str], str] = {}
        for entry in sorted(self.final().values(), key=lambda entry: entry.ended_at):
            for side, content in entry.key.sides:
                logs[entry.key.uuid, side, content] = entry.logs.get(side, "")
        return {key: log for key, log in logs.items() if log}


def _read_line(values: Any, source: str) -> CompareEntry | _Void:
    table = Fields(source, "", values)
    if not table.has("void_since"):
        return _read_entry(table)
    void = _Void(table.instant("void_since"))
    table.text("reason")
    table.done()
    return void


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
        results={name: read_result(results.object(name)) for name in list(results.values)},
        logs=table.texts("logs") if table.has("logs") else {},
        clocks=tuple(_read_clocks(table, values) for values in table.take("clocks", list)),
        started_at=table.instant("started_at"),
        ended_at=table.instant("ended_at"),
    )
    table.done()
    if tuple(entry.results) != tuple(name for name, _ in key.sides):
        raise table.fail("results", f"the sides {', '.join(dict(key.sides))}", list(entry.results))
    strangers = entry.logs.keys() - entry.results.keys()
    if strangers:
        raise table.fail("logs", f"only the sides {', '.join(entry.results)}", min(strangers))
    return entry


def _read_clocks(table: Fields, values: Any) -> ClockSample:
    try:
        sample = ClockSample(**values)
    except TypeError as error:
        raise RecordError(f"{table.source}: clocks: {error}") from error
    if not all(value is None or isinstance(value, (int, float)) for value in values.values()):
        raise RecordError(f"{table.source}: clocks: expected numbers or null, got {values}")
    if not isinstance(sample.reasons, (int, type(None))):
        raise RecordError(f"{table.source}: clocks: reasons: expected a bit mask, got {values}")
    return sample
