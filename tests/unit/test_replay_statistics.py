"""Rates, intervals, detection and margins against values worked out by hand."""

import math
import random
import time

import pytest
import torch

from harness.evaluators import random_key_cache
from harness.replay.batch import BatchResult, Boundary
from harness.replay.display import percent
from harness.replay.margins import (
    boundary_margins,
    exchange_gap,
    index_scores,
    measure_boundary,
)
from harness.replay.record import summarise_margins, summarise_row
from harness.replay.statistics import (
    clopper_pearson,
    detection_probability,
    quantile,
    set_passes,
    trials_needed,
)

PAGE_SIZE, HEADS, HEAD_DIM = 64, 64, 128


# Intervals


def binomial_tail(trials, p, counts):
    return math.fsum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in counts)


@pytest.mark.parametrize(("failures", "trials"), [(1, 10), (3, 200), (6, 100), (50, 100)])
def test_the_bounds_leave_a_fortieth_in_each_tail(failures, trials):
    low, high = clopper_pearson(failures, trials)
    assert binomial_tail(trials, low, range(failures, trials + 1)) == pytest.approx(0.025)
    assert binomial_tail(trials, high, range(failures + 1)) == pytest.approx(0.025)


def test_no_failure_and_nothing_else_have_one_sided_bounds():
    assert clopper_pearson(0, 100) == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    assert clopper_pearson(100, 100) == (pytest.approx(0.025 ** (1 / 100)), 1.0)
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert clopper_pearson(0, 10_000)[1] == pytest.approx(3.688e-4, rel=1e-3)


def test_the_published_rate_of_3_in_200():
    low, high = clopper_pearson(3, 200)
    assert (low, high) == (pytest.approx(0.003104, rel=1e-3), pytest.approx(0.04323, rel=1e-3))


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = random.Random(1)
    for p in (0.002, 0.05, 0.4):
        held, draws = 0, 1000
        for _ in range(draws):
            failures = sum(rng.random() < p for _ in range(100))
            low, high = clopper_pearson(failures, 100)
            held += low <= p <= high
        # exact intervals cover at least 95 %; 3 standard errors of the simulation below that
        assert held / draws > 0.95 - 3 * math.sqrt(0.95 * 0.05 / draws)


# Detection


def test_three_trials_miss_a_rare_fault_that_two_hundred_find():
    p = 3 / 200
    assert detection_probability(p, 3) == pytest.approx(0.044328, rel=1e-4)
    assert detection_probability(p, 200) == pytest.approx(0.951333, rel=1e-4)
    assert detection_probability(0.0, 10_000) == 0.0
    assert (detection_probability(1.0, 1), detection_probability(1.0, 0)) == (1.0, 0.0)
    assert detection_probability(1e-12, 3) == pytest.approx(3e-12)


@pytest.mark.parametrize("p", [3 / 200, 0.06, 0.5, 0.9, 1e-5])
def test_the_trials_needed_are_the_fewest(p):
    n = trials_needed(p)
    assert detection_probability(p, n) >= 0.95 > detection_probability(p, n - 1)


def test_what_never_fails_is_never_found():
    assert trials_needed(0.0) is None
    assert trials_needed(1.0) == 1


def test_a_set_passes_with_the_product_over_its_workloads():
    assert set_passes([0.1, 0.2], 3) == pytest.approx(0.9**3 * 0.8**3)
    assert set_passes([0.0] * 128, 3) == 1.0
    assert set_passes([0.015] + [0.0] * 127, 3) == pytest.approx(0.985**3)
    assert set_passes([0.0, 1.0], 3) == 0.0
    assert set_passes([1.0], 0) == 1.0


def test_quantiles_are_values_that_were_seen():
    ordered = [float(value) for value in range(1, 1001)]
    assert [quantile(ordered, share) for share in (0.0, 0.001, 0.01, 0.5, 1.0)] == [
        1.0, 1.0, 10.0, 500.0, 1000.0
    ]  # fmt: skip
    assert quantile([7.0], 0.001) == 7.0


# Margins


def test_the_margin_is_the_last_score_selected_less_the_first_left_out():
    scores = torch.tensor([[9.0, 1.0, 7.0, 6.5, 3.0], [5.0, 5.0, 5.0, 5.0, 0.0]])
    assert boundary_margins(scores, 2).tolist() == [0.5, 0.0]
    assert boundary_margins(scores, 4).tolist() == [2.0, 5.0]
    short = torch.tensor([[4.0, 1.0, float("-inf"), float("-inf")]])
    assert boundary_margins(short, 1).tolist() == [3.0]


