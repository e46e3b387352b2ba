"""dsa_indexer_prefill on a CUDA device, both routes: exact scores, hostile ones, fp64; and every
row of every case by scores of the portable kernel's own."""

import sys

import numpy as np
import pytest
import torch

from harness.config import load_workspace
from harness.dataset import read_workloads
from harness.ranges import OUTLIERS, SCORES, row_ranges
from harness.rules.prefill_inputs import draw_inputs
from harness.rules.prefill_selection import scores_of
from tests.gpu.streams import replay_captured, run_behind_slow_producer
from tests.oracles.dsa_indexer_prefill import (
    HOSTILE_KINDS,
    TOPK,
    check,
    check_block,
    cut,
    dense_integer_inputs,
    dense_integer_scores,
    empty_output,
    hostile_scores,
    inputs_with_scores,
    integer_inputs,
    oracle,
    random_inputs,
)
from tests.packed import build, call

pytestmark = pytest.mark.gpu

ROOM = "dsa_indexer_prefill"
NAMES = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")
MEMORY_LIMIT = 256 << 20  # bytes that a call may take beyond its arguments
# FP8 sums of Hopper keep 14 bits: of the deviation of a row's scores.
SCORE_ERROR = 0.01
ROWS_CHECKED = 32  # of large cases, first and last among them, against fp64
BLOCK_ROWS = 64  # whose own scores are in memory at once


@pytest.fixture(params=[None, "portable"], ids=["whole", "portable"])
def route(request):
    """The room as it is, native route and all, and the room without it."""
    return request.param


def select_by(route, inputs):
    outputs = [empty_output(len(inputs["row_starts"]), "cuda")]
    return call(ROOM, list(inputs.values()), outputs, route)[0]


@pytest.fixture
def select(route):
    """inputs by name -> topk_indices, on the route of the test."""
    return lambda inputs: select_by(route, inputs)


