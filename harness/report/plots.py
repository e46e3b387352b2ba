"""The report's figures, each a pure function of numbers that one device gave.

Every series has a colour and a marker of its own; the colours keep apart for colour-blind readers
and stand out from a white and from a black page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from harness.records import format_digits
from harness.report.document import SPEEDUP_DIGITS, Figure
from harness.report.logs import one_line
from harness.report.svg import INK, drawing, new_figure, to_svg
from harness.roofline import Ceilings

# Luminance between 0.12 and 0.30: at least 3 : 1 against white and against near-black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8559a", "#8a7500", "#767676", "#7a5cd6", "#b03a4e")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FLOOR = "floor"
_LABEL_CHARACTERS = 24
_ONE_CLEARANCE = 0.08  # natural logarithm: nearer ticks would run into the one at 1
_BAR_IN, _MARGIN_IN = 0.24, 0.5
_LOG_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0))


@dataclass(frozen=True)
class Bar:
    """How much faster ours is than one peer, with its interval."""

    group: str
    series: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Run:
    """One recorded run: when, and its mean latency in µs."""

    measured_at: str
    mean_us: float
    is_promoted: bool


def style_of(series: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each series by name, the same wherever the same names are drawn."""
    return {
        name: (COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)])
        for index, name in enumerate(series)
    }


