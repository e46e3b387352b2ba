"""FP8 mixture of experts with DeepSeek routing
(definition moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048).

    X = dequantised hidden states [T,7168]         W1[e] [4096,7168], W2[e] [7168,2048] likewise
    output[t] = sum over the local experts e among the 8 that token t selects of
                weight[t,e] * (silu(X[t] W1[e,2048:]^T) * (X[t] W1[e,:2048]^T)) W2[e]^T

Launches: routing and packing (one kernel, or two for many tokens), first GEMM, activation (fused
into the GEMM for many tokens), second GEMM, combine. The host never waits for the device: grids
depend on shapes alone, and persistent programs read from device memory how much work there is.

Bytes and flops: 44 MB of weights per hit expert, 88 MFLOP per (token, local expert) pair. Few
tokens are bound by DRAM (streaming.py), many by the tensor cores (tiled.py); choose() draws the
line.

Numerics: fp32 accumulation across k blocks of 128; between the GEMMs e4m3 with a scale per row and
128 columns, plus a residual plane for few tokens; every token's sum over experts in fp32 in the
order of its slots, rounded once to bf16. No floating-point atomics: the same call gives the same
bits.
See docs/kernels/moe.md.

The portable route is below. The native route, moe.cu, is taken on sm_90 to 32 256 tokens, where it
can be built and all tensors begin on 16-byte boundaries.
"""

import math
import numbers
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from .arguments import require, require_disjoint
from .dependent_launch import enter_chain
from .prepared_launch import prepare
from .routing import pack_kernel, route_and_pack_kernel, route_kernel
from .streaming import activate_kernel, stream_kernel
from .target import is_interpreted
from .tiled import down_kernel, gate_up_kernel
from .toolkit import can_build

try:
    from .native import run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None

NUM_EXPERTS = 256
NUM_LOCAL_EXPERTS = 32
FURTHEST_OFFSET = 512  # no expert is local from there on, on either side
TOP_K = 8
MOST_FP32 = float(torch.finfo(torch.float32).max)
HIDDEN = 7168
INTERMEDIATE = 2048
SCALE_BLOCK = 128

ONE_PROGRAM = 16  # tokens that a single program routes and packs, one to a warp
# (largest seq_len, tokens per program of 8 warps) beyond that: one token to a warp while there are
# SMs to spare, then four, whose independent chains hide each other's latency.
ROUTE_BLOCKS = ((1024, 8), (math.inf, 32))
COMBINE_BLOCK = 1024  # output columns per program: 7 of them span a token


@triton.jit(do_not_specialize=["num_tokens"])
def combine_kernel(
    expert_out_ptr,  # [8T, WIDTH] fp32 or bf16: rows as packed
    slot_row_ptr,  # [T, 8] int32, -1: not local
    slot_weight_ptr,  # [T, 8] fp32
    output_ptr,  # [T, WIDTH] bf16, out
    num_tokens,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (cdiv(T, BLOCK_TOKENS), WIDTH / BLOCK). Slots that are not local load nothing.
    enter_chain(PDL)
    tokens = tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    is_token = tokens < num_tokens
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK_TOKENS, BLOCK], tl.float32)
    for slot in tl.static_range(SLOTS):
        slots = tokens * SLOTS + slot
        rows = tl.load(slot_row_ptr + slots, mask=is_token, other=-1).to(tl.int64)
        weight = tl.load(slot_weight_ptr + slots, mask=is_token, other=0.0)
        is_local = (rows >= 0)[:, None]
        part = expert_out_ptr + rows[:, None] * WIDTH + columns[None, :]
        part = tl.load(part, mask=is_local, other=0.0).to(tl.float32)
        acc += tl.where(is_local, part * weight[:, None], 0.0)
    output = output_ptr + tokens[:, None] * WIDTH + columns[None, :]
    tl.store(output, acc.to(output_ptr.dtype.element_ty), mask=is_token[:, None])


