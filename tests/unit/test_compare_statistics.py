"""Simulated comparisons: what the intervals and the words get right, and how often.

The noise is what an idle GPU shows: log-normal, 0.5 to 1 % a round; 2 % of rounds 3 to 20 % slower;
a clock that drifts by 1 % a minute; readings in steps of the timer.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from harness.compare.statistics import (
    CONFIDENCE,
    DEFAULT_ROUNDS,
    FAST,
    NO_SPREAD,
    SAME,
    SLOW,
    TIMER_STEP_US,
    UNSURE,
    Interval,
    ProcessSpread,
    process_spread,
    ratio_intervals,
    score_interval,
    word,
)
from harness.errors import UsageError

DRIFT_PER_S = 0.01 / 60
ROUND_S, TURN_S = 2.0, 0.5  # from round to round, and from side to side within one
SWEEP_S = 180.0  # from one side's sweep to the other's where they do not take turns


def simulate(
    workloads: int,
    rounds: int = DEFAULT_ROUNDS,
    *,
    a_us: float = 20.0,
    ratio: float = 1.0,
    interleaved: bool = True,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds of two sides, [workloads, rounds] in µs; b takes `ratio` times as long as a."""
    rng = np.random.default_rng(seed)
    start_s = ROUND_S * np.arange(rounds)
    late_s = TURN_S * (np.arange(rounds) % 2)  # the sides take turns at going first
    b_start_s = start_s + TURN_S - late_s if interleaved else start_s + SWEEP_S
    noise = rng.uniform(0.005, 0.01, (workloads, 1))
    sides = []
    for latency_us, at_s in ((a_us, start_s + late_s), (a_us * ratio, b_start_s)):
        logs = DRIFT_PER_S * at_s + noise * rng.standard_normal((workloads, rounds))
        is_outlier = rng.random((workloads, rounds)) < 0.02
        logs += is_outlier * rng.uniform(0.03, 0.2, (workloads, rounds))
        sides.append(np.round(latency_us * np.exp(logs) / TIMER_STEP_US) * TIMER_STEP_US)
    return sides[0], sides[1]


def shares(intervals: list[Interval]) -> dict[str, float]:
    counts = Counter(word(interval) for interval in intervals)
    return {name: counts[name] / len(intervals) for name in (FAST, SLOW, SAME, UNSURE)}


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([one.low <= truth <= one.high for one in intervals]))


# --- what the words get right ----------------------------------------------------------------


def test_a_thousand_equal_pairs_are_rarely_called_different_although_the_clock_drifts(monkeypatch):
    calls, bootstrap = [], scipy.stats.bootstrap
    monkeypatch.setattr(
        scipy.stats, "bootstrap", lambda *a, **k: calls.append(k) or bootstrap(*a, **k)
    )
    found = shares(ratio_intervals(*simulate(1000)))
    assert found[FAST] + found[SLOW] <= 0.05
    assert found[SAME] > 0.4  # "never different" is not bought by never deciding
    assert [call["vectorized"] for call in calls] == [True]  # one call: seconds, not minutes


def test_the_same_drift_makes_equal_sides_differ_where_they_do_not_take_turns():
    found = shares(ratio_intervals(*simulate(1000, interleaved=False)))
    assert found[FAST] > 0.9  # the side that ran later looks slower


@pytest.mark.parametrize("a_us", [5.0, 20.0, 300.0])
def test_a_gain_of_three_percent_is_found_with_the_default_rounds(a_us):
    gain = shares(ratio_intervals(*simulate(1000, a_us=a_us, ratio=1.03, seed=1)))
    assert gain[FAST] >= 0.95
    assert gain[SLOW] == gain[SAME] == 0
    loss = shares(ratio_intervals(*simulate(1000, a_us=a_us, ratio=1 / 1.03, seed=2)))
    assert loss[SLOW] >= 0.95


def three_processes(
    workloads: int, ratio: float, seed: int, within: float = 0.015, common: float = 0.003
) -> list[np.ndarray]:
    """Rounds of a side, of a second process of it, and of another side. The log ratio of each of
    the last two to the first deviates by `within` a workload and by `common` in all of them."""
    rng = np.random.default_rng(seed)
    first, again = simulate(workloads, seed=seed)
    _, other = simulate(workloads, ratio=ratio, seed=seed + 1000)
    luck = common * rng.standard_normal((2, 1)) + within * rng.standard_normal((2, workloads))
    again, other = (us * np.exp(own)[:, None] for us, own in zip((again, other), luck, strict=True))
    return [first, again, other]


