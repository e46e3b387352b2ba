"""dsa_indexer, packed and built as the judge builds it, against the fp64 oracle.

Rows are just long enough: the interpreter works on a row of 2049 tokens for a third of a second.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.aot import launches_compile
from tests.oracles.dsa_indexer import (
    FAR_PAGE,
    PAGE_SIZE,
    TOPK,
    check,
    empty_output,
    error_bounds,
    inputs_with_scores,
    integer_inputs,
    oracle,
    random_inputs,
)
from tests.packed import build, call, device, raises_naming

ROOM = "dsa_indexer"
LONGER = 2049  # the shortest sequence that is scored

not_finite = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter


def select(inputs):
    (topk_indices,) = call(
        ROOM, list(inputs.values()), [empty_output(len(inputs["seq_lens"]), device())]
    )
    return topk_indices


def assert_right(topk_indices, inputs, is_exact=False):
    values = list(inputs.values())
    bounds = None if is_exact else error_bounds(*values)
    check(topk_indices, oracle(*values), inputs["block_table"], inputs["seq_lens"], bounds)


def row_of(inputs, row):
    """The same inputs for one row alone, its block table as wide as it needs."""
    width = -(-int(inputs["seq_lens"][row]) // PAGE_SIZE)
    alone = {
        name: value if name == "k_index_cache_fp8" else value[row : row + 1].clone()
        for name, value in inputs.items()
    }
    return alone | {"block_table": alone["block_table"][:, :width].contiguous()}


@pytest.mark.parametrize(
    ("place", "replacement", "words"),
    [
        (2047, "the best left out", "left out"),
        (1, "the first again", "too often"),
        (5, -1, "no token"),
        (3, "a slot behind the length", "no token"),
    ],
)
def test_the_proof_of_an_output_refuses_wrong_ones(place, replacement, words):
    scores = torch.arange(2100.0)
    table, lengths = torch.arange(1, 34, dtype=torch.int32)[None], torch.tensor([2100])
    right = (scores.flip(0)[:TOPK].int() + PAGE_SIZE)[None]
    check(right, [scores], table, lengths)
    right[0, place] = {
        "the best left out": PAGE_SIZE + 2100 - TOPK - 2,
        "the first again": int(right[0, 0]),
        "a slot behind the length": PAGE_SIZE + 2100,
    }.get(replacement, replacement)
    with raises_naming(AssertionError, words):
        check(right, [scores], table, lengths)


@pytest.mark.parametrize("seq_lens", [[1], [0, 0], [0, 1, 63, 64, 65], [2048, 3, 2047]], ids=str)
def test_short_sequences_list_all_tokens(seq_lens):
    inputs = random_inputs(seq_lens, seed=1, device=device())
    assert_right(select(inputs), inputs)


def test_lengths_on_both_sides_of_every_border_together_and_alone():
    seq_lens = [0, 1, 63, 64, 65, 2047, 2048, 2049, 2112]
    inputs = random_inputs(seq_lens, seed=2, device=device())
    together = select(inputs)
    assert_right(together, inputs)
    for row in (1, 4, 6, 7):
        alone = select(row_of(inputs, row))[0]
        assert torch.equal(alone.sort().values, together[row].sort().values)


@pytest.mark.slow
@pytest.mark.parametrize("seq_lens", [[3000], [4160, 2900, 17], [2700, 4097]], ids=str)
def test_long_sequences(seq_lens):
    inputs = random_inputs(seq_lens, seed=3, device=device())
    assert_right(select(inputs), inputs)


def test_long_sequence_of_a_second_group_of_rows():
    """The scoring workers are shared by 32 rows."""
    seq_lens = [7] * 36
    seq_lens[34] = LONGER
    inputs = random_inputs(seq_lens, seed=4, device=device())
    assert_right(select(inputs), inputs)


@pytest.mark.parametrize(
    "max_num_pages", [33, pytest.param(66, marks=pytest.mark.slow), 129], ids=str
)
def test_thousands_of_ties_at_the_threshold(max_num_pages):
    inputs = integer_inputs([LONGER, 40], seed=5, device=device(), max_num_pages=max_num_pages)
    (scores, _) = oracle(*inputs.values())
    threshold = scores.sort(descending=True).values[TOPK - 1]
    assert scores.unique().numel() < 20
    assert (scores == threshold).sum() > 1
    assert_right(select(inputs), inputs, is_exact=True)


def test_ties_decide_at_every_rank():
    """Two values only; the larger one fills 2048 places less 1000."""
    scores = np.zeros(2112, np.float32)
    scores[np.random.default_rng(6).permutation(2112)[:1048]] = 3.0
    inputs = inputs_with_scores([scores], seed=6, device=device())
    topk_indices = select(inputs)
    check(topk_indices, [torch.from_numpy(scores)], inputs["block_table"], inputs["seq_lens"])


@pytest.mark.parametrize("max_num_pages", [33, pytest.param(66, marks=pytest.mark.slow)])
def test_all_scores_equal(max_num_pages):
    inputs = random_inputs([2100], seed=7, device=device(), max_num_pages=max_num_pages)
    inputs["weights"].zero_()
    assert_right(select(inputs), inputs, is_exact=True)


def hostile_scores(kind, count, rng):
    if kind == "ascending":
        return np.arange(count, dtype=np.float32) - count / 2
    if kind == "descending":
        return -np.arange(count, dtype=np.float32)
    if kind == "all magnitudes":  # the mean says nothing about the threshold
        return (10.0 ** rng.uniform(-30, 30, count) * rng.choice([-1, 1], count)).astype(np.float32)
    if kind == "adjacent floats":
        return (
            (np.float32(1.0).view(np.int32) + rng.permutation(count))
            .astype(np.int32)
            .view(np.float32)
        )
    assert kind == "one outlier"
    return np.where(np.arange(count) == 77, 3e37, rng.uniform(0, 1e-3, count)).astype(np.float32)


@not_finite
@pytest.mark.parametrize(
    "kind",
    [
        "all magnitudes",
        pytest.param("ascending", marks=pytest.mark.slow),
        pytest.param("descending", marks=pytest.mark.slow),
        pytest.param("adjacent floats", marks=pytest.mark.slow),
        pytest.param("one outlier", marks=pytest.mark.slow),
    ],
)
def test_hostile_scores(kind):
    scores = hostile_scores(kind, 2300, np.random.default_rng(8))
    inputs = inputs_with_scores([scores], seed=8, device=device())
    check(select(inputs), [torch.from_numpy(scores)], inputs["block_table"], inputs["seq_lens"])


@pytest.mark.slow
@not_finite
@pytest.mark.parametrize("kind", ["normal", "two values", "equal", "all magnitudes"])
def test_sequences_that_do_not_fit_into_registers(kind):
    rng, count = np.random.default_rng(9), 8300
    scores = {
        "normal": lambda: rng.standard_normal(count).astype(np.float32),
        "two values": lambda: rng.choice([-1.5, 2.0], count, p=[0.9, 0.1]).astype(np.float32),
        "equal": lambda: np.full(count, -0.25, np.float32),
        "all magnitudes": lambda: hostile_scores("all magnitudes", count, rng),
    }[kind]()
    inputs = inputs_with_scores([scores], seed=9, device=device())
    check(select(inputs), [torch.from_numpy(scores)], inputs["block_table"], inputs["seq_lens"])


@not_finite
def test_nan_ranks_above_infinity_and_infinity_above_the_rest():
    scores = np.random.default_rng(10).standard_normal(LONGER + 5).astype(np.float32)
    scores[[3, 900, 2050]] = np.nan
    scores[[4, 2053]] = np.inf
    inputs = inputs_with_scores([scores], seed=10, device=device())
    topk_indices = select(inputs)
    check(topk_indices, [torch.from_numpy(scores)], inputs["block_table"], inputs["seq_lens"])
    pages = inputs["block_table"][0].tolist()
    special = {pages[j // PAGE_SIZE] * PAGE_SIZE + j % PAGE_SIZE for j in (3, 4, 900, 2050, 2053)}
    assert special <= set(topk_indices[0].tolist())


def test_tokens_behind_the_length_do_not_count():
    """The free slots of the last page hold what would win."""
    inputs = random_inputs([LONGER, 65, 5], seed=11, device=device(), unused="best")
    assert_right(select(inputs), inputs)


def test_signs_zero_scales_and_a_page_listed_twice():
    inputs = random_inputs([LONGER + 63], seed=12, device=device())
    inputs["weights"] = -inputs["weights"].abs()
    cache = inputs["k_index_cache_fp8"].view(-1, 8448)
    scales = cache[:, 8192:].view(torch.float32)
    scales[1:4].zero_()
    scales[4:8].neg_()
    inputs["block_table"][0, 20] = inputs["block_table"][0, 2]
    assert_right(select(inputs), inputs)


def test_sequences_may_share_pages():
    inputs = random_inputs([130, 130], seed=13, device=device())
    inputs["block_table"][1] = inputs["block_table"][0]
    topk_indices = select(inputs)
    assert torch.equal(topk_indices[0], topk_indices[1])


def test_lengths_and_pages_outside_their_range_stay_in_memory():
    """No promise but this: no crash, every element written, the table is the limit."""
    inputs = random_inputs([2112, 60, 64], seed=14, device=device())
    inputs["block_table"][0, 30] = FAR_PAGE
    inputs["block_table"][0, 31] = -5
    inputs["seq_lens"][:] = torch.tensor([2**31 - 1, -3, 2**31 - 1])
    inputs["block_table"][2, 1:] = 0
    topk_indices = select(inputs)
    assert (topk_indices[0] != -1).all()
    assert (topk_indices[1] == -1).all()
    assert topk_indices[0].unique().numel() == TOPK


def test_repeated_calls_agree():
    inputs = integer_inputs([LONGER], seed=15, device=device())
    assert torch.equal(select(inputs), select(inputs))


def test_empty_batch():
    assert select(random_inputs([], seed=16, device=device())).shape == (0, TOPK)


def test_empty_sequences_with_an_empty_table_and_an_empty_cache():
    inputs = random_inputs([0, 0], seed=17, device=device())
    inputs["block_table"] = inputs["block_table"][:, :0].contiguous()
    inputs["k_index_cache_fp8"] = inputs["k_index_cache_fp8"][:0]
    assert (select(inputs) == -1).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: {"q_index_fp8": x["q_index_fp8"].float()}, TypeError, ("float8_e4m3fn",)),
        (lambda x: {"q_index_fp8": x["q_index_fp8"][:, :32]}, ValueError, ("[*, 64, 128]",)),
        (
            lambda x: {"k_index_cache_fp8": x["k_index_cache_fp8"].view(torch.uint8)},
            TypeError,
            ("k_index_cache_fp8:", "int8", "uint8"),
        ),
        (
            lambda x: {"k_index_cache_fp8": x["k_index_cache_fp8"][..., :128]},
            ValueError,
            ("k_index_cache_fp8:", "[*, 64, 1, 132]"),
        ),
        (
            lambda x: {
                "k_index_cache_fp8": torch.zeros(8448 + 4, dtype=torch.int8)[1:8449].view(
                    1, 64, 1, 132
                )
            },
            ValueError,
            ("k_index_cache_fp8:", "multiple of 4", "clone"),
        ),
        (lambda x: {"weights": x["weights"].double()}, TypeError, ("weights:", "float32")),
        (lambda x: {"weights": x["weights"].mT}, ValueError, ("weights:", "[3, 64]")),
        (lambda x: {"seq_lens": x["seq_lens"].long()}, TypeError, ("seq_lens:", "int32", "int64")),
        (lambda x: {"seq_lens": x["seq_lens"].tolist()}, TypeError, ("seq_lens:", "list")),
        (lambda x: {"seq_lens": x["seq_lens"].to("meta")}, ValueError, ("seq_lens:", "meta")),
        (lambda x: {"block_table": x["block_table"][:2]}, ValueError, ("block_table:", "[3, *]")),
        (
            lambda x: {"block_table": x["block_table"].repeat(1, 2)[:, ::2]},
            ValueError,
            ("block_table:", "contiguous"),
        ),
    ],
)
def test_bad_input_names_the_argument(change, error, words):
    inputs = random_inputs([70, 1, 66], seed=18)
    inputs |= change(inputs)
    with raises_naming(error, *words):
        build(ROOM)(*inputs.values(), empty_output(3))


def test_bad_output_names_the_argument():
    inputs = random_inputs([5] * 4, seed=19)
    with raises_naming(TypeError, "topk_indices:", "int32", "int64"):
        build(ROOM)(*inputs.values(), empty_output(4).long())
    with raises_naming(ValueError, "topk_indices:", "[4, 2048]"):
        build(ROOM)(*inputs.values(), empty_output(3))
    shared = torch.zeros(4, TOPK, dtype=torch.int32)
    inputs["block_table"] = shared
    with raises_naming(ValueError, "topk_indices:", "overlap with block_table"):
        build(ROOM)(*inputs.values(), shared)


def test_a_gpu_without_fp8_is_named(monkeypatch):
    room = sys.modules[build(ROOM)._callable.__module__]
    gpu = SimpleNamespace(name="A100", major=8, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    with raises_naming(RuntimeError, "dsa_indexer:", "8.9", "A100", "8.0"):
        room.require_fp8(SimpleNamespace(is_cuda=True, device="cuda:0"))
    gpu.minor = 9
    room.require_fp8(SimpleNamespace(is_cuda=True, device="cuda:0"))


def compile_launches(max_num_pages, capability):
    inputs = random_inputs([5, 6, 7], seed=20, max_num_pages=max_num_pages)
    launches = launches_compile(ROOM, [*inputs.values(), empty_output(3)], capability)
    assert all(launch["global_scratch_bytes"] == 0 for launch in launches)
    return [(launch["name"], launch["num_warps"]) for launch in launches]


@pytest.mark.slow
@pytest.mark.parametrize("capability", [90, 100])
def test_short_tables_compile_as_one_launch(capability):
    assert compile_launches(TOPK // PAGE_SIZE, capability) == [("select_kernel", 16)]


@pytest.mark.parametrize(
    ("max_num_pages", "num_warps", "capability"),
    [
        (33, 8, 90),
        pytest.param(33, 8, 100, marks=pytest.mark.slow),
        pytest.param(91, 16, 90, marks=pytest.mark.slow),
        pytest.param(91, 16, 100, marks=pytest.mark.slow),
        pytest.param(2560, 16, 90, marks=pytest.mark.slow),
        pytest.param(2560, 16, 100, marks=pytest.mark.slow),
    ],
)
def test_long_tables_compile_as_two_launches(max_num_pages, num_warps, capability):
    launches = compile_launches(max_num_pages, capability)
    assert launches == [("score_kernel", 4), ("select_kernel", num_warps)]


CHOICES = [
    ((1, 0, (9, 0), True), ("native", 0)),
    ((8, 32, (9, 0), True), ("native", 0)),
    ((5000, 32, (9, 0), True), ("native", 0)),
    ((1, 33, (9, 0), True), ("native", 1)),
    ((4, 91, (9, 0), True), ("native", 4)),
    ((8, 128, (9, 0), True), ("native", 6)),
    ((9, 128, (9, 0), True), ("native", 4)),
    ((31, 128, (9, 0), True), ("native", 4)),
    ((32, 33, (9, 0), True), ("native", None)),
    ((4, 129, (9, 0), True), ("native", None)),
    ((4, 2**24 + 1, (9, 0), True), ("portable", 512)),
    ((4, 32, (9, 0), False), ("portable", 0)),
    ((1, 91, (9, 0), False), ("portable", 91)),
    ((1, 91, (8, 9), True), ("portable", 91)),
    ((1, 91, (10, 0), True), ("portable", 91)),
    ((1, 91, None, True), ("portable", 91)),
    ((330, 91, (9, 0), True), ("native", None)),
    ((330, 91, (8, 9), True), ("portable", 46)),
]


@pytest.mark.parametrize(("axes", "wanted"), CHOICES, ids=str)
def test_chooses_route_and_launch(axes, wanted):
    batch_size, max_num_pages, capability, can_build = axes
    choose = sys.modules[build(ROOM)._callable.__module__].choose
    route, options = choose(batch_size, max_num_pages, capability=capability, can_build=can_build)
    size = options["long_clusters"] if route == "native" else options["workers"]
    assert (route, size) == wanted


@pytest.mark.parametrize("fits", [True, False])
def test_the_portable_route_runs_where_no_cluster_fits(fits, monkeypatch):
    kernel = sys.modules[build(ROOM)._callable.__module__]
    choose, launched = kernel.choose, []

    def choose_as_on_a_gpu(*axes, can_build=False, **known):
        return ("native", {}) if can_build else choose(*axes, **known)

    monkeypatch.setattr(kernel, "choose", choose_as_on_a_gpu)
    monkeypatch.setattr(kernel, "can_build", lambda capability: True)
    monkeypatch.setattr(kernel, "has_clusters", lambda device: fits)
    monkeypatch.setattr(kernel, "run_native", lambda *_: launched.append("native"))
    monkeypatch.setattr(kernel, "_run_portable", lambda *_, **__: launched.append("portable"))
    select(random_inputs([70], seed=18, device=device()))
    assert launched == ["native" if fits else "portable"]


@pytest.mark.parametrize("unfit", [{"is_aligned": False}, {"interpreted": True}], ids=str)
@pytest.mark.parametrize("max_num_pages", [32, 91])
def test_the_portable_route_takes_what_the_native_one_cannot(max_num_pages, unfit):
    choose = sys.modules[build(ROOM)._callable.__module__].choose
    route, _ = choose(4, max_num_pages, capability=(9, 0), can_build=True, **unfit)
    assert route == "portable"
