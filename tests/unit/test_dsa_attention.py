"""dsa_attention, packed and built as the judge builds it, against the fp64 oracle."""

import sys

import pytest
import torch

from tests.aot import launches_compile
from tests.oracles.dsa_attention import (
    HEADS,
    PAGE_SIZE,
    TOPK,
    empty_outputs,
    oracle,
    random_inputs,
    random_rows,
)
from tests.packed import build, call, device, raises_naming

# One bf16 unit in the last place (the interpreter truncates); where weights round to bf16 the
# output moves by up to 2^-9 of the largest value.
OUTPUT_RTOL, OUTPUT_ATOL = 2.0**-7, 4e-3
LSE_RTOL, LSE_ATOL = 2e-6, 2e-5

PAGES = 8
LAST_ROW = PAGES * PAGE_SIZE - 1
NAN, INF = float("nan"), float("inf")

# A split holds 64, 256 or 2048 index slots on a GPU, 512, 1024 or 2048 in the interpreter: pieces
# that lie 1024 slots apart, or straddle slot 512, belong to different ones everywhere.
FAR = 1024

# The interpreter hands numpy arrays to range(); numpy announces that it will refuse them one day.
loops = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
overflows = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter


def attend(inputs):
    outputs = empty_outputs(inputs["q_nope"].shape[0], device())
    return call("dsa_attention", list(inputs.values()), outputs)


def inputs_choosing(*rows, seed=0):
    """Random inputs whose tokens hold the given indices: {first slot: indices} each."""
    inputs = random_inputs(len(rows), PAGES, seed, device())
    for token, pieces in enumerate(rows):
        for slot, indices in pieces.items():
            values = torch.as_tensor(indices, dtype=torch.int32, device=device())
            inputs["sparse_indices"][token, slot : slot + len(values)] = values
    return inputs


def assert_matches(results, inputs):
    (output, lse), (want_output, want_lse) = results, oracle(**inputs)
    torch.testing.assert_close(
        output.double().cpu(), want_output, rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL
    )
    torch.testing.assert_close(lse.double().cpu(), want_lse, rtol=LSE_RTOL, atol=LSE_ATOL)


def assert_identical(left, right):
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one, other)


def test_matches_oracle_with_short_empty_and_split_rows():
    inputs = inputs_choosing(
        {0: random_rows(PAGES, 33, seed=1)},
        {},
        {FAR: [17]},
        {0: random_rows(PAGES, 10, seed=2), 450: random_rows(PAGES, 150, seed=3)},
    )
    output, lse = results = attend(inputs)
    assert_matches(results, inputs)
    assert not output[1].any()
    assert torch.isneginf(lse[1]).all()


def test_no_tokens():
    output, lse = attend(random_inputs(0, PAGES, 0, device()))
    assert output.numel() == lse.numel() == 0


def test_no_pages():
    inputs = random_inputs(2, 0, 0, device())
    inputs["sparse_indices"][0, 5] = 0  # outside a cache without rows
    output, lse = attend(inputs)
    assert not output.any()
    assert torch.isneginf(lse).all()


def test_padding_may_stand_anywhere():
    some = random_rows(PAGES, 40, seed=3)
    inputs = inputs_choosing(
        {64: some},
        {2 * i: [int(row)] for i, row in enumerate(some)},
        {TOPK - 1: [LAST_ROW]},
        {490: some},
    )
    # The same entries in the same order: token 1 spreads them, 3 holds them in two splits.
    for name in ("q_nope", "q_pe"):
        inputs[name][1] = inputs[name][3] = inputs[name][0]
    output, lse = results = attend(inputs)
    assert_matches(results, inputs)
    for token in (1, 3):
        torch.testing.assert_close(output[token], output[0], rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL)
        torch.testing.assert_close(lse[token], lse[0], rtol=LSE_RTOL, atol=LSE_ATOL)