def test_intervals_that_trust_the_rounds_call_equal_processes_different():
    first, _, other = three_processes(1000, 1.0, seed=3)
    found = shares(ratio_intervals(first, other, resamples=300))
    assert found[FAST] + found[SLOW] > 0.2  # why the control is there


@pytest.mark.parametrize(
    ("within", "common"),
    [(0.015, 0.0), (0.015, 0.003), (0.015, 0.01), (0.005, 0.02), (0.0, 0.03)],
)
def test_what_two_processes_of_one_solution_differ_by_is_no_difference(within, common):
    told, held, scores_held = 0.0, 0.0, 0.0
    trials, workloads = 100, 20
    for seed in range(trials):
        first, again, other = three_processes(workloads, 1.0, seed, within, common)
        spread = process_spread(first, again, resamples=200)
        intervals = ratio_intervals(first, other, spread=spread, resamples=200)
        told += (shares(intervals)[FAST] + shares(intervals)[SLOW]) / trials
        held += coverage(intervals, 1.0) / trials
        score = score_interval(first, other, spread=spread, resamples=200)
        scores_held += coverage([score], 1.0) / trials
    assert told <= 1 - CONFIDENCE
    assert held >= 0.93
    assert scores_held >= 0.93


def test_a_gain_beyond_what_two_processes_differ_by_is_found():
    first, again, other = three_processes(50, 1.3, seed=5)
    found = shares(ratio_intervals(first, other, spread=process_spread(first, again)))
    assert found[FAST] >= 0.9


def test_the_spread_tells_what_workloads_share_from_what_they_do_not():
    first, _ = simulate(400)
    luck = 0.1 + 0.05 * np.random.default_rng(1).standard_normal((400, 1))
    spread = process_spread(first, first * np.exp(luck))
    assert math.sqrt(spread.within) == pytest.approx(0.05, rel=0.1)
    assert math.sqrt(spread.common) == pytest.approx(0.1, rel=0.1)
    assert spread.variance == spread.within + spread.common
    assert spread.freedom == 399
    alone = process_spread(first[:1], 1.2 * first[:1])
    assert alone == ProcessSpread(0.0, pytest.approx(math.log(1.2) ** 2), 1)


@pytest.mark.parametrize(
    ("spread", "narrower"),
    [
        (ProcessSpread(0.03**2, 0.0, 1), ProcessSpread(0.03**2, 0.0, 50)),  # few workloads
        (ProcessSpread(0.0, 0.03**2, 50), ProcessSpread(0.03**2, 0.0, 50)),  # a single draw
    ],
)
def test_what_is_known_from_little_makes_wide_intervals(spread, narrower):
    first, again = simulate(20)
    wide, sure = (ratio_intervals(first, again, spread=one)[0] for one in (spread, narrower))
    assert wide.value == sure.value
    assert wide.high > sure.high and wide.low < sure.low and wide.mde > sure.mde
    wide_score, sure_score = (
        score_interval(first, again, spread=one) for one in (spread, narrower)
    )
    assert wide_score.high > sure_score.high and wide_score.mde > sure_score.mde


def test_no_spread_is_no_spread():
    first, again = simulate(20)
    assert process_spread(np.empty((0, 3)), np.empty((0, 3))) == NO_SPREAD
    plain = ratio_intervals(first, again)
    assert ratio_intervals(first, again, spread=NO_SPREAD) == plain


@pytest.mark.parametrize("rounds", [3, 5, 8, DEFAULT_ROUNDS])
@pytest.mark.parametrize("ratio", [1.0, 1.03])
def test_intervals_hold_the_truth_as_often_as_they_say(rounds, ratio):
    found = coverage(ratio_intervals(*simulate(1000, rounds, ratio=ratio)), ratio)
    sampling_error = 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / 1000)
    assert found >= CONFIDENCE - sampling_error


