"""The tables of docs/trust.md say what the tests gave, of the tricks and faults as they are."""

import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from harness.audit.timer_record import TimerRecord, make_row
from harness.config import load_workspace
from harness.errors import UsageError
from harness.report import read_block
from tests import trust_results
from tests.cheat_table import CHEATS
from tests.trust_results import JUDGED, PROBED, Reports, Row, keep, load, result, tables
from tests.unit.fault_registry import ALL_FAULTS, GPU_FAULTS

AGAIN = "run python -m tests.trust_results"


@pytest.mark.parametrize("name", ["faults", "cheats", "rooms", "timers"])
def test_the_document_shows_what_is_kept(name):
    text = trust_results.PAGE.read_text(encoding="utf-8")
    assert read_block(text, name) == tables(load())[name], f"{AGAIN} --show"


def test_what_was_run_under_main_is_said_of_the_contests_rooms_alone():
    text = trust_results.PAGE.read_text(encoding="utf-8")
    section = text.split("\n## Under main\n")[1]
    assert len(load_workspace().contest_rooms) == 5
    assert "the contest's five rooms" in section and "all rooms" not in section


def test_every_fault_that_needs_no_gpu_was_tried_as_it_is_and_passed():
    rows = load()
    for fault in ALL_FAULTS:
        if fault not in GPU_FAULTS:
            row = rows[("fault", fault.name)]
            assert row.tried == trust_results.tried_of_fault(fault), f"{fault.name}: {AGAIN}"
            assert row.outcome == "passed", f"{fault.name}: {row}"
            assert row.verdict == fault.status, fault.name


def test_every_trick_that_needs_no_gpu_was_tried_as_it_is_and_caught():
    rows = load()
    for trick, cheat in CHEATS.items():
        if not cheat.needs_gpu:
            row = rows[("cheat", trick)]
            assert row.tried == trust_results.tried_of_cheat(trick), f"{trick}: {AGAIN}"
            expected = ("passed", "FAILED", cheat.judged)
            assert (row.outcome, row.verdict, row.judged) == expected, trick


def test_what_a_gpu_gave_is_no_failure():
    """Rows may be missing, or older than their tests: then the table says so."""
    for key, row in load().items():
        if row.device != "cpu":
            assert row.outcome == "passed", key


# How rows come about


FAULT = ALL_FAULTS[0]


def report(place, parameter="", outcome="passed", **properties):
    return place, parameter, outcome, properties


def reports_of(*seen):
    reports = Reports()
    reports.seen = list(seen)
    return reports


def test_a_row_takes_the_worst_outcome_and_what_was_seen():
    seen = [report(FAULT.held_by, FAULT.name, verdict="TIMEOUT"),
            report(FAULT.held_by, "another", "failed", verdict="PASSED")]  # fmt: skip
    row = trust_results.fault_row(FAULT, reports_of(*seen), "cpu")
    assert (row.outcome, row.verdict, row.device) == ("passed", "TIMEOUT", "cpu")
    seen.append(report(FAULT.held_by, FAULT.name, "failed", verdict="PASSED"))
    row = trust_results.fault_row(FAULT, reports_of(*seen), "cpu")
    assert (row.outcome, row.verdict) == ("failed", "PASSED, TIMEOUT")
    assert trust_results.fault_row(FAULT, reports_of(), "cpu") is None


def test_all_cases_of_a_test_without_the_faults_name_count():
    disk = next(fault for fault in ALL_FAULTS if fault.name == "full disk")
    seen = [report(disk.held_by, "0"), report(disk.held_by, "1", "skipped")]
    assert trust_results.fault_row(disk, reports_of(*seen), "cpu").outcome == "skipped"


def test_a_trick_has_the_verdicts_of_its_probe_and_of_the_judge():
    file = "unit/test_audit_cheats.py"
    places = trust_results.cheat_places(PROBED, JUDGED)
    judged = next(one for one in places if JUDGED in one)
    seen = [report(f"{file}::{PROBED}", "leaves_a_gap", verdict="FAILED"),
            report(judged, "leaves_a_gap", verdict="PASSED"),
            report(judged, "writes_later", verdict="TIMEOUT")]  # fmt: skip
    row = trust_results.cheat_row("leaves_a_gap", reports_of(*seen), "cpu")
    assert (row.verdict, row.judged, row.outcome) == ("FAILED", "PASSED", "passed")
    assert len(places) == 5, "two that probe and two that judge, and the device's"


