"""Tables of sizes between the official ones: the line, the cliffs, and pages that are in step."""

import pytest

from harness.config import load_workspace
from harness.packing import pack
from harness.report.blocks import read_block
from tests.packed import build, device
from tests.shape_families import FAMILIES, Family
from tests.shapes import KEPT, ROOT, Row, cliffs, interpolate, keep, load, ratio_of, render

FAMILY = Family("sizes", (1, 4, 8), (2, 6, 16), lambda size, device: ([], []))
TIMES = {1: 2.0, 2: 3.0, 4: 5.0, 6: 9.3, 8: 11.0, 16: 12.6}
ROWS = [Row("sizes", size, us, {}) for size, us in TIMES.items()]
RECORDS = sorted(KEPT.glob("*/*.json"))


@pytest.mark.parametrize(
    ("size", "wanted"), [(1, 2.0), (2, 3.0), (4, 5.0), (6, 8.0), (8, 11.0), (16, 11.0), (0, 2.0)]
)
def test_a_line_runs_through_the_anchors_beside_a_size(size, wanted):
    assert interpolate({1: 2.0, 4: 5.0, 8: 11.0}, size) == wanted


def test_only_what_lies_between_anchors_has_a_ratio():
    assert ratio_of(FAMILY, ROWS, 4) is None
    assert ratio_of(FAMILY, ROWS, 2) == 1.0
    assert ratio_of(FAMILY, ROWS, 16) == pytest.approx(12.6 / 11)


def test_a_cliff_is_more_than_15_percent_above_the_line(monkeypatch):
    monkeypatch.setitem(FAMILIES, "gdn_decode", (FAMILY,))
    assert cliffs("gdn_decode", ROWS[:3] + ROWS[4:5] + [Row("sizes", 6, 9.1, {}), ROWS[5]]) == []
    assert cliffs("gdn_decode", ROWS) == ["gdn_decode, sizes: 6 takes 1.16 of its neighbours"]


@pytest.mark.slow
@pytest.mark.parametrize("room", FAMILIES)
def test_the_smallest_size_of_a_family_runs(room):
    for family in FAMILIES[room]:
        if family.sizes[0] > 100:
            continue  # minutes in the interpreter
        inputs, outputs = family.make(family.sizes[0], device())
        build(room)(*inputs, *outputs)


def test_a_record_reads_back_as_it_was_kept(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.shapes.KEPT", tmp_path)
    path = keep("gdn_decode", ROWS, "0" * 40)
    head, rows = load(path)
    assert rows == ROWS
    assert head["solution_sha256"] == pack(load_workspace(), "gdn_decode").sha256


def test_a_table_of_other_content_says_that_it_is_stale(monkeypatch):
    monkeypatch.setitem(FAMILIES, "gdn_decode", (FAMILY,))
    head = {
        "device": "nvidia-h200",
        "solution_sha256": "a" * 64,
        "protocol": {"iterations": 50, "passes": 3},
        "measured_at": "2026-11-30T00:00:00Z",
    }
    assert "stale" not in render("gdn_decode", head, ROWS, "a" * 64)
    table = render("gdn_decode", head, ROWS, "b" * 64)
    assert "*stale: measured on `aaaaaaaa`*" in table
    assert "| sizes | 6 | 9.30 | 8.00 | 1.16 | - |" in table


@pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])
def test_a_page_shows_its_record(path):
    head, rows = load(path)
    page = (ROOT / "docs" / "kernels" / f"{path.stem}.md").read_text(encoding="utf-8")
    table = render(path.stem, head, rows, pack(load_workspace(), path.stem).sha256)
    assert read_block(page, "shapes") == table
