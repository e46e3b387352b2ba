"""dsa_attention on a CUDA device, both routes: official sizes, oracle, definition's reference."""

import math
import sys

import pytest
import torch

from tests.gpu import attention_errors
from tests.gpu.attention_errors import PAGES, ROOM, inputs_with_counts
from tests.gpu.references import reference
from tests.gpu.streams import replay_captured, run_behind_slow_producer
from tests.oracles.dsa_attention import (
    DIM_CKV,
    DIM_KPE,
    HEADS,
    PAGE_SIZE,
    TOPK,
    empty_outputs,
    oracle,
    random_inputs,
    random_rows,
)
from tests.packed import build, call

pytestmark = pytest.mark.gpu

LAST_ROW = PAGES * PAGE_SIZE - 1
NAN, INF = float("nan"), float("inf")
LOG2_E = 1 / math.log(2.0)
# bf16 rounding of the output, and of the weights before the product with the values; the tensor
# cores truncate as they accumulate 576 products.
OUTPUT_RTOL, OUTPUT_ATOL = 2.0**-7, 4e-3
LSE_RTOL, LSE_ATOL = 2e-6, 5e-4

# Valid entries per token of official workloads: short rows, a mix, the heaviest ones.
OFFICIAL_COUNTS = [
    [2],
    [18, 11],
    [33, 52],
    [6, 337],
    [19, 20, 32, 12, 25, 3],
    [6, 9, 9, 14, 1639, 71],
    [63, 9, 2048, 212, 11, 25, 6, 50],
    [288, 4, 1884, 21, 136, 2048, 42, 335],
    [17, 13, 1887, 16, 180, 1986, 413, 1],
]


@pytest.fixture(params=[None, "portable"], ids=["whole", "portable"])
def route(request):
    """The room as it is, native route and all, and the room without it."""
    return request.param


@pytest.fixture
def attend(route):
    """inputs by name -> (output, lse), on the route of the test."""

    def run(inputs):
        outputs = empty_outputs(inputs["q_nope"].shape[0], "cuda")
        return call(ROOM, list(inputs.values()), outputs, route)

    return run


def assert_matches(results, wanted):
    (output, lse), (want_output, want_lse) = results, wanted
    torch.testing.assert_close(
        output.double().cpu(), want_output.double().cpu(), rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL
    )
    torch.testing.assert_close(
        lse.double().cpu(), want_lse.double().cpu(), rtol=LSE_RTOL, atol=LSE_ATOL
    )


def assert_identical(left, right):
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("counts", OFFICIAL_COUNTS, ids=str)
def test_matches_oracle_and_definition_on_official_counts(counts, attend, route):
    inputs = inputs_with_counts(counts, seed=len(counts))
    results = attend(inputs)
    assert_matches(results, oracle(**inputs))
    assert_matches(results, reference(ROOM)(*inputs.values()))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 2047, 2048])
def test_counts_around_tile_and_split_borders(count, attend):
    inputs = inputs_with_counts([count], seed=count)
    assert_matches(attend(inputs), oracle(**inputs))


@pytest.mark.parametrize("count", [79, 81, 303, 305, 511, 513, 1023, 1024, 1025, 1041, 1281])
@pytest.mark.parametrize("num_tokens", [1, 9, 17, 65])
def test_counts_around_the_shares_of_every_cluster(count, num_tokens, attend):
    inputs = inputs_with_counts([count] * num_tokens, seed=count)
    output, lse = attend(inputs)
    some = [0, num_tokens - 1]
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    assert_matches((output[some], lse[some]), oracle(**{**inputs, **few}))


