"""dsa_indexer_prefill on a CUDA device, both routes: exact scores, hostile ones, fp64; and every
row of every case by scores of the portable kernel's own. test_prefill_scores.py: by native ones."""

import sys

import numpy as np
import pytest
import torch

from harness.ranges import row_ranges
from harness.rules.prefill_inputs import draw_inputs
from harness.rules.prefill_selection import scores_of
from tests.gpu.prefill_indexer import (
    BLOCK_ROWS,
    HOSTILE_WORKLOADS,
    NAMES,
    NO_FAILURE,
    ROOM,
    SCORE_ERROR,
    WORKLOADS,
    deviation,
    label,
    own_scores,
    select_by,
    some_rows,
    workload_inputs,
)
from tests.gpu.streams import replay_captured, run_behind_slow_producer
from tests.oracles.dsa_indexer_prefill import (
    HOSTILE_KINDS,
    TOPK,
    check,
    check_block,
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
from tests.prefill_study.native import CAPABILITY, NativeCall

pytestmark = pytest.mark.gpu

MEMORY_LIMIT = 256 << 20  # bytes that a call may take beyond its arguments
ALIKE, ALONE = 2, 1  # CTAs that go through the same tiles of the filter


@pytest.fixture(params=[None, "portable"], ids=["whole", "portable"])
def route(request):
    """The room as it is, native route and all, and the room without it."""
    return request.param


@pytest.fixture
def select(route):
    """inputs by name -> topk_indices, on the route of the test."""
    return lambda inputs: select_by(route, inputs)


def assert_exact(topk_indices, inputs):
    """Every row, by the portable kernel's own scores."""
    num_keys = inputs["k_index_fp8"].shape[0]
    starts, ends = (inputs[name].clamp(0, num_keys) for name in ("row_starts", "row_ends"))
    for first in range(0, len(starts), BLOCK_ROWS):
        rows = slice(first, min(first + BLOCK_ROWS, len(starts)))
        scores = own_scores(inputs, rows.start, rows.stop)
        check_block(topk_indices[rows], scores, starts[rows], ends[rows])


def assert_close_to_fp64(topk_indices, inputs):
    """Of some rows: within the error of FP8 sums no key left out beats a chosen one."""
    rows = some_rows(inputs)

    def bounds():
        for scores in oracle(inputs, rows):
            yield torch.full_like(scores, SCORE_ERROR * deviation(scores))

    check(topk_indices, inputs, oracle(inputs, rows), bounds(), rows)


@pytest.mark.parametrize("row", WORKLOADS, ids=label)
def test_every_row_of_every_workload_is_exact_for_the_kernels_own_scores(row):
    inputs = workload_inputs(row)
    assert_exact(select_by("portable", inputs), inputs)


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


# Ties, and what is no number


def causal(num_queries, num_keys):
    starts, ends = row_ranges({"num_queries": num_queries, "num_keys": num_keys})
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def ragged(num_queries, num_keys):
    axes = {"num_queries": num_queries, "num_keys": num_keys, "ragged_ranges": 1}
    return [(int(start), int(end)) for start, end in zip(*row_ranges(axes), strict=True)]


def assert_exact_for(scores, chosen, inputs):
    """Every row, by the scores of all queries, fp32 [num_keys]."""
    for first in range(0, len(chosen), BLOCK_ROWS):
        rows = slice(first, first + BLOCK_ROWS)
        starts, ends = inputs["row_starts"][rows], inputs["row_ends"][rows]
        check_block(chosen[rows], scores.expand(len(starts), -1), starts, ends)


def assert_all_exact(chosen, inputs, block_rows):
    """Every row of dense integers, by their exact scores."""
    for first in range(0, len(chosen), block_rows):
        rows = slice(first, first + block_rows)
        scores = dense_integer_scores(inputs, rows)
        check_block(chosen[rows], scores, inputs["row_starts"][rows], inputs["row_ends"][rows])


@pytest.fixture
def run_native():
    """inputs by name -> the native route's call, over, with its output and scratch."""
    if torch.cuda.get_device_capability() != CAPABILITY:
        pytest.skip("the native route is for Hopper alone")
    kernel = sys.modules[build(ROOM)._callable.__module__]

    def run(inputs):
        native = NativeCall(kernel, list(inputs.values()))
        native()
        torch.cuda.synchronize()
        return native, native.failures(kernel)

    return run


TIED_SIZES = [(1, 131_072), (4, 20_000), (8, 131_072), (64, 131_072), (130, 40_000), (4096, 65_536)]


def tied_scores(kind, num_keys):
    scores = np.random.default_rng(14).standard_normal(num_keys).astype(np.float32)
    first = num_keys // 3
    keys = np.arange(num_keys)
    if kind == "run":
        scores[first : first + 4096] = 100.0
    elif kind == "long run":
        scores[first : first + 16_384] = 100.0
    elif kind == "last keys":
        scores[-5000:] = 100.0
    elif kind == "16 of 144":
        scores[keys // 16 % 9 == 0] = 100.0
    elif kind == "2000 above":
        scores[:] = 1.0
        scores[np.random.default_rng(15).permutation(num_keys)[:2000]] = 2.0
    elif kind == "largest number":
        scores[:] = np.finfo(np.float32).max
        scores[num_keys // 2 :][:900] = np.inf
        scores[-900:] = np.nan
    else:
        scores[:] = {"equal": -0.25, "-0.0": -0.0, "no number": np.nan}[kind]
    return scores


TIED_KINDS = (
    "run", "long run", "last keys", "16 of 144", "2000 above", "largest number", "equal", "-0.0",
    "no number",
)  # fmt: skip


@pytest.mark.parametrize(("num_queries", "num_keys"), TIED_SIZES)
@pytest.mark.parametrize("kind", TIED_KINDS)
def test_ties_wherever_they_lie_need_no_repair(kind, num_queries, num_keys, run_native):
    scores = tied_scores(kind, num_keys)
    inputs = inputs_with_scores(scores, causal(num_queries, num_keys), device="cuda")
    native, failures = run_native(inputs)
    assert_exact_for(torch.from_numpy(scores).cuda(), native.output, inputs)
    assert failures == NO_FAILURE


@pytest.mark.parametrize("tie", [1.0, np.nan])
def test_ties_that_every_warp_stores_the_most_of_need_no_repair(tie, run_native):
    num_keys, ctas = 131_072, 132
    keys, tiles = np.arange(num_keys), num_keys // 128
    is_first = np.isin(keys // 128, tiles * np.arange(ctas) // ctas)  # of the tiles of a CTA
    scores = np.where(is_first, -10.0, tie).astype(np.float32)
    scores[is_first & (keys % 16 < 4)] = tie  # untold when all of a warp's keys follow
    scores[np.flatnonzero(is_first & (keys % 16 >= 4))[:2047]] = 2.0
    inputs = inputs_with_scores(scores, causal(1, num_keys), device="cuda")
    native, failures = run_native(inputs)
    assert_exact_for(torch.from_numpy(scores).cuda(), native.output, inputs)
    assert failures == NO_FAILURE


@pytest.mark.parametrize("num_queries", [8, 64])
def test_a_tied_run_on_both_routes(num_queries, select):
    scores = tied_scores("run", 40_000)
    inputs = inputs_with_scores(scores, causal(num_queries, 40_000), device="cuda")
    assert_exact_for(torch.from_numpy(scores).cuda(), select(inputs), inputs)


@pytest.mark.parametrize("num_queries", [8, 64])
def test_negative_zeros_on_both_routes(num_queries, select):
    scores = tied_scores("-0.0", 40_000)
    inputs = inputs_with_scores(scores, causal(num_queries, 40_000), device="cuda")
    assert_exact_for(torch.from_numpy(scores).cuda(), select(inputs), inputs)


def test_infinite_scores_that_tie_are_repaired(select):
    scores = np.full(20_000, np.inf, np.float32)
    scores[[5, 9000]] = np.nan
    inputs = inputs_with_scores(scores, causal(9, 20_000), device="cuda")
    chosen = select(inputs)
    assert_exact_for(torch.from_numpy(scores).cuda(), chosen, inputs)
    assert all({5, 9000} <= set(row) for row in chosen.tolist())


@pytest.mark.parametrize("num_queries", [12, 64, 513])
def test_queries_without_a_number_leave_the_others_alone(num_queries, select):
    ranges = causal(num_queries, 30_000)
    inputs = dense_integer_inputs(ranges, 30_000, seed=16, device="cuda")
    inputs["weights"][3::5, 7] = float("nan")
    assert_all_exact(select(inputs), inputs, 32)


def test_queries_without_a_number_need_no_repair(run_native):
    inputs = dense_integer_inputs(causal(64, 131_072), 131_072, seed=17, device="cuda")
    inputs["weights"][3::5, 7] = float("nan")
    native, failures = run_native(inputs)
    assert_all_exact(native.output, inputs, 8)
    assert failures == NO_FAILURE


# Pairs of blocks


@pytest.mark.parametrize("kind", ["causal", "ragged"])
def test_every_row_is_exact_in_long_contexts(kind, select):
    if kind == "causal":
        ranges, num_keys = causal(64, 131_072), 131_072
    else:
        ranges, num_keys = ragged(4096, 65_536), 65_536
    inputs = dense_integer_inputs(ranges, num_keys, seed=18, device="cuda")
    assert_all_exact(select(inputs), inputs, 16)


def apart(num_queries, num_keys):
    """Blocks that see the first and the last third in turn."""
    third = num_keys // 3
    return [
        (0, third) if row // 4 % 2 == 0 else (num_keys - third, num_keys)
        for row in range(num_queries)
    ]


def uneven(num_queries, num_keys):
    """Ranges of many starts and ends, all within two tiles of each other."""
    return [(row * 37 % 200, num_keys - row * 53 % 200) for row in range(num_queries)]


@pytest.mark.parametrize(
    ("num_queries", "ranges_of", "team"),
    [
        (1, causal, ALONE),
        (4, causal, ALONE),
        (8, causal, ALIKE),
        (9, causal, ALONE),  # three blocks: a pair and a half
        (64, causal, ALIKE),
        (124, causal, ALONE),  # 31 blocks: the half pair is more than 1/32
        (130, causal, ALIKE),  # 33
        (8, apart, ALONE),
        (64, apart, ALONE),
        (130, apart, ALONE),
        (512, uneven, ALIKE),
        (4096, ragged, ALONE),
        (513, ragged, ALONE),
    ],
)
def test_blocks_go_in_pairs_where_it_pays(num_queries, ranges_of, team, run_native):
    num_keys = 40_000
    ranges = ranges_of(num_queries, num_keys)
    inputs = dense_integer_inputs(ranges, num_keys, seed=19, device="cuda")
    native, _ = run_native(inputs)
    assert_all_exact(native.output, inputs, 32)
    blocks = -(-num_queries // 4)
    steps = native.scratch[0][: 3 * blocks].reshape(blocks, 3)[:, 2].tolist()
    scored = [
        any(end - start > TOPK for start, end in ranges[4 * block : 4 * block + 4])
        for block in range(blocks)
    ]
    assert {step for step, is_scored in zip(steps, scored, strict=True) if is_scored} == {team}
