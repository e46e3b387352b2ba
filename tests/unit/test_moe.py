"""moe, packed and built as the judge builds it: its kernels at small sizes, runs at full size."""

import math
import sys

import pytest
import torch
import triton

from tests.aot import launches_compile
from tests.oracles.moe import (
    EXPERTS,
    HIDDEN,
    LOCAL_EXPERTS,
    TOP_K,
    Uninitialised,
    dequantise,
    fill_expert,
    oracle,
    random_codes,
    random_inputs,
    route_to,
    zero_weights,
)
from tests.packed import build, call, device, poison, raises_naming

# Rounding C to e4m3, root mean square over root mean square: without and with the residual plane.
CODE_ERROR, PAIR_ERROR = 0.03, 0.001

# The interpreter's own numpy: exp overflows where a GPU returns inf without a word, and a loop
# bound is an array of one element.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]


def module(name):
    """A module of the packed room."""
    package = build("moe")._callable.__module__.rpartition(".")[0]
    return sys.modules[f"{package}.{name}"]


def rms(x):
    return x.double().pow(2).mean().sqrt().item()


def relative_error(got, want):
    return rms(got.double().cpu() - want.cpu()) / rms(want)


# The GEMMs at small sizes. Rows of five experts; the others have none.

ROWS = {0: 1, 3: 16, 4: 17, 20: 3, 31: 40}
NUM_ROWS = sum(ROWS.values())
CAPACITY = NUM_ROWS + 5


def row_counts():
    counts = torch.zeros(LOCAL_EXPERTS, dtype=torch.int32)
    for expert, rows in ROWS.items():
        counts[expert] = rows
    return counts.to(device())


def small_matrix(n, k, seed):
    """Weights [32,n,k] with signed scales, NaN codes in the experts that were not hit."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.full((LOCAL_EXPERTS, n, k), 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
    scale = torch.full((LOCAL_EXPERTS, n // 128, k // 128), float("nan"))
    for expert in ROWS:
        codes[expert] = random_codes(generator, n, k)
        scale[expert] = torch.randn(n // 128, k // 128, generator=generator)
    return codes.to(device()), scale.to(device())


def small_rows(num_rows, k, seed):
    """Rows [num_rows,k] e4m3, their scales [k/128,num_rows] and their values in fp64."""
    generator = torch.Generator().manual_seed(seed)
    codes = random_codes(generator, num_rows, k)
    scale = torch.randn(k // 128, num_rows, generator=generator)
    values = codes.double() * scale.double().T.repeat_interleave(128, dim=1)
    return codes.to(device()), scale.to(device()), values


def expert_products(values, codes, scale):
    """fp64 products of packed rows with their expert's weights."""
    parts = values.split(list(ROWS.values()))
    return torch.cat(
        [part @ dequantise(codes[e], scale[e]).T for e, part in zip(ROWS, parts, strict=True)]
    )


def poisoned(*shape, dtype=torch.float32):
    bits = torch.full(shape, 0x7F, dtype=torch.uint8, device=device())
    if dtype == torch.float8_e4m3fn:
        return bits.view(dtype)
    return torch.full(shape, float("nan"), dtype=dtype, device=device())


def untouched(tensor, rows):
    """Whether `rows` of a poisoned tensor [..., rows, columns] still hold the poison."""
    return torch.isnan(tensor.float()[..., rows, :]).all()


