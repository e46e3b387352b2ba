"""gdn_prefill, packed and built as the judge builds it, against the fp64 oracle."""

import sys
from itertools import pairwise

import pytest
import torch

from tests.aot import launches_compile
from tests.oracles.gdn_prefill import (
    HEAD_SIZE,
    V_HEADS,
    batch_of,
    count_wrong,
    empty_outputs,
    hard_inputs,
    oracle,
    random_inputs,
)
from tests.packed import build, call, device, raises_naming

# One bf16 unit in the last place: the interpreter truncates.
OUTPUT_RTOL, OUTPUT_ATOL = 2.0**-7, 2e-5
# Chunks: factors of 16 bits, which the interpreter truncates too. Tokens: fp32 throughout.
CHUNKED_STATE_ATOL, TOKEN_STATE_ATOL = 1e-4, 2e-6
TOKEN_LIMIT = 32  # tokens in all, up to which the interpreter takes the recurrent route

# The interpreter hands numpy arrays to range(); numpy announces that it will refuse them one day.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
slow = pytest.mark.slow


def prefill(inputs):
    return call("gdn_prefill", list(inputs.values()), empty_outputs(inputs))


def assert_matches(results, inputs):
    (output, new_state), (want, want_state) = results, oracle(**inputs)
    torch.testing.assert_close(output.double(), want, rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL)
    is_short = inputs["q"].shape[0] <= TOKEN_LIMIT
    atol = TOKEN_STATE_ATOL if is_short else CHUNKED_STATE_ATOL
    for sequence, (got, expected) in enumerate(zip(new_state.double(), want_state, strict=True)):
        worst = (got - expected).abs().max().item()
        assert worst <= atol, f"state of sequence {sequence} is off by {worst}"


@pytest.mark.parametrize(
    ("cu_seqlens", "total_seq_len"),
    [
        ([2, 2, 11, 12], 15),
        ([1, 1, 66], 68),
    ],
)
def test_tokens_of_no_sequence_and_sequences_of_no_tokens(cu_seqlens, total_seq_len):
    inputs = random_inputs(cu_seqlens, seed=1, total_seq_len=total_seq_len, device=device())
    is_empty = [start == stop for start, stop in pairwise(cu_seqlens)]
    inputs["state"][is_empty] = float("nan")  # not even multiplied by zero
    results = output, new_state = prefill(inputs)
    assert_matches(results, inputs)
    assert not output[: cu_seqlens[0]].any()
    assert not output[cu_seqlens[-1] :].any()
    assert not new_state[is_empty].any()


@slow
@pytest.mark.parametrize("length", [1, 2, 31, 63, 64, 65, 129])
def test_one_sequence_of_every_awkward_length(length):
    inputs = batch_of([length], seed=length, device=device())
    assert_matches(prefill(inputs), inputs)


@slow
def test_awkward_lengths_in_one_batch():
    inputs = batch_of([0, 1, 2, 0, 31, 63, 64, 65, 129, 0], seed=3, device=device())
    assert_matches(prefill(inputs), inputs)


@slow
def test_a_batch_equals_its_sequences_alone_and_stays_as_it_was():
    inputs = batch_of([33, 36], seed=4, device=device())
    output, new_state = prefill(inputs)
    kept_output, kept_state = output.clone(), new_state.clone()
    for sequence, tokens in enumerate((slice(0, 33), slice(33, 69))):
        alone = {
            name: value[tokens] if name in ("q", "k", "v", "a", "b") else value
            for name, value in inputs.items()
        }
        alone["state"] = inputs["state"][sequence : sequence + 1]
        alone["cu_seqlens"] = torch.tensor([0, tokens.stop - tokens.start], device=device())
        alone_output, alone_state = prefill(alone)
        assert torch.equal(output[tokens], alone_output)
        assert torch.equal(new_state[sequence], alone_state[0])
    assert torch.equal(output, kept_output)
    assert torch.equal(new_state, kept_state)


