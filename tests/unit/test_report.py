"""Tables from records: nothing shown without device and timer, stale evidence labelled."""

from __future__ import annotations

import math
import re

import pytest

from harness.cli import report as command
from harness.errors import ExitCode, UsageError
from harness.records import ABSENT, format_us, write_latest
from harness.report import (
    is_stale,
    place_block,
    read_block,
    render_summary,
    render_workloads,
    replace_block,
    without_staleness,
)
from tests.official_rooms import OFFICIAL_ROOMS
from tests.sample_records import record, row, write_checkout

NOW, OTHER = "a" * 64, "f" * 64


def _cells(table, room):
    """The cells of a room's row by column name."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    columns, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return next(dict(zip(columns, cells, strict=True)) for cells in rows if cells[0] == room)


def test_a_row_shows_counts_averages_floor_and_origin():
    rows = tuple(row(f"u-{i}", 2.0 + i / 10, floor_us=1.0 + i / 10) for i in range(21))
    cells = _cells(
        render_summary(["gdn_decode"], [record(rows)], {"gdn_decode": NOW}), "gdn_decode"
    )
    assert cells == {
        "room": "gdn_decode",
        "passed": "21/21",
        "mean µs": "3.000",
        "median µs": "3.000",
        "p95 µs": "3.900",
        "mean floor µs": "2.000",
        "mean / floor": "1.50",
        "device": "nvidia-h200",
        "timer": "cupti",
        "content": "`aaaaaaaa`",
    }


def test_the_notes_say_how_each_row_was_measured():
    text = render_summary(["gdn_decode"], [record()], {"gdn_decode": NOW})
    for part in (
        "nvidia-h200: torch 2.11.0, 10 + 50 calls, 3 trials",
        "seed 0",
        "generated `dddddddd`",
        "judge `bbbbbbbb`",
        "commit `cccccccc`",
        "2026-01-31T23:59:59Z",
    ):
        assert part in text
    assert "throttled" not in text
    both = record(libraries={"triton": "3.6.0", "numpy": "2.1.0", "torch": "2.11.0"})
    assert "torch 2.11.0, triton 3.6.0, 10" in render_summary(["gdn_decode"], [both], {})
    slowed = record(clocks={"samples": 6, "throttled": 1})
    assert "1 of 6 clock samples throttled" in render_summary(["gdn_decode"], [slowed], {})


def test_a_room_without_evidence_is_not_measured():
    text = render_summary(["moe", "gdn_decode"], [record()], {"gdn_decode": NOW})
    cells = _cells(text, "moe")
    assert cells["passed"] == "not measured"
    assert set(cells.values()) == {"moe", "not measured", ABSENT}
    assert text.index("| moe") < text.index("| gdn_decode")  # the rows follow the rooms' order


def test_every_device_has_a_row_of_its_own():
    other = record(device="nvidia-b200", workloads=(row("u-0", floor_us=None),))
    text = render_summary(["gdn_decode"], [record(), other], {"gdn_decode": NOW})
    rows = [line for line in text.splitlines() if line.startswith("| gdn_decode")]
    assert ["nvidia-b200" in rows[0], "nvidia-h200" in rows[1]] == [True, True]
    assert f"| {ABSENT} | {ABSENT} |" in rows[0]  # no ceilings, hence neither floor nor ratio


def test_other_content_is_labelled_stale():
    evidence = record()
    for packed in ({"gdn_decode": OTHER}, {"gdn_decode": None}, {}):
        cells = _cells(render_summary(["gdn_decode"], [evidence], packed), "gdn_decode")
        assert cells["content"] == "stale, measured on `aaaaaaaa`"
        assert cells["mean µs"] == "2.294"
    assert "stale, measured on `aaaaaaaa`" in render_workloads(evidence, OTHER)
    assert is_stale(evidence, OTHER) and not is_stale(evidence, NOW)


def test_staleness_is_the_only_difference_it_makes():
    fresh = render_summary(["gdn_decode"], [record()], {"gdn_decode": NOW})
    stale = render_summary(["gdn_decode"], [record()], {"gdn_decode": OTHER})
    assert fresh != stale
    assert without_staleness(stale) == fresh == without_staleness(fresh)


def test_a_failed_workload_leaves_no_averages():
    partly = record((row("u-0"), row("u-1", None)))
    cells = _cells(render_summary(["gdn_decode"], [partly], {"gdn_decode": NOW}), "gdn_decode")
    assert cells["passed"] == "1/2"
    assert {cells[name] for name in ("mean µs", "median µs", "p95 µs", "mean / floor")} == {ABSENT}


def test_workloads_that_differ_in_the_fourth_digit_look_different():
    table = render_workloads(
        record((row("u-0", 0.002187 * 1e3), row("u-1", 0.002188 * 1e3), row("u-2", 0.0024 * 1e3))),
        NOW,
    )
    assert [word in table for word in ("2.187", "2.188", "2.400")] == [True] * 3


def test_a_workload_row_shows_axes_status_ratio_and_errors():
    rows = (
        row("12345678-9abc", 2.0928, axes={"batch_size": 4}, max_abs_error=0.00123),
        row("u-1", None, status="INCORRECT_NUMERICAL", max_abs_error=math.nan, floor_us=None),
        row("u-2", None, status="TIMEOUT", max_abs_error=None, max_rel_error=None),
    )
    table = render_workloads(record(rows), NOW)
    assert table.startswith(
        "gdn_decode on nvidia-h200, timer cupti, content `aaaaaaaa`: 1/3 passed"
    )
    assert "| `12345678` | batch_size=4 | PASSED | 2.093 | 1.046 | 2.00 | 0.0012 | 0.002 |" in table
    dash = ABSENT
    assert f"| INCORRECT_NUMERICAL | {dash} | {dash} | {dash} | nan | 0.002 |" in table
    assert f"| TIMEOUT | {dash} | 1.046 | {dash} | {dash} | {dash} |" in table


def test_tables_are_well_formed():
    for text in (
        render_summary(["moe", "gdn_decode"], [record()], {}),
        render_workloads(record(), NOW),
    ):
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1
        assert re.fullmatch(r"(\| -{3}:? )+\|", lines[1])


# --- the block of the README -----------------------------------------------------------------

PAGE = "# Title\n<!-- results: begin (made) -->\nold\n<!-- results: end -->\ntail\n"


def test_only_the_block_is_replaced():
    page = replace_block(PAGE, "results", "| new |")
    assert page.startswith("# Title\n<!-- results: begin (made) -->\n")
    assert page.endswith("<!-- results: end -->\ntail\n")
    assert read_block(page, "results") == "| new |"
    assert replace_block(page, "results", "| new |") == page


def test_a_page_without_the_block_gets_it_under_its_title():
    page = place_block("# Title\n\nText.\n", "results", "made", "| new |")
    assert page == (
        "# Title\n\n<!-- results: begin (made) -->\n\n| new |\n\n<!-- results: end -->\n\nText.\n"
    )
    assert place_block(page, "results", "another", "| new |") == page
    assert place_block(PAGE, "results", "made", "x") == replace_block(PAGE, "results", "x")
    with pytest.raises(UsageError, match="block results: expected a title"):
        place_block("Text.\n", "results", "made", "x")
    with pytest.raises(UsageError, match="results: begin"):
        place_block("# Title\n<!-- results: end -->\n", "results", "made", "x")


@pytest.mark.parametrize(
    "page",
    [
        "no markers",
        "<!-- results: end -->\n<!-- results: begin -->\n",
        PAGE + PAGE,
        "<!-- results: begin -->\n",
        "<!-- other: begin -->\n<!-- other: end -->\n",
    ],
)
def test_missing_or_doubled_markers_are_an_error(page):
    with pytest.raises(UsageError, match="results: begin"):
        replace_block(page, "results", "x")


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one measured room, whose packed hash the test decides."""
    from harness.config import load_workspace

    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "docs" / "kernels").mkdir(parents=True)
    for room in OFFICIAL_ROOMS:
        (tmp_path / "docs" / "kernels" / f"{room}.md").write_text(f"# {room}\n\nText.\n")
    write_checkout(tmp_path, ["u-0", "u-1"])
    write_latest(record(), tmp_path)
    monkeypatch.setattr(command, "load_workspace", lambda: load_workspace(tmp_path))
    hashes = {"gdn_decode": NOW}
    monkeypatch.setattr(command, "packed_hashes", lambda workspace, rooms: hashes)
    monkeypatch.setattr("harness.report.evidence.pack_peers", lambda workspace: {})
    return tmp_path, hashes


