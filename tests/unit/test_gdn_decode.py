"""gdn_decode, packed and built as the judge builds it, against the fp64 oracle."""

import sys

import pytest
import torch

from tests.aot import launches_compile
from tests.oracles.gdn_decode import HEAD_SIZE, V_HEADS, empty_outputs, oracle, random_inputs
from tests.packed import build, call, device, raises_naming

# One bf16 unit in the last place (the interpreter truncates), and fp32 sums of 128 terms.
OUTPUT_RTOL, OUTPUT_ATOL = 2.0**-7, 1e-6
STATE_RTOL, STATE_ATOL = 1e-5, 1e-6

overflows = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter


def decode(inputs):
    batch_size = inputs["q"].shape[0]
    return call("gdn_decode", list(inputs.values()), empty_outputs(batch_size, device()))


def assert_matches(results, inputs):
    for got, want, rtol, atol in zip(
        results,
        oracle(**inputs),
        (OUTPUT_RTOL, STATE_RTOL),
        (OUTPUT_ATOL, STATE_ATOL),
        strict=True,
    ):
        torch.testing.assert_close(got.double().cpu(), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("batch_size", "has_state", "scale"),
    [(1, True, HEAD_SIZE**-0.5), (1, False, None), (3, True, 0.0), (3, False, -0.5)],
)
def test_matches_oracle(batch_size, has_state, scale):
    inputs = random_inputs(batch_size, seed=batch_size, device=device())
    inputs["scale"] = scale
    if not has_state:
        inputs["state"] = None
    assert_matches(decode(inputs), inputs)


def test_empty_batch():
    output, new_state = decode(random_inputs(0, seed=0, device=device()))
    assert output.numel() == 0
    assert new_state.numel() == 0


def test_no_state_is_a_state_of_zeros():
    inputs = random_inputs(1, seed=4, device=device())
    absent = decode(inputs | {"state": None})
    zeros = decode(inputs | {"state": torch.zeros_like(inputs["state"])})
    for left, right in zip(absent, zeros, strict=True):
        assert torch.equal(left, right)


def test_integer_zero_and_absent_scale_mean_the_default():
    inputs = random_inputs(1, seed=5, device=device())
    outputs = [decode(inputs | {"scale": scale})[0] for scale in (HEAD_SIZE**-0.5, None, 0)]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_gates_closed_keep_the_state_bit_for_bit():
    inputs = random_inputs(1, seed=6, device=device())
    inputs["a"].fill_(-120.0)  # softplus underflows: the decay is exactly 1
    inputs["b"].fill_(-120.0)  # beta is exactly 0
    _, new_state = results = decode(inputs)
    assert torch.equal(new_state, inputs["state"])
    assert_matches(results, inputs)


def test_gates_open_replace_the_state():
    inputs = random_inputs(1, seed=7, device=device())
    inputs["A_log"].fill_(1.0)
    inputs["a"].fill_(120.0)  # the decay is exactly 0
    inputs["b"].fill_(120.0)  # beta is exactly 1
    output, new_state = results = decode(inputs)
    assert_matches(results, inputs)
    other = decode(inputs | {"state": inputs["state"] * -1e30})
    assert torch.equal(new_state, other[1])
    assert torch.equal(output, other[0])