def test_full_row_and_one_index_2048_times():
    inputs = inputs_choosing({0: random_rows(PAGES, TOPK, seed=4)}, {0: [9] * TOPK})
    output, lse = results = attend(inputs)
    assert_matches(results, inputs)
    # Equal weights of a power of two entries: the value row itself, and lse is its logit + 11.
    row = inputs["ckv_cache"].reshape(-1, 512)[9]
    torch.testing.assert_close(output[1], row.expand(HEADS, -1), rtol=OUTPUT_RTOL, atol=1e-6)
    once = attend(inputs | {"sparse_indices": inputs_choosing({}, {0: [9]})["sparse_indices"]})
    torch.testing.assert_close(lse[1], once[1][1] + 11.0, rtol=LSE_RTOL, atol=LSE_ATOL)


def test_repeated_indices_count_each_time():
    inputs = inputs_choosing({0: [5, 5, 5, 70]}, {0: [5, 70]}, {0: [70, 5, -1, 5], FAR: [5]})
    for name in ("q_nope", "q_pe"):
        inputs[name][1] = inputs[name][2] = inputs[name][0]
    output, lse = results = attend(inputs)
    assert_matches(results, inputs)
    torch.testing.assert_close(lse[2], lse[0], rtol=LSE_RTOL, atol=LSE_ATOL)
    assert not torch.allclose(output[1], output[0], rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL)


def test_indices_outside_the_cache_count_as_padding():
    outside = [-2, -(2**31), LAST_ROW + 1, 2**31 - 1]
    dirty = inputs_choosing({0: [3, *outside, LAST_ROW, 0]}, {0: outside})
    clean = inputs_choosing({0: [3, -1, -1, -1, -1, LAST_ROW, 0]}, {})
    assert_identical(attend(dirty), attend(clean))


@overflows
@pytest.mark.parametrize("bad", [NAN, pytest.param(INF, marks=pytest.mark.slow)])
def test_rows_not_chosen_never_leak(bad):
    rows = random_rows(PAGES, 60, seed=5)
    rows[40:50] = -1
    rows[7], rows[8] = -5, LAST_ROW + 9
    inputs = inputs_choosing({0: rows[:20], FAR: rows}, {0: [2]})
    unused = torch.ones(PAGES * PAGE_SIZE, dtype=torch.bool, device=device())
    unused[rows[(rows >= 0) & (rows <= LAST_ROW)].long()] = False
    unused[2] = False
    poisoned = dict(inputs)
    for name in ("ckv_cache", "kpe_cache"):
        around = torch.full_like(torch.cat([inputs[name]] * 3), bad)  # pages before and behind
        inside = around[PAGES : 2 * PAGES]
        inside.copy_(inputs[name])
        inside.reshape(PAGES * PAGE_SIZE, -1)[unused] = bad
        inputs[name].reshape(PAGES * PAGE_SIZE, -1)[unused] = 0.0
        poisoned[name] = inside
    assert_identical(attend(poisoned), attend(inputs))


@overflows
@pytest.mark.parametrize("name", ["q_nope", pytest.param("kpe_cache", marks=pytest.mark.slow)])
def test_chosen_nan_reaches_its_token_only(name):
    inputs = inputs_choosing({0: [1, 2, 3]}, {0: [4, 5], FAR: range(10, 40)})
    before = attend(inputs)
    poisoned = inputs | {name: inputs[name].clone()}
    poisoned[name].reshape(-1, poisoned[name].shape[-1])[2, 7] = NAN  # row 2, or token 0, head 2
    heads = [2] if name == "q_nope" else range(HEADS)
    output, lse = attend(poisoned)
    for head in range(HEADS):
        assert torch.isnan(output[0, head]).all() == (head in heads)
        assert torch.isnan(lse[0, head]) == (head in heads)
    assert_identical((output[1:], lse[1:]), (before[0][1:], before[1][1:]))


