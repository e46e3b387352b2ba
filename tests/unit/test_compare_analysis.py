"""One side against another: rows, score, averages, regimes and the control, all from one record."""

from __future__ import annotations

import copy
import math
import statistics

import pytest

from harness.compare.analysis import analyse, official_score
from harness.compare.record import CompareRecord
from harness.compare.statistics import (
    FAST,
    NO_SPREAD,
    SAME,
    SLOW,
    UNSURE,
    ratio_intervals,
    score_interval,
)
from harness.errors import UsageError
from tests.sample_compare import compare_record, compare_values

FOUR = tuple({"batch_size": size} for size in (1, 2, 40, 80))


def _latencies(record, name):
    return [
        statistics.median(row.sides[name].rounds_us) if name in row.sides else None
        for row in record.workloads
    ]


def test_rows_come_in_the_records_order_with_medians_ratio_and_word():
    record = compare_record({"flashinfer": 2.0})
    found = analyse(record, "ours", "flashinfer")
    assert [row.uuid for row in found.rows] == ["u-0", "u-1", "u-2"]
    assert [row.axes for row in found.rows] == [row.axes for row in record.workloads]
    assert [row.a_us for row in found.rows] == _latencies(record, "ours")
    assert [row.b_us for row in found.rows] == _latencies(record, "flashinfer")
    for row in found.rows:
        assert row.interval.value == pytest.approx(2.0, rel=0.01)
        assert (row.word, row.reason) == (FAST, None)
    assert found.words == {FAST: 3, SLOW: 0, SAME: 0, UNSURE: 0}
    assert (found.record, found.a, found.b) == (record, "ours", "flashinfer")


def test_ratios_and_words_turn_round_with_the_sides():
    record = compare_record({"flashinfer": 2.0})
    forth, back = analyse(record, "ours", "flashinfer"), analyse(record, "flashinfer", "ours")
    assert back.words[SLOW] == 3
    for one, other in zip(forth.rows, back.rows, strict=True):
        assert one.interval.value == pytest.approx(1 / other.interval.value)


def test_score_and_averages_are_of_the_medians():
    record = compare_record({"fla": 1.5}, control=False)
    found = analyse(record, "ours", "fla")
    ours_us, fla_us = _latencies(record, "ours"), _latencies(record, "fla")
    ratios = [b / a for a, b in zip(ours_us, fla_us, strict=True)]
    assert found.score == found.score_interval.value == pytest.approx(statistics.mean(ratios))
    assert found.score_interval.low < found.score < found.score_interval.high
    assert found.ratio_of_means == pytest.approx(sum(fla_us) / sum(ours_us))
    assert found.geometric_mean == pytest.approx(statistics.geometric_mean(ratios))
    assert found.score_reason is None
    assert found.score_interval == score_interval(
        [row.sides["ours"].rounds_us for row in record.workloads],
        [row.sides["fla"].rounds_us for row in record.workloads],
    )


def test_wins_ties_and_losses_are_counted_at_the_margin():
    record = compare_record({"fla": 1.05}, axes=({"batch_size": 50}, {"batch_size": 60}))
    for margin, expected in ((0.01, (2, 0, 0)), (0.1, (0, 2, 0))):
        found = analyse(record, "ours", "fla", margin)
        assert (found.wins, found.ties, found.losses) == expected
        back = analyse(record, "fla", "ours", margin)
        assert (back.losses, back.ties, back.wins) == expected
    assert analyse(record, "ours", "fla", 0.1).words[SAME] == 2


def test_wins_and_words_count_the_same_ratios():
    values = compare_values({"fla": 1.0}, rounds=8, control=False)
    for row in values["workloads"]:  # the middle half's mean is 1.01 and more, the median below
        row["sides"]["ours"]["rounds_us"] = [100.0] * 8
        row["sides"]["fla"]["rounds_us"] = [100.0] * 2 + [100.5] * 3 + [104.0] * 3
    found = analyse(CompareRecord.from_json(values), "ours", "fla")
    assert all(row.b_us / row.a_us < 1.01 < row.interval.value for row in found.rows)
    assert (found.wins, found.ties, found.losses) == (3, 0, 0)


def _official(record, *peers):
    return official_score([analyse(record, "ours", peer) for peer in peers])


def test_the_official_score_is_the_one_against_flashinfer():
    record = compare_record({"fla": 1.5, "flashinfer": 2.0})
    found = _official(record, "fla", "flashinfer")
    assert found.against == analyse(record, "ours", "flashinfer")
    assert (found.value, found.reason) == (found.against.score, None)


def test_what_stands_in_for_flashinfer_gives_no_official_score():
    record = compare_record({"flashinfer": 2.0}, stands_in={"flashinfer": "BatchMLA"})
    found = _official(record, "flashinfer")
    assert (found.value, found.against) == (None, None)
    assert found.reason == (
        "FlashInfer's own kernels for this definition do not run on this device; measured in "
        "their place: BatchMLA"
    )
    assert analyse(record, "ours", "flashinfer").score == pytest.approx(2.0, rel=0.01)