def draw_speedups(name: str, device: str, bars: Sequence[Bar], series: Sequence[str]) -> Figure:
    """Horizontal bars from 1, on a logarithmic axis. bars: at least one, in reading order."""
    caption = (
        f"Mean over the workloads of peer latency / our latency, on {device}, with the interval. "
        f"Right of 1 ours is faster."
    )
    groups = list(dict.fromkeys(bar.group for bar in bars))
    rows = [bar for group in groups for bar in bars if bar.group == group]
    # One bar's height apart, and half a bar more from one definition to the next.
    places = [-(index + 0.5 * groups.index(bar.group)) for index, bar in enumerate(rows)]
    styles = style_of(series)
    with drawing():
        figure = new_figure(_MARGIN_IN + _BAR_IN * (1.0 - places[-1]))
        axes = figure.subplots()
        axes.axvline(1.0, color=INK, linewidth=1.2)
        axes.barh(
            places,
            [bar.value - 1.0 for bar in rows],
            left=1.0,
            height=0.8,
            color=[styles[bar.series][0] for bar in rows],
            xerr=[
                [max(0.0, bar.value - bar.low) for bar in rows],
                [max(0.0, bar.high - bar.value) for bar in rows],
            ],
            error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5},
        )
        bounds = [1.0, *(bound for bar in rows for bound in (bar.low, bar.high, bar.value))]
        bounds = [bound for bound in bounds if bound > 0.0]  # an interval may reach down to 0
        axes.set_xscale("log")
        axes.set_xlim(min(bounds) / 1.25, max(bounds) * 1.35)
        _label_logarithms(axes, "x")
        apart = [tick for tick in axes.get_xticks() if abs(math.log(tick)) > _ONE_CLEARANCE]
        axes.set_xticks([1.0, *apart])
        axes.set_ylim(places[-1] - 0.6, 0.6)
        axes.set_yticks(places, [f"{_label(bar.group)}: {_label(bar.series)}" for bar in rows])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        for place, bar in zip(places, rows, strict=True):
            right = max(1.0, bar.value, bar.high)
            axes.annotate(
                f"{format_digits(bar.value, SPEEDUP_DIGITS)}\u00d7",
                (right, place),
                (4, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_xlabel(f"peer / ours on {_label(device)}")
        return Figure(name, caption, to_svg(figure, name, caption))


def draw_latencies(
    name: str,
    device: str,
    room: str,
    axis: str,
    points: Mapping[str, Sequence[tuple[int, float]]],
    series: Sequence[str],
) -> Figure:
    """Latency against one axis of the workloads, both logarithmic.

    points: (size, µs) of each series; FLOOR is drawn in ink.
    """
    caption = f"Latency of {room} by {axis} on {device}, one point a workload."
    styles = style_of(series)
    with drawing():
        figure = new_figure(3.4)
        axes = figure.subplots()
        for one, own in points.items():
            colour, marker = (INK, "_") if one == FLOOR else styles[one]
            axes.plot(
                [max(size, 1) for size, _ in own],
                [latency_us for _, latency_us in own],
                linestyle="none",
                marker=marker,
                markersize=5,
                markeredgewidth=1.2 if one == FLOOR else 0.0,
                color=colour,
                alpha=0.85,
                label=_label(one),
            )
        for direction, values in (
            ("x", [max(size, 1) for own in points.values() for size, _ in own]),
            ("y", [latency_us for own in points.values() for _, latency_us in own]),
        ):
            _set_logarithmic(axes, direction, values)
        axes.set_xlabel(_label(axis))
        axes.set_ylabel(f"latency on {_label(device)} [µs]")
        figure.legend(loc="outside upper left", ncols=3)
        return Figure(name, caption, to_svg(figure, name, caption))


def draw_roofline(
    name: str,
    device: str,
    ceilings: Ceilings,
    points: Mapping[str, Sequence[tuple[float, float]]],
    series: Sequence[str],
) -> Figure:
    """Flops per second against flops per byte, both logarithmic, under the device's ceilings.

    points: (flops / byte, flops / s) of each room's workloads, at least one.
    """
    caption = (
        f"Achieved rate by arithmetic intensity on {device}, one point a workload, below the "
        f"measured read bandwidth and matrix rates."
    )
    styles = style_of(series)
    intensities = [intensity for own in points.values() for intensity, _ in own]
    rates = [rate for own in points.values() for _, rate in own]
    peak = max(ceilings.flop_rates.values())
    low, high = min(intensities) / 2, max(*intensities, peak / ceilings.read_bandwidth) * 4
    with drawing():
        figure = new_figure(3.8)
        axes = figure.subplots()
        _draw_ceilings(axes, ceilings, low, high)
        for room, own in points.items():
            colour, marker = styles[room]
            axes.plot(
                *zip(*own, strict=True), linestyle="none", marker=marker, markersize=4.5,
                markeredgewidth=0.0, color=colour, alpha=0.8, label=room,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(min(*rates, low * ceilings.read_bandwidth) / 2, peak * 3)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate / 1e12:g}"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda intensity, _: f"{intensity:g}"))
        axes.set_xlabel("flop / byte")
        axes.set_ylabel(f"rate on {device} [TFLOP/s]")
        figure.legend(loc="outside upper left", ncols=3)
        return Figure(name, caption, to_svg(figure, name, caption))


def _draw_ceilings(axes: Axes, ceilings: Ceilings, low: float, high: float) -> None:
    """The bandwidth's slope up to each matrix rate, labelled where no point is."""
    bandwidth, peak = ceilings.read_bandwidth, max(ceilings.flop_rates.values())
    for operands, rate in sorted(ceilings.flop_rates.items()):
        axes.plot([low, rate / bandwidth, high], [low * bandwidth, rate, rate], color=INK, lw=1)
        axes.annotate(
            f"{operands} {rate / 1e12:.0f}",
            (high, rate),
            (3, 0),
            textcoords="offset points",
            va="bottom" if rate == peak else "top",
        )
    intensity = peak / bandwidth / 8
    axes.annotate(
        f"{bandwidth / 1e12:.2f} TB/s",
        (intensity, intensity * bandwidth),
        (-6, 4),
        textcoords="offset points",
        ha="right",
    )


def draw_history(
    name: str, device: str, runs: Mapping[str, Sequence[Run]], series: Sequence[str], stars: str
) -> Figure:
    """Mean latency of the recorded runs, a panel a room. stars: what the legend says of them."""
    caption = (
        f"Mean latency of recorded full sweeps on {device}, by when they were measured. {stars}"
    )
    styles = style_of(series)
    with drawing():
        figure = new_figure(0.7 + 1.1 * len(runs))
        panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (room, own) in zip(panels, runs.items(), strict=True):
            colour, marker = styles[room]
            ordered = sorted(own, key=lambda run: run.measured_at)
            times = [_parse_time(run.measured_at) for run in ordered]
            means_us = [run.mean_us for run in ordered]
            axes.plot(times, means_us, color=colour, marker=marker, markersize=4.5, linewidth=1.2)
            promoted = [
                (time, run.mean_us)
                for time, run in zip(times, ordered, strict=True)
                if run.is_promoted
            ]
            if promoted:
                axes.plot(*zip(*promoted, strict=True), linestyle="none", marker="*", markersize=11,
                          color=INK)  # fmt: skip
            axes.set_ylim(0.0, max(means_us) * 1.25)
            axes.set_title(f"{room} [µs]", loc="left", fontsize="medium")
        locator = matplotlib.dates.AutoDateLocator(  # type: ignore[no-untyped-call]
            tz=timezone.utc, minticks=2, maxticks=5
        )
        panels[-1].xaxis.set_major_locator(locator)
        panels[-1].xaxis.set_major_formatter(
            matplotlib.dates.ConciseDateFormatter(  # type: ignore[no-untyped-call]
                locator, tz=timezone.utc
            )
        )
        panels[-1].set_xlabel(f"measured at (UTC), on {device}")
        return Figure(name, caption, to_svg(figure, name, caption))


def _label(name: str) -> str:
    """A side may be a file's path or a revision's name; a figure has no room for more."""
    return one_line(name, _LABEL_CHARACTERS)


def _parse_time(measured_at: str) -> datetime:
    return datetime.strptime(measured_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def _set_logarithmic(axes: Axes, direction: str, values: Sequence[float]) -> None:
    """A logarithmic axis that shows all values and never has zero length."""
    low, high = min(values), max(values)
    room = max(1.15, (high / low) ** 0.05)
    if direction == "x":
        axes.set_xscale("log")
        axes.set_xlim(low / room, high * room)
    else:
        axes.set_yscale("log")
        axes.set_ylim(low / room, high * room)
    _label_logarithms(axes, direction)


def _label_logarithms(axes: Axes, direction: str) -> None:
    """Plain numbers at the sparsest of a few sets of ticks that has three within the limits."""
    axis, (low, high) = (
        (axes.xaxis, axes.get_xlim()) if direction == "x" else (axes.yaxis, axes.get_ylim())
    )
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [
        [step * 10.0**decade for decade in decades for step in steps] for steps in _LOG_STEPS
    ]
    choices.append(list(MaxNLocator(5).tick_values(low, high)))
    within = [[tick for tick in ticks if low <= tick <= high] for ticks in choices]
    axis.set_major_locator(FixedLocator(next((t for t in within if len(t) > 2), within[-1])))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
