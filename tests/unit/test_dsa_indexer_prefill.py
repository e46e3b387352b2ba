"""dsa_indexer_prefill, packed, in the interpreter: the fp64 oracle, hostile scores, edges."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.aot import launches_compile
from tests.oracles.dsa_indexer_prefill import (
    HOSTILE_KINDS,
    LARGEST_CODE,
    NAN_CODE,
    TOPK,
    check,
    check_best,
    check_block,
    empty_output,
    error_bounds,
    hostile_scores,
    inputs_with_scores,
    integer_inputs,
    oracle,
    random_inputs,
)
from tests.packed import build, call, device, raises_naming
from tests.prefill_scores import candidates_of, native_scores, slices

ROOM = "dsa_indexer_prefill"
TILE = 8192  # scores that fit into the registers of a selecting CTA
LONGER = 2049  # the shortest range that is scored

not_finite = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter


def module():
    return sys.modules[build(ROOM)._callable.__module__]


def select(inputs):
    (topk_indices,) = call(
        ROOM, list(inputs.values()), [empty_output(len(inputs["row_starts"]), device())]
    )
    return topk_indices


def assert_right(topk_indices, inputs, is_exact=False):
    check(topk_indices, inputs, oracle(inputs), None if is_exact else error_bounds(inputs))


def select_by_scores(scores, ranges):
    """The selection from given scores, proved exact."""
    inputs = inputs_with_scores(scores, ranges, device())
    topk_indices = select(inputs)
    own = [torch.as_tensor(scores, dtype=torch.float32, device=device())[a:b] for a, b in ranges]
    check(topk_indices, inputs, iter(own))
    return topk_indices


# The proof itself


@pytest.mark.parametrize(
    ("place", "replacement", "words"),
    [
        (2047, "the best left out", "left out"),
        (1, "the first again", "twice"),
        (5, -1, "outside"),
        (3, "one below the range", "outside"),
    ],
)
def test_the_proof_of_an_output_refuses_wrong_ones(place, replacement, words):
    inputs = inputs_with_scores(torch.arange(2200.0), [(50, 2150)])
    scores = torch.arange(50.0, 2150.0)
    right = (scores.flip(0)[:TOPK].int())[None].clone()
    check(right, inputs, iter([scores]))
    by_key = torch.full((1, 2200), torch.nan)
    by_key[0, 50:2150] = scores
    ends = inputs["row_starts"], inputs["row_ends"]
    for prove in (check_block, check_best):
        prove(right, by_key, *ends)
    right[0, place] = {
        "the best left out": 2150 - TOPK - 1,
        "the first again": int(right[0, 0]),
        "one below the range": 49,
    }.get(replacement, replacement)
    with raises_naming(AssertionError, words):
        check(right, inputs, iter([scores]))
    for prove in (check_block, check_best):
        with raises_naming(AssertionError, words):
            prove(right, by_key, *ends)


def prove_best(chosen, scores, ranges):
    """check_best() of rows with the same scores; chosen: lists of keys."""
    ids = torch.full((len(ranges), TOPK), -1, dtype=torch.int32)
    for row, keys in enumerate(chosen):
        ids[row, : len(keys)] = torch.as_tensor(keys, dtype=torch.int32)
    starts, ends = torch.tensor(ranges, dtype=torch.int32).T
    check_best(ids, torch.as_tensor(scores).float().expand(len(ranges), -1), starts, ends)


def test_the_proof_by_sorted_scores_lets_ties_resolve_any_way():
    scores = torch.ones(3000)
    scores[2500:] = 2.0
    scores[:5] = 0.5
    best = list(range(2500, 3000))
    for first in (5, 900):
        prove_best([best + list(range(first, first + 1548))], scores, [(0, 3000)])
    with raises_naming(AssertionError, "row 0", "left out"):
        prove_best([best + list(range(4, 1552))], scores, [(0, 3000)])
    with raises_naming(AssertionError, "row 0", "left out"):  # one more of the tie than there is
        prove_best([best[1:] + list(range(5, 1554))], scores, [(0, 3000)])


def test_the_proof_by_sorted_scores_ranks_what_is_no_number():
    """-0.0 ties with 0.0, -inf is the least score, NaN of either sign is above +inf."""
    zeros = torch.zeros(2100)
    zeros[::2] = -0.0
    prove_best([range(TOPK)], zeros, [(0, 2100)])
    prove_best([range(52, 2100)], zeros, [(0, 2100)])
    scores = torch.full((2100,), torch.inf)
    scores[:52], scores[60], scores[61] = -torch.inf, torch.nan, -torch.tensor(torch.nan)
    prove_best([range(52, 2100)], scores, [(0, 2100)])
    scores[62] = -torch.inf
    for left_out in (60, 61):
        with raises_naming(AssertionError, "left out"):
            kept = [key for key in range(52, 2100) if key != left_out]
            prove_best([[0, *kept]], scores, [(0, 2100)])
    scores[:52] = torch.inf
    with raises_naming(AssertionError, "left out"):  # +inf in the place of NaN
        prove_best(
            [[key for key in range(2100) if key not in (3, 60, 62)][:TOPK]], scores, [(0, 2100)]
        )


def test_the_proof_by_sorted_scores_looks_at_short_ranges_and_each_row():
    scores = torch.arange(2100.0)
    ranges = [(10, 10), (7, 8), (50, 2098), (51, 2100), (0, 0)]
    right = [[], [7], range(50, 2098), range(52, 2100), []]
    prove_best(right, scores, ranges)
    for row, wrong, words in (
        (0, [10], "not -1"),
        (1, [8], "outside"),
        (1, [7, 7], "not -1"),
        (2, [50, *range(50, 2097)], "twice"),
        (2, range(50, 2097), "outside"),
        (3, range(51, 2099), "row 3"),
    ):
        with raises_naming(AssertionError, words):
            prove_best([*right[:row], wrong, *right[row + 1 :]], scores, ranges)


# Scores of the native route, as far as they need no device


def store_scores(queries, codes, scales, weights, starts, ends, listed, scores):
    """What the kernel of tests/cuda/prefill_scores.cu does, whose arguments these are."""
    values = (queries.view(torch.float8_e4m3fn), codes.view(torch.float8_e4m3fn), scales, weights)
    names = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")
    inputs = dict(zip(names, (*values, starts, ends), strict=True))
    rows = listed[1 : 1 + int(listed[0])].tolist()
    for row, own in zip(rows, oracle(inputs, rows), strict=True):
        scores[row, max(int(starts[row]), 0) :][: len(own)] = own.float()


@pytest.mark.parametrize("most_bytes", [1, 4 * 9000 * 3, 1 << 30])
def test_native_scores_come_in_slices_of_long_ranges(most_bytes):
    ranges = [(0, 9000), (5, 2053), (-4, 2044), (-4, 2045), (100, 2149), (7, 7), (3, 2**31 - 1)]
    inputs = integer_inputs(ranges, 9000, seed=21)
    wanted = list(oracle(inputs))
    turns = []
    for rows, scores in native_scores(
        SimpleNamespace(store_scores=store_scores), inputs, most_bytes
    ):
        turns.append(rows)
        assert tuple(scores.shape) == (rows.stop - rows.start, 9000)
        for row, own in zip(range(rows.start, rows.stop), scores, strict=True):
            start = max(ranges[row][0], 0)
            right = torch.full_like(own, torch.nan)
            if len(wanted[row]) > TOPK:
                right[start : start + len(wanted[row])] = wanted[row].float()
            assert torch.equal(own.nan_to_num(-1e9), right.nan_to_num(-1e9)), row
    assert turns == slices(len(ranges), 9000, most_bytes)
    assert [row for turn in turns for row in range(turn.start, turn.stop)] == list(range(7))


def test_slices_of_scores_fit():
    for num_keys in (8192, 131_072, 163_840):
        for rows in slices(8192, num_keys):
            assert 4 * num_keys * (rows.stop - rows.start) <= 1_000_000_000


def test_candidates_are_found_in_every_area_of_a_query():
    """Eight queries; the second block is begun by CTA 3 and goes on in CTAs 5 and 7."""
    kernel = module()
    areas, per_area = 8 + kernel.MOST_CTAS * 4, kernel.QUERY_WARPS
    counts = torch.zeros(areas, per_area, dtype=torch.int32)
    pairs = torch.zeros(areas, per_area, kernel.CAPACITY, 2, dtype=torch.int32)
    own = [6, 8 + 5 * 4 + 2, 8 + 7 * 4 + 2]
    for nth, area in enumerate(own):
        counts[area, nth] = 2
        pairs[area, nth, :2, 0] = torch.tensor([1.0 + nth, -2.0]).view(torch.int32)
        pairs[area, nth, :2, 1] = torch.tensor([10 * nth, 10 * nth + 1])
    counts[8 + 6 * 4 + 2], counts[5] = 1, 1  # of others
    shares = torch.tensor([0, 2, 2, 3, 3, 2], dtype=torch.int32)
    native = SimpleNamespace(
        queries=8,
        scratch=[torch.cat([shares, counts.flatten()]), pairs.flatten().view(torch.uint8)],
    )
    scores, keys = candidates_of(native, kernel, 6)
    assert scores.tolist() == [1.0, -2.0, 2.0, -2.0, 3.0, -2.0]
    assert keys.tolist() == [0, 1, 10, 11, 20, 21]


# Ranges


@pytest.mark.parametrize("num_keys", [0, 1, 2048], ids=str)
def test_short_contexts_list_all_keys(num_keys):
    ranges = [(0, num_keys), (num_keys // 2, num_keys), (num_keys, num_keys)]
    inputs = random_inputs(ranges, num_keys, seed=1, device=device())
    assert_right(select(inputs), inputs)


def test_ranges_on_both_sides_of_every_border_together_and_alone():
    ranges = [(0, 0), (5, 6), (3, 2051), (4, 2053), (63, 2113), (1, 2300), (0, 2300), (2299, 2300)]
    inputs = random_inputs(ranges, 2300, seed=2, device=device())
    together = select(inputs)
    assert_right(together, inputs)
    for row in (1, 2, 3):
        alone = dict(inputs)
        for name in ("q_index_fp8", "weights", "row_starts", "row_ends"):
            alone[name] = inputs[name][row : row + 1].clone()
        assert torch.equal(select(alone)[0].sort().values, together[row].sort().values)


def test_a_causal_chunk_shorter_than_2048_at_its_beginning():
    ranges = [(0, end) for end in range(2046, 2051)]
    inputs = random_inputs(ranges, 2050, seed=3, device=device())
    assert_right(select(inputs), inputs)


@pytest.mark.parametrize("num_keys", [TILE - 1, TILE, TILE + 1], ids=str)
def test_contexts_on_both_sides_of_what_fits_into_registers(num_keys):
    ranges = [(0, num_keys), (1, num_keys), (7, 2100), (0, 1)]
    inputs = random_inputs(ranges, num_keys, seed=4, device=device())
    assert_right(select(inputs), inputs)


@pytest.mark.slow
@pytest.mark.parametrize("num_keys", [20_000, 131_072], ids=str)
def test_long_contexts(num_keys):
    ranges = [(0, num_keys), (num_keys // 3, num_keys - 1), (17, 8300), (0, 3000)]
    inputs = random_inputs(ranges, num_keys, seed=5, device=device())
    assert_right(select(inputs), inputs)


def test_ranges_outside_the_keys_are_cut():
    ranges = [(-5, 2100), (100, 2**31 - 1), (-(2**31), 2**31 - 1), (900, 100), (5000, 6000)]
    ranges += [(2**31 - 1, -(2**31)), (2**31 - 6000, -(2**31))]  # lengths that wrap in 32 bits
    inputs = random_inputs(ranges, 2200, seed=6, device=device())
    topk_indices = select(inputs)
    assert_right(topk_indices, inputs)
    assert (topk_indices[3:] == -1).all()


def test_more_queries_than_a_block(monkeypatch):
    """Blocks take turns with the scratch; the last ones are smaller."""
    choose = module().choose

    def choose_small_blocks(*axes, **known):
        route, options = choose(*axes, **known)
        return route, options | {"block": 2}

    monkeypatch.setattr(module(), "choose", choose_small_blocks)
    ranges = [(row, 2100) for row in (0, 50, 7, 60, 52)]
    inputs = random_inputs(ranges, 2100, seed=7, device=device())
    assert_right(select(inputs), inputs)


def test_keys_outside_a_range_do_not_count():
    """What would win, and what is no number, beside the range and in its last tile."""
    inputs = random_inputs([(10, 2100), (300, 2400)], 2600, seed=8, device=device())
    inputs["q_index_fp8"] = inputs["q_index_fp8"].float().abs().to(torch.float8_e4m3fn)
    inputs["weights"].abs_()
    codes = inputs["k_index_fp8"].view(torch.uint8)
    codes[:10], codes[2500:] = LARGEST_CODE, NAN_CODE
    inputs["k_scale"][2450:2500] = float("nan")
    assert_right(select(inputs), inputs)


# Scores


def some_slow(*quick):
    """All kinds, of which the others take too long for a quick test."""
    slow = pytest.mark.slow
    return [kind if kind in quick else pytest.param(kind, marks=slow) for kind in HOSTILE_KINDS]


@not_finite
@pytest.mark.parametrize("kind", some_slow("equal", "all magnitudes", "adjacent floats"))
def test_hostile_scores(kind):
    scores = hostile_scores(kind, 3100)
    select_by_scores(scores, [(0, 3100), (3, 2600)])


@not_finite
@pytest.mark.parametrize("kind", some_slow("few above a tie"))
def test_hostile_scores_that_do_not_fit_into_registers(kind):
    scores = hostile_scores(kind, 20_000)
    select_by_scores(scores, [(0, 20_000), (3, 8500)])


def test_a_sample_that_says_nothing_costs_no_key():
    """The sampled positions hold the worst scores of all: both probes count too many."""
    count = 20_000
    scores = np.random.default_rng(11).standard_normal(count).astype(np.float32)
    stretch = count // 4096
    offs = np.arange(4096)
    scores[offs * stretch + (offs * 40503 >> 5) % stretch] -= 1000.0
    select_by_scores(scores, [(0, count)])


@not_finite
def test_nan_ranks_above_infinity_and_infinity_above_the_rest():
    scores = np.random.default_rng(12).standard_normal(LONGER + 5).astype(np.float32)
    scores[[3, 900, 2050]] = np.nan
    scores[[4, 2053]] = np.inf
    topk_indices = select_by_scores(scores, [(0, len(scores))])
    assert {3, 4, 900, 2050, 2053} <= set(topk_indices[0].tolist())


def test_thousands_of_ties_at_the_threshold():
    inputs = integer_inputs([(0, 3000), (5, 2100), (8, 40)], 3000, seed=13, device=device())
    (scores, *_) = oracle(inputs)
    threshold = scores.sort(descending=True).values[TOPK - 1]
    assert scores.unique().numel() < 20 and (scores == threshold).sum() > 1
    assert_right(select(inputs), inputs, is_exact=True)


@pytest.mark.parametrize("num_keys", [2100, 9000])
def test_ties_write_no_slot_behind_the_last(num_keys):
    inputs = inputs_with_scores(np.ones(num_keys), [(0, num_keys)], device())
    rows = torch.full((2, TOPK), 77, dtype=torch.int32, device=device())
    build(ROOM)(*inputs.values(), rows[:1])
    assert (rows[1] == 77).all()
    assert rows[0].unique().numel() == TOPK


def test_signs_and_zeros_of_scales_and_weights():
    inputs = random_inputs([(0, 2300), (0, 2300)], 2300, seed=14, device=device())
    inputs["weights"][0] = -inputs["weights"][0].abs()
    inputs["k_scale"][100:200] = 0.0
    inputs["k_scale"][200:1500].neg_()
    assert_right(select(inputs), inputs)


def test_repeated_calls_agree():
    inputs = integer_inputs([(0, 2100)], 2100, seed=15, device=device())
    assert torch.equal(select(inputs), select(inputs))


def test_no_queries():
    assert select(random_inputs([], 100, seed=16, device=device())).shape == (0, TOPK)


# Arguments


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: {"q_index_fp8": x["q_index_fp8"].float()}, TypeError, ("float8_e4m3fn",)),
        (lambda x: {"q_index_fp8": x["q_index_fp8"][:, :32]}, ValueError, ("[*, 64, 128]",)),
        (
            lambda x: {"k_index_fp8": x["k_index_fp8"].view(torch.uint8)},
            TypeError,
            ("k_index_fp8:", "float8_e4m3fn", "uint8"),
        ),
        (lambda x: {"k_index_fp8": x["k_index_fp8"][:, :64]}, ValueError, ("[*, 128]",)),
        (lambda x: {"k_scale": x["k_scale"][:-1]}, ValueError, ("k_scale:", "[90]")),
        (lambda x: {"k_scale": x["k_scale"].double()}, TypeError, ("k_scale:", "float32")),
        (lambda x: {"weights": x["weights"].mT}, ValueError, ("weights:", "[3, 64]")),
        (lambda x: {"row_starts": x["row_starts"].long()}, TypeError, ("row_starts:", "int32")),
        (lambda x: {"row_ends": x["row_ends"].tolist()}, TypeError, ("row_ends:", "list")),
        (lambda x: {"row_ends": x["row_ends"].to("meta")}, ValueError, ("row_ends:", "meta")),
        (lambda x: {"row_ends": x["row_ends"][:2]}, ValueError, ("row_ends:", "[3]")),
    ],
)
def test_bad_input_names_the_argument(change, error, words):
    inputs = random_inputs([(0, 90), (1, 2), (4, 66)], 90, seed=17)
    inputs |= change(inputs)
    with raises_naming(error, *words):
        build(ROOM)(*inputs.values(), empty_output(3))


def test_bad_output_names_the_argument():
    inputs = random_inputs([(0, 5)] * 4, 5, seed=18)
    with raises_naming(TypeError, "topk_indices:", "int32", "int64"):
        build(ROOM)(*inputs.values(), empty_output(4).long())
    with raises_naming(ValueError, "topk_indices:", "[4, 2048]"):
        build(ROOM)(*inputs.values(), empty_output(3))
    shared = torch.zeros(4, TOPK, dtype=torch.int32)
    inputs["row_ends"] = shared[1, :4]
    with raises_naming(ValueError, "topk_indices:", "overlap with row_ends"):
        build(ROOM)(*inputs.values(), shared)


def test_a_gpu_without_fp8_is_named(monkeypatch):
    gpu = SimpleNamespace(name="A100", major=8, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    with raises_naming(RuntimeError, "dsa_indexer_prefill:", "8.9", "A100", "8.0"):
        module().require_fp8(SimpleNamespace(is_cuda=True, device="cuda:0"))
    gpu.minor = 9
    module().require_fp8(SimpleNamespace(is_cuda=True, device="cuda:0"))


# Launches


@pytest.mark.parametrize("num_keys", [1024, 8192, 16384, 131072, 163840, 1 << 20], ids=str)
@pytest.mark.parametrize("num_queries", [1, 8, 64, 512, 4096, 8192, 100_000], ids=str)
def test_scratch_is_bounded_and_blocks_cover_all_queries(num_queries, num_keys):
    route, chosen = module().choose(num_queries, num_keys)
    assert route == "portable"
    candidates = 0 if chosen["select"]["FITS"] else 2 * TILE
    assert 1 <= chosen["block"] <= num_queries
    assert chosen["block"] * (num_keys + candidates) * 4 <= 160 << 20
    if num_queries >= 64 and num_keys <= 163840:
        assert chosen["block"] >= 64
    assert chosen["select"]["FITS"] == (num_keys <= TILE)


def test_a_row_longer_than_the_scratch_is_a_block_of_its_own():
    assert module().choose(5, 1 << 27)[1]["block"] == 1


@pytest.mark.parametrize(
    ("sizes", "group"),
    [((8, 131072), 8), ((64, 8192), 8), ((512, 32768), 64), ((4096, 131072), 64)],
)
def test_few_queries_are_spread_over_more_scoring_programs(sizes, group):
    assert module().choose(*sizes)[1]["score"]["GROUP"] == group


def compile_launches(num_queries, num_keys, capability):
    inputs = random_inputs([(0, num_keys)] * num_queries, num_keys, seed=19)
    launches = launches_compile(ROOM, [*inputs.values(), empty_output(num_queries)], capability)
    assert all(launch["global_scratch_bytes"] == 0 for launch in launches)
    return [(launch["name"], launch["num_warps"]) for launch in launches]


@pytest.mark.slow
@pytest.mark.parametrize("capability", [90, 100])
def test_short_contexts_compile_as_one_launch(capability):
    assert compile_launches(3, 2048, capability) == [("select_kernel", 16)]


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "capability"),
    [
        (70, 3000, 90),
        pytest.param(70, 3000, 100, marks=pytest.mark.slow),
        pytest.param(1, 40_000, 90, marks=pytest.mark.slow),
        pytest.param(1, 40_000, 100, marks=pytest.mark.slow),
    ],
)
def test_long_contexts_compile_as_two_launches(num_queries, num_keys, capability):
    launches = compile_launches(num_queries, num_keys, capability)
    assert launches == [("score_kernel", 8), ("select_kernel", 16)]


# The native route

ON_HOPPER = {"capability": (9, 0), "can_build": True}
NATIVE_SIZES = [
    (num_queries, num_keys)
    for num_queries in (1, 8, 64, 132, 133, 512, 513, 4096, 4097, 8192, 100_000)
    for num_keys in (2049, 5121, 16384, 131072, 163840, 1 << 20)
]


@pytest.mark.parametrize(
    ("unfit", "num_keys"),
    [
        ({"capability": None}, 9000),
        ({"capability": (8, 9)}, 9000),
        ({"capability": (10, 0)}, 9000),
        ({"can_build": False}, 9000),
        ({"is_aligned": False}, 9000),
        ({"interpreted": True}, 9000),
        ({}, (1 << 20) + 1),
    ],
    ids=str,
)
def test_the_portable_route_takes_what_the_native_one_cannot(unfit, num_keys):
    assert module().choose(4, 9000, **ON_HOPPER)[0] == "native"
    assert module().choose(4, num_keys, **ON_HOPPER | unfit)[0] == "portable"


@pytest.mark.parametrize(("num_queries", "num_keys"), NATIVE_SIZES)
def test_native_scratch_is_bounded_and_holds_every_stage(num_queries, num_keys):
    route, sizes = module().choose(num_queries, num_keys, **ON_HOPPER)
    assert route == "native"
    most = sizes["most_queries"]
    assert most % 4 == 0 and most <= 4096
    assert -(-num_queries // most) == -(-num_queries // 4096) or num_keys > 163840
    assert sizes["area_bytes"] + 4 * sizes["table_words"] < 240 << 20
    assert sizes["area_bytes"] >= (most + 4 * 132) * 8 * 832 * 8  # candidates
    assert sizes["area_bytes"] >= most * -(-num_keys // 48) * 4  # samples
    assert sizes["area_bytes"] >= 4 * num_keys * 4  # scores of a repairing CTA
    # 2047 keys above a tie at the threshold, and of the tie what may be stored: 2047 that are known
    # of, and of each warp that has a piece a vote and four. Blocks of one length have five at most.
    pieces = 132 if most <= 132 else 5
    assert sizes["most_candidates"] >= 2 * 2047 + pieces * 8 * (16 + 4)


@pytest.mark.parametrize("num_keys", [0, 1, 2048])
def test_contexts_without_scores_take_no_scratch(num_keys):
    _, sizes = module().choose(5, num_keys, **ON_HOPPER)
    assert (sizes["area_bytes"], sizes["table_words"]) == (0, 0)


def test_sizes_of_the_native_route_are_those_of_its_source():
    folder = Path(__file__).parents[2] / "solutions" / ROOM
    text = (folder / "plan.cuh").read_text()
    found = re.findall(r"(?:(?<=, )|int )([A-Z_]+) = (\d+)", text)
    sizes = {name: int(value) for name, value in found}
    kernel = module()
    names = {"BLOCK": "QUERY_BLOCK", "STRETCH": "STRETCH", "CAPACITY": "CAPACITY"}
    for name, own in (names | {"MOST_CTAS": "MOST_CTAS"}).items():
        assert sizes[name] == getattr(kernel, own)
    assert sizes["TILE"] == sizes["ROWS"] * kernel.QUERY_WARPS
    assert "MOST_KEYS = 1 << 20;" in text and kernel.NATIVE_KEYS == 1 << 20
    assert sizes["MOST_BLOCKS"] * sizes["BLOCK"] == kernel.NATIVE_QUERIES


def test_run_takes_the_route_that_was_chosen(monkeypatch):
    kernel, launched = module(), []
    monkeypatch.setattr(kernel, "choose", lambda *_, **__: ("native", {"most_queries": 8}))
    monkeypatch.setattr(kernel, "run_native", lambda *tensors, **sizes: launched.append(sizes))
    inputs = random_inputs([(0, 9)], 9, seed=20, device=device())
    kernel.run(*inputs.values(), empty_output(1, device()))
    assert launched == [{"most_queries": 8}]