@dataclass(frozen=True)
class Launch:
    """How the GEMMs of a call are cut up.

    route: "streaming" (streaming.py) or "tiled" (tiled.py).
    block_rows: packed rows (tokens of one expert) per program.
    block_n: weight rows per program; on the tiled route a pair of 128 each.
    splits: parts of K in the first streaming GEMM.
    group: row tiles that share a sweep over the weights, tiled route.
    stages: k blocks of 128 in flight per program.
    programs_per_sm: persistent programs that fit on an SM together, by shared memory.
    """

    route: str
    block_rows: int
    block_n: int
    splits: int
    group: int
    stages: int
    num_warps: int
    programs_per_sm: int

    @property
    def stage_bytes(self):
        """Shared memory of one stage; the streaming route may carry a residual plane of rows."""
        planes = 2 if self.route == "streaming" else 1
        return (planes * self.block_rows + self.block_n) * SCALE_BLOCK


# (largest seq_len, launch). About one local pair per token is expected, over up to 32 experts.
#   <= 128    a few rows per expert: tiles of 16. Tiles of 64 weight rows, K in 2 parts, give 128
#             units per hit expert in the first GEMM and 112 in the second: one hit expert nearly
#             fills 132 SMs, two do. Three programs of 6 stages: 216 KiB of shared memory per SM.
#   <= 512    up to 16 rows: tiles of 32 spare experts with more a second reading from L2.
#   <= 1536   up to 48 rows, still bound by the weights: tiles of 64.
#   <= 4096   about 128 rows: the tensor cores take over; a taller tile would be half empty.
#   larger    128 x (128 + 128): 171 flops per byte read from L2.
LAUNCHES = (
    (128, Launch("streaming", 16, 64, 2, 0, 6, 4, 3)),
    (512, Launch("streaming", 32, 128, 2, 0, 4, 4, 2)),
    (1536, Launch("streaming", 64, 128, 1, 0, 3, 4, 2)),
    (4096, Launch("tiled", 64, 256, 1, 8, 4, 4, 1)),
    (math.inf, Launch("tiled", 128, 256, 1, 8, 4, 8, 1)),
)


# (largest seq_len, way of the native route). Beyond, all slots of all tokens could fill more row
# tiles than are counted: the portable route's work.
#   stream   units of 64 weight rows and 16 packed ones spread few hit experts over all SMs.
#   tiles    256 weight rows and 64 packed ones, beyond 1536 tokens 128. On the official workloads
#            88.1 us against the stream's 67.6 at T = 15, the same at 14 and 16, where more experts
#            are hit, 274.4 against 278.5 at 32. Between 17 and 31 both ways were never compared.
NATIVE_WAYS = ((16, "stream"), (32256, "tiles"))
NATIVE_CAPABILITY = (9, 0)  # wgmma exists there alone