@pytest.mark.parametrize(
    ("block_n", "block_rows", "splits"),
    [(64, 16, 2), (256, 64, 1), pytest.param(128, 32, 2, marks=pytest.mark.slow)],
)
def test_streaming_gemm_gathers_rows_and_splits_k(block_n, block_rows, splits):
    n, k = 256, 256
    codes, scale = small_matrix(n, k, seed=1)
    x, x_scale, values = small_rows(7, k, seed=2)
    row_x = torch.arange(CAPACITY, dtype=torch.int32) * 3 % 7
    partial = poisoned(splits, CAPACITY, n)
    module("streaming").stream_kernel[(3,)](
        *(x, x_scale, row_x.to(device()), row_counts(), codes, scale, partial, 7, CAPACITY),
        N=n,
        K=k,
        HAS_RESIDUAL=False,
        BLOCK_N=block_n,
        BLOCK_ROWS=block_rows,
        SPLITS=splits,
        STAGES=3,
        PDL=False,
        num_warps=4,
    )
    want = expert_products(values[row_x[:NUM_ROWS]], codes, scale)
    assert relative_error(partial[:, :NUM_ROWS].sum(0), want) < 2e-3
    assert untouched(partial, slice(NUM_ROWS, None))


def test_streaming_gemm_adds_the_residual_plane():
    n, k = 128, 256
    codes, scale = small_matrix(n, k, seed=3)
    x, x_scale, values = small_rows(CAPACITY, k, seed=4)
    residual = random_codes(torch.Generator().manual_seed(5), CAPACITY, k).to(device())
    values += residual.cpu().double() * x_scale.cpu().double().T.repeat_interleave(128, dim=1)
    product = poisoned(1, CAPACITY, n)
    module("streaming").stream_kernel[(2,)](
        *(torch.stack([x, residual]), x_scale, None, row_counts(), codes, scale, product),
        *(CAPACITY, CAPACITY),
        N=n,
        K=k,
        HAS_RESIDUAL=True,
        BLOCK_N=64,
        BLOCK_ROWS=16,
        SPLITS=1,
        STAGES=2,
        PDL=False,
        num_warps=4,
    )
    want = expert_products(values[:NUM_ROWS], codes, scale)
    assert relative_error(product[0, :NUM_ROWS], want) < 2e-3
    assert untouched(product, slice(NUM_ROWS, None))


def swiglu(up, gate):
    return torch.nn.functional.silu(gate.double()) * up.double()


def decode_rows(codes, scale):
    """Values of codes [R,n] with scales [n/128,R], fp64."""
    return codes.cpu().double() * scale.cpu().double().T.repeat_interleave(128, dim=1)