def test_a_baseline_that_did_not_run_gives_no_official_score():
    found = _official(compare_record({"fla": 2.0}), "fla")
    assert (found.value, found.reason) == (None, "flashinfer was no side of the comparison")
    found = _official(compare_record({"fla": 2.0}, missing={"flashinfer": "absent"}), "flashinfer")
    assert (found.value, found.reason) == (None, "flashinfer could not be tried: absent")
    failing = {"flashinfer": (2, "RUNTIME_ERROR", "no sm_90")}
    found = _official(compare_record({"flashinfer": 2.0}, failing=failing), "flashinfer")
    assert found.value is None and "1 of 3 workloads of flashinfer" in found.reason


def test_a_failure_of_ours_is_an_official_score_of_zero():
    failing = {"ours": (1, "TIMEOUT", "hung")}
    record = compare_record({"flashinfer": 2.0}, failing=failing, control=False)
    found = _official(record, "flashinfer")
    assert found.value == 0.0 and "TIMEOUT: hung" in found.reason
    record = compare_record({}, failing=failing, missing={"flashinfer": "absent"}, control=False)
    assert _official(record, "flashinfer").value == 0.0  # whatever the baseline does


def test_a_failure_of_a_scores_zero_and_says_so():
    record = compare_record({"fla": 2.0}, failing={"ours": (1, "TIMEOUT", "hung")}, control=False)
    found = analyse(record, "ours", "fla")
    assert (found.score, found.score_interval) == (0.0, None)
    assert found.score_reason == (
        "1 of 3 workloads of ours have no latency; the first: ours: TIMEOUT: hung"
    )
    assert (found.ratio_of_means, found.geometric_mean) == (None, None)
    row = found.rows[1]
    assert (row.a_us, row.interval, row.word) == (None, None, None)
    assert row.b_us is not None
    assert row.reason == "ours: TIMEOUT: hung"
    assert found.wins + found.ties + found.losses == sum(found.words.values()) == 2


def test_a_failure_of_the_baseline_leaves_the_score_undefined():
    record = compare_record({"fla": 2.0}, failing={"fla": (2, "RUNTIME_ERROR", "no sm_90")})
    found = analyse(record, "ours", "fla")
    assert found.score is None
    assert "1 of 3 workloads of fla" in found.score_reason
    assert "no sm_90" in found.score_reason
    assert [row.word for row in found.rows] == [FAST, FAST, None]


def test_a_library_that_is_missing_says_why_on_every_row():
    record = compare_record({"fla": 2.0}, missing={"flashinfer": "flashinfer is not installed"})
    found = analyse(record, "ours", "flashinfer")
    assert {row.reason for row in found.rows} == {
        "flashinfer is missing: flashinfer is not installed"
    }
    assert found.score is None
    assert "3 of 3 workloads of flashinfer" in found.score_reason
    assert set(found.words.values()) == {0}


def test_a_workload_that_one_side_never_ran_is_no_comparison():
    values = compare_values({"fla": 2.0})
    del values["workloads"][0]["sides"]["fla"]
    values["sides"][-1] |= {"state": "failed", "reason": "it died"}
    found = analyse(CompareRecord.from_json(values), "ours", "fla")
    assert found.rows[0].reason == "fla was not run on this workload"
    assert found.rows[0].word is None
    assert found.score is None


def test_a_slow_side_with_fewer_rounds_is_paired_round_by_round():
    values = compare_values({"fla": 2.0}, rounds=8, control=False)
    ours, fla = ([2.0, 4.0, 8.0, 9.0, 9.0, 9.0, 9.0, 9.0], [4.0, 8.0, 16.0])
    values["workloads"][1]["sides"]["ours"]["rounds_us"] = ours
    values["workloads"][1]["sides"]["fla"]["rounds_us"] = fla
    record = CompareRecord.from_json(values)
    found = analyse(record, "ours", "fla")
    row = found.rows[1]
    assert (row.a_us, row.b_us) == (4.0, 8.0)
    assert row.interval == ratio_intervals([ours[:3]], [fla])[0]
    assert row.interval.value == pytest.approx(2.0)
    others = [found.rows[0].interval, found.rows[2].interval]
    for interval, index in zip(others, (0, 2), strict=True):
        sides = record.workloads[index].sides
        assert interval == ratio_intervals([sides["ours"].rounds_us], [sides["fla"].rounds_us])[0]
    assert found.score == pytest.approx(2.0, rel=0.01)


def test_regimes_have_a_geometric_mean_where_all_of_their_workloads_compare():
    record = compare_record(
        {"fla": 2.0}, axes=FOUR, failing={"fla": (3, "RUNTIME_ERROR", "too large")}
    )
    found = analyse(record, "ours", "fla").regimes
    assert [(one.axis, one.label, one.count) for one in found] == [
        ("batch_size", str(size), 1) for size in (1, 2, 40, 80)
    ]
    assert found[0].geometric_mean == pytest.approx(2.0, rel=0.01)
    assert found[0].words[FAST] == 1
    assert found[3].geometric_mean is None
    assert sum(found[3].words.values()) == 0