def _run(*arguments):
    return command.report.main(list(arguments), standalone_mode=False)


def test_report_prints_the_table(checkout, capsys):
    assert _run("gdn_decode") == ExitCode.OK
    assert "| gdn_decode | 2/2 | 2.294 |" in capsys.readouterr().out
    assert _run("--device", "nvidia-h200") == ExitCode.OK
    assert "2.294" in capsys.readouterr().out
    with pytest.raises(UsageError, match="expected one of nvidia-h200; got 'nvidia-b200'"):
        _run("--device", "nvidia-b200")


def test_report_prints_workloads(checkout, capsys):
    assert _run("--workloads", "gdn_decode") == ExitCode.OK
    out = capsys.readouterr().out
    assert "`u-0`" in out and "2.401" in out
    assert _run("--workloads", "moe") == ExitCode.OK
    assert capsys.readouterr().out == "not measured\n"


def test_readme_is_rewritten_and_then_agrees(checkout, capsys):
    root, _ = checkout
    assert _run("--check") == ExitCode.FAILED
    assert "report --readme" in capsys.readouterr().out
    assert (root / "README.md").read_text() == PAGE  # a check never fixes
    assert _run("--readme") == ExitCode.OK
    assert "| gdn_decode | 2/2 | 2.294 |" in (root / "README.md").read_text()
    assert _run("--check") == ExitCode.OK
    pages = [root / "README.md", *(root / "docs" / "kernels").iterdir()]
    before = [page.stat().st_mtime_ns for page in pages]
    capsys.readouterr()
    assert _run("--readme") == ExitCode.OK
    assert [page.stat().st_mtime_ns for page in pages] == before
    assert capsys.readouterr().out.count(": unchanged\n") == 6