@pytest.mark.parametrize("magnitude", [1e-17, 1.0, 60.0, 1e15])
def test_activation_keeps_eight_bits_at_any_magnitude(magnitude):
    width, splits = 256, 2
    generator = torch.Generator().manual_seed(6)
    partial = poisoned(splits, CAPACITY, 2 * width)
    partial[:, :NUM_ROWS] = torch.randn(splits, NUM_ROWS, 2 * width, generator=generator).to(
        device()
    )
    partial *= magnitude
    partial[:, 5] = 0.0
    codes = poisoned(2, CAPACITY, width, dtype=torch.float8_e4m3fn)
    scale = poisoned(width // 128, CAPACITY)
    module("streaming").activate_kernel[(triton.cdiv(CAPACITY, 16), width // 128)](
        *(partial, row_counts(), codes, scale, CAPACITY),
        WIDTH=width,
        BLOCK_ROWS=16,
        SPLITS=splits,
        PDL=False,
    )
    up, gate = partial[:, :NUM_ROWS].cpu().sum(0).split(width, dim=1)
    want = swiglu(up, gate)
    got = decode_rows(codes[0], scale) + decode_rows(codes[1], scale)
    assert relative_error(got[:NUM_ROWS], want) < PAIR_ERROR
    assert (got[5] == 0).all()
    assert untouched(codes, slice(NUM_ROWS, None))
    assert torch.isnan(scale[:, NUM_ROWS:]).all()


def activate(partial):
    """Codes [2, R, 128] and scale [1, R] of partial [1, R, 256], rows of one expert."""
    rows = partial.shape[1]
    counts = torch.zeros(LOCAL_EXPERTS, dtype=torch.int32)
    counts[9] = rows
    codes = poisoned(2, rows, 128, dtype=torch.float8_e4m3fn)
    scale = poisoned(1, rows)
    module("streaming").activate_kernel[(1, 1)](
        *(partial.to(device()), counts.to(device()), codes, scale, rows),
        WIDTH=128,
        BLOCK_ROWS=16,
        SPLITS=1,
        PDL=False,
    )
    return codes, scale


def test_activation_of_saturated_gates_and_subnormal_results():
    partial = torch.zeros(1, 4, 256)
    partial[0, 0] = torch.linspace(-300, 300, 256).roll(128)  # gates from -300 to 300
    partial[0, 1] = 1e-20  # products below the smallest normal number
    partial[0, 2, 128:] = -1e30  # silu underflows to -0
    partial[0, 3] = 1e15
    codes, scale = activate(partial)
    got = decode_rows(codes[0], scale) + decode_rows(codes[1], scale)
    up, gate = partial[0].split(128, dim=1)
    want = swiglu(up, gate)
    assert torch.isfinite(got).all()
    assert ((got - want).abs() <= want.abs().amax(1, keepdim=True) * 2.0**-5 + 1e-37).all()


@pytest.mark.parametrize("nan_bits", [0x7FC00000, 0x7FFFFFFF, -1])
def test_activation_keeps_nan_where_it_is(nan_bits):
    partial = torch.randn(1, 2, 256, generator=torch.Generator().manual_seed(7))
    partial[0, 1, 3] = torch.tensor(nan_bits, dtype=torch.int32).view(torch.float32)
    codes, scale = activate(partial)
    assert codes[0].float().isnan().nonzero().tolist() == [[1, 3]]
    assert scale.isfinite().all()


@pytest.mark.parametrize(
    ("block_rows", "group"), [(32, 4), pytest.param(16, 3, marks=pytest.mark.slow)]
)
def test_tiled_gate_up_gemm(block_rows, group):
    width, k = 256, 256
    codes, scale = small_matrix(2 * width, k, seed=7)
    x, x_scale, values = small_rows(7, k, seed=8)
    row_token = torch.arange(CAPACITY, dtype=torch.int32) * 5 % 7
    c = poisoned(CAPACITY, width, dtype=torch.float8_e4m3fn)
    c_scale = poisoned(width // 128, CAPACITY)
    module("tiled").gate_up_kernel[(3,)](
        *(x, x_scale, row_token.to(device()), row_counts(), codes, scale, c, c_scale, 7, CAPACITY),
        WIDTH=width,
        K=k,
        BLOCK_ROWS=block_rows,
        GROUP=group,
        STAGES=3,
        PDL=False,
        num_warps=4,
    )
    up, gate = expert_products(values[row_token[:NUM_ROWS]], codes, scale).split(width, dim=1)
    want = swiglu(up, gate)
    assert relative_error(decode_rows(c, c_scale)[:NUM_ROWS], want) < CODE_ERROR
    assert untouched(c, slice(NUM_ROWS, None))
    assert torch.isnan(c_scale[:, NUM_ROWS:]).all()


@pytest.mark.parametrize(
    ("block_rows", "group"), [(32, 4), pytest.param(64, 1, marks=pytest.mark.slow)]
)
def test_tiled_down_gemm(block_rows, group):
    n, k = 512, 256
    codes, scale = small_matrix(n, k, seed=9)
    c, c_scale, values = small_rows(CAPACITY, k, seed=10)
    out = poisoned(CAPACITY, n, dtype=torch.bfloat16)
    module("tiled").down_kernel[(3,)](
        *(c, c_scale, row_counts(), codes, scale, out, CAPACITY),
        N=n,
        K=k,
        BLOCK_ROWS=block_rows,
        GROUP=group,
        STAGES=3,
        PDL=False,
        num_warps=4,
    )
    want = expert_products(values[:NUM_ROWS], codes, scale)
    assert relative_error(out[:NUM_ROWS], want) < 2.0**-7
    assert untouched(out, slice(NUM_ROWS, None))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_combine_weighs_local_slots_and_writes_zeros_elsewhere(dtype):
    generator = torch.Generator().manual_seed(11)
    seq_len, width = 5, 256
    expert_out = poisoned(seq_len * TOP_K, width, dtype=dtype)  # rows of no slot stay NaN
    slot_row = torch.full((seq_len, TOP_K), -1, dtype=torch.int32)
    slot_row[0] = torch.arange(8).flip(0)
    slot_row[1, 3], slot_row[3, 7], slot_row[3, 0] = 9, 11, 8
    rows = slot_row[slot_row >= 0].long()
    expert_out[rows] = torch.randn(len(rows), width, generator=generator).to(expert_out)
    weight = torch.rand(seq_len, TOP_K, generator=generator)
    output = poisoned(seq_len, width, dtype=torch.bfloat16)
    module("kernel").combine_kernel[(2, 2)](
        *(expert_out, slot_row.to(device()), weight.to(device()), output, seq_len),
        WIDTH=width,
        SLOTS=TOP_K,
        BLOCK_TOKENS=4,
        BLOCK=128,
        PDL=False,
    )
    parts = expert_out.cpu().double()[slot_row.clamp(min=0).long()]
    want = (parts.nan_to_num() * (weight * (slot_row >= 0)).double()[:, :, None]).sum(1)
    torch.testing.assert_close(output.cpu().double(), want, rtol=2.0**-7, atol=1e-5)
    assert (output[[2, 4]] == 0).all()


# Whole calls.


@pytest.fixture(scope="module")
def weights():
    """Full-size weights; only local expert 5 is not zero."""
    weights = zero_weights()
    fill_expert(weights, 5, torch.Generator().manual_seed(12))
    return {name: tensor.to(device()) for name, tensor in weights.items()}


def empty_output(seq_len):
    return torch.empty(seq_len, HIDDEN, dtype=torch.bfloat16, device=device())


def assert_matches(output, want, limit):
    assert torch.isfinite(output).all()
    for got, row in zip(output.double().cpu(), want, strict=True):
        assert relative_error(got, row) < limit if row.any() else (got == 0).all()


ON_EXPERT_5 = [101, *range(7)]  # offset 96
ELSEWHERE = list(range(128, 136))


def test_no_tokens(weights):
    inputs = random_inputs(torch.empty(0, EXPERTS), weights, 32, seed=13, device=device())
    build("moe")(*inputs.values(), empty_output(0))


@pytest.mark.parametrize("seq_len", [1, 40])
def test_no_local_expert_gives_exact_zeros(weights, seq_len):
    logits = route_to([ELSEWHERE] * seq_len)
    inputs = random_inputs(logits, weights, 96, seed=14, device=device())
    output = poison(empty_output(seq_len))
    build("moe")(*inputs.values(), output)
    assert (output == 0).all()


@pytest.mark.parametrize("offset", [2**31, 2**63, -(2**63) - 1, 2**64 + 96, 10**30])
def test_any_integer_is_an_offset(weights, offset):
    inputs = random_inputs(route_to([ON_EXPERT_5]), weights, 96, seed=14, device=device())
    output = poison(empty_output(1))
    build("moe")(*(inputs | {"local_expert_offset": offset}).values(), output)
    assert (output == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("seq_len", [2, 20, 1600])
def test_zeros_stay_zeros_whatever_their_scale(weights, seq_len):
    """Token 1 has a block of zeros whose scale overflows times a weight's."""
    choices = [ELSEWHERE] * seq_len
    choices[:2] = [ON_EXPERT_5] * 2
    changed = weights | {"gemm1_weights_scale": weights["gemm1_weights_scale"].clone()}
    changed["gemm1_weights_scale"][5, :, 2] = 1e10
    inputs = random_inputs(route_to(choices), changed, 96, seed=18, device=device())
    inputs["hidden_states"].view(torch.uint8)[:2, 256:384] = 0
    inputs["hidden_states_scale"][2, 1] = 1e30
    (output,) = call("moe", list(inputs.values()), (empty_output(seq_len),))
    assert_matches(output, *oracle(**inputs), 3 * CODE_ERROR)


@pytest.mark.slow
def test_streaming_route_matches_oracle(weights):
    logits = route_to([ON_EXPERT_5, ELSEWHERE, [6, *ON_EXPERT_5[:1], *range(224, 230)]])
    inputs = random_inputs(logits, weights, 96, seed=15, device=device())
    inputs["hidden_states_scale"][:, 2] *= 1e-3
    assert module("kernel").choose(3)[1]["launch"].route == "streaming"
    (output,) = call("moe", list(inputs.values()), (empty_output(3),))
    assert_matches(output, *oracle(**inputs), 2.0**-7)  # most of it is the bf16 output


@pytest.mark.slow
def test_tiled_route_matches_oracle(weights):
    """A length of the tiled route, of which two tokens are local: the rest costs no GEMM."""
    seq_len = 1600
    choices = [ELSEWHERE] * seq_len
    choices[7] = choices[1599] = ON_EXPERT_5
    inputs = random_inputs(route_to(choices), weights, 96, seed=16, device=device())
    assert module("kernel").choose(seq_len)[1]["launch"].route == "tiled"
    (output,) = call("moe", list(inputs.values()), (empty_output(seq_len),))
    assert_matches(output, *oracle(**inputs), 3 * CODE_ERROR)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x: {"routing_logits": None}, TypeError, ("routing_logits:", "NoneType")),
        (lambda x: {"routing_logits": x["routing_logits"][:, :255]}, ValueError, ("[*, 256]",)),
        (lambda x: {"routing_bias": x["routing_bias"].float()}, TypeError, ("routing_bias:",)),
        (lambda x: {"hidden_states": x["hidden_states"].float()}, TypeError, ("float8_e4m3fn",)),
        (
            lambda x: {"hidden_states": x["hidden_states"][:1]},
            ValueError,
            ("hidden_states:", "[2, 7168]", "[1, 7168]"),
        ),
        (
            lambda x: {"hidden_states_scale": x["hidden_states_scale"].T},
            ValueError,
            ("hidden_states_scale:", "[56, 2]", "[2, 56]"),
        ),
        (
            lambda x: {"gemm1_weights": x["gemm1_weights"].mT},
            ValueError,
            ("gemm1_weights:", "[32, 4096, 7168]"),
        ),
        (
            lambda x: {"gemm1_weights_scale": x["gemm1_weights_scale"][:, :16]},
            ValueError,
            ("gemm1_weights_scale:", "[32, 32, 56]"),
        ),
        (
            lambda x: {"gemm2_weights": x["gemm2_weights"].view(torch.uint8)},
            TypeError,
            ("gemm2_weights:", "uint8"),
        ),
        (
            lambda x: {"gemm2_weights_scale": x["gemm2_weights_scale"].to("meta")},
            ValueError,
            ("gemm2_weights_scale:", "meta"),
        ),
        (lambda x: {"local_expert_offset": 32.0}, TypeError, ("local_expert_offset:", "float")),
        (lambda x: {"routed_scaling_factor": "2"}, TypeError, ("routed_scaling_factor:", "str")),
    ],
)
def test_bad_input_names_the_argument(weights, change, error, words):
    inputs = random_inputs(torch.zeros(2, EXPERTS), weights, 32, seed=17, device=device())
    with raises_naming(error, *words):
        build("moe")(*(inputs | change(inputs)).values(), empty_output(2))


def test_bad_output_names_the_argument(weights):
    inputs = random_inputs(torch.zeros(2, EXPERTS), weights, 32, seed=18, device=device())
    room = build("moe")
    with raises_naming(TypeError, "output:", "bfloat16"):
        room(*inputs.values(), empty_output(2).float())
    with raises_naming(ValueError, "output:", "[2, 7168]"):
        room(*inputs.values(), empty_output(3))
    bytes_of_x = torch.zeros(4 * HIDDEN, dtype=torch.uint8, device=device())
    inputs["hidden_states"] = bytes_of_x[: 2 * HIDDEN].view(torch.float8_e4m3fn).view(2, HIDDEN)
    with raises_naming(ValueError, "output:", "overlap with hidden_states"):
        room(*inputs.values(), bytes_of_x.view(torch.bfloat16).view(2, HIDDEN))


# The choice of launches, and their compilation without a GPU.


def test_choice_covers_every_length_and_fits_in_shared_memory():
    kernel = module("kernel")
    limits = [limit for limit, _ in kernel.LAUNCHES]
    assert limits == sorted(set(limits)) and limits[-1] == math.inf
    for shared_bytes in (99 * 1024, 227 * 1024):
        for seq_len in (1, *limits[:-1], *(limit + 1 for limit in limits[:-1]), 10**6):
            route, options = kernel.choose(seq_len, shared_bytes=shared_bytes)
            launch = options["launch"]
            assert route == "portable"
            resident = launch.stages * launch.stage_bytes * launch.programs_per_sm
            assert launch.stages >= 2
            assert launch.programs_per_sm >= 1
            assert resident <= shared_bytes


def test_native_route_is_chosen_where_it_can_be_built():
    kernel = module("kernel")
    known = {"capability": (9, 0), "can_build": True}
    limits = [limit for limit, _ in kernel.NATIVE_WAYS]
    assert limits == sorted(set(limits))
    for limit, way in kernel.NATIVE_WAYS:
        assert kernel.choose(limit, **known) == ("native", {"way": way})
    assert kernel.choose(limits[-1] + 1, **known)[0] == "portable"
    for without in (
        {"capability": (10, 0)},
        {"capability": None},
        {"can_build": False},
        {"is_aligned": False},
        {"interpreted": True},
    ):
        assert kernel.choose(1, **known | without)[0] == "portable"


def compiled_launches(seq_len, capability):
    inputs = random_inputs(torch.zeros(1, EXPERTS), zero_weights("meta"), 32, seed=19)
    inputs["output"] = torch.empty(1, HIDDEN, dtype=torch.bfloat16)
    lengths = {"routing_logits": 0, "hidden_states": 0, "hidden_states_scale": 1, "output": 0}
    arguments = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            shape = list(value.shape)
            if name in lengths:
                shape[lengths[name]] = seq_len
            value = Uninitialised(shape, value.dtype)
        arguments.append(value)
    return launches_compile("moe", arguments, capability)


# In the order of their compilation.
STREAMING = ["activate_kernel", "stream_kernel", "stream_kernel", "combine_kernel"]
TILED = ["gate_up_kernel", "down_kernel", "combine_kernel"]


@pytest.mark.parametrize(
    ("seq_len", "capability", "names"),
    [
        (16, 90, ["route_and_pack_kernel", *STREAMING]),
        *(
            pytest.param(seq_len, capability, names, marks=pytest.mark.slow)
            for seq_len, capability, names in (
                (512, 90, ["route_kernel", "pack_kernel", *STREAMING]),
                (901, 90, ["route_kernel", "pack_kernel", *STREAMING]),
                (4096, 90, ["route_kernel", "pack_kernel", *TILED]),
                (14107, 90, ["route_kernel", "pack_kernel", *TILED]),
                (16, 100, ["route_and_pack_kernel", *STREAMING]),
                (512, 100, ["route_kernel", "pack_kernel", *STREAMING]),
                (901, 100, ["route_kernel", "pack_kernel", *STREAMING]),
                (4096, 100, ["route_kernel", "pack_kernel", *TILED]),
                (14107, 100, ["route_kernel", "pack_kernel", *TILED]),
            )
        ),
    ],
)
def test_compiles_ahead_of_time(seq_len, capability, names):
    launches = compiled_launches(seq_len, capability)
    assert [launch["name"] for launch in launches] == names
    for launch in launches:
        assert launch["shared_bytes"] <= 227 * 1024
        assert launch["global_scratch_bytes"] == 0