@overflows
def test_gates_are_accurate_at_every_magnitude():
    """With k = 0 the new state is g times the old; with state 0 and k = e0, v = 1 it holds beta."""
    inputs = random_inputs(4, seed=8, device=device())
    inputs["A_log"] = torch.tensor([-12.0, -4.0, 0.0, 2.0, 4.0, 6.0, 9.0, 11.0], device=device())
    inputs["dt_bias"] = torch.linspace(-1.0, 1.0, V_HEADS, device=device())
    steps = [[-40.0, -16.0, -11.0, -9.0], [-4.0, -1.0, 0.0, 1.0], [5.0, 19.0, 20.0, 21.0], [40.0]]
    for row, values in enumerate(steps):
        inputs["a"][row, 0] = torch.tensor(values).repeat(V_HEADS // len(values))
    inputs["b"] = inputs["a"].clone()
    inputs["state"].fill_(1.0)
    inputs["k"].zero_()
    _, new_state = decode(inputs)
    want = oracle(**inputs)[1]
    # fp32 carries log g with a relative error near 1e-6, hence g with 1e-6 |g log g|.
    tolerance = 2e-6 * want * (1.0 - want.clamp(min=1e-300).log()) + 1e-44
    assert ((new_state.double().cpu() - want).abs() <= tolerance).all()

    inputs["k"][..., 0] = 1.0
    inputs["v"].fill_(1.0)
    _, new_state = decode(inputs | {"state": None})
    torch.testing.assert_close(
        new_state[:, 0, 0, 0].double().cpu(),
        torch.sigmoid(inputs["b"].double())[:, 0, 0].cpu(),
        rtol=1e-6,
        atol=0.0,
    )


@overflows
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_infinite_gate_inputs_are_limits(sign):
    inputs = random_inputs(1, seed=9, device=device())
    inputs["a"].fill_(sign * float("inf"))
    inputs["b"].fill_(sign * float("inf"))
    limit = inputs | {name: torch.full_like(inputs[name], sign * 1e4) for name in ("a", "b")}
    for left, right in zip(decode(inputs), decode(limit), strict=True):
        assert torch.equal(left, right)


@overflows
def test_strong_decay_tames_a_huge_state_before_the_sums():
    inputs = random_inputs(1, seed=10, device=device())
    inputs["state"].fill_(2e38)  # state @ k overflows, (g state) @ k does not
    inputs["k"].fill_(0.088)
    inputs["A_log"].zero_()
    inputs["dt_bias"].zero_()
    inputs["a"].fill_(5.0)
    inputs["b"].fill_(-2.0)
    results = decode(inputs)
    assert all(torch.isfinite(result).all() for result in results)
    assert_matches(results, inputs)


@pytest.fixture(scope="module")
def clean():
    """Inputs, what the room makes of them, and what the oracle makes of them."""
    inputs = random_inputs(1, seed=11, device=device())
    return inputs, decode(inputs), oracle(**inputs)


NAN, INF = float("nan"), float("inf")


@overflows
@pytest.mark.parametrize(
    ("name", "index", "bad"),
    [
        ("state", (0, 5, 77, 3), NAN),
        ("state", (0, 5, 77, 3), INF),
        ("v", (0, 0, 5, 77), NAN),
        pytest.param("v", (0, 0, 5, 77), -INF, marks=pytest.mark.slow),
        ("k", (0, 0, 2, 9), NAN),
        pytest.param("k", (0, 0, 2, 9), INF, marks=pytest.mark.slow),
        ("q", (0, 0, 2, 9), NAN),
        ("a", (0, 0, 5), NAN),
        pytest.param("b", (0, 0, 5), NAN, marks=pytest.mark.slow),
        ("A_log", (5,), NAN),
        pytest.param("A_log", (5,), INF, marks=pytest.mark.slow),
    ],
)
def test_non_finite_inputs_reach_exactly_what_depends_on_them(clean, name, index, bad):
    inputs, results_before, wanted_before = clean
    inputs = inputs | {name: inputs[name].clone()}
    inputs[name][index] = bad
    for got, want, got_before, want_before in zip(
        decode(inputs), oracle(**inputs), results_before, wanted_before, strict=True
    ):
        touched = ~torch.isfinite(want)
        assert torch.equal(~torch.isfinite(got).cpu(), touched)
        untouched = want == want_before
        assert torch.equal(got.cpu()[untouched], got_before.cpu()[untouched])


def _wrong(**changes):
    return {**random_inputs(1, seed=14, device=device()), **changes}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: {"q": x["q"].float()}, TypeError, ("q:", "bfloat16", "float32")),
        (lambda x: {"q": x["q"][0]}, ValueError, ("q:", "[*, 1, 4, 128]", "[1, 4, 128]")),
        (lambda x: {"k": None}, TypeError, ("k:", "NoneType")),
        (lambda x: {"k": x["k"].repeat(2, 1, 1, 1)}, ValueError, ("k:", "[1, 1, 4, 128]")),
        (lambda x: {"v": x["v"][:, :, :4]}, ValueError, ("v:", "[1, 1, 8, 128]")),
        (lambda x: {"state": x["state"].mT}, ValueError, ("state:", "contiguous", "strides")),
        (lambda x: {"state": x["state"].bfloat16()}, TypeError, ("state:", "float32")),
        (lambda x: {"a": x["a"].squeeze(1)}, ValueError, ("a:", "[1, 1, 8]")),
        (lambda x: {"dt_bias": x["dt_bias"].bfloat16()}, TypeError, ("dt_bias:", "float32")),
        (lambda x: {"A_log": x["A_log"].to("meta")}, ValueError, ("A_log:", "meta")),
        (lambda x: {"scale": "0.1"}, TypeError, ("scale:", "str")),
        (lambda x: {"scale": torch.tensor(0.1)}, TypeError, ("scale:", "Tensor")),
    ],
)
def test_bad_input_names_the_argument(change, error, words):
    inputs = random_inputs(1, seed=14, device=device())
    inputs |= change(inputs)
    with raises_naming(error, *words):
        build("gdn_decode")(*inputs.values(), *empty_outputs(1, device()))


