"""gdn_decode on a CUDA device, both routes: official sizes, oracle, definition's reference."""

import sys

import pytest
import torch

from tests.gpu.references import reference
from tests.gpu.streams import replay_captured, run_behind_slow_producer
from tests.oracles.gdn_decode import empty_outputs, oracle, random_inputs
from tests.packed import build, call

pytestmark = pytest.mark.gpu

ROOM = "gdn_decode"
# One bf16 rounding of the output, and fp32 sums of 128 terms.
OUTPUT_RTOL, OUTPUT_ATOL = 2.0**-7, 1e-6  # one bf16 ulp above a power of two
STATE_RTOL, STATE_ATOL = 1e-5, 1e-6


@pytest.fixture(params=[None, "portable"], ids=["whole", "portable"])
def route(request):
    """The room as it is, native route and all, and the room without it."""
    return request.param


@pytest.fixture
def decode(route):
    """inputs by name -> (output, new_state), on the route of the test."""

    def run(inputs):
        outputs = empty_outputs(inputs["q"].shape[0], "cuda")
        return call(ROOM, list(inputs.values()), outputs, route)

    return run


def assert_matches(results, wanted):
    (output, new_state), (want_output, want_state) = results, wanted
    torch.testing.assert_close(
        output.double().cpu(), want_output.double().cpu(), rtol=OUTPUT_RTOL, atol=OUTPUT_ATOL
    )
    torch.testing.assert_close(
        new_state.double().cpu(), want_state.double().cpu(), rtol=STATE_RTOL, atol=STATE_ATOL
    )


def assert_identical(left, right):
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 8, 16, 17, 32, 48, 64])
def test_matches_oracle(batch_size, decode):
    inputs = random_inputs(batch_size, seed=batch_size, device="cuda")
    assert_matches(decode(inputs), oracle(**inputs))


@pytest.fixture
def kernel():
    """The module of the whole room, on a machine that can build its native route."""
    module = sys.modules[build(ROOM)._callable.__module__]
    if not module.can_build(torch.cuda.get_device_capability()):
        pytest.skip("needs a CUDA toolkit and a device that the native route supports")
    return module


def test_the_native_route_is_the_one_that_runs(kernel, monkeypatch):
    """Where it can be built, nothing reaches the portable one unnoticed."""
    monkeypatch.setattr(kernel, "_run_portable", None)
    inputs = random_inputs(3, seed=12, device="cuda")
    results = call(ROOM, list(inputs.values()), empty_outputs(3, "cuda"))
    assert_matches(results, oracle(**inputs))


@pytest.mark.parametrize("warps", [1, 2, 4])
@pytest.mark.parametrize(
    ("lanes", "rows"), [(8, 4), (8, 8), (16, 2), (16, 4), (16, 8), (32, 2), (32, 4), (32, 8)]
)
def test_every_shape_of_the_native_route(lanes, rows, warps, kernel, monkeypatch):
    shape = {"lanes": lanes, "rows": rows, "warps": warps}
    monkeypatch.setattr(kernel, "choose", lambda *_, **__: ("native", shape))
    inputs = random_inputs(3, seed=13, device="cuda")
    results = call(ROOM, list(inputs.values()), empty_outputs(3, "cuda"))
    assert_matches(results, oracle(**inputs))


@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_error_is_at_most_twice_that_of_fp32(batch_size, decode):
    inputs = random_inputs(batch_size, seed=300 + batch_size, device="cuda")
    new_state, want = decode(inputs)[1].double().cpu(), oracle(**inputs)[1]
    reference_state = reference(ROOM)(*inputs.values())[1].double().cpu()
    assert (new_state - want).abs().max() <= 2 * (reference_state - want).abs().max()


@pytest.mark.parametrize("batch_size", [1, 16, 64])
@pytest.mark.parametrize("scale", [0.0, None, -0.25])
def test_without_state_and_with_other_scales(batch_size, scale, decode):
    inputs = random_inputs(batch_size, seed=100 + batch_size, device="cuda")
    inputs |= {"state": None, "scale": scale}
    assert_matches(decode(inputs), oracle(**inputs))


@pytest.mark.parametrize("batch_size", [1, 48])
def test_matches_the_definition(batch_size, decode):
    inputs = random_inputs(batch_size, seed=200 + batch_size, device="cuda")
    # The output of the definition is rounded to bf16 too: one unit in the last place apart.
    (output, new_state), (want, want_state) = decode(inputs), reference(ROOM)(*inputs.values())
    torch.testing.assert_close(output.float(), want.float(), rtol=2.0**-7, atol=1e-6)
    torch.testing.assert_close(new_state, want_state, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 4, 17])
def test_gates_at_their_ends_are_exact(batch_size, decode):
    inputs = random_inputs(batch_size, seed=3, device="cuda")
    inputs["a"].fill_(-120.0)
    inputs["b"].fill_(-120.0)
    assert torch.equal(decode(inputs)[1], inputs["state"])
    inputs["A_log"].fill_(1.0)
    inputs["a"].fill_(120.0)
    inputs["b"].fill_(120.0)
    assert_identical(decode(inputs), decode(inputs | {"state": inputs["state"] * -1e30}))