@pytest.mark.parametrize("length", [1, pytest.param(40, marks=slow)])
def test_absent_state_and_scale_are_zeros_and_the_default(length):
    inputs = batch_of([length], seed=5, device=device()) | {"state": None, "scale": None}
    absent = prefill(inputs)
    assert_matches(absent, inputs)
    zeros = torch.zeros(1, V_HEADS, HEAD_SIZE, HEAD_SIZE, device=device())
    for left, right in zip(absent, prefill(inputs | {"state": zeros, "scale": 0}), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("length", [1, pytest.param(40, marks=slow)])
def test_scale_of_any_sign(length):
    inputs = batch_of([length], seed=7, device=device()) | {"scale": -0.5}
    assert_matches(prefill(inputs), inputs)


@slow
@pytest.mark.parametrize("length", [20, 100])
def test_gates_at_their_ends_and_keys_that_repeat(length):
    inputs = hard_inputs([0, length], seed=8, device=device())
    results = prefill(inputs)
    assert_matches(results, inputs)
    # g = 1 and beta = 0: nothing happens to the state, whatever the keys.
    torch.testing.assert_close(results[1][0, 3], inputs["state"][0, 3], rtol=0, atol=0)


@slow
@pytest.mark.parametrize(("length", "are_equal"), [(20, True), (40, False)])
def test_keys_of_norm_2(length, are_equal):
    """Equal keys with beta = g = 1: every token multiplies the error by -3."""
    inputs = batch_of([length], seed=9, device=device())
    inputs["k"] *= 2
    if are_equal:
        inputs["k"] = inputs["k"][:1].repeat(length, 1, 1)
        inputs["a"].fill_(-120.0)
        inputs["b"].fill_(120.0)
    results, wanted = prefill(inputs), oracle(**inputs)
    for got, want in zip(results, wanted, strict=True):
        assert count_wrong(got, want) == 0


@slow
def test_strong_decay_is_exact_at_every_position_of_a_chunk():
    """A decay taken from a neighbouring token would be wrong by a factor, first or last half."""
    inputs = batch_of([128], seed=10, device=device())
    inputs["A_log"].fill_(0.0)
    inputs["dt_bias"].fill_(0.0)
    inputs["a"].fill_(0.0)  # g = 0.5
    inputs["a"][::3] = 2.0  # g = 0.12
    output, _ = results = prefill(inputs)
    assert_matches(results, inputs)
    error = (output.double() - oracle(**inputs)[0]).abs().amax(dim=(1, 2))
    assert error[64:].max() < 5 * error[:64].max()


@slow
@pytest.mark.parametrize("length", [2, 33])
def test_tensors_that_start_off_a_16_byte_boundary(length):
    inputs = batch_of([length], seed=14, device=device())
    for name in ("q", "k", "v", "state"):
        room = torch.empty(inputs[name].numel() + 1, dtype=inputs[name].dtype, device=device())
        room[1:] = inputs[name].flatten()
        inputs[name] = room[1:].view(inputs[name].shape)
    assert_matches(prefill(inputs), inputs)


def test_no_tokens_and_no_sequences():
    output, new_state = prefill(random_inputs([0, 0, 0], seed=15, device=device()))
    assert output.numel() == 0
    assert new_state.shape == (2, V_HEADS, HEAD_SIZE, HEAD_SIZE)
    assert not new_state.any()
    output, new_state = prefill(random_inputs([0], seed=16, total_seq_len=5, device=device()))
    assert not output.any()
    assert new_state.numel() == 0


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: {"q": x["q"].float()}, TypeError, ("q:", "bfloat16", "float32")),
        (lambda x: {"q": x["q"][:, :2]}, ValueError, ("q:", "[*, 4, 128]", "[6, 2, 128]")),
        (lambda x: {"k": None}, TypeError, ("k:", "NoneType")),
        (lambda x: {"k": x["k"][:5]}, ValueError, ("k:", "[6, 4, 128]", "[5, 4, 128]")),
        (lambda x: {"v": x["v"][:, :4]}, ValueError, ("v:", "[6, 8, 128]")),
        (lambda x: {"state": x["state"].mT}, ValueError, ("state:", "contiguous", "strides")),
        (lambda x: {"state": x["state"][:1]}, ValueError, ("state:", "[2, 8, 128, 128]")),
        (lambda x: {"a": x["a"].unsqueeze(1)}, ValueError, ("a:", "[6, 8]")),
        (lambda x: {"b": x["b"].float()}, TypeError, ("b:", "bfloat16")),
        (lambda x: {"dt_bias": x["dt_bias"].bfloat16()}, TypeError, ("dt_bias:", "float32")),
        (lambda x: {"A_log": x["A_log"].to("meta")}, ValueError, ("A_log:", "meta")),
        (lambda x: {"cu_seqlens": x["cu_seqlens"].int()}, TypeError, ("cu_seqlens:", "int64")),
        (lambda x: {"cu_seqlens": x["cu_seqlens"][:0]}, ValueError, ("cu_seqlens:", "num_seqs")),
        (lambda x: {"cu_seqlens": [0, 2, 6]}, TypeError, ("cu_seqlens:", "list")),
        (lambda x: {"scale": "0.1"}, TypeError, ("scale:", "str")),
        (lambda x: {"scale": torch.tensor(0.1)}, TypeError, ("scale:", "Tensor")),
    ],
)
def test_bad_input_names_the_argument(change, error, words):
    inputs = random_inputs([0, 2, 6], seed=17, device=device())
    outputs = empty_outputs(inputs)
    with raises_naming(error, *words):
        build("gdn_prefill")(*(inputs | change(inputs)).values(), *outputs)