def test_the_control_shows_what_two_equal_things_differ_by():
    record = compare_record({"fla": 2.0}, axes=FOUR)
    control = analyse(record, "ours", "fla").control
    assert (control.side, control.compared, control.different) == ("ours", 4, 0)
    assert math.sqrt(control.spread.variance) < 0.005
    assert control.geometric_mean == pytest.approx(1.0, abs=0.01)
    assert analyse(record, "fla", "ours").control == control  # the first side, whoever is asked


def test_a_control_that_differs_is_counted():
    values = compare_values({"fla": 2.0}, axes=FOUR)
    for row in values["workloads"][2:]:
        row["sides"]["control"]["rounds_us"] = [
            1.2 * us for us in row["sides"]["ours"]["rounds_us"]
        ]
    control = analyse(CompareRecord.from_json(values), "ours", "fla").control
    assert (control.compared, control.different) == (4, 2)
    assert math.sqrt(control.spread.common) == pytest.approx(math.log(1.2) / 2, rel=0.05)
    assert math.sqrt(control.spread.within) == pytest.approx(math.log(1.2) / math.sqrt(3), rel=0.05)
    assert control.geometric_mean == pytest.approx(math.sqrt(1.2), rel=0.01)


def test_what_two_processes_differ_by_widens_every_interval_and_the_score():
    values = compare_values({"fla": 1.1}, axes=FOUR)
    alone = analyse(CompareRecord.from_json(values), "ours", "fla")
    assert alone.words[FAST] == 4
    for row, factor in zip(values["workloads"], (0.8, 1.2, 1.3, 0.9), strict=True):
        row["sides"]["control"]["rounds_us"] = [
            factor * us for us in row["sides"]["ours"]["rounds_us"]
        ]
    found = analyse(CompareRecord.from_json(values), "ours", "fla")
    assert found.words[UNSURE] == 4
    for row, calm in zip(found.rows, alone.rows, strict=True):
        assert row.interval.value == calm.interval.value
        assert row.interval.low < 0.9 and row.interval.high > 1.3
    assert found.score_interval.low < alone.score_interval.low
    assert found.score_interval.high > alone.score_interval.high
    assert analyse(CompareRecord.from_json(values), "ours", "control").words[FAST] == 2


def test_no_control_and_one_that_never_passed_are_told_apart():
    record = compare_record({"fla": 2.0}, control=False)
    assert analyse(record, "ours", "fla").control is None
    values = compare_values({"fla": 2.0})
    for row in values["workloads"]:
        row["sides"]["control"] = {"status": "TIMEOUT", "detail": "", "rounds_us": []}
    values["sides"][1] |= {"state": "failed", "reason": "hung"}
    control = analyse(CompareRecord.from_json(values), "ours", "fla").control
    assert (control.compared, control.spread, control.geometric_mean) == (0, NO_SPREAD, None)


def test_every_workload_has_a_word_or_a_reason():
    record = compare_record(
        {"fla": 1.0, "flashinfer": 2.0},
        axes=FOUR,
        failing={"fla": (0, "TIMEOUT", "hung"), "ours": (1, "TIMEOUT", "hung")},
        missing={"torch_compile": "not installed"},
    )
    for b in ("fla", "flashinfer", "torch_compile", "control"):
        found = analyse(record, "ours", b)
        assert len(found.rows) == 4
        for row in found.rows:
            assert (row.word is None) == (row.interval is None) == (row.reason is not None)


@pytest.mark.parametrize("name", ["absent", "Ours", ""])
def test_unknown_sides_are_named_with_the_known_ones(name):
    record = compare_record()
    for a, b in (("ours", name), (name, "ours")):
        with pytest.raises(UsageError, match="ours, control, flashinfer; got"):
            analyse(record, a, b)


def test_a_side_is_not_compared_with_itself():
    with pytest.raises(UsageError, match="two sides, got ours twice"):
        analyse(compare_record(), "ours", "ours")


def test_analysis_changes_nothing_and_repeats():
    record = compare_record({"fla": 1.2})
    before = copy.deepcopy(record)
    assert analyse(record, "ours", "fla") == analyse(record, "ours", "fla")
    assert record == before


def test_a_file_that_bears_the_baselines_name_is_not_the_baseline():
    values = compare_values({"flashinfer": 2.0})
    assert official_score([analyse(CompareRecord.from_json(values), "ours", "flashinfer")]).value
    side = next(one for one in values["sides"] if one["name"] == "flashinfer")
    side |= {"kind": "json", "package": None, "pinned": None, "installed": None, "prepared": None}
    found = official_score([analyse(CompareRecord.from_json(values), "ours", "flashinfer")])
    assert (found.value, found.against) == (None, None)
    assert "flashinfer was no side of the comparison" in found.reason
