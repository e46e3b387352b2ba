"""What the archive says of a room's runs: how the best came about, and what it brought where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.controller.archive import ATTEMPTS, DECISIONS, Archive
from harness.controller.decision import GATE, PROMOTE, SWEEP
from harness.controller.index import archives
from harness.controller.memory import ClosedRound
from harness.controller.regimes import Regimes, load_regimes, regimes_path
from harness.errors import RecordError

JUMPS = 2  # marked: the largest promotions but the last


@dataclass(frozen=True)
class Point:
    """One measured candidate that passed. number: which one of the run, from 1. speedup: over the
    run's first baseline. is_swept: over all workloads; else an estimate on representatives."""

    number: int
    name: str
    speedup: float
    is_swept: bool


@dataclass(frozen=True)
class Trajectory:
    """A run. best: (number, speedup of what was retained from there on), rising from (0, 1).
    total: candidates of the run, those that failed among them."""

    room: str
    run: str
    points: tuple[Point, ...]
    best: tuple[tuple[int, float], ...]
    total: int

    @property
    def jumps(self) -> tuple[tuple[int, float], ...]:
        """The largest rises but the final one."""
        rises = [
            (after[1] / before[1], after)
            for before, after in zip(self.best, self.best[1:-1], strict=False)
        ]
        return tuple(step for _, step in sorted(rises, reverse=True)[:JUMPS])


def read_trajectory(archive: Archive, run: str) -> Trajectory:
    """What the lines of a run say. Pure but for reading them. Raises RecordError."""
    points: list[Point] = []
    best = [(0, 1.0)]
    numbers: dict[str, int] = {}
    lines = [
        line
        for line in archive.lines(ATTEMPTS).values()
        if str(line["round"]).startswith(f"{run}/") and line["stage"] in (GATE, SWEEP)
    ]
    for position, line in enumerate(lines):
        base = best[-1][1]
        for name, result in line["results"].items():
            numbers.setdefault(name, len(numbers) + 1)
            key = "score" if line["stage"] == SWEEP else "geometric_mean"
            if result[key] is not None and not result["failure"] and not result["lost"]:
                speedup = base * result[key]
                points.append(Point(numbers[name], name, speedup, line["stage"] == SWEEP))
        is_last = position + 1 == len(lines) or lines[position + 1]["round"] != line["round"]
        decision = archive.lines(DECISIONS).get(str(line["round"]))
        if is_last and decision and decision["label"] == PROMOTE:
            number = numbers.get(decision["candidate"])
            if number is None:
                raise RecordError(
                    f"{archive.path(DECISIONS)}: {line['round']}: candidate: expected one that "
                    f"{archive.path(ATTEMPTS).name} has results of, got {decision['candidate']}; "
                    "restore both files from git"
                )
            best.append((number, base * (1.0 + decision["gain"])))
    return Trajectory(archive.room, run, tuple(points), tuple(best), len(numbers))


@dataclass(frozen=True)
class Swept:
    """One candidate beside its baseline on all workloads. round: its key. matrix: as a decision
    holds it."""

    regimes: Regimes
    round: str
    matrix: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Searched:
    """A room's searches. trajectories: of each run that measured something. swept: of each run, the
    candidate that tells most."""

    room: str
    rounds: tuple[ClosedRound, ...]
    trajectories: tuple[Trajectory, ...]
    swept: tuple[Swept, ...]


def read_searches(root: Path) -> tuple[Searched, ...]:
    """Every room that was searched. Raises RecordError for a damaged archive."""
    return tuple(read_search(archive) for archive in archives(root))


def read_search(archive: Archive) -> Searched:
    """Raises RecordError for a damaged archive."""
    keys = [str(line["round"]) for line in archive.lines(ATTEMPTS).values()]
    runs = list(dict.fromkeys(key.partition("/")[0] for key in keys))
    found = [read_trajectory(archive, run) for run in runs]
    path = regimes_path(archive.root, archive.room)
    telling = [_most_telling(archive, run) for run in runs] if path.exists() else []
    return Searched(
        archive.room,
        tuple(archive.history()),
        tuple(one for one in found if one.points),
        tuple(
            Swept(load_regimes(path), str(decision["round"]), decision["matrix"])
            for decision in telling
            if decision is not None
        ),
    )


def _most_telling(archive: Archive, run: str) -> dict[str, Any] | None:
    """The decision whose candidate was measured on all workloads: the last promotion, else the last
    that was swept; None where nothing was."""
    swept = [
        decision
        for decision in archive.lines(DECISIONS).values()
        if str(decision["round"]).startswith(f"{run}/")
        and f"{decision['round']}/{SWEEP}" in archive.lines(ATTEMPTS)
    ]
    promoted = [decision for decision in swept if decision["label"] == PROMOTE]
    return (promoted or swept)[-1] if swept else None
