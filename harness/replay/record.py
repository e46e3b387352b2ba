"""One replay of one room: trials, mismatches and margins of each workload, as frozen values.

results/replay/<room>.json holds a room's replays of one content, one workload a line. Reading is
strict: a key too many, a wrong type or a contradiction is an error that names file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.files import write_atomically
from harness.records import (
    SHA256,
    DatasetIdentity,
    dump_document,
    read_json,
    read_subject,
)
from harness.records.strict_json import Fields, encode
from harness.replay.batch import BatchResult, Boundary, Mismatch, read_mismatch, worst
from harness.replay.statistics import QUANTILES, clopper_pearson, quantile

MAX_LISTED = 100  # mismatches of a workload that a record names one by one


@dataclass(frozen=True)
class Margins:
    """The boundary margins of one workload's trials, in the scores' own unit.

    trials: how many have a margin. epsilon: the larger of the reference's rounding error and the
    solution's visible one, `exchange_gap`. below: trials whose margin is at most 2 epsilon.
    exchanged: accepted trials whose selection is not the reference's. quantiles: of QUANTILES.
    """

    trials: int
    epsilon: float
    exchange_gap: float
    exchanged: int
    below: int
    quantiles: tuple[float, ...]


@dataclass(frozen=True)
class ReplayRow:
    """One workload.

    drawn: names of the inputs that are fresh in each trial. asked: trials asked for; trials: judged
    ones; untested: those whose reference is not finite. low, high: the 95 % interval of the rate.
    listed: the first mismatches. Errors: the worst of the trials that passed. margins: None where
    no sequence is longer than k, or the definition selects none. stopped: why there are fewer
    trials, or None.
    """

    uuid: str
    axes: Mapping[str, int]
    drawn: tuple[str, ...]
    asked: int
    trials: int
    untested: int
    mismatches: int
    low: float
    high: float
    max_abs_error: float | None
    max_rel_error: float | None
    margins: Margins | None
    stopped: str | None
    listed: tuple[Mismatch, ...]

    @property
    def rate(self) -> float:
        """Observed share of mismatches; 0 where nothing was judged."""
        return self.mismatches / self.trials if self.trials else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether it had all trials that were asked for."""
        return self.trials + self.untested == self.asked


@dataclass(frozen=True)
class ReplayRecord:
    """Replays of one content on one device, workloads in official order.

    official_trials: what the contest runs. total: the room's
    official workloads. atol, rtol, required_matched_ratio: the element rule. measured_at: when
    the oldest batch began, UTC, "2026-01-31T23:59:59Z".
    """

    room: str
    definition: str
    device: str
    hardware: str
    driver: str | None
    libraries: Mapping[str, str]
    commit: str
    solution_name: str
    solution_sha256: str
    judge_sha256: str
    dataset: DatasetIdentity
    seed: int
    official_trials: int
    atol: float
    rtol: float
    required_matched_ratio: float
    total: int
    workloads: tuple[ReplayRow, ...]
    measured_at: str

    @property
    def is_complete(self) -> bool:
        """Whether every workload had all trials that were asked for."""
        return all(row.is_complete for row in self.workloads)

    @property
    def asked(self) -> tuple[int, ...]:
        """The numbers of trials that were asked for, of any workload, ascending."""
        return tuple(sorted({row.asked for row in self.workloads}))

    @property
    def mismatches(self) -> int:
        return sum(row.mismatches for row in self.workloads)

    @property
    def judged(self) -> int:
        """Trials of all workloads together."""
        return sum(row.trials for row in self.workloads)

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values, keys in the committed order."""
        encoded: dict[str, Any] = encode(asdict(self))
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "replay record") -> ReplayRecord:
        """Check every key and value. Raises RecordError naming source and key."""
        return _read_record(Fields(source, "", values))


def summarise_row(
    uuid: str,
    axes: Mapping[str, int],
    drawn: Sequence[str],
    asked: int,
    results: Sequence[BatchResult],
    stopped: str | None,
) -> ReplayRow:
    """A workload's row from its batches, in order of their trials."""
    mismatches = tuple(one for result in results for one in result.mismatches)
    untested = sum(len(result.untested) for result in results)
    trials = sum(result.done for result in results) - untested
    boundary = Boundary.of([r.boundary for r in results if r.boundary is not None])
    low, high = clopper_pearson(len(mismatches), trials)
    return ReplayRow(
        uuid=uuid,
        axes=dict(axes),
        drawn=tuple(drawn),
        asked=asked,
        trials=trials,
        untested=untested,
        mismatches=len(mismatches),
        low=low,
        high=high,
        max_abs_error=worst(*(result.max_abs_error for result in results)),
        max_rel_error=worst(*(result.max_rel_error for result in results)),
        margins=summarise_margins(boundary),
        stopped=stopped,
        listed=mismatches[:MAX_LISTED],
    )


