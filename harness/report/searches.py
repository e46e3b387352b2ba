"""The chapter of searches: how the best came about, what it brought in each regime, every round."""

from __future__ import annotations

import math

from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from harness.controller.memory import ClosedRound
from harness.report.document import Column, Figure, Fold, Kind, Paragraph, Section, Table, Value
from harness.report.evidence import Evidence
from harness.report.plots import COLOURS
from harness.report.svg import INK, drawing, new_figure, to_svg
from harness.search.trajectory import Searched, Swept, Trajectory

WHAT = (
    "Rounds of candidates, each measured in turns with the room as it stood, and each ended by one "
    "decision. The gain is by the mean ratio of the sweep, or of the gate where nothing was swept. "
    "`python -m harness explain ROUND` shows a round's candidates; `docs/controller.md` has the "
    "rules."
)
_COLUMNS = (
    *(Column("round", Kind.CODE), Column("direction"), Column("tried", Kind.COUNT)),
    *(Column("past the gate", Kind.COUNT), Column("about", Kind.CODE), Column("gain %")),
    *(Column("decision"), Column("because")),
)
_DOT, _SWEPT, _BEST = COLOURS[5], COLOURS[0], COLOURS[1]


def write_searches(evidence: Evidence) -> tuple[Section, ...]:
    """The chapter, where any room was searched."""
    rooms = tuple(_write_room(one) for one in evidence.searched if one.rounds)
    return (Section("Searches", "searches", (Paragraph(WHAT), *rooms)),) if rooms else ()


def _write_room(searched: Searched) -> Section:
    room, rounds = searched.room, searched.rounds
    tried = sum(len(one.candidates) for one in rounds)
    promoted = sum(one.is_promotion for one in rounds)
    text = f"{len(rounds)} rounds, {tried} candidates, {promoted} promoted."
    table = Table(
        f"search-{room}", f"Every round of {room}.", _COLUMNS, tuple(map(_round_row, rounds))
    )
    figures = draw_search(searched)
    return Section(
        room, f"searches-{room}", (Paragraph(text), *figures, Fold(f"Rounds of {room}", (table,)))
    )


def _round_row(closed: ClosedRound) -> tuple[Value, ...]:
    gain = None if closed.gain is None else f"{100 * closed.gain:+.2f}"
    return (
        *(closed.key, closed.direction, len(closed.candidates), closed.passed_gate),
        *(closed.best, gain, closed.label, closed.reason),
    )


def draw_search(searched: Searched) -> list[Figure]:
    """The figures of each run of a room."""
    return [
        *(draw_trajectory(one) for one in searched.trajectories),
        *(draw_regimes(one) for one in searched.swept if _regime_means(one)),
    ]


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


def _regime_means(swept: Swept) -> list[tuple[str, float, float]]:
    """Label and mean latencies before and after of each regime that has both, in µs."""
    measured = {row[0]: (row[1], row[2]) for row in swept.matrix}
    found = []
    for regime in swept.regimes.regimes:
        pairs = [measured.get(uuid[:8], (None, None)) for uuid in regime.uuids]
        pairs = [(base, ours) for base, ours in pairs if base is not None and ours is not None]
        if pairs:
            base_us, ours_us = (math.fsum(side) / len(pairs) for side in zip(*pairs, strict=True))
            found.append((regime.label.replace(", ", "\n"), base_us, ours_us))
    return found


def draw_regimes(swept: Swept) -> Figure:
    """Mean latency of each regime before and after; one of them at least must have both."""
    regimes, key = swept.regimes, swept.round
    name = f"search-{regimes.room}-{key.partition('/')[0]}-regimes"
    caption = (
        f"Mean latency of {regimes.room} by regime on {regimes.device}, baseline and the candidate "
        f"of {key}; the ratio of the two means above."
    )
    labels, before, after = zip(*_regime_means(swept), strict=True)
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