@pytest.mark.parametrize("sm_scale", [-0.3, pytest.param(0, marks=pytest.mark.slow)])
def test_any_scale(sm_scale):
    inputs = inputs_choosing({480: random_rows(PAGES, 70, seed=6)}, {0: [0, LAST_ROW]})
    inputs["sm_scale"] = sm_scale
    assert_matches(attend(inputs), inputs)


def test_equal_logits_give_the_mean():
    inputs = inputs_choosing({0: range(64)}, {480: range(96)})
    inputs["q_nope"].zero_()
    inputs["q_pe"].zero_()
    _, lse = results = attend(inputs)
    assert_matches(results, inputs)
    assert (lse[0] == 6.0).all()


def test_huge_logits_pick_the_largest():
    inputs = inputs_choosing({0: [0, 1, 2]}, {0: [0, 1], FAR: [2]}, {0: [1], FAR: [3]})
    ckv = inputs["ckv_cache"].reshape(-1, 512)
    for row, level in enumerate((1.0, -1.0, 0.5, -2.0)):
        ckv[row] *= 0.01
        ckv[row, 0] = 100.0 * level
    inputs["q_nope"].zero_()
    inputs["q_nope"][..., 0] = 100.0
    inputs["q_pe"].zero_()
    inputs["sm_scale"] = 1.0  # logits 1e4, -1e4, 5e3, -2e4
    output, lse = results = attend(inputs)
    assert_matches(results, inputs)
    for token, winner in enumerate((0, 0, 1)):
        assert torch.equal(output[token], ckv[winner].expand(HEADS, -1))
    torch.testing.assert_close(lse[2], torch.full_like(lse[2], -1e4 / 0.6931471805599453))


@loops
@pytest.mark.parametrize("num_tokens", [132, pytest.param(17, marks=pytest.mark.slow)])
def test_many_tokens_walk_their_splits_in_tiles(num_tokens):
    rows = [{} for _ in range(num_tokens)]
    rows[0] = {300: random_rows(PAGES, 5, seed=9)}  # tiles of padding come first
    rows[3] = {0: random_rows(PAGES, 20, seed=10), 1000: random_rows(PAGES, 60, seed=11)}
    rows[-1] = {TOPK - 1: [LAST_ROW]}
    inputs = inputs_choosing(*rows)
    assert_matches(attend(inputs), inputs)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: {"q_nope": x["q_nope"].half()}, TypeError, ("q_nope:", "bfloat16", "float16")),
        (lambda x: {"q_nope": x["q_nope"][:, :8]}, ValueError, ("q_nope:", "[*, 16, 512]")),
        (lambda x: {"q_pe": x["q_pe"][:1]}, ValueError, ("q_pe:", "[2, 16, 64]", "[1, 16, 64]")),
        (lambda x: {"ckv_cache": x["ckv_cache"][:, :1]}, ValueError, ("ckv_cache:", "[*, 64,")),
        (lambda x: {"ckv_cache": None}, TypeError, ("ckv_cache:", "NoneType")),
        (lambda x: {"kpe_cache": x["kpe_cache"][:2]}, ValueError, ("kpe_cache:", "[8, 64, 64]")),
        (lambda x: {"kpe_cache": x["kpe_cache"].mT}, ValueError, ("kpe_cache:", "contiguous")),
        (
            lambda x: {"sparse_indices": x["sparse_indices"].long()},
            TypeError,
            ("sparse_indices:", "int32", "int64"),
        ),
        (
            lambda x: {"sparse_indices": x["sparse_indices"][:, :64].contiguous()},
            ValueError,
            ("sparse_indices:", "[2, 2048]", "[2, 64]"),
        ),
        (lambda x: {"q_pe": x["q_pe"].to("meta")}, ValueError, ("q_pe:", "meta")),
        (lambda x: {"sm_scale": None}, TypeError, ("sm_scale:", "NoneType")),
        (lambda x: {"sm_scale": torch.tensor(0.1)}, TypeError, ("sm_scale:", "Tensor")),
    ],
)
def test_bad_input_names_the_argument(change, error, words):
    inputs = random_inputs(2, PAGES, 0, device())
    inputs |= change(inputs)
    with raises_naming(error, *words):
        build("dsa_attention")(*inputs.values(), *empty_outputs(2, device()))