@pytest.mark.parametrize("num_tokens", [16, 17, 131, 132, 1000])
def test_many_tokens_with_mixed_and_full_rows(num_tokens, attend):
    counts = [(37 * token) % 150 for token in range(num_tokens)]
    counts[0] = counts[num_tokens // 2] = counts[-1] = TOPK
    inputs = inputs_with_counts(counts, seed=num_tokens)
    output, lse = attend(inputs)
    some = [0, 1, 2, 3, num_tokens // 2, num_tokens - 2, num_tokens - 1]
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    assert_matches((output[some], lse[some]), oracle(**{**inputs, **few}))
    empty = torch.tensor([count == 0 for count in counts], device="cuda")
    assert torch.equal(torch.isneginf(lse).all(dim=1), empty)
    assert not output[empty].any()
    assert torch.isfinite(output).all()


def test_thousands_of_full_rows(attend):
    inputs = random_inputs(3000, PAGES, 1, "cuda")
    inputs["sparse_indices"] = random_rows(PAGES, 3000 * TOPK, 2, "cuda").view(3000, TOPK)
    output, lse = attend(inputs)
    some = [0, 1234, 2999]
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    assert_matches((output[some], lse[some]), oracle(**{**inputs, **few}))
    assert torch.isfinite(output).all()
    assert torch.isfinite(lse).all()


@pytest.mark.parametrize("num_tokens", [5, 40, 140])
def test_padding_may_stand_anywhere(num_tokens, attend):
    inputs = random_inputs(num_tokens, PAGES, 3, "cuda")
    some = random_rows(PAGES, 700, 4, "cuda")
    layouts = torch.full((4, TOPK), -1, dtype=torch.int32, device="cuda")
    layouts[0, :700] = some
    layouts[1, 64:764] = some
    layouts[2, 1:1401:2] = some
    layouts[3, -700:] = some
    inputs["sparse_indices"][:4] = layouts
    for name in ("q_nope", "q_pe"):
        inputs[name][:4] = inputs[name][0].clone()
    inputs["sparse_indices"][-1, -1] = LAST_ROW
    results = attend(inputs)
    few = {name: inputs[name][:4] for name in ("q_nope", "q_pe", "sparse_indices")}
    assert_matches([x[:4] for x in results], oracle(**{**inputs, **few}))
    row = inputs["ckv_cache"].reshape(-1, DIM_CKV)[LAST_ROW]
    assert torch.equal(results[0][-1], row.expand(HEADS, -1))


@pytest.mark.parametrize("num_tokens", [2, 20, 140])
def test_one_index_2048_times_is_its_row(num_tokens, attend):
    inputs = random_inputs(num_tokens, PAGES, 5, "cuda")
    inputs["sparse_indices"].fill_(LAST_ROW)
    output, lse = attend(inputs)
    row = inputs["ckv_cache"].reshape(-1, DIM_CKV)[LAST_ROW]
    assert torch.equal(output, row.expand(num_tokens, HEADS, -1))
    inputs["sparse_indices"][:, 1:] = -1
    torch.testing.assert_close(lse, attend(inputs)[1] + 11.0, rtol=LSE_RTOL, atol=LSE_ATOL)


@pytest.mark.parametrize("num_tokens", [3, 20, 140])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_rows_not_chosen_never_leak(num_tokens, bad, attend):
    pages = 64
    inputs = random_inputs(num_tokens, pages, 6, "cuda")
    rows = random_rows(pages, 300, 7, "cuda")
    rows[100:150] = -1
    rows[7], rows[8], rows[9] = -5, pages * PAGE_SIZE, 2**31 - 1
    inputs["sparse_indices"][0, 30:330] = rows
    inputs["sparse_indices"][2, :20] = rows[:20]
    unused = torch.ones(pages * PAGE_SIZE, dtype=torch.bool, device="cuda")
    unused[rows[(rows >= 0) & (rows < pages * PAGE_SIZE)].long()] = False
    poisoned = dict(inputs)
    for name in ("ckv_cache", "kpe_cache"):
        around = torch.full_like(torch.cat([inputs[name]] * 3), bad)  # pages before and behind
        inside = around[pages : 2 * pages]
        inside.copy_(inputs[name])
        inside.reshape(pages * PAGE_SIZE, -1)[unused] = bad
        inputs[name].reshape(pages * PAGE_SIZE, -1)[unused] = 0.0
        poisoned[name] = inside
    assert_identical(attend(poisoned), attend(inputs))


@pytest.mark.parametrize("num_tokens", [1, 8, 9, 17, 65])
def test_holes_leave_ctas_tiles_and_blocks_without_work(num_tokens, attend):
    """Valid entries far from the front, alone in their block, and none in the first blocks."""
    inputs = random_inputs(num_tokens, 64, 30, "cuda")
    indices = inputs["sparse_indices"]
    spans = [
        [2047],
        range(64, 70),
        range(1500, 1600),
        [0, 1024, 2032],
        [1024],  # of 16 CTAs only the first has entries, in its second tile
        [3, *range(60, 64), *range(1024, 1040), 1280],  # and in both
        range(1030, 1310),  # the second tiles of all, the first tiles of none
    ]
    for token in range(num_tokens):
        slots = torch.tensor(list(spans[token % len(spans)]), device="cuda")
        indices[token, slots] = random_rows(64, len(slots), 30 + token, "cuda")
    if num_tokens > 7:
        chosen = torch.rand(2048, generator=torch.Generator().manual_seed(31)).cuda() < 0.5
        indices[7] = -1
        indices[7, chosen] = random_rows(64, int(chosen.sum()), 31, "cuda")
    output, lse = attend(inputs)
    some = list(range(min(num_tokens, 8)))
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    assert_matches((output[some], lse[some]), oracle(**{**inputs, **few}))


@pytest.mark.parametrize("num_tokens", [7, 9, 17, 65])
def test_whichever_blocks_tell_that_a_row_is_long(num_tokens, attend):
    """The fifth block of 16 slots decides how the native route divides a row."""
    inputs = random_inputs(num_tokens, 64, 32, "cuda")
    spans = [(79, 80), (64, 65), (64, 80), (80, 81), (0, 79), (80, 200), (16, 2048)]
    for token in range(num_tokens):
        first, last = spans[token % len(spans)]
        rows = random_rows(64, last - first, 32 + token % len(spans), "cuda")
        inputs["sparse_indices"][token, first:last] = rows
        if token % len(spans) == 5:
            inputs["sparse_indices"][token, :64] = rows[:64]
    output, lse = attend(inputs)
    some = list(range(num_tokens - len(spans), num_tokens))
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    assert_matches((output[some], lse[some]), oracle(**{**inputs, **few}))


@pytest.mark.parametrize("num_tokens", [3, 9, 20, 140])
@pytest.mark.parametrize("exponent", [-90, -40, 40, 110])
def test_values_of_any_magnitude(num_tokens, exponent, attend):
    """Sums of several CTAs travel in fp16, whose range is far less than that of bf16."""
    counts = [33, 337, 2048] + [5] * (num_tokens - 3)
    inputs = inputs_with_counts(counts, seed=40, num_pages=64)
    inputs["ckv_cache"] *= 2.0**exponent
    inputs["q_nope"] *= 2.0**-exponent
    output, lse = attend(inputs)
    few = {name: inputs[name][:3] for name in ("q_nope", "q_pe", "sparse_indices")}
    want, want_lse = oracle(**{**inputs, **few})
    scale = 2.0**-exponent
    assert_matches((output[:3].double() * scale, lse[:3]), (want * scale, want_lse))


def opposite_logits(num_tokens, count, largest, num_pages=PAGES, device="cuda"):
    """Inputs whose logits are all some 1e4 or -1e4, and which row has the largest of each head.

    kpe alone makes them: every column of a row is 18 or -18, by turns of 16 slots, and +-18.125 in
    the two slots `largest`. Queries of odd heads have the other sign.
    """
    inputs = inputs_with_counts([0] * num_tokens, 41, num_pages, device)
    rows = torch.randperm(num_pages * PAGE_SIZE, generator=torch.Generator().manual_seed(42))
    rows = rows[:count].to(device)
    inputs["sparse_indices"][:, :count] = rows
    keys = torch.where(torch.arange(count, device=device) // 16 % 2 == 0, 18.0, -18.0)
    keys[largest[0]], keys[largest[1]] = 18.125, -18.125
    kpe = inputs["kpe_cache"].view(-1, DIM_KPE)
    kpe[rows] = keys[:, None].expand(-1, DIM_KPE).bfloat16()
    inputs["q_nope"].zero_()
    inputs["q_pe"][:, 0::2], inputs["q_pe"][:, 1::2] = 64.0, -64.0
    return inputs, [rows[largest[head % 2]] for head in range(HEADS)]


@pytest.mark.parametrize("num_tokens", [1, 9, 17, 65])
@pytest.mark.parametrize(
    ("count", "largest"),
    [(65, (64, 3)), (65, (0, 20)), (500, (499, 0)), (2048, (1030, 1999)), (2048, (2047, 2046))],
)
def test_the_largest_of_opposite_logits_wins(count, largest, num_tokens, attend):
    """CTAs whose largest logits lie 2e4 apart merge; where odd heads differ from even ones."""
    inputs, winners = opposite_logits(num_tokens, count, largest)
    output, lse = attend(inputs)
    some = [0, num_tokens - 1]
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    want, want_lse = oracle(**{**inputs, **few})
    assert (want_lse / LOG2_E > 9.9e3).all()
    assert_matches((output[some], lse[some]), (want, want_lse))
    values = inputs["ckv_cache"].view(-1, DIM_CKV)[torch.stack(winners)]
    torch.testing.assert_close(output, values.expand_as(output), rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL)


@pytest.mark.parametrize("num_tokens", [1, 9, 17, 65])
@pytest.mark.parametrize("count", [65, 500, 2048])
def test_logits_of_ten_thousand_either_way(count, num_tokens, attend):
    """As above with whatever signs and distances random rows give."""
    inputs = inputs_with_counts([count] * num_tokens, seed=43, num_pages=200)
    inputs["q_nope"] *= 2.0**10
    inputs["q_pe"] *= 2.0**10
    output, lse = attend(inputs)
    some = [0, num_tokens - 1]
    few = {name: inputs[name][some] for name in ("q_nope", "q_pe", "sparse_indices")}
    want, want_lse = oracle(**{**inputs, **few})
    # A logit's error in fp32 is 1e-7 of the terms that it is summed from, so weights of rows that
    # lie close together differ by more than elsewhere.
    torch.testing.assert_close(output[some].double().cpu(), want, rtol=2.0**-6, atol=4e-2)
    torch.testing.assert_close(lse[some].double().cpu(), want_lse, rtol=1e-5, atol=LSE_ATOL)


@pytest.mark.parametrize("num_tokens", [1, 9, 17, 65])
@pytest.mark.parametrize("count", [1, 65, 500, 2048])
@pytest.mark.parametrize("key", [0.0, 0.75, -3.0])
def test_equal_logits_give_the_mean(key, count, num_tokens, attend):
    """key: all of kpe; q_nope is 0. With 0 every logit is 0."""
    inputs = inputs_with_counts([count] * num_tokens, seed=44)
    inputs["q_nope"].zero_()
    inputs["kpe_cache"].fill_(key)
    output, lse = attend(inputs)
    some = [0, num_tokens - 1]
    values = inputs["ckv_cache"].view(-1, DIM_CKV)
    means = [values[inputs["sparse_indices"][token, :count].long()].double() for token in some]
    want = torch.stack([mean.mean(dim=0).expand(HEADS, -1) for mean in means])
    logits = inputs["q_pe"][some].double().sum(dim=-1) * key
    want_lse = math.log2(count) + inputs["sm_scale"] * LOG2_E * logits
    assert_matches((output[some], lse[some]), (want, want_lse))


@pytest.mark.parametrize("counts", attention_errors.COUNTS, ids=str)
def test_errors_are_those_of_the_number_formats(counts, record_property):
    """Of the room as it is. What is compared, and why so: attention_errors.py."""
    seeds = attention_errors.SEEDS
    calls = [attention_errors.measure(inputs_with_counts(counts, seed)) for seed in seeds]
    worst = attention_errors.worst_of(calls)
    record_property("errors", attention_errors.describe(worst))
    print(f"{counts}: {attention_errors.describe(worst)}")
    assert worst.lse <= worst.lse_limit, calls
    assert worst.output_beyond_rounding <= attention_errors.OUTPUT_LIMIT, calls


@pytest.mark.parametrize("num_tokens", [3, 20, 140])
def test_chosen_nan_reaches_its_token_only(num_tokens, attend):
    inputs = inputs_with_counts([200, *[100] * (num_tokens - 1)], seed=8, num_pages=64)
    rows = inputs["sparse_indices"]
    rows[rows == 77] = 78
    before = attend(inputs)
    rows[0, 150] = 77
    inputs["ckv_cache"].reshape(-1, DIM_CKV)[77, 3] = NAN
    output, lse = attend(inputs)
    assert torch.isnan(output[0]).all()
    assert torch.isnan(lse[0]).all()
    assert_identical((output[1:], lse[1:]), (before[0][1:], before[1][1:]))


@pytest.mark.parametrize("num_tokens", [2, 20, 140])
@pytest.mark.parametrize("num_pages", [0, 1])
def test_no_page_and_one_page(num_pages, num_tokens, attend):
    inputs = random_inputs(num_tokens, num_pages, 26, "cuda")
    rows = num_pages * PAGE_SIZE
    inputs["sparse_indices"][0, :3] = torch.tensor([rows, -7, 2**31 - 1])  # outside the cache
    output, lse = attend(inputs)
    assert not output.any()
    assert torch.isneginf(lse).all()
    inputs["sparse_indices"][0] = -1
    inputs["sparse_indices"][1, 40 : 40 + rows] = torch.arange(rows, dtype=torch.int32)
    inputs["sparse_indices"][1, 2000 : 2000 + rows // 2] = 0
    assert_matches(attend(inputs), oracle(**inputs))


@pytest.fixture
def kernel():
    """The module of the whole room, on a machine that can build its native route."""
    module = sys.modules[build(ROOM)._callable.__module__]
    if not module.can_build(torch.cuda.get_device_capability()):
        pytest.skip("needs a CUDA toolkit and a device that the native route supports")
    return module


def _refuse(*_, **__):
    raise AssertionError("the native route was taken")


def test_the_portable_route_runs_where_no_cluster_fits(kernel, monkeypatch):
    monkeypatch.setattr(kernel, "has_clusters", lambda device: False)
    monkeypatch.setattr(kernel, "run_native", _refuse)
    inputs = inputs_with_counts([33, 700], seed=27)
    outputs = empty_outputs(2, "cuda")
    assert_matches(call(ROOM, list(inputs.values()), outputs), oracle(**inputs))


def test_the_native_route_is_the_one_that_runs(kernel, monkeypatch):
    """Where it can be built, nothing reaches the portable one unnoticed."""
    monkeypatch.setattr(kernel, "_run_portable", None)
    inputs = inputs_with_counts([33, 700], seed=16)
    outputs = empty_outputs(2, "cuda")
    assert_matches(call(ROOM, list(inputs.values()), outputs), oracle(**inputs))


@pytest.mark.parametrize("sm_scale", [-0.3, 0, 1.0, 30.0])
def test_any_scale(sm_scale, attend):
    inputs = inputs_with_counts([400, 33], seed=9) | {"sm_scale": sm_scale}
    (output, lse), (want_output, want_lse) = attend(inputs), oracle(**inputs)
    # Logits reach thousands at a scale of 30; their error, and that of the weights, grows with it.
    torch.testing.assert_close(
        output.double().cpu(), want_output, rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL * (1 + abs(sm_scale))
    )
    torch.testing.assert_close(
        lse.double().cpu(), want_lse, rtol=LSE_RTOL, atol=LSE_ATOL * (1 + 3 * abs(sm_scale))
    )


@pytest.mark.parametrize("counts", [[2048], [33] * 8, [100] * 40, [300] * 140], ids=len)
def test_repeated_calls_agree_bit_for_bit_whatever_the_scratch_held(counts, attend):
    inputs = inputs_with_counts(counts, seed=10)
    first = attend(inputs)
    for value in (NAN, INF, 1e30):
        junk = torch.full((64 * 2**20,), value, device="cuda")  # freed: the next empty() finds it
        del junk
        assert_identical(attend(inputs), first)


def test_two_streams_at_once(attend, route):
    jobs = [inputs_with_counts([2048, 100, 700, 5], seed=20 + i) for i in range(4)]
    wanted = [[x.clone() for x in attend(job)] for job in jobs]
    streams = [torch.cuda.Stream() for _ in jobs]
    outputs = [empty_outputs(4, "cuda") for _ in jobs]
    torch.cuda.synchronize()
    for _ in range(20):
        for job, output, stream in zip(jobs, outputs, streams, strict=True):
            with torch.cuda.stream(stream):
                build(ROOM, route)(*job.values(), *output)
    torch.cuda.synchronize()
    for got, want in zip(outputs, wanted, strict=True):
        assert_identical(got, want)


@pytest.mark.parametrize("num_tokens", [1, 8, 40, 140])
def test_tensors_that_start_off_a_16_byte_boundary(num_tokens, attend, route):
    inputs = inputs_with_counts([150] * num_tokens, seed=11, num_pages=200)
    aligned = attend(inputs)
    for name, tensor in list(inputs.items())[:-1]:
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")
        room[1:] = tensor.flatten()
        inputs[name] = room[1:].view(tensor.shape)
    shifted = [
        torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view(x.shape) for x in aligned
    ]
    assert_matches(call(ROOM, list(inputs.values()), shifted, route), aligned)


@pytest.mark.parametrize("counts", [[33, 2048], [50] * 140], ids=len)
def test_waits_for_its_inputs_on_the_current_stream(counts, attend, route):
    inputs = inputs_with_counts(counts, seed=12)
    late = run_behind_slow_producer(
        ROOM, list(inputs.values()), empty_outputs(len(counts), "cuda"), route
    )
    assert_identical(late, attend(inputs))


@pytest.mark.parametrize("counts", [[33, 2048, 0], [50] * 140], ids=len)
def test_replays_from_a_graph(counts, attend, route):
    inputs = inputs_with_counts(counts, seed=13)
    outputs = empty_outputs(len(counts), "cuda")
    assert_identical(
        replay_captured(ROOM, list(inputs.values()), outputs, route=route), attend(inputs)
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_runs_on_the_device_of_its_tensors(route):
    inputs = inputs_with_counts([33, 700], seed=14, num_pages=100)
    moved = {n: x.to("cuda:1") if isinstance(x, torch.Tensor) else x for n, x in inputs.items()}
    outputs = empty_outputs(2, "cuda:1")
    with torch.cuda.device(0):
        build(ROOM, route)(*moved.values(), *outputs)
    assert_matches(outputs, oracle(**inputs))


@pytest.mark.parametrize("num_tokens", [2, 20, 140])
def test_pool_beyond_2_to_the_31_elements(num_tokens, attend, route):
    num_pages = 2**31 // (PAGE_SIZE * DIM_CKV) + 40
    needed = num_pages * PAGE_SIZE * (DIM_CKV + 64) * 2 * 1.1
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free device memory")
    small = inputs_with_counts([300] * num_tokens, seed=15, num_pages=64)
    moved = torch.cat([torch.arange(32), num_pages - 32 + torch.arange(32)]).cuda()
    large = dict(small)
    for name in ("ckv_cache", "kpe_cache"):
        large[name] = small[name].new_empty((num_pages, *small[name].shape[1:]))
        large[name][moved] = small[name]
    rows = small["sparse_indices"].long()
    addresses = moved[rows.clamp(min=0) // PAGE_SIZE] * PAGE_SIZE + rows % PAGE_SIZE
    large["sparse_indices"] = torch.where(rows < 0, rows, addresses).int()
    outputs = empty_outputs(num_tokens, "cuda")
    build(ROOM, route)(*large.values(), *outputs)  # without the clones of call()
    assert_identical(outputs, attend(small))