def test_bad_output_names_the_argument():
    inputs = random_inputs([0, 2, 6], seed=18, device=device())
    output, new_state = empty_outputs(inputs)
    room = build("gdn_prefill")
    with raises_naming(TypeError, "output:", "bfloat16"):
        room(*inputs.values(), output.float(), new_state)
    with raises_naming(ValueError, "new_state:", "[2, 8, 128, 128]"):
        room(*inputs.values(), output, new_state[:1])
    with raises_naming(ValueError, "new_state:", "overlap with state"):
        room(*inputs.values(), output, inputs["state"])
    with raises_naming(ValueError, "output:", "overlap with v"):
        room(*inputs.values(), inputs["v"], new_state)


# (tokens, sequences, capability, can build): route, native most_whole or portable launch
CHOICES = [
    ((0, 3, (9, 0), True), ("native", None)),
    ((96, 1, (9, 0), True), ("native", None)),
    ((97, 1, (9, 0), True), ("native", 0)),
    ((152, 8, (9, 0), True), ("native", None)),
    ((153, 8, (9, 0), True), ("native", 0)),
    ((152, 200, (9, 0), True), ("native", None)),
    ((200, 200, (9, 0), True), ("native", 25)),
    ((8192, 9, (9, 0), True), ("native", 17)),
    ((8192, 385, (9, 0), True), ("native", 506)),
    ((8192, 9, (9, 0), False), ("portable", "scan")),
    ((8192, 9, (10, 0), True), ("portable", "scan")),
    ((80, 1, (8, 0), True), ("portable", "token")),
    ((81, 1, None, False), ("portable", "scan")),
]


@pytest.mark.parametrize(("axes", "wanted"), CHOICES, ids=str)
def test_chooses_route_and_launch(axes, wanted):
    *sizes, capability, can_build = axes
    choose = sys.modules[build("gdn_prefill")._callable.__module__].choose
    route, launches = choose(*sizes, capability=capability, can_build=can_build)
    if route == "portable":
        assert (route, next(reversed(launches))) == wanted
    else:
        assert (route, launches["most_whole"]) == wanted


@pytest.mark.parametrize("unfit", [{"is_aligned": False}, {"interpreted": True}], ids=str)
def test_the_portable_route_takes_what_the_native_one_cannot(unfit):
    choose = sys.modules[build("gdn_prefill")._callable.__module__].choose
    assert choose(500, 1, capability=(9, 0), can_build=True, **unfit)[0] == "portable"


SHARED_BYTES_PER_CTA = 227 * 1024  # sm_90 and sm_100
SMALLEST_CUBIN = 30_000  # a kernel that the compiler gave up on holds one trap and 8 KB


CHUNKED = ["solve_kernel", "scan_kernel"]


@pytest.mark.parametrize("capability", [90, pytest.param(100, marks=slow)])
@pytest.mark.parametrize(
    ("lengths", "has_state", "kernels"),
    [
        pytest.param([5, 0, 20], False, ["token_kernel"], marks=slow),
        ([2107], True, CHUNKED),
        pytest.param([100] * 4, False, CHUNKED, marks=slow),
        pytest.param([100] * 16, True, CHUNKED, marks=slow),
    ],
)
def test_compiles_ahead_of_time(lengths, has_state, kernels, capability):
    inputs = batch_of(lengths, seed=19)
    if not has_state:
        inputs["state"] = None
    arguments = [*inputs.values(), *empty_outputs(inputs)]
    launches = launches_compile("gdn_prefill", arguments, capability)
    assert [launch["name"] for launch in launches] == kernels
    for launch in launches:
        assert launch["shared_bytes"] <= SHARED_BYTES_PER_CTA
        assert launch["cubin_bytes"] >= SMALLEST_CUBIN
        assert launch["global_scratch_bytes"] == 0
