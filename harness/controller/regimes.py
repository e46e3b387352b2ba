"""Which few workloads stand for all: regimes by latency, and one representative of each, frozen.

A regime is a range of latencies between two natural breaks: what costs alike is limited alike, and
the data of a workload count as much as its axes, which alone do not tell (dsa_attention's eight
tokens take from 5 to 15 µs by how many entries are valid). The axes name a regime; they do not cut
it. results/search/<room>/regimes.json is written once: representatives that moved with each run
would make gates of two runs incomparable. Remove the file to derive them anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.files import write_atomically
from harness.records import RunRecord, dump_document, read_json
from harness.records.strict_json import Fields

MAX_REGIMES = 3  # as many representatives: a gate must cost seconds
LEAST_REGIMES = 2  # a gate on one workload would decide by that workload's noise
LEAST_BREAK = 1.15  # between the means of neighbours: less is noise or one regime


@dataclass(frozen=True)
class Regime:
    """Workloads of about one latency.

    label: the axes' ranges. share: of the summed latency of all. representative: the UUID whose
    latency is nearest to the regime's mean.
    """

    label: str
    uuids: tuple[str, ...]
    mean_us: float
    share: float
    representative: str


@dataclass(frozen=True)
class Regimes:
    """A room's regimes, from the fastest to the slowest. measured_at, solution_sha256, device: of
    the recorded run that they come from."""

    room: str
    device: str
    solution_sha256: str
    dataset_sha256: str
    measured_at: str
    regimes: tuple[Regime, ...]

    @property
    def representatives(self) -> tuple[str, ...]:
        return tuple(regime.representative for regime in self.regimes)

    @property
    def heaviest(self) -> Regime:
        """The regime that most of the summed latency is spent in."""
        return max(self.regimes, key=lambda regime: regime.share)


def derive_regimes(record: RunRecord) -> Regimes:
    """From a recorded run. Raises RecordError where a workload has no latency."""
    rows = []
    for row in record.workloads:
        if row.latency_us is None:
            raise RecordError(
                f"{record.room}: {row.uuid} has no latency in the run of {record.measured_at}; "
                "expected a run in which all workloads pass"
            )
        rows.append((row.latency_us, row.uuid, row.axes))
    total_us = math.fsum(latency for latency, *_ in rows)
    groups = natural_breaks([latency for latency, *_ in rows], MAX_REGIMES)
    found = []
    for low, high in groups:
        members = [row for row in rows if low <= row[0] <= high]
        mean_us = math.exp(math.fsum(math.log(row[0]) for row in members) / len(members))
        nearest = min(members, key=lambda row: abs(math.log(row[0] / mean_us)))
        found.append(
            Regime(
                label=_label([row[2] for row in members]),
                uuids=tuple(row[1] for row in members),
                mean_us=mean_us,
                share=math.fsum(row[0] for row in members) / total_us,
                representative=nearest[1],
            )
        )
    return Regimes(
        room=record.room,
        device=record.device,
        solution_sha256=record.solution_sha256,
        dataset_sha256=record.dataset.sha256,
        measured_at=record.measured_at,
        regimes=tuple(found),
    )


def natural_breaks(latencies_us: Sequence[float], most: int) -> list[tuple[float, float]]:
    """Closed ranges that hold all latencies, with the least squared error of their logarithms.

    As many ranges as possible up to `most` whose neighbouring means differ by LEAST_BREAK, but
    LEAST_REGIMES of them wherever two latencies differ at all.
    """
    values = sorted(latencies_us)
    for count in range(min(most, len(set(values))), 1, -1):
        bounds = _best_cuts([math.log(value) for value in values], count)
        groups = [values[start:stop] for start, stop in bounds]
        means = [math.fsum(group) / len(group) for group in groups]
        is_clear = all(b >= LEAST_BREAK * a for a, b in pairwise(means))
        if is_clear or count == LEAST_REGIMES:
            return [(group[0], group[-1]) for group in groups]
    return [(values[0], values[-1])]


def _best_cuts(logs: Sequence[float], count: int) -> list[tuple[int, int]]:
    """[start, stop) of `count` groups of sorted values; equal values stay together."""
    sums, squares = [0.0], [0.0]
    for value in logs:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def error(start: int, stop: int) -> float:
        total = sums[stop] - sums[start]
        return squares[stop] - squares[start] - total * total / (stop - start)

    cuts = [i for i in range(1, len(logs)) if logs[i] != logs[i - 1]]
    best: dict[int, tuple[float, list[int]]] = {
        stop: (error(0, stop), [0]) for stop in (*cuts, len(logs))
    }
    for _ in range(count - 1):
        longer: dict[int, tuple[float, list[int]]] = {}
        for stop in (*cuts, len(logs)):
            options = [
                (best[cut][0] + error(cut, stop), [*best[cut][1], cut])
                for cut in cuts
                if cut < stop and cut in best
            ]
            if options:
                longer[stop] = min(options)
        best = longer
    starts = best[len(logs)][1]
    return list(zip(starts, [*starts[1:], len(logs)], strict=True))


def _label(axes: Sequence[Mapping[str, int]]) -> str:
    parts = []
    for axis in dict.fromkeys(axis for of in axes for axis in of):
        sizes = [of.get(axis, 0) for of in axes]
        low, high = min(sizes), max(sizes)
        parts.append(f"{axis} {low}" if low == high else f"{axis} {low}-{high}")
    return ", ".join(parts)


def regimes_path(root: Path, room: str) -> Path:
    return root / "results" / "search" / room / "regimes.json"


def freeze_regimes(root: Path, record: RunRecord) -> Regimes:
    """The room's frozen regimes; derived from `record` and written where there are none yet."""
    path = regimes_path(root, record.room)
    if not path.exists():
        text = dump_document(asdict(derive_regimes(record)), ("regimes",))
        write_atomically(path, text)
    return load_regimes(path)


def load_regimes(path: Path) -> Regimes:
    """Read a file of regimes. Raises RecordError naming file and key."""
    table = Fields(str(path), "", read_json(path, "python -m harness gate ROOM CANDIDATE"))
    regimes = Regimes(
        room=table.text("room"),
        device=table.text("device"),
        solution_sha256=table.text("solution_sha256"),
        dataset_sha256=table.text("dataset_sha256"),
        measured_at=table.moment("measured_at"),
        regimes=tuple(
            _read_regime(Fields(str(path), f"regimes[{index}]", values))
            for index, values in enumerate(table.take("regimes", list))
        ),
    )
    table.done()
    if not regimes.regimes:
        raise table.fail("regimes", "at least one", [])
    return regimes


def _read_regime(table: Fields) -> Regime:
    uuids: list[Any] = table.take("uuids", list)
    regime = Regime(
        label=table.text("label"),
        uuids=tuple(uuids),
        mean_us=table.number("mean_us", 0.0),
        share=table.number("share", 0.0, 1.0),
        representative=table.text("representative"),
    )
    table.done()
    if regime.representative not in regime.uuids:
        raise table.fail("representative", "one of its uuids", regime.representative)
    return regime