def test_a_rooms_page_has_its_numbers_under_the_title(checkout, capsys):
    root, _ = checkout
    page = root / "docs" / "kernels" / "gdn_decode.md"
    assert _run("--readme") == ExitCode.OK
    title, _, marker, _, _, _, row, *rest = page.read_text().splitlines()
    assert title == "# gdn_decode" and rest[-1] == "Text."
    assert marker == f"<!-- glance: begin ({command.TO_RENDER}) -->"
    assert row.startswith("| 2.294 | 2.294 | 2.390 | 2.19 | 2/2 | nvidia-h200 | cupti |")
    page.write_text(page.read_text().replace("2.294", "1.294"))
    capsys.readouterr()
    assert _run("--check") == ExitCode.FAILED
    assert "docs/kernels/gdn_decode.md differs from results/" in capsys.readouterr().out


def test_a_page_without_a_place_stops_all_of_them(checkout):
    root, _ = checkout
    page = root / "docs" / "kernels" / "gdn_prefill.md"
    page.write_text("Text.\n")
    with pytest.raises(UsageError, match="block glance: expected a title"):
        _run("--readme")
    page.unlink()
    for option in ("--readme", "--check"):
        with pytest.raises(UsageError, match=r"gdn_prefill\.md: expected the room's page"):
            _run(option)
    assert (root / "README.md").read_text() == PAGE


def test_work_in_progress_is_named_and_does_not_fail_the_check(checkout, capsys):
    _, hashes = checkout
    _run("--readme")
    hashes["gdn_decode"] = OTHER
    capsys.readouterr()
    assert _run("--check") == ExitCode.OK
    out = capsys.readouterr().out
    assert "gdn_decode on nvidia-h200 is stale" in out
    for page in ("README.md", "docs/kernels/gdn_decode.md"):
        assert f"{page}: what is stale has changed; run `{command.TO_RENDER}`" in out
    _run("--readme")
    capsys.readouterr()
    assert _run("--check") == ExitCode.OK
    assert "has changed" not in capsys.readouterr().out


def test_a_number_changed_by_hand_fails_the_check(checkout):
    root, _ = checkout
    _run("--readme")
    page = root / "README.md"
    page.write_text(page.read_text().replace(format_us(2.294), format_us(1.294)))
    assert _run("--check") == ExitCode.FAILED


def test_readme_takes_no_selection(checkout):
    with pytest.raises(UsageError, match="all rooms"):
        _run("--readme", "gdn_decode")


def test_a_room_that_does_not_pack_has_no_hash(monkeypatch, capsys):
    from harness.config import load_workspace
    from harness.errors import PackingError

    def pack(workspace, room):
        raise PackingError("kernel.py:3: no such file")

    monkeypatch.setattr(command, "pack", pack)
    assert command.packed_hashes(load_workspace(), ["moe"]) == {"moe": None}
    assert "moe does not pack: kernel.py:3" in capsys.readouterr().err