@pytest.mark.parametrize("rounds", [5, DEFAULT_ROUNDS])
@pytest.mark.parametrize("a_us", [1.0, 1.04, 2.6])
def test_intervals_allow_for_a_clock_that_steps(rounds, a_us):
    """A step of 32 ns is 3 % of 1 µs: readings of two equal sides may be that far apart."""
    intervals = ratio_intervals(*simulate(500, rounds, a_us=a_us))
    assert coverage(intervals, 1.0) >= CONFIDENCE
    assert shares(intervals)[FAST] + shares(intervals)[SLOW] <= 0.01


def test_less_confidence_is_a_narrower_interval():
    a, b = simulate(20)
    for wide, narrow in zip(
        ratio_intervals(a, b), ratio_intervals(a, b, confidence=0.8), strict=True
    ):
        assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high
        assert narrow.mde < wide.mde


def test_an_effect_of_the_size_of_mde_is_told_from_none_four_times_in_five():
    mde = float(np.median([one.mde for one in ratio_intervals(*simulate(200))]))
    intervals = ratio_intervals(*simulate(800, ratio=1 + mde, seed=3))
    assert 0.7 < np.mean([one.low > 1 for one in intervals]) < 0.9


# --- a single interval -----------------------------------------------------------------------


def test_the_ratio_is_paired_and_above_one_where_a_is_the_faster():
    """The rounds differ by a factor of eight; within each, B takes twice as long."""
    a = np.array([[10.0, 20.0, 40.0, 80.0, 10.0, 20.0]])
    (interval,) = ratio_intervals(a, 2 * a)
    assert interval.value == pytest.approx(2.0)
    assert 1.98 < interval.low < 2.0 < interval.high < 2.02
    (reverse,) = ratio_intervals(2 * a, a)
    assert reverse.value == pytest.approx(1 / interval.value)
    assert reverse.low == pytest.approx(1 / interval.high)


def test_an_outlier_moves_nothing():
    a, b = np.full((1, 12), 100.0), np.full((1, 12), 100.0)
    b[0, 3] = 900.0
    (interval,) = ratio_intervals(a, b)
    assert interval.value == 1.0
    assert word(interval) == SAME


def test_each_workload_stands_for_itself_and_numbers_repeat():
    a, b = simulate(6)
    together = ratio_intervals(a, b)
    assert together == ratio_intervals(a, b)
    assert together == [ratio_intervals(a[i : i + 1], b[i : i + 1])[0] for i in range(6)]
    assert together != ratio_intervals(a, b, seed=1)


def test_constant_rounds_leave_the_resolution_of_the_timer():
    for rounds in (3, DEFAULT_ROUNDS):
        (interval,) = ratio_intervals(np.full((1, rounds), 1.024), np.full((1, rounds), 1.024))
        assert interval.value == 1.0
        assert interval.high == pytest.approx(math.exp(TIMER_STEP_US / 1.024))
        assert word(interval) == UNSURE  # 1 % of 1 µs is less than the timer can tell
        (interval,) = ratio_intervals(np.full((1, rounds), 100.0), np.full((1, rounds), 100.0))
        assert word(interval) == SAME
        assert math.isfinite(interval.mde) and interval.mde > 0


def test_three_rounds_are_wide():
    few = ratio_intervals(*simulate(200, 3))
    many = ratio_intervals(*simulate(200, DEFAULT_ROUNDS))
    assert np.median([one.mde for one in few]) > 2 * np.median([one.mde for one in many])


def test_no_workload_has_no_interval():
    assert ratio_intervals(np.empty((0, 5)), np.empty((0, 5))) == []