def indexer_inputs(seq_lens, seed=0):
    """Inputs of the indexer's definition as the official generator draws them."""
    torch.manual_seed(seed)
    batch = len(seq_lens)
    pages = [-(-length // PAGE_SIZE) for length in seq_lens]
    table = torch.full((batch, max(pages)), -7, dtype=torch.int32)  # unused entries are junk
    order = torch.randperm(sum(pages)).to(torch.int32)
    for row, count in enumerate(pages):
        table[row, :count] = order[sum(pages[:row]) :][:count]
    q = torch.randn(batch, HEADS, HEAD_DIM).clamp(-2, 2).to(torch.float8_e4m3fn)
    return {
        "q_index_fp8": q,
        "k_index_cache_fp8": random_key_cache((sum(pages), PAGE_SIZE, 1, HEAD_DIM + 4), "cpu"),
        "weights": torch.randn(batch, HEADS),
        "seq_lens": torch.tensor(seq_lens, dtype=torch.int32),
        "block_table": table,
    }


def test_scores_are_the_definitions():
    """Against its formula, token by token from the packed bytes."""
    values = indexer_inputs([130, 64])
    scores = index_scores(values, torch.tensor([0, 1]), torch.float64, PAGE_SIZE)
    assert scores.shape == (2, 192)
    assert torch.isneginf(scores[0, 130:]).all() and torch.isneginf(scores[1, 64:]).all()
    cache = values["k_index_cache_fp8"].view(torch.uint8).reshape(-1, PAGE_SIZE * 132)
    for row, position in ((0, 0), (0, 129), (1, 63)):
        page = cache[int(values["block_table"][row, position // PAGE_SIZE])]
        slot = position % PAGE_SIZE
        code = page[slot * HEAD_DIM : (slot + 1) * HEAD_DIM].view(torch.float8_e4m3fn).double()
        scale = page[PAGE_SIZE * HEAD_DIM + slot * 4 :][:4].clone().view(torch.float32).double()
        products = torch.relu(values["q_index_fp8"][row].double() @ (code * scale))
        want = (products * values["weights"][row].double()).sum()
        torch.testing.assert_close(scores[row, position], want)


def test_the_boundary_of_a_trial_is_its_narrowest_sequence():
    values, k = indexer_inputs([300, 50, 280]), 100
    rows = torch.tensor([0, 2])
    found = measure_boundary(values, rows, k, PAGE_SIZE)
    exact = index_scores(values, rows, torch.float64, PAGE_SIZE)
    ordered = exact.sort(dim=1, descending=True).values
    want = (ordered[:, k - 1] - ordered[:, k]).min().item()
    assert found.margins == (pytest.approx(want, abs=2 * found.epsilon),)
    assert 0.0 < found.epsilon < 1e-3
    assert measure_boundary(values, torch.tensor([], dtype=torch.int64), k, PAGE_SIZE) == Boundary()


def test_an_exchange_shows_half_of_what_was_given_up():
    values = indexer_inputs([200])
    order = index_scores(values, torch.tensor([0]), torch.float64, PAGE_SIZE)[0].argsort()
    ids = [
        int(values["block_table"][0, position // PAGE_SIZE]) * PAGE_SIZE + position % PAGE_SIZE
        for position in order.flip(0).tolist()
    ]
    want = torch.tensor([ids[:50]])
    got = torch.tensor([[*ids[:48], ids[49], ids[52]]])  # gives up rank 48 for rank 52
    scores = index_scores(values, torch.tensor([0]), torch.float64, PAGE_SIZE)[0].sort().values
    gap = (scores.flip(0)[48] - scores.flip(0)[52]).item() / 2
    assert exchange_gap(got, want, values, PAGE_SIZE) == pytest.approx(gap, rel=1e-3)
    assert exchange_gap(want.flip(1), want, values, PAGE_SIZE) == 0.0


def test_trials_below_twice_epsilon_are_counted_with_the_larger_epsilon():
    boundary = Boundary((0.5, 1e-6, 0.02, 0.3), 1e-6, 0, 0.0)
    assert summarise_margins(boundary).below == 1
    exchanged = summarise_margins(boundary + Boundary((), 0.0, 1, 0.01))
    assert (exchanged.epsilon, exchanged.below, exchanged.exchanged) == (0.01, 2, 1)
    assert exchanged.quantiles == (1e-6, 1e-6, 1e-6, 1e-6, 0.02)
    assert summarise_margins(Boundary()) is None


def test_a_million_trials_are_summed_up_in_seconds():
    """In time linear in them: copying what is known for each batch takes a minute and a half."""
    clopper_pearson(1, 10)  # loads scipy
    part = Boundary(tuple(0.001 * n for n in range(100)), 1e-6, 1, 1e-7)
    batches = [BatchResult(100, boundary=part)] * 10_000
    begin = time.monotonic()
    row = summarise_row("u", {}, (), 10**6, batches, None)
    assert time.monotonic() - begin < 15.0
    assert (row.trials, row.margins.trials, row.margins.exchanged) == (10**6, 10**6, 10_000)
    assert (row.margins.epsilon, row.margins.quantiles[0]) == (1e-6, 0.0)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.5, "50.0 %"),
        (1.0, "100 %"),
        (1e-6, "0.000100 %"),
        (1e-100, "under 0.0001 %"),
    ],
)
def test_a_share_is_written_in_digits_that_a_reader_can_use(share, text):
    assert percent(share) == text