def summarise_margins(boundary: Boundary) -> Margins | None:
    """None where no trial had a boundary."""
    if not boundary.margins:
        return None
    ordered = sorted(boundary.margins)
    epsilon = max(boundary.epsilon, boundary.exchange_gap)
    return Margins(
        trials=len(ordered),
        epsilon=epsilon,
        exchange_gap=boundary.exchange_gap,
        exchanged=boundary.exchanged,
        below=sum(margin <= 2.0 * epsilon for margin in ordered),
        quantiles=tuple(quantile(ordered, share) for share in QUANTILES),
    )


def merge_replays(
    old: ReplayRecord | None, new: ReplayRecord, order: Sequence[str]
) -> ReplayRecord:
    """`new`, with the workloads that only `old` has. Nothing is kept of what was judged otherwise.

    order: UUIDs of the room's workloads.
    """
    if old is None or _how(old) != _how(new):
        return new
    rows = {row.uuid: row for row in (*old.workloads, *new.workloads)}
    workloads = tuple(rows[uuid] for uuid in order if uuid in rows)
    return replace(new, workloads=workloads, measured_at=min(old.measured_at, new.measured_at))


def _how(record: ReplayRecord) -> ReplayRecord:
    """All that trials depend on."""
    return replace(record, workloads=(), commit="", measured_at="", solution_name="")


def to_text(record: ReplayRecord) -> str:
    """The record as JSON text: one key a line, and within it one workload a line."""
    return dump_document(record.to_json(), ("workloads",))


def replay_path(root: Path, room: str) -> Path:
    return root / "results" / "replay" / f"{room}.json"


def load_replay(path: Path) -> ReplayRecord:
    """Read one record. Raises RecordError naming file and key."""
    values = read_json(path, f"python -m harness replay {path.stem} --record")
    record = ReplayRecord.from_json(values, str(path))
    if record.room != path.stem:
        raise RecordError(f"{path}: expected a record of {path.stem}, got {record.room}")
    return record


def all_replays(root: Path) -> list[ReplayRecord]:
    """Every record under results/replay, sorted by path. Raises RecordError."""
    return [load_replay(path) for path in sorted((root / "results" / "replay").glob("*.json"))]


def write_replay(record: ReplayRecord, root: Path) -> Path:
    """Make `record` its room's replay. Raises RecordError if it contradicts itself."""
    path = replay_path(root, record.room)
    text = to_text(ReplayRecord.from_json(record.to_json(), str(path)))
    write_atomically(path, text)
    return path


def add_replay(record: ReplayRecord, root: Path, order: Sequence[str]) -> tuple[Path, int]:
    """Write `record` beside what its room has of the same content. How many workloads were kept.

    order: UUIDs of the room's workloads. A damaged record is replaced.
    """
    path = replay_path(root, record.room)
    try:
        old = load_replay(path) if path.exists() else None
    except RecordError:
        old = None
    merged = merge_replays(old, record, order)
    return write_replay(merged, root), len(merged.workloads) - len(record.workloads)


