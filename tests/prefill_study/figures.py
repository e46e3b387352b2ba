"""The study's figures: docs/kernels/plots/*.svg, drawn as the report's are. Pure."""

from __future__ import annotations

from collections.abc import Callable

from harness.report.document import Figure
from harness.report.plots import COLOURS, MARKERS
from harness.report.svg import INK, drawing, new_figure, standalone, to_svg
from tests.prefill_study.record import LAUNCHES, ROOM, Record
from tests.prefill_study.tables import TRAJECTORY_SIZE, rate, trajectory

FOLDER = "plots"  # beside the pages
SHARE_QUERIES = (4096, 512, 64)
_BAR_IN, _MARGIN_IN = 0.26, 0.8


def draw(record: Record) -> list[Figure]:
    """Each is left out where the record has no size for it."""
    own = {(size.queries, size.keys) for size in record.sizes}
    figures = [draw_trajectory(record), draw_launches(record)]
    if own & {(queries, keys) for queries in SHARE_QUERIES for _, keys in own}:
        figures.append(draw_shares(record))
    return figures


def files(record: Record) -> dict[str, str]:
    """Text of each figure's file by its path below the pages' folder."""
    return {f"{FOLDER}/{figure.name}.svg": standalone(figure) for figure in draw(record)}


def links(record: Record) -> str:
    """The figures as the page shows them."""
    return "\n\n".join(
        f"![{figure.caption}]({FOLDER}/{figure.name}.svg)" for figure in draw(record)
    )


def _name(record: Record, what: str) -> str:
    return f"{ROOM}-{record.device}-{what}"


def draw_trajectory(record: Record) -> Figure:
    name = _name(record, "trajectory")
    caption = "Rate of the room's versions at {} x {} on {}.".format(
        *TRAJECTORY_SIZE, record.device
    )
    versions = trajectory(record)
    rates = [version.flops_a_second / 1e12 for version in versions]
    places = [-float(index) for index in range(len(versions))]
    with drawing():
        figure = new_figure(_MARGIN_IN + _BAR_IN * (len(versions) + 1))
        axes = figure.subplots()
        axes.barh(places, rates, height=0.7, color=COLOURS[0])
        axes.axvline(record.peak / 1e12, color=INK, linewidth=1.2)
        axes.set_yticks(places, [version.name.replace("`", "") for version in versions])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        for place, own in zip(places, rates, strict=True):
            text = f"{own:.0f}, {100 * own * 1e12 / record.peak:.0f} %"
            axes.annotate(text, (own, place), (4, 0), textcoords="offset points", va="center")
        axes.set_xlim(0.0, record.peak / 1e12 * 1.05)
        axes.set_xlabel("TFLOP/s; the line is the FP8 peak")
        return Figure(name, caption, to_svg(figure, name, caption))


def draw_launches(record: Record) -> Figure:
    """Shares, as calls take from some µs to some ms."""
    name = _name(record, "launches")
    caption = f"Each launch's share of a call on {record.device}, by queries and keys."
    labels = [f"{size.queries} x {size.keys // 1024}K" for size in record.sizes]
    places = [-float(index) for index in range(len(labels))]
    before = [0.0] * len(labels)
    with drawing():
        figure = new_figure(_MARGIN_IN + _BAR_IN * (len(labels) + 1))
        axes = figure.subplots()
        for index, launch in enumerate(LAUNCHES):
            shares = [
                100 * size.steps_us[launch] / sum(size.steps_us.values()) for size in record.sizes
            ]
            axes.barh(places, shares, left=before, height=0.8, color=COLOURS[index], label=launch)
            before = [left + share for left, share in zip(before, shares, strict=True)]
        axes.set_yticks(places, labels)
        axes.set_ylim(places[-1] - 0.6, 0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, 100.0)
        axes.set_xlabel("% of the call")
        figure.legend(loc="outside upper left", ncols=len(LAUNCHES))
        return Figure(name, caption, to_svg(figure, name, caption))


def draw_shares(record: Record) -> Figure:
    """The operator in full lines, the filtering launch alone in broken ones."""
    name = _name(record, "peak")
    caption = f"Share of the FP8 peak by keys on {record.device}: operator, and filter alone."
    kinds: tuple[tuple[str, str, Callable[..., float]], ...] = (
        ("operator", "-", lambda size: size.graph_us),
        ("filter", "--", lambda size: size.parts_us["filter"]),
    )
    with drawing():
        figure = new_figure(3.4)
        axes = figure.subplots()
        for index, queries in enumerate(SHARE_QUERIES):
            own = sorted(
                (size for size in record.sizes if size.queries == queries),
                key=lambda size: size.keys,
            )
            for label, line, latency in kinds:
                axes.plot(
                    [size.keys / 1024 for size in own],
                    [100 * rate(size, latency(size)) / record.peak for size in own],
                    linestyle=line,
                    marker=MARKERS[index],
                    markersize=4.5,
                    color=COLOURS[index],
                    label=f"Q {queries}, {label}",
                )
        keys = sorted({size.keys // 1024 for size in record.sizes})
        keys = [one for one in keys if one & one - 1 == 0]  # a label for 160K would run into 128K's
        axes.set_xscale("log")
        axes.set_xticks(keys, [f"{one}K" for one in keys])
        axes.minorticks_off()
        axes.set_ylim(0.0, 100.0)
        axes.set_xlabel("N")
        axes.set_ylabel("% of the FP8 peak")
        figure.legend(loc="outside upper left", ncols=3)
        return Figure(name, caption, to_svg(figure, name, caption))
