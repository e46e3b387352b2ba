"""dsa_indexer on a CUDA device, both routes: official mixes, oracle and rule, hostile scores."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.gpu.references import reference
from tests.gpu.streams import replay_captured, run_behind_slow_producer
from tests.oracles.dsa_indexer import (
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
from tests.packed import build, call

pytestmark = pytest.mark.gpu

ROOM = "dsa_indexer"
PAGE_BYTES = 8448
OFFICIAL_RULE = SimpleNamespace(atol=0.01, rtol=0.01, required_matched_ratio=1.0)

# Lengths of official workloads: without a long sequence, then with one.
OFFICIAL_LENGTHS = [
    [int(length) for length in lengths.split()]
    for lengths in (
        "2",
        "6 337",
        "36 55 75 20 21 404 1092 1",
        "115 111 1985 114 511 120 374 115 200 152 122 1 1 1 1",
        "92 48 1044 14 411 30 16 8 3 35 21 5 7 2112 10 2015",
        "19 12 2162 21 26 46 136 8 9 11 23 18 12 31 131",
        "20 21 33 13 26 4 14 14 338 22 5196 80 25 965 658 14 103 11 20 4 9 20 56 11 101 17 48 1 1 "
        "1",
        "133 136 136 141 1766 198 159 134 202 152 136 275 5806 142 177 492 190 302 178 226 134 137 "
        "165 244 130 200 129",
    )
]


@pytest.fixture(params=[None, "portable"], ids=["whole", "portable"])
def route(request):
    """The room as it is, native route and all, and the room without it."""
    return request.param


@pytest.fixture
def select(route):
    """inputs by name -> topk_indices, on the route of the test."""

    def run(inputs):
        outputs = [empty_output(len(inputs["seq_lens"]), "cuda")]
        return call(ROOM, list(inputs.values()), outputs, route)[0]

    return run


def assert_right(topk_indices, inputs, is_exact=False):
    values = list(inputs.values())
    bounds = None if is_exact else error_bounds(*values)
    check(topk_indices, oracle(*values), inputs["block_table"], inputs["seq_lens"], bounds)


@pytest.mark.parametrize("seq_lens", OFFICIAL_LENGTHS, ids=lambda x: f"{len(x)}x{max(x)}")
def test_official_mixes(seq_lens, select):
    inputs = random_inputs(seq_lens, seed=1, device="cuda")
    assert_right(select(inputs), inputs)


@pytest.mark.parametrize("seq_lens", OFFICIAL_LENGTHS, ids=lambda x: f"{len(x)}x{max(x)}")
def test_official_rule_accepts(seq_lens, select):
    from harness.evaluators import compare_sorted_scores, find_bad_index, scores_at

    inputs = random_inputs(seq_lens, seed=2, device="cuda")
    chosen, wanted = select(inputs).long(), reference(ROOM)(*inputs.values()).long()
    problem = find_bad_index(chosen, inputs["seq_lens"], inputs["block_table"], PAGE_SIZE)
    assert problem is None, problem
    got, want = (scores_at(ids, inputs, PAGE_SIZE) for ids in (chosen, wanted))
    assert not compare_sorted_scores(got, want, OFFICIAL_RULE).exceeds_tolerance


@pytest.mark.parametrize(
    "seq_lens",
    [
        [1, 63, 64, 65, 0],
        [2047, 2048, 2049, 2050, 4097],
        [3071, 3072, 3073],  # keys of a thread: 6, 12, 16
        [6143, 6144, 6145, 8191, 8192],
        [8192],
        [2112, 0],
    ],
    ids=str,
)
def test_lengths_on_both_sides_of_a_border(seq_lens, select):
    inputs = random_inputs(seq_lens, seed=3, device="cuda")
    assert_right(select(inputs), inputs)


@pytest.mark.parametrize("max_num_pages", [32, 33, 64, 65, 128, 129])
def test_table_widths_on_both_sides_of_a_launch_choice(max_num_pages, select):
    seq_lens = [max_num_pages * PAGE_SIZE, 100, max_num_pages * PAGE_SIZE - 63]
    inputs = random_inputs(seq_lens, seed=4, device="cuda")
    assert_right(select(inputs), inputs)


def test_thirty_long_sequences(select):
    inputs = random_inputs([5824] * 30, seed=5, device="cuda")
    assert_right(select(inputs), inputs)


@pytest.mark.parametrize(
    "seq_lens",
    [
        [5806, 9, 2100, 8192, 2048, 2049, 3000],
        [2049 + 113 * row for row in range(31)],
        [2200 if row % 8 == 7 else 70 * row % 2049 for row in range(31)],
        [2200 if row % 8 == 7 else 70 * row % 2049 for row in range(32)],
        [5000 if row in (0, 30, 32, 39) else row for row in range(40)],
        [2049 + 61 * row for row in range(100)],
        [1, 9000, 2048, 2049, 16384, 0, 70000] * 6,
    ],
    ids=len,
)
def test_several_long_sequences(seq_lens, select):
    inputs = random_inputs(seq_lens, seed=23, device="cuda")
    assert_right(select(inputs), inputs)


def test_hundreds_of_short_sequences(select):
    """More than a wave of CTAs, in a table that holds no long sequence."""
    seq_lens = np.random.default_rng(24).integers(0, 2049, 700).tolist()
    inputs = random_inputs(seq_lens, seed=24, device="cuda", max_num_pages=32)
    assert_right(select(inputs), inputs)


def test_four_sequences_of_131072(select):
    inputs = random_inputs([131072] * 4, seed=6, device="cuda")
    assert_right(select(inputs), inputs)


def test_lengths_of_every_size_beside_163840(select):
    inputs = random_inputs([163840, 1, 2049, 8192, 8193, 30000, 0, 12288], seed=7, device="cuda")
    assert_right(select(inputs), inputs)


def test_more_sequences_than_a_group_of_rows(select):
    rng = np.random.default_rng(8)
    seq_lens = rng.integers(0, 3000, 200).tolist()
    inputs = random_inputs(seq_lens, seed=8, device="cuda")
    assert_right(select(inputs), inputs)


@pytest.mark.parametrize("seq_lens", [[2049], [5824, 2100], [20000, 70]], ids=str)
def test_thousands_of_ties_at_the_threshold(seq_lens, select):
    inputs = integer_inputs(seq_lens, seed=9, device="cuda")
    assert_right(select(inputs), inputs, is_exact=True)


def hostile(kind, count):
    rng = np.random.default_rng(count)
    steps = np.arange(count, dtype=np.float32)
    return {
        "equal": np.full(count, -0.25),
        "zero": np.zeros(count),
        "ascending": steps - count / 2,
        "descending": -steps,
        "two values": rng.choice([1.0, 2.0], count, p=[0.8, 0.2]),
        "all magnitudes": 10.0 ** rng.uniform(-30, 30, count) * rng.choice([-1, 1], count),
        "adjacent floats": (np.float32(1).view(np.int32) + rng.permutation(count))
        .astype(np.int32)
        .view(np.float32),
        "one outlier": np.where(steps == 77, 3e37, rng.uniform(0, 1e-3, count)),
        "half a step": np.where(
            steps < count // 2, 1.0, np.nextafter(np.float32(1), np.float32(2))
        ),
        "infinite": np.where(steps % 5 == 0, np.inf, rng.standard_normal(count)),
        "not numbers": np.where(steps % 3 == 0, np.nan, rng.standard_normal(count)),
    }[kind].astype(np.float32)


@pytest.mark.parametrize("count", [2049, 4096, 5806, 8192, 8200, 131072])
@pytest.mark.parametrize(
    "kind",
    [
        "equal",
        "zero",
        "ascending",
        "descending",
        "two values",
        "all magnitudes",
        "adjacent floats",
        "one outlier",
        "half a step",
        "infinite",
        "not numbers",
    ],
)
def test_hostile_scores(kind, count, select):
    """The selection from given fp32 scores is exact."""
    scores = hostile(kind, count)
    inputs = inputs_with_scores([scores], seed=10, device="cuda")
    wanted = [torch.from_numpy(scores)]
    check(select(inputs), wanted, inputs["block_table"], inputs["seq_lens"])


def test_tokens_behind_the_length_do_not_count(select):
    inputs = random_inputs([2049, 65, 5761, 5], seed=11, device="cuda", unused="best")
    assert_right(select(inputs), inputs)


def test_signs_zero_scales_and_a_page_listed_twice(select):
    inputs = random_inputs([5000, 2200], seed=12, device="cuda")
    inputs["weights"][0] = -inputs["weights"][0].abs()
    scales = inputs["k_index_cache_fp8"].view(-1, PAGE_BYTES)[:, 8192:].view(torch.float32)
    scales[3:9].zero_()
    scales[9:20].neg_()
    inputs["block_table"][0, 20] = inputs["block_table"][0, 2]
    inputs["block_table"][1, 3] = inputs["block_table"][0, 2]
    assert_right(select(inputs), inputs)


def test_nan_codes_rank_first(select):
    """The interpreter decodes a NaN code to a number; a device must not."""
    inputs = random_inputs([2500], seed=13, device="cuda")
    page = inputs["block_table"][0, 7]
    inputs["k_index_cache_fp8"].view(-1, PAGE_BYTES)[page, 5 * 128 + 3] = 0x7F
    chosen = select(inputs)
    assert int(page) * PAGE_SIZE + 5 in chosen[0].tolist()
    assert_right(chosen, inputs)


def test_lengths_and_pages_outside_their_range_stay_in_memory(select):
    inputs = random_inputs([2112, 60, 64], seed=14, device="cuda")
    inputs["block_table"][0, 30:32] = torch.tensor([2**30, -5])
    inputs["seq_lens"][:] = torch.tensor([2**31 - 1, -3, 64])
    chosen = select(inputs)
    torch.cuda.synchronize()
    assert (chosen[0] != -1).all()
    assert (chosen[1] == -1).all()


def test_pool_beyond_2_to_the_31_bytes(select, route):
    first_page = 254_200  # times 8448 bytes: just past the largest int32
    inputs = random_inputs([5000, 70], seed=15, device="cuda")
    small = inputs["k_index_cache_fp8"]
    num_pages = first_page + small.shape[0]
    needed = num_pages * PAGE_BYTES * 1.05
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free device memory")
    want = select(inputs)
    large = torch.empty(num_pages, *small.shape[1:], dtype=torch.int8, device="cuda")
    large[first_page:] = small
    inputs |= {"k_index_cache_fp8": large, "block_table": inputs["block_table"] + first_page}
    output = empty_output(2, "cuda")
    build(ROOM, route)(*inputs.values(), output)  # without the clones of call()
    moved = torch.where(want >= 0, want + first_page * PAGE_SIZE, want)
    assert torch.equal(output, moved)


@pytest.mark.parametrize("seq_lens", [[2048, 3], [2500, 3], [5806, 9], [40000, 1]], ids=str)
def test_repeated_calls_agree_bit_for_bit(seq_lens, select):
    inputs = random_inputs(seq_lens, seed=16, device="cuda")
    first = select(inputs)
    for _ in range(10):
        assert torch.equal(select(inputs), first)


@pytest.mark.parametrize("seq_lens", [[100, 2048], [5806, 9], [40000, 1]], ids=str)
def test_waits_for_its_inputs_on_the_current_stream(seq_lens, select, route):
    inputs = random_inputs(seq_lens, seed=17, device="cuda")
    outputs = [empty_output(2, "cuda")]
    (late,) = run_behind_slow_producer(ROOM, list(inputs.values()), outputs, route)
    assert torch.equal(late, select(inputs))


@pytest.mark.parametrize("seq_lens", [[100, 2048], [5806, 9], [40000, 1]], ids=str)
def test_replays_from_a_graph(seq_lens, select, route):
    inputs = random_inputs(seq_lens, seed=18, device="cuda")
    outputs = [empty_output(2, "cuda")]
    (replayed,) = replay_captured(ROOM, list(inputs.values()), outputs, route=route)
    assert torch.equal(replayed, select(inputs))


def test_back_to_back_calls_do_not_mix(select, route):
    """The second kernel of a call may start early; the first of the next call may not."""
    one = random_inputs([5806, 3000, 17], seed=19, device="cuda")
    other = random_inputs([2100, 5806, 2500], seed=20, device="cuda")
    wanted = [select(one), select(other)]
    outputs = [[empty_output(3, "cuda").fill_(TOPK) for _ in range(2)] for _ in range(20)]
    for pair in outputs:
        for inputs, output in zip((one, other), pair, strict=True):
            build(ROOM, route)(*inputs.values(), output)
    for pair in outputs:
        for output, want in zip(pair, wanted, strict=True):
            assert torch.equal(output, want)


@pytest.mark.parametrize(
    "name",
    [
        "q_index_fp8",
        "k_index_cache_fp8",
        "weights",
        "seq_lens",
        "block_table",
        "topk_indices",
    ],
)
@pytest.mark.parametrize("length", [2500, 3])
def test_tensors_that_start_off_a_16_byte_boundary(length, name, route):
    inputs = random_inputs([length, 3], seed=21, device="cuda")
    tensors = inputs | {"topk_indices": empty_output(2, "cuda")}
    shift = 4 // tensors[name].element_size()
    room = tensors[name].new_empty(tensors[name].numel() + shift)
    room[shift:] = tensors[name].flatten()
    tensors[name] = room[shift:].view(tensors[name].shape)
    *inputs_there, output = tensors.values()
    assert_right(call(ROOM, inputs_there, [output], route)[0], inputs)


def test_a_table_without_columns_holds_no_token(select):
    inputs = random_inputs([0, 0, 0], seed=26, device="cuda")
    inputs["seq_lens"][:] = torch.tensor([0, 70, 5000])  # cut to the table
    inputs["block_table"] = inputs["block_table"][:, :0].contiguous()
    assert (select(inputs) == -1).all()


@pytest.mark.parametrize("seq_lens", [[5806, 9, 3000], [100, 2048, 7]], ids=str)
def test_two_streams_at_once(seq_lens, select, route):
    jobs = [random_inputs(seq_lens, seed=30 + i, device="cuda") for i in range(4)]
    wanted = [select(job).clone() for job in jobs]
    streams = [torch.cuda.Stream() for _ in jobs]
    outputs = [empty_output(len(seq_lens), "cuda") for _ in jobs]
    torch.cuda.synchronize()
    for _ in range(20):
        for job, output, stream in zip(jobs, outputs, streams, strict=True):
            with torch.cuda.stream(stream):
                build(ROOM, route)(*job.values(), output)
    torch.cuda.synchronize()
    for got, want in zip(outputs, wanted, strict=True):
        assert torch.equal(got, want)


@pytest.fixture
def kernel():
    """The module of the whole room, on a machine that can build its native route."""
    module = sys.modules[build(ROOM)._callable.__module__]
    capability = torch.cuda.get_device_capability()
    if capability != module.NATIVE_CAPABILITY or not module.can_build(capability):
        pytest.skip("needs a CUDA toolkit and a device that the native route supports")
    return module


def _refuse(*_, **__):
    raise AssertionError("the native route was taken")


def test_the_portable_route_runs_where_no_cluster_fits(kernel, monkeypatch):
    monkeypatch.setattr(kernel, "has_clusters", lambda device: False)
    monkeypatch.setattr(kernel, "run_native", _refuse)
    inputs = random_inputs([5806, 9], seed=27, device="cuda")
    assert_right(call(ROOM, list(inputs.values()), [empty_output(2, "cuda")])[0], inputs)


def test_the_native_route_is_the_one_that_runs(kernel, monkeypatch):
    """Where it can be built, nothing reaches the portable one unnoticed."""
    monkeypatch.setattr(kernel, "_run_portable", None)
    for seq_lens in ([100, 2048], [5806, 9], [8192] * 31, [5806, 9] * 16, [40000, 1]):
        inputs = random_inputs(seq_lens, seed=25, device="cuda")
        output = empty_output(len(seq_lens), "cuda")
        assert_right(call(ROOM, list(inputs.values()), [output])[0], inputs)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_runs_on_the_device_of_its_tensors(route):
    inputs = random_inputs([2500, 3], seed=22, device="cuda:1")
    output = empty_output(2, "cuda:1")
    with torch.cuda.device(0):
        build(ROOM, route)(*inputs.values(), output)
    assert_right(output, inputs)