def test_a_changed_fault_trick_or_test_makes_a_row_stale(monkeypatch):
    tried = trust_results.tried_of_fault(FAULT)
    assert trust_results.tried_of_fault(replace(FAULT, words="others")) != tried
    trick = trust_results.tried_of_cheat("leaves_a_gap")
    monkeypatch.setattr(trust_results, "source_of", lambda *_: "another test")
    assert trust_results.tried_of_fault(FAULT) != tried
    assert trust_results.tried_of_cheat("leaves_a_gap") != trick
    row = Row("fault", "x", "passed", "TIMEOUT", "", "cpu", tried)
    assert result(row, tried, "just that") == "TIMEOUT, cpu"
    assert result(replace(row, verdict=""), tried, "just that") == "just that, cpu"
    assert result(row, trick, "") == "stale: passed before the test changed"
    assert result(None, tried, "") == trust_results.NOT_RUN


def test_rows_are_kept_beside_those_of_other_machines(tmp_path):
    path = tmp_path / "trust.json"
    first, last = ALL_FAULTS[0].name, ALL_FAULTS[-1].name
    on_gpu = Row("fault", last, "passed", "TIMEOUT", "", "nvidia-h200", "a")
    keep([on_gpu], path)
    here = Row("fault", first, "failed", "", "", "cpu", "b")
    keep([here], path)
    keep([replace(here, outcome="passed")], path)
    assert list(load(path).values()) == [replace(here, outcome="passed"), on_gpu]


def test_a_page_is_written_once(tmp_path):
    page = tmp_path / "trust.md"
    shutil.copy(trust_results.PAGE, page)
    trust_results.show({}, page)
    once = page.read_text()
    assert read_block(once, "faults").count(trust_results.NOT_RUN) == len(ALL_FAULTS)
    trust_results.show({}, page)
    assert page.read_text() == once


def test_check_finds_a_table_of_other_rows_and_writes_nothing(tmp_path, monkeypatch, capsys):
    page = tmp_path / "trust.md"
    shutil.copy(trust_results.PAGE, page)
    monkeypatch.setattr(trust_results, "differences", partial(trust_results.differences, page=page))
    trust_results.show(load(), page)
    assert trust_results.main(["--check"]) == 0
    edited = page.read_text().replace("| CUPTI | graph |", "| CUPTI | graphs |")
    page.write_text(edited)
    capsys.readouterr()
    assert trust_results.main(["--check"]) == 1
    said = f"{page}: timers: not the table of what is kept; run `{trust_results.COMMAND} --show`\n"
    assert capsys.readouterr().out == said
    assert page.read_text() == edited


def test_the_options_of_the_command_exclude_each_other_and_have_words(capsys):
    assert trust_results.main(["--gpu", "--check"]) == 2
    assert trust_results.main(["--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    for option in ("--gpu run those that", "--show write the tables", "--check exit 1 where"):
        assert option in words


def test_a_page_without_a_table_is_refused_and_stays_as_it_was(tmp_path):
    page = tmp_path / "trust.md"
    text = trust_results.PAGE.read_text().replace("<!-- cheats: end -->", "")
    page.write_text(text)
    with pytest.raises(UsageError, match="block cheats"):
        trust_results.show({}, page)
    assert page.read_text() == text


# Timers


def timer_lines(monkeypatch, record, packed_sha256):
    """The table's lines of moe, and what stands below it."""
    found = {"moe": record}
    monkeypatch.setattr(trust_results, "load_timers", lambda root, room: found.get(room))
    monkeypatch.setattr(trust_results, "pack", lambda *_: SimpleNamespace(sha256=packed_sha256))
    lines = trust_results.render_timers(load_workspace()).splitlines()
    return [line for line in lines[2:] if line.startswith(("| moe", "["))]


def timer_record():
    row = make_row("0123456789", {"n": 1}, "n 1", 10.0, 13.0, "2026-01-31T23:59:59Z")
    rows = (row.with_ncu((4.0, 5.0)), replace(row.with_ncu("denied"), uuid="ab", graph_us=10.5))
    sha256 = "ab" * 32
    return TimerRecord(
        "moe", "d", "moe-a", sha256, "c" * 40, "nvidia-h200", "H200", "1", {}, "x", rows
    )


def test_timers_stand_with_bounds_disagreements_and_why_one_is_missing(monkeypatch):
    first, second, note = timer_lines(monkeypatch, timer_record(), "ab" * 32)
    end = "`abababab` | nvidia-h200 |"
    assert (
        first == f"| moe | `01234567` n 1 | 10.00 | 13.00 ± 2.000 | 9.000 ± 4.000 | graph | {end}"
    )
    assert second.startswith("| moe | `ab` n 1 | 10.00 | 10.50 ± 2.000 | not measured [1] | none |")
    assert note == "[1] denied"


def test_timers_of_other_content_are_stale_and_of_none_not_measured(monkeypatch):
    lines = timer_lines(monkeypatch, timer_record(), "cd" * 32)
    assert all("stale, measured on `abababab`" in line for line in lines[:2])
    assert timer_lines(monkeypatch, None, "")[0].startswith("| moe | not measured |")
