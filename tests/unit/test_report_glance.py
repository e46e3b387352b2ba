"""What stands under a room page's title, and which content the front page's comparisons have."""

from __future__ import annotations

import re

import pytest

from harness.report import without_staleness
from harness.report.evidence import pair_with_others
from harness.report.glance import Standing, render_front, render_glance
from tests.sample_compare import OURS_SHA256, compare_record, side_sha256
from tests.sample_records import record, row

ROOM, OTHER = "gdn_decode", "f" * 64
PEERS = {(ROOM, name): side_sha256(name) for name in ("flashinfer", "fla")}


def _standing(latest=(), compared=None, packed=OURS_SHA256, peers=PEERS, objection=None):
    found = {ROOM: pair_with_others(compared, objection)} if compared else {}
    return Standing(tuple(latest), found, {ROOM: packed}, peers)


def _cells(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    columns, _, cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return dict(zip(columns, cells, strict=True))


def test_a_glance_has_latency_floor_device_content_and_clocks():
    rows = (row("u-0", 2.0, floor_us=1.0), row("u-1", 8.0, floor_us=1.0))
    sweep = record(rows, clocks={"samples": 20, "throttled": 3})
    text = render_glance(ROOM, _standing([sweep]))
    assert _cells(text) == {
        "mean µs": "5.000",
        "median µs": "5.000",
        "p95 µs": "7.700",
        "latency / floor, geometric mean": "4.00",
        "passed": "2/2",
        "device": "nvidia-h200",
        "timer": "cupti",
        "content": "`aaaaaaaa`",
        "throttled clock samples": "3 of 20 (15 %)",
    }
    path = "results/latest/nvidia-h200/gdn_decode.json"
    assert f"* sweep: [{path}](../../{path}), 2026-01-31, cold L2, 10 + 50 calls, 3 tri" in text
    assert "`python -m harness evaluate gdn_decode --workloads all --record`" in text
    assert "* not compared with others; run `python -m harness compare ours peers gdn" in text


@pytest.mark.parametrize("clocks", [None, {"samples": 0, "throttled": 0}])
def test_clocks_that_nobody_sampled_are_said(clocks):
    cells = _cells(render_glance(ROOM, _standing([record(clocks=clocks)])))
    assert cells["throttled clock samples"] == "not sampled"


def test_a_workload_without_a_floor_or_latency_leaves_no_ratio():
    for bad in (row("u-1", None), row("u-1", floor_us=None)):
        cells = _cells(render_glance(ROOM, _standing([record((row("u-0"), bad))])))
        assert cells["latency / floor, geometric mean"] == "-"


def test_a_room_that_nobody_measured_says_what_to_run():
    text = render_glance(ROOM, _standing())
    assert text.startswith("* not measured; run `python -m harness evaluate gdn_decode ")
    assert "|" not in text


def test_the_best_peer_stands_with_its_ratio_and_both_contents():
    compared = compare_record({"flashinfer": 2.0, "fla": 1.5})
    text = render_glance(ROOM, _standing([record()], compared))
    fla = side_sha256("fla")[:8]
    (line,) = [one for one in text.splitlines() if "best peer" in one]
    assert line.startswith("* best peer that passes every workload: fla 1.2.3, latency x1.")
    assert line.endswith(
        f" in the mean of the ratios; its content: `{fla}`; content of ours: `aaaaaaaa`"
    )
    path = "results/compare/gdn_decode.json"
    assert f"* comparison: [{path}](../../{path}), 2026-02-01, nvidia-h200; `python -m" in text


def test_a_peer_that_fails_some_workloads_stands_beside_the_best():
    failing = {"fla": (0, "INCORRECT_NUMERICAL", "wrong")}
    compared = compare_record({"flashinfer": 2.0, "fla": 0.5}, failing=failing)
    text = render_glance(ROOM, _standing([record()], compared))
    assert "best peer that passes every workload: flashinfer 1.2.3, latency x" in text
    assert re.search(r"; the hardest that fails some: fla x0\.\d+ on 2 of 3 \(geo.*; content", text)
    alone = compare_record({"fla": 0.5}, failing=failing)
    assert "* no peer passes every workload; the hardest" in render_glance(
        ROOM, _standing([], alone)
    )


def test_an_objection_to_a_comparison_is_said():
    text = render_glance(ROOM, _standing([], compare_record(), objection="expected 54, got 3"))
    assert "; no official comparison: expected 54, got 3; content of ours" in text


def test_other_content_is_labelled_stale_and_nothing_else_changes():
    compared = compare_record({"fla": 1.5})
    fresh, stale = (_standing([record()], compared, packed) for packed in (OURS_SHA256, OTHER))
    for one in (stale, _standing([record()], compared, None)):
        text = render_glance(ROOM, one)
        assert _cells(text)["content"] == "stale, measured on `aaaaaaaa`"
        assert "content of ours: stale, measured on `aaaaaaaa`" in text
        assert (
            "comparisons with others are of content: gdn_decode stale, measured on `aaaaaaaa`"
            in (render_front([ROOM], one))
        )
    changed = _standing([record()], compared, peers={(ROOM, "fla"): OTHER})
    assert "its content: stale, measured on" in render_glance(ROOM, changed)
    for render in (lambda of: render_glance(ROOM, of), lambda of: render_front([ROOM], of)):
        assert "stale" not in render(fresh)
        assert without_staleness(render(stale)) == render(fresh)


def test_the_front_names_the_content_of_each_comparison_and_who_has_none():
    standing = _standing([record()], compare_record())
    assert render_front([ROOM, "moe"], standing).endswith(
        "\n* comparisons with others are of content: gdn_decode `aaaaaaaa`; not compared: moe"
    )
    assert render_front([ROOM], standing).endswith("of content: gdn_decode `aaaaaaaa`")
    assert render_front([ROOM], _standing()).endswith(" |\n\n* not compared: gdn_decode")
