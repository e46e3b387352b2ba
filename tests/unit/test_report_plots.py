"""Figures: the same bytes each time, seen by everybody on any page, and text that stays text."""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

import matplotlib
import pytest

from harness.report.figures import primary_axis
from harness.report.plots import (
    COLOURS,
    FLOOR,
    MARKERS,
    Bar,
    Run,
    draw_history,
    draw_latencies,
    draw_roofline,
    draw_speedups,
    style_of,
)
from harness.report.svg import INK, standalone
from harness.roofline import CEILINGS

DEVICE = "nvidia-h200"
SERIES = ("ours", "fla", "flashinfer")
HOSTILE = '$\\frac{1}{ \u6f22 --> <script>alert("x")</script> {{ 1 }}'
SVG = "{http://www.w3.org/2000/svg}"


def _bars(count=4):
    return [
        Bar(f"room{i // 2}", SERIES[1 + i % 2], 0.5 + i, 0.45 + i, 0.6 + i) for i in range(count)
    ]


@cache
def _drawn():
    ours = [(1, 5.0), (64, 20.0)]
    return {
        "speedup": draw_speedups("speedup", DEVICE, _bars(), SERIES),
        "latency": draw_latencies(
            "latency", DEVICE, "moe", "seq_len", {"ours": ours, FLOOR: [(1, 2.0)]}, SERIES
        ),
        "roofline": draw_roofline(
            "roofline", DEVICE, CEILINGS[DEVICE], {"ours": [(2.0, 1e12), (300.0, 4e14)]}, SERIES
        ),
        "history": draw_history(
            "history",
            DEVICE,
            {"ours": [Run(f"2026-01-0{day}T00:00:00Z", 4.0, day == 2) for day in (2, 1)]},
            SERIES,
            "Stars.",
        ),
    }  # fmt: skip


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(a, b):
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_stand_out_from_both_pages(colour):
    assert _contrast(colour, "#ffffff") >= 3.0
    assert _contrast(colour, "#14171a") >= 3.0


def test_series_differ_by_more_than_colour():
    styles = style_of([f"s{i}" for i in range(len(COLOURS))])
    assert len(set(COLOURS)) == len(set(MARKERS)) == len(set(styles.values())) == len(COLOURS)


def test_drawing_again_gives_the_same_bytes_whatever_the_users_settings():
    first = {name: figure.svg for name, figure in _drawn().items()}
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "mine", "axes.grid": False}):
        again = {name: figure.svg for name, figure in _drawn.__wrapped__().items()}
    assert first == again


@pytest.mark.parametrize("name", ["speedup", "latency", "roofline", "history"])
def test_a_figure_is_one_svg_element_in_the_inks_of_its_page(name):
    figure = _drawn()[name]
    root = ElementTree.fromstring(figure.svg)
    assert root.tag == f"{SVG}svg" and root.get("aria-label") == figure.caption
    assert DEVICE in figure.caption and DEVICE in figure.svg
    assert not {f"{SVG}style", f"{SVG}metadata", f"{SVG}script"} & {e.tag for e in root.iter()}
    assert INK not in figure.svg and "currentColor" in figure.svg
    assert "xlink" not in figure.svg and "20" not in root.get("width", "")
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert all(one.startswith(f"{name}-") for one in ids) and len(ids) == len(set(ids))
    named = re.findall(r'(?:href="#|url\(#)([^")]+)', figure.svg)
    assert named and set(named) <= set(ids)


def test_a_file_of_its_own_brings_its_background():
    text = standalone(_drawn()["speedup"])
    ElementTree.fromstring(text)
    assert "prefers-color-scheme:dark" in text and "background:#fff" in text


def test_labels_are_text_never_markup_or_mathematics():
    bars = [Bar(HOSTILE, HOSTILE, 2.0, 1.9, 2.1)]
    for figure in (
        draw_speedups("a", DEVICE, bars, [HOSTILE]),
        draw_latencies("b", DEVICE, HOSTILE, HOSTILE, {HOSTILE: [(1, 2.0)]}, [HOSTILE]),
    ):
        root = ElementTree.fromstring(figure.svg)
        texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
        assert any("$\\frac{1}{ \u6f22 --> <scrip" in text for text in texts)
        assert "<script" not in figure.svg


def _texts(figure):
    return ["".join(e.itertext()) for e in ElementTree.fromstring(figure.svg).iter(f"{SVG}text")]


def test_bars_say_their_value_and_the_axis_holds_one():
    texts = _texts(draw_speedups("a", DEVICE, _bars(), SERIES))
    assert {"0.5000\u00d7", "1.500\u00d7", "2.500\u00d7", "3.500\u00d7", "1"} <= set(texts)
    assert [text for text in texts if ":" in text] == [
        "room0: fla", "room0: flashinfer", "room1: fla", "room1: flashinfer",
    ]  # fmt: skip
    for value in (0.2, 0.8, 0.99, 1.0, 1.01, 1.3, 40.0):
        one = [Bar("a", "fla", value, value * 0.99, value * 1.01)]
        assert "1" in _texts(draw_speedups("a", DEVICE, one, SERIES)), value


def test_an_interval_that_reaches_zero_is_drawn():
    wide = [Bar("a", "fla", 0.5, 0.0, 1.5)]
    assert "0.5000\u00d7" in _texts(draw_speedups("a", DEVICE, wide, SERIES))


def _uses(figure, marker_count):
    root = ElementTree.fromstring(figure.svg)
    groups = [[c for c in g if c.tag == f"{SVG}use"] for g in root.iter(f"{SVG}g")]
    return [len(group) for group in groups if len(group) == marker_count]


def test_every_workload_is_a_point():
    points = {"ours": [(size, 2.0 + size) for size in range(1, 98)]}
    figure = draw_latencies("a", DEVICE, "moe", "seq_len", points, SERIES)
    assert _uses(figure, 97) == [97]


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_one_workload_has_axes_with_ticks(size):
    points = {"ours": [(size, 5.5)], FLOOR: [(size, 5.1)]}
    texts = _texts(draw_latencies("a", DEVICE, "moe", "seq_len", points, SERIES))
    assert len([text for text in texts if re.fullmatch(r"[\d.]+", text)]) >= 4
    assert {"ours", FLOOR, "seq_len"} <= set(texts)


def test_only_promoted_runs_have_stars():
    def stars(*promoted):
        runs = [Run(f"2026-01-0{d}T00:00:00Z", 5.0, d in promoted) for d in (1, 2, 3)]
        return draw_history("a", DEVICE, {"ours": runs}, SERIES, "").svg.count("<use")

    assert stars(2) == stars() + 1
    assert stars(1, 3) == stars() + 2


def test_the_primary_axis_is_the_one_with_the_most_sizes():
    axes = [{"pages": 9, "batch": 1, "length": 5}, {"pages": 9, "batch": 2, "length": 6}]
    assert primary_axis(axes) == "batch"
    assert primary_axis([*axes, {"pages": 9, "batch": 2, "length": 7}]) == "length"
    assert primary_axis([{}]) is None