def test_decay_is_accurate_at_every_magnitude(decode):
    inputs = random_inputs(64, seed=4, device="cuda")
    inputs["a"] = torch.linspace(-60.0, 60.0, 64 * 8, device="cuda").view(64, 1, 8).bfloat16()
    inputs["A_log"] = torch.tensor([-12.0, -4.0, 0.0, 2.0, 4.0, 6.0, 9.0, 11.0], device="cuda")
    inputs["state"].fill_(1.0)
    inputs["k"].zero_()
    new_state, want = decode(inputs)[1].double().cpu(), oracle(**inputs)[1]
    # The device's exponentials add a few units in the last place to log g; see the unit test.
    tolerance = 4e-6 * want * (1.0 - want.clamp(min=1e-300).log()) + 2e-38
    assert ((new_state - want).abs() <= tolerance).all()


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("state", (3, 5, 77, 3)),
        ("v", (3, 0, 5, 77)),
        ("k", (3, 0, 2, 9)),
        ("q", (3, 0, 2, 9)),
        ("a", (3, 0, 5)),
        ("b", (3, 0, 5)),
        ("A_log", (5,)),
    ],
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_inputs_reach_exactly_what_depends_on_them(name, index, bad, decode):
    inputs = random_inputs(4, seed=5, device="cuda")
    wanted_before, results_before = oracle(**inputs), decode(inputs)
    inputs[name][index] = bad
    for got, want, got_before, want_before in zip(
        decode(inputs), oracle(**inputs), results_before, wanted_before, strict=True
    ):
        assert torch.equal(~torch.isfinite(got).cpu(), ~torch.isfinite(want))
        untouched = (want == want_before).cuda()
        assert torch.equal(got[untouched], got_before[untouched])


@pytest.mark.parametrize("batch_size", [1, 64])
def test_repeated_calls_agree_bit_for_bit(batch_size, decode):
    inputs = random_inputs(batch_size, seed=6, device="cuda")
    first = decode(inputs)
    for _ in range(10):
        assert_identical(decode(inputs), first)


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_tensors_that_start_off_a_16_byte_boundary(batch_size, decode, route):
    inputs = random_inputs(batch_size, seed=7, device="cuda")
    aligned = decode(inputs)
    for name, tensor in list(inputs.items())[:-1]:
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")
        room[1:] = tensor.flatten()
        inputs[name] = room[1:].view(tensor.shape)
    shifted = [
        torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view(x.shape) for x in aligned
    ]
    results = call(ROOM, list(inputs.values()), shifted, route)
    assert_matches(results, [x.double() for x in aligned])


@pytest.mark.parametrize("batch_size", [1, 64])
def test_waits_for_its_inputs_on_the_current_stream(batch_size, decode, route):
    inputs = random_inputs(batch_size, seed=8, device="cuda")
    outputs = empty_outputs(batch_size, "cuda")
    late = run_behind_slow_producer(ROOM, list(inputs.values()), outputs, route)
    assert_identical(late, decode(inputs))


def test_replays_from_a_graph(decode, route):
    inputs = random_inputs(8, seed=9, device="cuda")
    outputs = empty_outputs(8, "cuda")
    replayed = replay_captured(ROOM, list(inputs.values()), outputs, route=route)
    assert_identical(replayed, decode(inputs))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_runs_on_the_device_of_its_tensors(route):
    inputs = random_inputs(4, seed=10, device="cuda:1")
    outputs = empty_outputs(4, "cuda:1")
    with torch.cuda.device(0):
        build(ROOM, route)(*inputs.values(), *outputs)
    assert_matches(outputs, oracle(**inputs))


def test_offsets_beyond_2_to_the_31(decode, route):
    batch_size = 2**31 // (8 * 128 * 128) + 3  # rows of state; the last ones need 64-bit offsets
    needed = 2 * batch_size * 8 * 128 * 128 * 4 * 1.05
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free device memory")
    few = random_inputs(3, seed=11, device="cuda")
    inputs = {
        name: value
        if name in ("A_log", "dt_bias", "scale")
        else value.new_zeros((batch_size, *value.shape[1:]))
        for name, value in few.items()
    }
    for name, value in inputs.items():
        if name not in ("A_log", "dt_bias", "scale"):
            value[-3:] = few[name]
            value[0] = few[name][0]
    outputs = empty_outputs(batch_size, "cuda")
    build(ROOM, route)(*inputs.values(), *outputs)  # without the clones of call()
    want = decode(few)
    for got, expected in zip(outputs, want, strict=True):
        torch.testing.assert_close(got[-3:], expected, rtol=2.0**-7, atol=1e-6)
        torch.testing.assert_close(got[0], expected[0], rtol=2.0**-7, atol=1e-6)
        assert not got[1:-3].any()
