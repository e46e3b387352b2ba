"""The archive as figures: how the best came about, and what it brought in each regime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from harness.controller.archive import ATTEMPTS, DECISIONS, Archive
from harness.controller.decision import GATE, PROMOTE, SWEEP
from harness.controller.regimes import Regimes, load_regimes, regimes_path
from harness.report.document import Figure
from harness.report.plots import COLOURS
from harness.report.svg import INK, drawing, new_figure, to_svg

JUMPS = 2  # marked: the largest promotions but the last
_DOT, _SWEPT, _BEST = COLOURS[5], COLOURS[0], COLOURS[1]


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
    """What the lines of a run say. Pure but for reading them."""
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
            best.append((numbers[decision["candidate"]], base * (1.0 + decision["gain"])))
    return Trajectory(archive.room, run, tuple(points), tuple(best), len(numbers))


def draw_search(archive: Archive) -> list[Figure]:
    """The figures of each run of a room; none where it was never searched."""
    rounds = [str(line["round"]) for line in archive.lines(ATTEMPTS).values()]
    figures = []
    for run in dict.fromkeys(key.partition("/")[0] for key in rounds):
        trajectory = read_trajectory(archive, run)
        if trajectory.points:
            figures.append(draw_trajectory(trajectory))
        path, shown = regimes_path(archive.root, archive.room), _most_telling(archive, run)
        if shown is not None and path.exists():
            figures.append(draw_regimes(load_regimes(path), shown["key"], shown["matrix"]))
    return figures


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


def draw_trajectory(trajectory: Trajectory) -> Figure:
    """Speed-up over the first baseline against candidates, on a logarithmic axis."""
    name = f"search-{trajectory.room}-{trajectory.run}-trajectory"
    caption = (
        f"Run {trajectory.run} of {trajectory.room}: {trajectory.total} candidates. Grey: passed "
        "the representatives; blue: swept; line: retained. Circles: the largest jumps before the "
        "last; star: the best retained."
    )
    best = [*trajectory.best, (trajectory.total, trajectory.best[-1][1])]
    with drawing():
        figure = new_figure(3.0)
        axes = figure.subplots()
        axes.axhline(1.0, color=INK, linewidth=1.0, linestyle="--")
        for is_swept, colour, size in ((False, _DOT, 14), (True, _SWEPT, 24)):
            own = [point for point in trajectory.points if point.is_swept == is_swept]
            axes.scatter(
                [point.number for point in own],
                [point.speedup for point in own],
                s=size,
                color=colour,
                linewidths=0,
            )
        numbers, speedups = zip(*best, strict=True)
        axes.step(numbers, speedups, where="post", color=_BEST, linewidth=1.4)
        for number, speedup in trajectory.jumps:
            axes.plot(number, speedup, "o", markersize=9, markerfacecolor="none", color=_BEST)
        if len(trajectory.best) > 1:
            axes.plot(*trajectory.best[-1], "*", markersize=11, color=_BEST)
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}\u00d7"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("candidate")
        axes.set_ylabel("speed-up over the first baseline")
        return Figure(name, caption, to_svg(figure, name, caption))


def draw_regimes(regimes: Regimes, key: str, matrix: Sequence[Sequence[object]]) -> Figure:
    """Mean latency of each regime before and after. matrix: of a decision."""
    name = f"search-{regimes.room}-{key.partition('/')[0]}-regimes"
    caption = (
        f"Mean latency of {regimes.room} by regime on {regimes.device}, baseline and the candidate "
        f"of {key}; the ratio of the two means above."
    )
    measured = {str(row[0]): (row[1], row[2]) for row in matrix}
    labels, before, after = [], [], []
    for regime in regimes.regimes:
        pairs = [
            (float(base), float(ours))
            for uuid in regime.uuids
            for base, ours in [measured.get(uuid[:8], (None, None))]
            if isinstance(base, float | int) and isinstance(ours, float | int)
        ]
        if pairs:
            labels.append(regime.label.replace(", ", "\n"))
            before.append(math.fsum(base for base, _ in pairs) / len(pairs))
            after.append(math.fsum(ours for _, ours in pairs) / len(pairs))
    with drawing():
        figure = new_figure(3.0)
        axes = figure.subplots()
        places = range(len(labels))
        axes.bar([place - 0.2 for place in places], before, 0.38, color=_DOT, label="baseline")
        axes.bar([place + 0.2 for place in places], after, 0.38, color=_BEST, label="candidate")
        for place, base, ours in zip(places, before, after, strict=True):
            axes.annotate(
                f"{base / ours:.3f}\u00d7",
                (place, max(base, ours)),
                (0, 3),
                textcoords="offset points",
                ha="center",
            )
        axes.set_yscale("log")
        axes.set_ylim(min(before + after) / 2, max(before + after) * 2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xticks(list(places), labels)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("mean latency [µs]")
        figure.legend(loc="outside upper left", ncols=2)
        return Figure(name, caption, to_svg(figure, name, caption))
