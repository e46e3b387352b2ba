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
order of its slots, rounded once to bf16. No atomics: the same call gives the same bits.
See docs/kernels/moe.md.
"""

import math
import numbers
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from .arguments import require, require_disjoint
from .dependent_launch import enter_chain
from .routing import pack_kernel, route_and_pack_kernel, route_kernel
from .streaming import activate_kernel, stream_kernel
from .tiled import down_kernel, gate_up_kernel

NUM_EXPERTS = 256
NUM_LOCAL_EXPERTS = 32
TOP_K = 8
HIDDEN = 7168
INTERMEDIATE = 2048
SCALE_BLOCK = 128

ONE_PROGRAM = 16  # tokens that a single program routes and packs, one to a warp
# (largest seq_len, tokens per program of 8 warps) beyond that: one token to a warp while there are
# SMs to spare, then four, whose independent chains hide each other's latency.
ROUTE_BLOCKS = ((1024, 8), (math.inf, 32))
COMBINE_BLOCK = 1024  # output columns per program: 7 of them span a token
ACTIVATE_ROWS = 8


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
#   <= 128    mean rows per expert below 4: tiles of 16 rows. 64 weight rows a tile and K in 2 parts
#             give 128 units per hit expert in the first GEMM and 112 in the second, so two hit
#             experts already occupy 132 SMs. 6 stages of 12 KiB, three programs: 216 KiB per SM.
#   <= 512    up to 16 rows: tiles of 32 rows halve the re-reads of experts with more than 16.
#   <= 1536   up to 48 rows, still bound by the weights: tiles of 64.
#   <= 4096   tensor cores take over; experts of about 128 rows would waste half of a taller tile.
#   larger    128 x (128 + 128): 171 flops per byte from L2.
LAUNCHES = (
    (128, Launch("streaming", 16, 64, 2, 0, 6, 4, 3)),
    (512, Launch("streaming", 32, 128, 2, 0, 5, 4, 2)),
    (1536, Launch("streaming", 64, 128, 1, 0, 4, 4, 2)),
    (4096, Launch("tiled", 64, 256, 1, 8, 4, 4, 1)),
    (math.inf, Launch("tiled", 128, 256, 1, 8, 4, 8, 1)),
)


def choose(seq_len, *, shared_bytes=227 * 1024):
    """The launch for a sequence length: the first row of LAUNCHES that reaches it.

    shared_bytes: shared memory a program may use; stages and programs are cut down to fit it.
    """
    launch = next(launch for limit, launch in LAUNCHES if seq_len <= limit)
    stages = max(2, min(launch.stages, shared_bytes // launch.stage_bytes))
    programs = max(1, min(launch.programs_per_sm, shared_bytes // (stages * launch.stage_bytes)))
    return replace(launch, stages=stages, programs_per_sm=programs)


@dataclass(frozen=True)
class Machine:
    """Where the kernels run. has_pdl: programmatic dependent launch (compute capability 9.0)."""

    num_sms: int
    shared_bytes: int
    has_pdl: bool
    combine_tokens: int = 1


# The interpreter's cost is per program: few programs, many tokens each.
INTERPRETER = Machine(num_sms=3, shared_bytes=227 * 1024, has_pdl=False, combine_tokens=128)


def find_machine(tensor):
    """The machine of a tensor. Raises RuntimeError where the GPU has no FP8 tensor cores."""
    if not isinstance(combine_kernel, triton.JITFunction):
        return INTERPRETER
    if not tensor.is_cuda:  # ahead-of-time compilation
        return replace(INTERPRETER, has_pdl=True, combine_tokens=1)
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


def route(logits, bias, local_expert_offset, routed_scaling_factor, routing, has_pdl):
    """Fill `routing` from logits [T,256] and bias [256]: one launch, or two beyond ONE_PROGRAM."""
    seq_len = logits.shape[0]
    scalars = (float(routed_scaling_factor), int(local_expert_offset), seq_len)
    if seq_len <= ONE_PROGRAM:
        block = triton.next_power_of_2(seq_len)
        route_and_pack_kernel[(1,)](
            logits,
            bias,
            routing.slot_weight,
            routing.slot_row,
            routing.row_token,
            routing.counts,
            *scalars,
            BLOCK=block,
            num_warps=block,
        )
        return
    block = next(block for limit, block in ROUTE_BLOCKS if seq_len <= limit)
    num_blocks = triton.cdiv(seq_len, block)
    slot_local = torch.empty_like(routing.slot_row)
    counts = torch.empty(num_blocks, NUM_LOCAL_EXPERTS, dtype=torch.int32, device=logits.device)
    slots = (routing.slot_weight, slot_local, counts)
    route_kernel[(num_blocks,)](logits, bias, *slots, *scalars, BLOCK=block, num_warps=8)
    pack_kernel[(num_blocks,)](
        slot_local,
        counts,
        routing.slot_row,
        routing.row_token,
        routing.counts,
        seq_len,
        num_blocks,
        BLOCK=block,
        PDL=has_pdl,
        num_warps=4,
        launch_pdl=has_pdl,
    )


class StreamingExperts:
    """Both GEMMs for few tokens. Scratch is allocated ahead of the first launch."""

    def __init__(self, capacity, launch, machine, device):
        def empty(*shape, dtype=torch.float32):
            return torch.empty(shape, dtype=dtype, device=device)

        self.capacity, self.launch, self.machine = capacity, launch, machine
        self.gate_up = empty(launch.splits, capacity, 2 * INTERMEDIATE)
        self.c = empty(2, capacity, INTERMEDIATE, dtype=torch.float8_e4m3fn)
        self.c_scale = empty(INTERMEDIATE // SCALE_BLOCK, capacity)
        self.out = empty(capacity, HIDDEN)

    def multiply(self, x, x_scale, row_x, routing, w, w_scale, partial, splits):
        launch, has_pdl = self.launch, self.machine.has_pdl
        stream_kernel[(self.machine.num_sms * launch.programs_per_sm,)](
            x,
            x_scale,
            row_x,
            routing.counts,
            w,
            w_scale,
            partial,
            x_scale.shape[1],
            self.capacity,
            N=w.shape[1],
            K=w.shape[2],
            HAS_RESIDUAL=row_x is None,
            BLOCK_N=launch.block_n,
            BLOCK_ROWS=launch.block_rows,
            SPLITS=splits,
            STAGES=launch.stages,
            PDL=has_pdl,
            num_warps=launch.num_warps,
            launch_pdl=has_pdl,
        )

    def __call__(self, x, x_scale, routing, w1, w1_scale, w2, w2_scale):
        """Returns the experts' outputs [8T, 7168] fp32, rows as packed, not yet weighted."""
        splits, has_pdl = self.launch.splits, self.machine.has_pdl
        rows = routing.row_token
        self.multiply(x, x_scale, rows, routing, w1, w1_scale, self.gate_up, splits)
        grid = (triton.cdiv(self.capacity, ACTIVATE_ROWS), INTERMEDIATE // SCALE_BLOCK)
        activate_kernel[grid](
            self.gate_up,
            routing.counts,
            self.c,
            self.c_scale,
            self.capacity,
            WIDTH=INTERMEDIATE,
            BLOCK_ROWS=ACTIVATE_ROWS,
            SPLITS=splits,
            PDL=has_pdl,
            num_warps=4,
            launch_pdl=has_pdl,
        )
        self.multiply(self.c, self.c_scale, None, routing, w2, w2_scale, self.out, 1)
        return self.out


class TiledExperts:
    """Both GEMMs for many tokens. Scratch is allocated ahead of the first launch."""

    def __init__(self, capacity, launch, machine, device):
        def empty(*shape, dtype):
            return torch.empty(shape, dtype=dtype, device=device)

        self.capacity, self.machine = capacity, machine
        self.grid = (machine.num_sms * launch.programs_per_sm,)
        self.options = {
            "BLOCK_ROWS": launch.block_rows,
            "GROUP": launch.group,
            "STAGES": launch.stages,
            "PDL": machine.has_pdl,
            "num_warps": launch.num_warps,
            "launch_pdl": machine.has_pdl,
        }
        self.c = empty(capacity, INTERMEDIATE, dtype=torch.float8_e4m3fn)
        self.c_scale = empty(INTERMEDIATE // SCALE_BLOCK, capacity, dtype=torch.float32)
        self.out = empty(capacity, HIDDEN, dtype=torch.bfloat16)

    def __call__(self, x, x_scale, routing, w1, w1_scale, w2, w2_scale):
        """Returns the experts' outputs [8T, 7168] bf16, rows as packed, not yet weighted."""
        gate_up_kernel[self.grid](
            x,
            x_scale,
            routing.row_token,
            routing.counts,
            w1,
            w1_scale,
            self.c,
            self.c_scale,
            x.shape[0],
            self.capacity,
            WIDTH=INTERMEDIATE,
            K=HIDDEN,
            **self.options,
        )
        down_kernel[self.grid](
            self.c,
            self.c_scale,
            routing.counts,
            w2,
            w2_scale,
            self.out,
            self.capacity,
            N=HIDDEN,
            K=INTERMEDIATE,
            **self.options,
        )
        return self.out


EXPERTS = {"streaming": StreamingExperts, "tiled": TiledExperts}


def combine(expert_out, routing, output, machine):
    """output[t] = sum over the slots of t of weight * expert output; zeros without a local slot."""
    seq_len = output.shape[0]
    grid = (triton.cdiv(seq_len, machine.combine_tokens), HIDDEN // COMBINE_BLOCK)
    combine_kernel[grid](
        expert_out,
        routing.slot_row,
        routing.slot_weight,
        output,
        seq_len,
        WIDTH=HIDDEN,
        SLOTS=TOP_K,
        BLOCK_TOKENS=machine.combine_tokens,
        BLOCK=COMBINE_BLOCK,
        PDL=machine.has_pdl,
        num_warps=4,
        launch_pdl=machine.has_pdl,
    )


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
    launch = choose(seq_len, shared_bytes=machine.shared_bytes)
    with torch.cuda.device_of(output):
        routing = Routing.empty(seq_len, output.device)
        experts = EXPERTS[launch.route](seq_len * TOP_K, launch, machine, output.device)
        scalars = (local_expert_offset, routed_scaling_factor)
        route(routing_logits, routing_bias, *scalars, routing, machine.has_pdl)
        expert_out = experts(hidden_states, hidden_states_scale, routing, *weights)
        combine(expert_out, routing, output, machine)