def own_scores(inputs, first, stop):
    """Scores of queries [first, stop) as the portable route's score_kernel computes them, fp32
    [stop - first, num_keys]; any number where no long range has a key."""
    module = sys.modules[build(ROOM, "portable")._callable.__module__]
    num_keys, count = inputs["k_index_fp8"].shape[0], stop - first
    score = dict(module.choose(count, num_keys)[1]["score"])
    bits = torch.zeros(count, num_keys, dtype=torch.int32, device="cuda")
    grid = (-(-num_keys // score["BLOCK_KEYS"]), -(-count // score["GROUP"]))
    rows = slice(first, stop)
    module.score_kernel[grid](
        inputs["q_index_fp8"][rows],
        inputs["k_index_fp8"].view(torch.uint8),
        inputs["k_scale"],
        inputs["weights"][rows],
        inputs["row_starts"][rows],
        inputs["row_ends"][rows],
        bits,
        count,
        num_keys,
        H=64,
        D=128,
        K=TOPK,
        **score,
    )
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).view(torch.float32)


def assert_exact(topk_indices, inputs):
    """Every row, by the portable kernel's own scores."""
    num_keys = inputs["k_index_fp8"].shape[0]
    starts, ends = (inputs[name].clamp(0, num_keys) for name in ("row_starts", "row_ends"))
    for first in range(0, len(starts), BLOCK_ROWS):
        rows = slice(first, min(first + BLOCK_ROWS, len(starts)))
        scores = own_scores(inputs, rows.start, rows.stop)
        check_block(topk_indices[rows], scores, starts[rows], ends[rows])


def deviation(scores):
    """Of normal scores, from their middle half: outliers do not reach it."""
    quarters = torch.tensor([0.25, 0.75], dtype=scores.dtype, device=scores.device)
    return float(scores.quantile(quarters).diff()) / 1.349


def assert_close_to_fp64(topk_indices, inputs):
    """Of some rows: within the error of FP8 sums no key left out beats a chosen one."""
    count = len(topk_indices)
    rows = sorted({*np.linspace(0, count - 1, ROWS_CHECKED).astype(int).tolist()})
    ranges = cut(inputs)
    rows = [row for row in rows if ranges[row][1] - ranges[row][0] > TOPK]

    def bounds():
        for scores in oracle(inputs, rows):
            yield torch.full_like(scores, SCORE_ERROR * deviation(scores))

    check(topk_indices, inputs, oracle(inputs, rows), bounds(), rows)


def workload_inputs(row, seed=1):
    torch.manual_seed(seed)
    return dict(zip(NAMES, draw_inputs(row.axes, "cuda"), strict=True))


WORKSPACE = load_workspace()
WORKLOADS = read_workloads(WORKSPACE.root, WORKSPACE.room(ROOM))


def label(row):
    return "-".join(f"{name}={size}" for name, size in row.axes.items())


@pytest.mark.parametrize("row", WORKLOADS, ids=label)
def test_every_row_of_every_workload_is_exact_for_the_kernels_own_scores(row):
    inputs = workload_inputs(row)
    assert_exact(select_by("portable", inputs), inputs)


HOSTILE_WORKLOADS = [row for row in WORKLOADS if set(row.axes) & set(SCORES) - {OUTLIERS}]


@pytest.mark.parametrize("row", HOSTILE_WORKLOADS, ids=label)
def test_every_row_of_every_hostile_workload_is_exact(row):
    """Every kernel computes their scores to the last bit: so the portable one's are the other's."""
    inputs = workload_inputs(row)
    assert_exact(select_by(None, inputs), inputs)


@pytest.mark.parametrize("row", WORKLOADS, ids=label)
def test_workloads_agree_with_fp64_within_the_error_of_fp8_sums(row, select):
    inputs = workload_inputs(row)
    assert_close_to_fp64(select(inputs), inputs)


def test_own_scores_are_close_to_fp64():
    inputs = random_inputs([(0, 9000)] * 4, 9000, seed=2, device="cuda")
    for own, scores in zip(own_scores(inputs, 0, 4), oracle(inputs), strict=True):
        assert (own.double() - scores).abs().max() < SCORE_ERROR * scores.std()


@pytest.mark.parametrize("seed", range(8))
def test_outliers_are_chosen_where_they_are_positive(seed, select):
    """An outlier's error is a million times larger too: it is exact, or some rows have it wrong."""
    torch.manual_seed(seed)
    axes = {"num_queries": 4096, "num_keys": 16_384, "outlier_keys": 5}
    inputs = dict(zip(NAMES, draw_inputs(axes, "cuda"), strict=True))
    chosen = select(inputs)
    outliers = (inputs["k_scale"] > 1).nonzero().flatten()
    assert len(outliers) == 5
    is_seen = outliers < inputs["row_ends"].unsqueeze(1)
    is_best = is_seen & (scores_of(outliers.expand(4096, -1), inputs) > 0)
    is_chosen = torch.stack([(chosen == key).any(dim=1) for key in outliers], dim=1)
    assert torch.equal(is_chosen, is_best)


def test_calls_with_fresh_inputs_find_nothing_of_the_last_one(select):
    """Scratch, shared memory and output hold the last call's: every row against exact scores."""
    ranges = [(0, 12_289 + row) for row in range(4096)]
    for seed in range(6):
        inputs = dense_integer_inputs(ranges, 16_384, seed=seed, device="cuda")
        chosen = select(inputs)
        for first in range(0, len(ranges), BLOCK_ROWS):
            rows = slice(first, first + BLOCK_ROWS)
            scores = dense_integer_scores(inputs, rows)
            starts, ends = inputs["row_starts"][rows], inputs["row_ends"][rows]
            check_block(chosen[rows], scores, starts, ends)


@pytest.mark.parametrize("kind", ["integers", "scores"])
def test_exact_scores_are_selected_exactly(kind, select):
    ranges = [(0, 40_000), (17, 8300), (1, 2051), (3, 2051), (39_000, 40_000), (5, 5)] * 40
    if kind == "integers":
        inputs = integer_inputs(ranges, 40_000, seed=3, device="cuda")
    else:
        scores = np.random.default_rng(3).standard_normal(40_000)
        inputs = inputs_with_scores(scores, ranges, device="cuda")
    check(select(inputs), inputs, oracle(inputs))


@pytest.mark.parametrize("count", [2049, 8192, 8193, 131072])
@pytest.mark.parametrize("kind", HOSTILE_KINDS)
def test_hostile_scores(kind, count, select):
    """The selection from given fp32 scores is exact, for one query and for many."""
    scores = torch.from_numpy(hostile_scores(kind, count)).cuda()
    ranges = [(0, count)] * 9 + [(count // 3, count), (0, count - 1)]
    inputs = inputs_with_scores(scores, ranges, device="cuda")
    check(select(inputs), inputs, iter([scores[start:end] for start, end in ranges]))


@pytest.mark.parametrize("kind", HOSTILE_KINDS)
def test_hostile_scores_for_a_thousand_queries(kind, select):
    """As many as get their thresholds by a warp each, from more samples than a warp holds."""
    count = 30_000
    scores = torch.from_numpy(hostile_scores(kind, count)).cuda()
    ranges = [(0, count), (count // 30, count), (0, count - 1), (7, 9000), (5, 2053)] * 205
    inputs = inputs_with_scores(scores.cpu(), ranges, device="cuda")
    rows = [*range(10), *range(500, 510), *range(1015, 1025)]
    own = iter([scores[ranges[row][0] : ranges[row][1]] for row in rows])
    check(select(inputs), inputs, own, rows=rows)


def test_not_finite_scores_rank_first(select):
    scores = torch.randn(20_000, device="cuda")
    scores[[3, 900, 19_999]] = float("nan")
    scores[[4, 2053]] = float("inf")
    inputs = inputs_with_scores(scores.cpu(), [(0, 20_000)], device="cuda")
    chosen = select(inputs)
    assert {3, 900, 19_999} <= set(chosen[0].tolist())


def test_keys_outside_a_range_do_not_count(select):
    inputs = random_inputs([(10, 9000), (300, 2400)] * 3, 9600, seed=4, device="cuda")
    inputs["q_index_fp8"] = inputs["q_index_fp8"].float().abs().to(torch.float8_e4m3fn)
    inputs["weights"].abs_()
    codes = inputs["k_index_fp8"].view(torch.uint8)
    codes[:10], codes[9000:9300], codes[9300:] = 0x7E, 0x7E, 0x7F
    assert_close_to_fp64(select(inputs), inputs)


def test_ranges_outside_the_keys_are_cut(select):
    ranges = [(-5, 2100), (100, 2**31 - 1), (-(2**31), 2**31 - 1), (900, 100), (50_000, 60_000)]
    ranges += [(2**31 - 1, -(2**31)), (2**31 - 6000, -(2**31))]  # lengths that wrap in 32 bits
    inputs = random_inputs(ranges, 9000, seed=5, device="cuda")
    chosen = select(inputs)
    assert_close_to_fp64(chosen, inputs)
    assert (chosen[3:] == -1).all()


def test_a_negative_scale_turns_its_key(select):
    inputs = random_inputs([(0, 9000)] * 3, 9000, seed=6, device="cuda")
    inputs["k_scale"][::3].neg_()
    inputs["k_scale"][5:50].zero_()
    assert_close_to_fp64(select(inputs), inputs)


@pytest.mark.parametrize(("num_queries", "num_keys"), [(4096, 131072), (8192, 163840)])
def test_extra_memory_is_bounded(num_queries, num_keys, route):
    ranges = [(0, num_keys - num_queries + 1 + row) for row in range(num_queries)]
    inputs = random_inputs(ranges, num_keys, seed=7, device="cuda")
    output = empty_output(num_queries, "cuda")
    build(ROOM, route)(*inputs.values(), output)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    build(ROOM, route)(*inputs.values(), output)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < MEMORY_LIMIT


@pytest.mark.parametrize("num_keys", [3000, 40_000])
def test_repeated_calls_choose_the_same(num_keys, select):
    inputs = random_inputs([(0, num_keys), (9, 2900)] * 70, num_keys, seed=8, device="cuda")
    first = select(inputs).sort(dim=1).values
    for _ in range(5):
        assert torch.equal(select(inputs).sort(dim=1).values, first)


@pytest.mark.parametrize("num_keys", [2000, 3000, 40_000])
def test_waits_for_its_inputs_on_the_current_stream(num_keys):
    inputs = random_inputs([(0, num_keys), (9, 1900)], num_keys, seed=9, device="cuda")
    outputs = [empty_output(2, "cuda")]
    (late,) = run_behind_slow_producer(ROOM, list(inputs.values()), outputs)
    assert torch.equal(late.sort(dim=1).values, select_by(None, inputs).sort(dim=1).values)


@pytest.mark.parametrize(("num_queries", "num_keys"), [(8, 40_000), (600, 40_000), (2, 2000)])
def test_replays_from_a_graph(num_queries, num_keys):
    inputs = random_inputs([(0, num_keys)] * num_queries, num_keys, seed=10, device="cuda")
    outputs = [empty_output(num_queries, "cuda")]
    (replayed,) = replay_captured(ROOM, list(inputs.values()), outputs)
    assert torch.equal(replayed.sort(dim=1).values, select_by(None, inputs).sort(dim=1).values)


@pytest.mark.parametrize("name", ["k_index_fp8", "row_starts", "topk_indices"])
def test_tensors_that_start_off_a_16_byte_boundary(name):
    inputs = random_inputs([(0, 9000), (3, 100)], 9000, seed=11, device="cuda")
    tensors = inputs | {"topk_indices": empty_output(2, "cuda")}
    flat = tensors[name].view(torch.uint8).flatten()
    room = flat.new_empty(flat.numel() + 4)
    room[4:] = flat
    moved = room[4:].view(tensors[name].dtype).view(tensors[name].shape)
    *given, output = (tensors | {name: moved}).values()
    assert_close_to_fp64(call(ROOM, given, [output])[0], inputs)


@pytest.mark.parametrize("num_queries", [1, 5, 131, 513])
def test_ragged_ranges_of_any_number_of_queries(num_queries, select):
    starts, ends = row_ranges({"num_queries": num_queries, "num_keys": 30_000, "ragged_ranges": 1})
    ranges = list(zip(starts.tolist(), ends.tolist(), strict=True))
    scores = np.random.default_rng(12).standard_normal(30_000).astype(np.float32)
    inputs = inputs_with_scores(scores, ranges, device="cuda")
    own = torch.from_numpy(scores).cuda()
    check(select(inputs), inputs, iter([own[start:end] for start, end in ranges]))


def test_more_queries_than_a_group_of_launches(select):
    inputs = integer_inputs([(row % 7, 6000) for row in range(4100)], 6000, seed=13, device="cuda")
    rows = [0, 4, 2047, 2048, 2051, 2052, 4095, 4096, 4099]
    check(select(inputs), inputs, oracle(inputs, rows), rows=rows)


@pytest.mark.parametrize("kind", HOSTILE_KINDS)
def test_queries_whose_candidates_do_not_fit_are_repaired(kind, monkeypatch):
    kernel = sys.modules[build(ROOM)._callable.__module__]
    choose = kernel.choose

    def choose_little_room(*axes, **known):
        route, options = choose(*axes, **known)
        return route, options | ({"most_candidates": TOPK} if route == "native" else {})

    monkeypatch.setattr(kernel, "choose", choose_little_room)
    scores = torch.from_numpy(hostile_scores(kind, 20_000)).cuda()
    ranges = [(0, 20_000), (7000, 20_000), (0, 19_999), (5, 2053), (9, 2058)] * 9
    inputs = inputs_with_scores(scores.cpu(), ranges, device="cuda")
    check(select_by(None, inputs), inputs, iter([scores[start:end] for start, end in ranges]))
