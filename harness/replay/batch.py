"""A batch of trials as a job for the worker, and what comes back.

The pool of `evaluate` carries both: a batch is a Job whose `only_trial` is the first trial and
whose `settings.trials` is how many follow from there; its result travels in `Outcome.evaluation`.
The worker reports Stage.REFERENCE once a trial, so whoever counts knows which one it died in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.errors import RecordError
from harness.evaluate.protocol import Job
from harness.records import STATUSES
from harness.records.strict_json import Fields, encode

DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Mismatch:
    """A trial that the official rule refused, or that the solution did not survive.

    seed: what torch was seeded with. Errors are None where the rule reports none.
    """

    trial: int
    seed: int
    status: str
    max_abs_error: float | None
    max_rel_error: float | None
    detail: str


@dataclass(frozen=True)
class Boundary:
    """What trials showed of a top-k boundary.

    margins: of each trial that has one, the least difference between the last score selected and
    the first left out. epsilon: the largest difference between the reference's fp32 scores and
    float64 ones. exchanged: accepted trials whose selection is not the reference's. exchange_gap:
    half the largest score difference that such a trial exchanged, 0 where there is none.
    """

    margins: tuple[float, ...] = ()
    epsilon: float = 0.0
    exchanged: int = 0
    exchange_gap: float = 0.0

    def __add__(self, other: Boundary) -> Boundary:
        return Boundary.of((self, other))

    @staticmethod
    def of(parts: Sequence[Boundary]) -> Boundary:
        """What several together showed, in time linear in their trials; nothing of none."""
        return Boundary(
            tuple(margin for part in parts for margin in part.margins),
            max((part.epsilon for part in parts), default=0.0),
            sum(part.exchanged for part in parts),
            max((part.exchange_gap for part in parts), default=0.0),
        )


@dataclass(frozen=True)
class BatchResult:
    """`done` trials from the batch's first on.

    untested: trials whose reference is not finite. Errors: the worst of the trials that passed,
    None where there is none. boundary: None where the definition selects no top-k.
    """

    done: int
    mismatches: tuple[Mismatch, ...] = ()
    untested: tuple[int, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    boundary: Boundary | None = None

    def to_json(self) -> dict[str, Any]:
        encoded: dict[str, Any] = encode(asdict(self))
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "batch") -> BatchResult:
        """Raises RecordError naming source and key."""
        return read_result(Fields(source, "", values))


def batch_job(job: Job, first: int, count: int) -> Job:
    """`job` with trials first … first + count - 1."""
    return replace(job, only_trial=first, settings=replace(job.settings, trials=count))


def batch_range(job: Job) -> range:
    """The trials of a batch."""
    first = job.only_trial or 0
    return range(first, first + job.settings.trials)


def split(gaps: list[range], size: int) -> Iterator[range]:
    """Ranges cut into batches at whole multiples of `size`, so that every run cuts alike."""
    for gap in gaps:
        start = gap.start
        while start < gap.stop:
            stop = min(gap.stop, (start // size + 1) * size)
            yield range(start, stop)
            start = stop


def drawn_inputs(definition: dict[str, Any], workload: dict[str, Any]) -> tuple[str, ...]:
    """Names of the inputs that the official generator draws anew for each trial."""
    given = workload["inputs"]
    return tuple(
        name
        for name in definition["inputs"]
        if name not in given or given[name]["type"] == "random"
    )


def worst(*values: float | None) -> float | None:
    """The largest that is known; NaN counts as the largest."""
    known = [value for value in values if value is not None]
    if any(math.isnan(value) for value in known):
        return math.nan
    return max(known, default=None)


def read_result(table: Fields) -> BatchResult:
    """Take a result's keys. Raises RecordError."""
    result = BatchResult(
        done=table.count("done", 1),
        mismatches=tuple(
            read_mismatch(Fields(table.source, f"mismatches[{index}]", values))
            for index, values in enumerate(table.take("mismatches", list))
        ),
        untested=tuple(table.take("untested", list)),
        max_abs_error=table.error("max_abs_error"),
        max_rel_error=table.error("max_rel_error"),
        boundary=None if table.is_null("boundary") else _read_boundary(table.object("boundary")),
    )
    if not all(type(trial) is int and trial >= 0 for trial in result.untested):
        raise table.fail("untested", "trial numbers", result.untested)
    table.done()
    return result


def read_mismatch(table: Fields) -> Mismatch:
    """One mismatch, as ledgers and records hold it. Raises RecordError."""
    mismatch = Mismatch(
        trial=table.count("trial"),
        seed=table.count("seed"),
        status=table.text("status"),
        max_abs_error=table.error("max_abs_error"),
        max_rel_error=table.error("max_rel_error"),
        detail=table.take("detail", str),
    )
    table.done()
    if mismatch.status not in STATUSES or mismatch.status == "PASSED":
        raise table.fail("status", "a status other than PASSED", mismatch.status)
    return mismatch


def _read_boundary(table: Fields) -> Boundary:
    margins = table.take("margins", list)
    if not all(isinstance(value, (int, float)) and 0.0 <= value < math.inf for value in margins):
        raise RecordError(f"{table.source}: margins: expected numbers of at least 0, got {margins}")
    boundary = Boundary(
        margins=tuple(float(value) for value in margins),
        epsilon=table.number("epsilon", 0.0),
        exchanged=table.count("exchanged"),
        exchange_gap=table.number("exchange_gap", 0.0),
    )
    table.done()
    return boundary