@pytest.mark.parametrize(
    ("a_us", "b_us", "message"),
    [
        ([[1.0]], [[1.0]], "at least 3, got 1"),
        ([[1.0, 2.0]], [[1.0, 2.0]], "at least 3, got 2"),
        ([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0, 4.0]], "one shape"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], "one shape"),
        ([[1.0, 2.0, 3.0], [1.0]], [[1.0, 2.0, 3.0], [1.0]], "as many of every workload"),
        ([[1.0, 0.0, 3.0]], [[1.0, 2.0, 3.0]], "above 0"),
        ([[1.0, 2.0, 3.0]], [[1.0, -2.0, 3.0]], "above 0"),
        ([[1.0, math.nan, 3.0]], [[1.0, 2.0, 3.0]], "above 0"),
        ([[1.0, math.inf, 3.0]], [[1.0, 2.0, 3.0]], "above 0"),
    ],
)
def test_rounds_that_do_not_pair_are_refused(a_us, b_us, message):
    with pytest.raises(UsageError, match=message):
        ratio_intervals(a_us, b_us)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(UsageError, match="confidence"):
        ratio_intervals(np.ones((1, 3)), np.ones((1, 3)), confidence=confidence)


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.011, 1.5, FAST),
        (1.009, 1.5, UNSURE),
        (0.995, 1.005, SAME),
        (1 / 1.01, 1.01, SAME),
        (0.98, 1.005, UNSURE),
        (0.9, 1.1, UNSURE),
        (0.5, 0.99, SLOW),
        (0.5, 0.991, UNSURE),
    ],
)
def test_words_are_about_the_margin(low, high, expected):
    assert word(Interval(math.sqrt(low * high), low, high, 0.01), 0.01) == expected


def test_a_margin_of_zero_asks_for_any_difference():
    assert word(Interval(1.002, 1.001, 1.003, 0.001), 0.0) == FAST
    assert word(Interval(1.0, 0.999, 1.001, 0.001), 0.0) == UNSURE
    assert word(Interval(1.0, 1.0, 1.0, 0.0), 0.0) == SAME


@pytest.mark.parametrize("margin", [-0.01, 1.0, 5, math.nan])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(UsageError, match="margin"):
        word(Interval(1.0, 1.0, 1.0, 0.0), margin)


# --- the interval of a score -----------------------------------------------------------------


def test_a_score_is_the_mean_of_the_ratios_of_medians():
    score = score_interval([[1.0] * 3, [2.0] * 5], [[10.0] * 3, [1.0] * 5])
    assert score.value == pytest.approx(5.25)
    assert score.low < 5.25 < score.high
    assert all(type(part) is float for part in (score.value, score.low, score.high, score.mde))


@pytest.mark.parametrize("workloads", [1, 10])
@pytest.mark.parametrize("rounds", [3, DEFAULT_ROUNDS])
def test_scores_hold_the_truth_as_often_as_they_say(workloads, rounds):
    a, b = simulate(200 * workloads, rounds, a_us=100.0, ratio=2.0)
    intervals = [
        score_interval(
            a[first : first + workloads].tolist(), b[first : first + workloads].tolist(),
            resamples=300,
        )
        for first in range(0, len(a), workloads)
    ]  # fmt: skip
    sampling_error = 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / 200)
    assert coverage(intervals, 2.0) >= CONFIDENCE - sampling_error


def test_more_workloads_make_a_score_surer():
    a, b = simulate(50, a_us=100.0)
    one, all_of_them = (score_interval(a[:n].tolist(), b[:n].tolist()) for n in (1, 50))
    assert all_of_them.high - all_of_them.low < 0.5 * (one.high - one.low)
    assert all_of_them.high - all_of_them.low < 0.005  # hundreds of rounds, not one of few


def test_constant_rounds_score_without_noise():
    score = score_interval([[100.0] * 4] * 2, [[300.0] * 4] * 2)
    assert score.value == 3.0
    assert score.high - score.low == pytest.approx(3.0 * TIMER_STEP_US * (1 / 100 + 1 / 300))


def test_a_score_never_reaches_below_zero():
    assert score_interval([[1.0, 9.0, 30.0]], [[20.0, 1.0, 1.0]]).low == 0.0


@pytest.mark.parametrize(
    ("a_us", "b_us", "message"),
    [
        ([], [], "at least one"),
        ([[1.0] * 3], [], "same workloads"),
        ([[1.0] * 3], [[1.0] * 4], "one shape"),
        ([[1.0] * 2], [[1.0] * 2], "at least 3"),
        ([[1.0, 0.0, 1.0]], [[1.0] * 3], "above 0"),
    ],
)
def test_a_score_of_rounds_that_do_not_pair_is_refused(a_us, b_us, message):
    with pytest.raises(UsageError, match=message):
        score_interval(a_us, b_us)