def test_bad_output_names_the_argument():
    inputs = random_inputs(2, seed=15, device=device())
    output, new_state = empty_outputs(2, device())
    room = build("gdn_decode")
    with raises_naming(TypeError, "output:", "bfloat16"):
        room(*inputs.values(), output.float(), new_state)
    with raises_naming(ValueError, "new_state:", "[2, 8, 128, 128]"):
        room(*inputs.values(), output, new_state[:1])
    with raises_naming(ValueError, "new_state:", "overlap with state"):
        room(*inputs.values(), output, inputs["state"])
    with raises_naming(ValueError, "output:", "overlap with v"):
        room(*inputs.values(), inputs["v"], new_state)


# (batch size, capability, can_build) -> route, and rows of a warp or of a CTA
CHOICES = [
    ((1, (9, 0), True), ("native", 4)),
    ((16, (9, 0), True), ("native", 4)),
    ((4096, (9, 0), True), ("native", 8)),
    ((64, (10, 0), True), ("native", 8)),
    ((1, (9, 0), False), ("portable", 2)),
    ((4, (8, 9), True), ("portable", 4)),
    ((17, None, False), ("portable", 8)),
]


@pytest.mark.parametrize(("axes", "wanted"), CHOICES, ids=str)
def test_chooses_route_and_launch(axes, wanted):
    batch_size, capability, can_build = axes
    choose = sys.modules[build("gdn_decode")._callable.__module__].choose
    route, launch = choose(batch_size, capability=capability, can_build=can_build)
    assert (route, launch["rows" if route == "native" else "BLOCK_V"]) == wanted


@pytest.mark.parametrize(
    "unfit", [{"is_aligned": False}, {"has_state": False}, {"interpreted": True}], ids=str
)
def test_the_portable_route_takes_what_the_native_one_cannot(unfit):
    choose = sys.modules[build("gdn_decode")._callable.__module__].choose
    assert choose(1, capability=(9, 0), can_build=True, **unfit)[0] == "portable"


@pytest.mark.parametrize(
    ("batch_size", "capability", "has_state"),
    [
        (1, 90, True),
        pytest.param(1, 100, True, marks=pytest.mark.slow),
        pytest.param(1, 90, False, marks=pytest.mark.slow),
        pytest.param(4, 90, True, marks=pytest.mark.slow),
        pytest.param(4, 100, True, marks=pytest.mark.slow),
        pytest.param(17, 90, True, marks=pytest.mark.slow),
        pytest.param(17, 100, True, marks=pytest.mark.slow),
    ],
)
def test_compiles_ahead_of_time_as_one_launch(batch_size, capability, has_state):
    inputs = random_inputs(batch_size, seed=16)
    if not has_state:
        inputs["state"] = None
    arguments = [*inputs.values(), *empty_outputs(batch_size)]
    (launch,) = launches_compile("gdn_decode", arguments, capability)
    assert launch["num_warps"] == 1
    assert launch["global_scratch_bytes"] == 0
