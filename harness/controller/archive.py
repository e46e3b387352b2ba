"""results/search/<room>: everything that was tried, decided and learnt, and where the run stands.

    regimes.json      which workloads stand for all (regimes)
    attempts.jsonl    every step of every round: proposals, gates, sweeps, confirmations, replays
    decisions.jsonl   one a round, with what it rests on
    memory.jsonl      closed rounds
    records/          the comparison behind each gate, sweep and confirmation
    runs/             one manifest a run: its settings, its next round, its population
    baselines/        what each run began with, packed: patches are against it

Lines are appended, fsynced and never rewritten. Each has a key, and a key is written once: a run
that was killed asks for the key first and goes on where the line is missing. The folder and the
room's sources are all that a run needs to go on, on this machine or another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.compare.record import CompareRecord, load_compare
from harness.compare.record import to_text as compare_text
from harness.controller.lines import check_attempt, check_decision
from harness.controller.memory import ClosedRound
from harness.errors import RecordError
from harness.files import write_atomically
from harness.records import append_line, dump_document, read_json, read_lines
from harness.records.strict_json import Fields

ATTEMPTS, DECISIONS, MEMORY = "attempts", "decisions", "memory"
_RUN = re.compile(r"r([0-9]{1,9})")


class Archive:
    """One room's folder. One process writes it at a time: hold records.sole_writer(self.lock)."""

    def __init__(self, root: Path, room: str) -> None:
        self.root, self.room = root, room
        self.folder = root / "results" / "search" / room
        self.lock = root / "traces" / "search" / room / "run"
        self._lines: dict[str, dict[str, dict[str, Any]]] = {}

    def path(self, kind: str) -> Path:
        return self.folder / f"{kind}.jsonl"

    def lines(self, kind: str) -> dict[str, dict[str, Any]]:
        """The lines of a file by key, oldest first. Raises RecordError for one whose values are not
        what a round writes: left out, its step would be done again."""
        if kind not in self._lines:
            found = {}
            for source, entry in read_lines(self.path(kind), _read_keyed):
                _check(kind, entry, source)
                found[str(entry["key"])] = entry
            self._lines[kind] = found
        return self._lines[kind]

    def step(self, kind: str, key: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The line with this key; it is made and appended where there is none."""
        lines = self.lines(kind)
        if key not in lines:
            append_line(self.path(kind), {"key": key, **make()})
            del self._lines[kind]  # read back: a resumed run sees the same values
        return self.lines(kind)[key]

    def history(self) -> list[ClosedRound]:
        """Every closed round, oldest first. Raises RecordError for a damaged one."""
        path = str(self.path(MEMORY))
        return [
            ClosedRound.from_json(dict(line), f"{path} {key}")
            for key, line in self.lines(MEMORY).items()
        ]

    def record_path(self, key: str) -> Path:
        return self.folder / "records" / f"{key.replace('/', '-')}.json"

    def write_record(self, key: str, record: CompareRecord) -> str:
        """Keep what a step measured; its path from the root, as lines name it."""
        path = self.record_path(key)
        write_atomically(path, compare_text(record))
        return path.relative_to(self.root).as_posix()

    def load_record(self, label: str) -> CompareRecord:
        """The comparison that a line names. Raises RecordError."""
        return load_compare(self.root / label)

    def runs(self) -> list[str]:
        """Every run of the room, oldest first. Raises RecordError for a file that is no run's."""
        paths = list(self.folder.glob("runs/r*.json"))
        for path in paths:
            if not _RUN.fullmatch(path.stem):
                raise RecordError(
                    f"{path}: expected the manifest of a run, such as r001.json, got this name; "
                    "move it elsewhere"
                )
        return sorted((path.stem for path in paths), key=run_number)

    def manifest_path(self, run: str) -> Path:
        return self.folder / "runs" / f"{run}.json"

    def read_manifest(self, run: str) -> dict[str, Any]:
        """A run as it was last written. Raises RecordError."""
        path = self.manifest_path(run)
        values = read_json(path, f"python -m harness tune {self.room}")
        if not isinstance(values, dict):
            raise RecordError(f"{path}: expected an object; remove it to start anew")
        return values

    def write_manifest(self, values: Mapping[str, Any]) -> None:
        """values: those of the run that they name."""
        path = self.manifest_path(str(values["run"]))
        write_atomically(path, dump_document(values, ("members",)))

    def baseline_path(self, sha256: str) -> Path:
        return self.folder / "baselines" / f"{sha256}.json"

    def keep_baseline(self, sha256: str, packed: str) -> None:
        """packed: the text of a solution.json with this content."""
        if not self.baseline_path(sha256).exists():
            write_atomically(self.baseline_path(sha256), packed)


def run_number(run: str) -> int:
    """Of a name such as r012; 0 where it is none."""
    match = _RUN.fullmatch(run)
    return int(match[1]) if match else 0


def _read_keyed(values: Any, source: str) -> tuple[str, dict[str, Any]]:
    """Where a line stands, and the line."""
    if not isinstance(values, dict) or not isinstance(values.get("key"), str):
        raise RecordError(f"{source}: expected an object with a key, got {values!r}")
    return source, values


def _check(kind: str, entry: dict[str, Any], source: str) -> None:
    try:
        if kind == MEMORY:
            ClosedRound.from_json(entry, source)
        else:
            check = check_attempt if kind == ATTEMPTS else check_decision
            check(Fields(source, "", entry))
    except RecordError as error:
        raise RecordError(f"{error}; mend that line, or restore the file from git") from error
