"""The ledger of replayed trials: a batch a line, appended, fsynced and never rewritten.

traces/<device>/<room>.replay.ndjson. The suffix keeps official tools away: they take every .jsonl
below traces/ for traces of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Batches that together hold each of the first `trials` trials at most once, in order of
    their trials; and the ranges that none of them holds.

    entries: of one key, oldest first. Larger batches go before smaller ones, newer before older.
    A trial that mismatched in any batch has mismatched: what a batch left out holds is added to
    the chosen one with that trial, or is a batch of its own.
    """
    chosen: list[ReplayEntry] = []
    taken: set[int] = set()
    for entry in sorted(reversed(entries), key=lambda entry: -entry.result.done):
        if entry.trials.stop <= trials and taken.isdisjoint(entry.trials):
            taken.update(entry.trials)
            chosen.append(entry)
    wrong = {
        found.trial: replace(entry, first=found.trial, result=BatchResult(1, (found,)))
        for entry in entries
        for found in entry.result.mismatches
    }
    chosen = [_with_mismatches(entry, wrong) for entry in chosen]
    chosen += [one for trial, one in wrong.items() if trial < trials and trial not in taken]
    chosen.sort(key=lambda entry: entry.first)
    gaps, start = [], 0
    for entry in chosen:
        if entry.first > start:
            gaps.append(range(start, entry.first))
        start = entry.trials.stop
    if start < trials:
        gaps.append(range(start, trials))
    return chosen, gaps


def _with_mismatches(entry: ReplayEntry, wrong: Mapping[int, ReplayEntry]) -> ReplayEntry:
    """`entry` with the mismatches that other batches saw in its trials. wrong: trial -> batch."""
    own = {found.trial for found in entry.result.mismatches}
    added = [wrong[trial] for trial in entry.trials if trial in wrong and trial not in own]
    if not added:
        return entry
    mismatches = [found for one in (entry, *added) for found in one.result.mismatches]
    result = replace(
        entry.result,
        mismatches=tuple(sorted(mismatches, key=lambda found: found.trial)),
        untested=tuple(trial for trial in entry.result.untested if trial not in wrong),
    )
    return replace(entry, result=result, started_at=min(one.started_at for one in (entry, *added)))


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
        started_at=table.instant("started_at"),
        ended_at=table.instant("ended_at"),
    )
    table.done()
    named = Counter([found.trial for found in entry.result.mismatches] + [*entry.result.untested])
    impossible = [n for n, count in named.items() if count > 1 or n not in entry.trials]
    if impossible:
        expected = f"each trial at most once, from {entry.first} to {entry.trials.stop - 1}"
        raise table.fail("result", expected, impossible[0])
    return entry