def choose(
    seq_len,
    *,
    capability=None,
    can_build=False,
    is_aligned=True,
    shared_bytes=227 * 1024,
    interpreted=False,
):
    """Route, "native" or "portable", and how it cuts the work: the first row that reaches seq_len.

    capability: compute capability of the tensors' device, None without one.
    can_build: whether the native route is there and this machine can compile it.
    is_aligned: whether all tensors begin on 16-byte boundaries.
    shared_bytes: shared memory a program may use; stages and programs are cut down to fit it.
    interpreted: the interpreter pays for operations and for padding; few of either.
    """
    way = next((way for limit, way in NATIVE_WAYS if seq_len <= limit), None)
    has_native = can_build and is_aligned and capability == NATIVE_CAPABILITY and not interpreted
    if has_native and way is not None:
        return "native", {"way": way}
    launch = next(launch for limit, launch in LAUNCHES if seq_len <= limit)
    if interpreted:
        block_n = {"streaming": 1024, "tiled": launch.block_n}[launch.route]
        return "portable", {"launch": replace(launch, block_rows=16, block_n=block_n)}
    stages = max(2, min(launch.stages, shared_bytes // launch.stage_bytes))
    programs = max(1, min(launch.programs_per_sm, shared_bytes // (stages * launch.stage_bytes)))
    return "portable", {"launch": replace(launch, stages=stages, programs_per_sm=programs)}


@dataclass(frozen=True)
class Machine:
    """Where the kernels run. has_pdl: programmatic dependent launch (compute capability 9.0)."""

    num_sms: int
    shared_bytes: int
    has_pdl: bool
    capability: tuple[int, int] | None = None
    is_interpreter: bool = False
    route_block: int | None = None  # instead of ROUTE_BLOCKS
    combine_tokens: int = 1


# Few programs and many tokens each, but more than one of either: the tests run here.
INTERPRETER = Machine(
    num_sms=3,
    shared_bytes=227 * 1024,
    has_pdl=False,
    is_interpreter=True,
    route_block=128,
    combine_tokens=128,
)
AHEAD_OF_TIME = Machine(132, 227 * 1024, has_pdl=True)


def find_machine(tensor):
    """The machine of a tensor. Raises RuntimeError where the GPU has no FP8 tensor cores."""
    if is_interpreted(combine_kernel):
        return INTERPRETER
    if not tensor.is_cuda:
        return AHEAD_OF_TIME
    gpu = torch.cuda.get_device_properties(tensor.device)
    if (gpu.major, gpu.minor) < (8, 9):
        raise RuntimeError(
            f"moe: expected FP8 tensor cores (compute capability 8.9 or newer), got {gpu.name} "
            f"with {gpu.major}.{gpu.minor}; run it on an Ada, Hopper or Blackwell GPU"
        )
    return Machine(
        num_sms=gpu.multi_processor_count,
        shared_bytes=gpu.shared_memory_per_block_optin,
        has_pdl=gpu.major >= 9,
        capability=(gpu.major, gpu.minor),
    )


@dataclass(frozen=True)
class Routing:
    """What routing leaves on the device. T tokens, packed rows sorted by local expert."""

    slot_weight: torch.Tensor  # [T, 8] fp32
    slot_row: torch.Tensor  # [T, 8] int32, -1: expert not local
    row_token: torch.Tensor  # [8T] int32
    counts: torch.Tensor  # [32] int32

    @classmethod
    def empty(cls, seq_len, device):
        def int32(*shape):
            return torch.empty(shape, dtype=torch.int32, device=device)

        weight = torch.empty(seq_len, TOP_K, dtype=torch.float32, device=device)
        counts = int32(NUM_LOCAL_EXPERTS)
        return cls(weight, int32(seq_len, TOP_K), int32(seq_len * TOP_K), counts)


def prepare_routing(logits, bias, local_expert_offset, routed_scaling_factor, routing, machine):
    """Launches that fill `routing`: one, or two beyond ONE_PROGRAM tokens."""
    seq_len = logits.shape[0]
    scalars = (float(routed_scaling_factor), int(local_expert_offset), seq_len)
    if seq_len <= ONE_PROGRAM:
        block = triton.next_power_of_2(seq_len)
        packed = (routing.slot_row, routing.row_token, routing.counts)
        arguments = (logits, bias, routing.slot_weight, *packed, *scalars)
        options = {"BLOCK": block, "num_warps": block}
        return [prepare(route_and_pack_kernel, (1,), *arguments, **options)]
    block = next(block for limit, block in ROUTE_BLOCKS if seq_len <= limit)
    block = machine.route_block or block
    num_blocks = triton.cdiv(seq_len, block)
    slot_local = torch.empty_like(routing.slot_row)
    counts = torch.empty(num_blocks, NUM_LOCAL_EXPERTS, dtype=torch.int32, device=logits.device)
    slots = (routing.slot_weight, slot_local, counts)
    grid, route_options = (num_blocks,), {"BLOCK": block, "num_warps": 8}
    pack_options = {"BLOCK": block, "num_warps": 4, **chained(machine)}
    packed = (routing.slot_row, routing.row_token, routing.counts)
    sizes = (seq_len, num_blocks)
    return [
        prepare(route_kernel, grid, logits, bias, *slots, *scalars, **route_options),
        prepare(pack_kernel, grid, slot_local, counts, *packed, *sizes, **pack_options),
    ]


def chained(machine):
    """Options of every kernel but the first: see dependent_launch.py."""
    return {"PDL": machine.has_pdl, "launch_pdl": machine.has_pdl}


def prepare_streaming(x, x_scale, routing, weights, launch, machine):
    """Launches of both GEMMs for few tokens, and their result.

    x [T,7168] e4m3, x_scale [56,T] fp32; weights: gemm1 and gemm2 weights, each with its scales.
    The result [8T,7168] fp32 has rows as packed, not yet weighted.
    """
    w1, w1_scale, w2, w2_scale = weights
    capacity = routing.row_token.shape[0]

    def empty(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device=x.device)

    gate_up = empty(launch.splits, capacity, 2 * INTERMEDIATE)
    c = empty(2, capacity, INTERMEDIATE, dtype=torch.float8_e4m3fn)
    c_scale = empty(INTERMEDIATE // SCALE_BLOCK, capacity)
    out = empty(capacity, HIDDEN)
    programs = (machine.num_sms * launch.programs_per_sm,)
    options = {
        "BLOCK_N": launch.block_n,
        "BLOCK_ROWS": launch.block_rows,
        "STAGES": launch.stages,
        "num_warps": launch.num_warps,
        **chained(machine),
    }

    def multiply(row_x, row_x_scale, x_of_row, w, w_scale, product, splits):
        return prepare(
            stream_kernel,
            programs,
            *(row_x, row_x_scale, x_of_row, routing.counts, w, w_scale, product),
            *(row_x_scale.shape[1], capacity),
            N=w.shape[1],
            K=w.shape[2],
            HAS_RESIDUAL=x_of_row is None,
            SPLITS=splits,
            **options,
        )

    rows = min(launch.block_rows, 32)
    blocks = (triton.cdiv(capacity, rows), INTERMEDIATE // SCALE_BLOCK)
    activate = prepare(
        activate_kernel,
        blocks,
        *(gate_up, routing.counts, c, c_scale, capacity),
        WIDTH=INTERMEDIATE,
        BLOCK_ROWS=rows,
        SPLITS=launch.splits,
        num_warps=4,
        **chained(machine),
    )
    first = multiply(x, x_scale, routing.row_token, w1, w1_scale, gate_up, launch.splits)
    second = multiply(c, c_scale, None, w2, w2_scale, out, 1)
    return [first, activate, second], out


def prepare_tiled(x, x_scale, routing, weights, launch, machine):
    """Launches of both GEMMs for many tokens, and their result. As prepare_streaming, but bf16."""
    w1, w1_scale, w2, w2_scale = weights
    capacity = routing.row_token.shape[0]

    def empty(*shape, dtype):
        return torch.empty(shape, dtype=dtype, device=x.device)

    c = empty(capacity, INTERMEDIATE, dtype=torch.float8_e4m3fn)
    c_scale = empty(INTERMEDIATE // SCALE_BLOCK, capacity, dtype=torch.float32)
    out = empty(capacity, HIDDEN, dtype=torch.bfloat16)
    programs = (machine.num_sms * launch.programs_per_sm,)
    options = {
        "BLOCK_ROWS": launch.block_rows,
        "GROUP": launch.group,
        "STAGES": launch.stages,
        "num_warps": launch.num_warps,
        **chained(machine),
    }
    rows = (x, x_scale, routing.row_token, routing.counts)
    gate_up = (*rows, w1, w1_scale, c, c_scale, x.shape[0], capacity)
    down = (c, c_scale, routing.counts, w2, w2_scale, out, capacity)
    return [
        prepare(gate_up_kernel, programs, *gate_up, WIDTH=INTERMEDIATE, K=HIDDEN, **options),
        prepare(down_kernel, programs, *down, N=HIDDEN, K=INTERMEDIATE, **options),
    ], out


ROUTES = {"streaming": prepare_streaming, "tiled": prepare_tiled}


def prepare_combine(expert_out, routing, output, machine):
    """The launch of output[t] = sum over slots of weight * expert output; zeros without one."""
    seq_len = output.shape[0]
    grid = (triton.cdiv(seq_len, machine.combine_tokens), HIDDEN // COMBINE_BLOCK)
    blocks = {"BLOCK_TOKENS": machine.combine_tokens, "BLOCK": COMBINE_BLOCK}
    return prepare(
        combine_kernel,
        grid,
        *(expert_out, routing.slot_row, routing.slot_weight, output, seq_len),
        **{"WIDTH": HIDDEN, "SLOTS": TOP_K, **blocks},
        num_warps=4,
        **chained(machine),
    )


def _run_portable(logits, bias, x, x_scale, weights, scalars, output, *, launch, machine):
    """The definition for one non-empty, checked call. scalars: expert offset, scaling factor.

    Everything is allocated, bound and compiled before the first launch, so that the launches
    follow each other without a gap.
    """
    routing = Routing.empty(x.shape[0], x.device)
    launches = prepare_routing(logits, bias, *scalars, routing, machine)
    gemms, expert_out = ROUTES[launch.route](x, x_scale, routing, weights, launch, machine)
    launches += [*gemms, prepare_combine(expert_out, routing, output, machine)]
    for prepared in launches:
        prepared()


def check(inputs, local_expert_offset, routed_scaling_factor, output):
    """Refuse what the definition does not allow. Reads metadata only. Returns seq_len.

    inputs: the eight input tensors by name.
    """
    fp8, fp32, bf16 = torch.float8_e4m3fn, torch.float32, torch.bfloat16
    logits = inputs["routing_logits"]
    require(logits, "routing_logits", (None, NUM_EXPERTS), fp32)
    seq_len = logits.shape[0]
    experts, hidden_blocks = NUM_LOCAL_EXPERTS, HIDDEN // SCALE_BLOCK
    width, width_blocks = INTERMEDIATE, INTERMEDIATE // SCALE_BLOCK
    wanted = {
        "routing_bias": ((NUM_EXPERTS,), bf16),
        "hidden_states": ((seq_len, HIDDEN), fp8),
        "hidden_states_scale": ((hidden_blocks, seq_len), fp32),
        "gemm1_weights": ((experts, 2 * width, HIDDEN), fp8),
        "gemm1_weights_scale": ((experts, 2 * width_blocks, hidden_blocks), fp32),
        "gemm2_weights": ((experts, HIDDEN, width), fp8),
        "gemm2_weights_scale": ((experts, hidden_blocks, width_blocks), fp32),
    }
    for name, (shape, dtype) in wanted.items():
        require(inputs[name], name, shape, dtype, like=logits)
    for name, value, kind in (
        ("local_expert_offset", local_expert_offset, numbers.Integral),
        ("routed_scaling_factor", routed_scaling_factor, numbers.Real),
    ):
        if not isinstance(value, kind):
            raise TypeError(
                f"{name}: expected {'an integer' if kind is numbers.Integral else 'a number'}, "
                f"got {type(value).__name__}"
            )
    if math.inf > abs(routed_scaling_factor) > MOST_FP32:
        raise ValueError(
            "routed_scaling_factor: expected a number that fp32 holds, within 3.4e38, got a larger "
            "one; DeepSeek-V3's is 2.5"
        )
    require(output, "output", (seq_len, HIDDEN), bf16, like=logits)
    for name, tensor in inputs.items():
        require_disjoint(output, "output", tensor, name)
    return seq_len


def run(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    gemm1_weights,
    gemm1_weights_scale,
    gemm2_weights,
    gemm2_weights_scale,
    local_expert_offset,
    routed_scaling_factor,
    output,
):
    """The MoE block of one rank; writes output [T,7168] bf16, reads everything else.

    routing_logits [T,256] fp32; routing_bias [256] bf16; hidden_states [T,7168] e4m3 with
    hidden_states_scale [56,T] fp32; gemm1_weights [32,4096,7168], gemm2_weights [32,7168,2048]
    e4m3 with scales [32,32,56], [32,56,16] fp32; local_expert_offset an integer, global id of the
    first local expert; routed_scaling_factor a number. All contiguous.
    Raises TypeError or ValueError naming the argument, RuntimeError on a GPU without FP8.
    """
    weights = (gemm1_weights, gemm1_weights_scale, gemm2_weights, gemm2_weights_scale)
    inputs = {
        "routing_logits": routing_logits,
        "routing_bias": routing_bias,
        "hidden_states": hidden_states,
        "hidden_states_scale": hidden_states_scale,
        "gemm1_weights": gemm1_weights,
        "gemm1_weights_scale": gemm1_weights_scale,
        "gemm2_weights": gemm2_weights,
        "gemm2_weights_scale": gemm2_weights_scale,
    }
    seq_len = check(inputs, local_expert_offset, routed_scaling_factor, output)
    if seq_len == 0:
        return
    machine = find_machine(output)
    tensors = (*inputs.values(), output)
    route, options = choose(
        seq_len,
        capability=machine.capability,
        can_build=run_native is not None and can_build(machine.capability),
        is_aligned=all(tensor.data_ptr() % 16 == 0 for tensor in tensors),
        shared_bytes=machine.shared_bytes,
        interpreted=machine.is_interpreter,
    )
    offset = max(-FURTHEST_OFFSET, min(FURTHEST_OFFSET, int(local_expert_offset)))
    scalars = (offset, routed_scaling_factor)
    arguments = (routing_logits, routing_bias, hidden_states, hidden_states_scale)
    arguments = (*arguments, weights, scalars, output)
    if route == "native":
        run_native(*arguments, **options)
    else:
        with torch.cuda.device_of(output):
            _run_portable(*arguments, **options, machine=machine)
