"""The ledger of replayed trials: a batch a line, appended, fsynced and never rewritten.

traces/<device>/<room>.replay.ndjson. The suffix keeps official tools away: they take every .jsonl
below traces/ for traces of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import append_line, read_lines
from harness.records.strict_json import Fields
from harness.replay.batch import BatchResult, read_result

SUFFIX = ".replay.ndjson"


class ReplayKey(NamedTuple):
    """What a trial of one workload depends on besides its number. Equal keys, equal trials.

    replayer_sha256: of the sources that run trials. environment: (name, version) of driver and
    libraries.
    """

    solution_sha256: str
    judge_sha256: str
    replayer_sha256: str
    dataset_sha256: str
    environment: tuple[tuple[str, str], ...]
    device: str
    seed: int
    uuid: str


@dataclass(frozen=True)
class ReplayEntry:
    """One batch: trials first … first + result.done - 1. started_at, ended_at: UTC, ISO form."""

    key: ReplayKey
    first: int
    result: BatchResult
    started_at: str
    ended_at: str

    @property
    def trials(self) -> range:
        return range(self.first, self.first + self.result.done)

    def to_json(self) -> dict[str, Any]:
        key = self.key._asdict() | {"environment": dict(self.key.environment)}
        return {
            **key,
            "first": self.first,
            "result": self.result.to_json(),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }

    @staticmethod
    def from_json(values: Any, source: str = "replayed batch") -> ReplayEntry:
        """Raises RecordError naming source and key."""
        return _read_entry(Fields(source, "", values))


class ReplayLedger:
    """The replayed batches of one room on one device."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def of(root: Path, device: str, room: str) -> ReplayLedger:
        """The ledger traces/<device>/<room>.replay.ndjson of a checkout."""
        return ReplayLedger(root / "traces" / device / f"{room}{SUFFIX}")

    def append(self, entry: ReplayEntry) -> None:
        """Add one line and wait until the disk has it. Raises InfrastructureFailure."""
        append_line(self.path, entry.to_json())

    def entries(self) -> dict[ReplayKey, list[ReplayEntry]]:
        """All batches by what they depend on, oldest first. Unreadable lines are left out with
        one warning each."""
        found: dict[ReplayKey, list[ReplayEntry]] = {}
        for entry in read_lines(self.path, ReplayEntry.from_json):
            found.setdefault(entry.key, []).append(entry)
        return found


def choose_entries(
    entries: Sequence[ReplayEntry], trials: int
) -> tuple[list[ReplayEntry], list[range]]:
    """Batches that together hold each of the first `trials` trials at most once, the newest
    first asked, in order of their trials; and the ranges that none of them holds."""
    chosen: dict[int, ReplayEntry] = {}
    taken: set[int] = set()
    for entry in reversed(entries):
        if entry.trials.stop <= trials and taken.isdisjoint(entry.trials):
            taken.update(entry.trials)
            chosen[entry.first] = entry
    gaps, start = [], 0
    for first in sorted(chosen):
        if first > start:
            gaps.append(range(start, first))
        start = chosen[first].trials.stop
    if start < trials:
        gaps.append(range(start, trials))
    return [chosen[first] for first in sorted(chosen)], gaps


def _read_entry(table: Fields) -> ReplayEntry:
    environment: Mapping[str, str] = table.texts("environment")
    key = ReplayKey(
        solution_sha256=table.text("solution_sha256"),
        judge_sha256=table.text("judge_sha256"),
        replayer_sha256=table.text("replayer_sha256"),
        dataset_sha256=table.text("dataset_sha256"),
        environment=tuple(environment.items()),
        device=table.text("device"),
        seed=table.count("seed"),
        uuid=table.text("uuid"),
    )
    entry = ReplayEntry(
        key=key,
        first=table.count("first"),
        result=read_result(table.object("result")),
        started_at=table.text("started_at"),
        ended_at=table.text("ended_at"),
    )
    table.done()
    return entry