def test_bad_output_names_the_argument():
    inputs = random_inputs(2, PAGES, 0, device())
    output, lse = empty_outputs(2, device())
    room = build("dsa_attention")
    with raises_naming(TypeError, "output:", "bfloat16"):
        room(*inputs.values(), output.float(), lse)
    with raises_naming(ValueError, "lse:", "[2, 16]"):
        room(*inputs.values(), output, lse[:1])
    with raises_naming(ValueError, "output:", "overlap with q_nope"):
        room(*inputs.values(), inputs["q_nope"], lse)


@pytest.mark.parametrize(
    ("num_tokens", "capability"),
    [
        (1, 90),
        pytest.param(1, 100, marks=pytest.mark.slow),
        pytest.param(17, 90, marks=pytest.mark.slow),
        pytest.param(17, 100, marks=pytest.mark.slow),
        pytest.param(132, 90, marks=pytest.mark.slow),
        pytest.param(132, 100, marks=pytest.mark.slow),
    ],
)
def test_compiles_ahead_of_time(num_tokens, capability):
    inputs = random_inputs(num_tokens, 1, 0)
    arguments = [*inputs.values(), *empty_outputs(num_tokens)]
    attending, *merging = launches_compile("dsa_attention", arguments, capability)
    assert attending["shared_bytes"] <= 99 * 1024
    assert len(merging) == (num_tokens < 132)
    assert attending["global_scratch_bytes"] == 0


CHOICES = [
    ((8, (9, 0), True), ("native", 16)),
    ((9, (9, 0), True), ("native", 8)),
    ((17, (10, 0), True), ("native", 2)),
    ((65, (9, 0), True), ("native", 1)),
    ((8, (9, 0), False), ("portable", 64)),
    ((8, (8, 9), True), ("portable", 64)),
    ((17, None, False), ("portable", 256)),
    ((132, (12, 0), True), ("portable", 2048)),
]


@pytest.mark.parametrize(("axes", "wanted"), CHOICES, ids=str)
def test_chooses_route_and_launch(axes, wanted):
    num_tokens, capability, can_build = axes
    choose = sys.modules[build("dsa_attention")._callable.__module__].choose
    route, options = choose(num_tokens, capability=capability, can_build=can_build)
    size = options["cluster"] if route == "native" else options["launch"]["SPLIT"]
    assert (route, size) == wanted


@pytest.mark.parametrize("fits", [True, False])
def test_the_portable_route_runs_where_no_cluster_fits(fits, monkeypatch):
    kernel = sys.modules[build("dsa_attention")._callable.__module__]
    choose, launched = kernel.choose, []

    def choose_as_on_a_gpu(num_tokens, *, can_build=False, **known):
        return ("native", {}) if can_build else choose(num_tokens, **known)

    monkeypatch.setattr(kernel, "choose", choose_as_on_a_gpu)
    monkeypatch.setattr(kernel, "can_build", lambda capability: True)
    monkeypatch.setattr(kernel, "has_clusters", lambda device: fits)
    monkeypatch.setattr(kernel, "run_native", lambda *_: launched.append("native"))
    monkeypatch.setattr(kernel, "_run_portable", lambda *_, **__: launched.append("portable"))
    attend(random_inputs(1, PAGES, 18, device()))
    assert launched == ["native" if fits else "portable"]


@pytest.mark.parametrize("unfit", [{"is_aligned": False}, {"interpreted": True}], ids=str)
def test_the_portable_route_takes_what_the_native_one_cannot(unfit):
    choose = sys.modules[build("dsa_attention")._callable.__module__].choose
    assert choose(1, capability=(9, 0), can_build=True, **unfit)[0] == "portable"