def _read_record(table: Fields) -> ReplayRecord:
    dataset = table.object("dataset")
    rows = tuple(
        _read_row(Fields(table.source, f"workloads[{index}]", values))
        for index, values in enumerate(table.take("workloads", list))
    )
    record = ReplayRecord(
        **read_subject(table),
        hardware=table.text("hardware"),
        judge_sha256=table.text("judge_sha256", SHA256),
        dataset=DatasetIdentity(dataset.text("name"), dataset.text("sha256", SHA256)),
        seed=table.count("seed"),
        official_trials=table.count("official_trials", 1),
        atol=table.number("atol", 0.0),
        rtol=table.number("rtol", 0.0),
        required_matched_ratio=table.number("required_matched_ratio", 0.0, 1.0),
        total=table.count("total", 1),
        workloads=rows,
        measured_at=table.moment("measured_at"),
    )
    dataset.done()
    table.done()
    uuids = [row.uuid for row in rows]
    if not rows or len(set(uuids)) < len(uuids) or len(rows) > record.total:
        raise table.fail("workloads", f"1 to {record.total} different ones", uuids)
    for index, row in enumerate(rows):
        found = row.trials + row.untested
        if found > row.asked or row.is_complete != (row.stopped is None):
            expected = f"{row.asked}, or fewer and why it stopped"
            raise table.fail(f"workloads[{index}].trials", expected, found)
    return record


def _read_row(table: Fields) -> ReplayRow:
    row = ReplayRow(
        uuid=table.text("uuid"),
        axes=table.take("axes", dict),
        drawn=tuple(table.take("drawn", list)),
        asked=table.count("asked", 1),
        trials=table.count("trials"),
        untested=table.count("untested"),
        mismatches=table.count("mismatches"),
        low=table.number("low", 0.0, 1.0),
        high=table.number("high", 0.0, 1.0),
        max_abs_error=table.error("max_abs_error"),
        max_rel_error=table.error("max_rel_error"),
        margins=None if table.is_null("margins") else _read_margins(table.object("margins")),
        stopped=None if table.is_null("stopped") else table.text("stopped"),
        listed=tuple(
            read_mismatch(Fields(table.source, f"{table.label}.listed[{index}]", values))
            for index, values in enumerate(table.take("listed", list))
        ),
    )
    table.done()
    if not all(type(size) is int and size >= 0 for size in row.axes.values()):
        raise table.fail("axes", "sizes", row.axes)
    if not all(isinstance(name, str) for name in row.drawn):
        raise table.fail("drawn", "names of inputs", row.drawn)
    if row.mismatches > row.trials:
        raise table.fail("mismatches", f"at most {row.trials}", row.mismatches)
    if len(row.listed) != min(row.mismatches, MAX_LISTED):
        expected = f"the first {min(row.mismatches, MAX_LISTED)} mismatches"
        raise table.fail("listed", expected, len(row.listed))
    if not row.low <= row.rate <= row.high:
        raise table.fail("low", f"an interval around {row.rate:g}", (row.low, row.high))
    return row


def _read_margins(table: Fields) -> Margins:
    quantiles = table.take("quantiles", list)
    margins = Margins(
        trials=table.count("trials", 1),
        epsilon=table.number("epsilon", 0.0),
        exchange_gap=table.number("exchange_gap", 0.0),
        exchanged=table.count("exchanged"),
        below=table.count("below"),
        quantiles=tuple(quantiles),
    )
    table.done()
    numbers = all(isinstance(value, (int, float)) and value >= 0.0 for value in quantiles)
    if not numbers or len(quantiles) != len(QUANTILES) or quantiles != sorted(quantiles):
        raise table.fail("quantiles", f"{len(QUANTILES)} ascending numbers", quantiles)
    if margins.below > margins.trials:
        raise table.fail("below", f"at most {margins.trials}", margins.below)
    if margins.epsilon < margins.exchange_gap:
        raise table.fail("epsilon", "at least exchange_gap", margins.epsilon)
    return margins
