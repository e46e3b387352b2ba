"""Gated delta rule, one decode step (definition gdn_decode_qk4_v8_d128_k_last).

Per batch row and v head, with the state S [V=128, K=128] stored k-last, q, k [K], v [V]:

    S0      = g S                          g    = exp(-exp(A_log) softplus(a + dt_bias))
    delta   = beta (v - S0 k)              beta = sigmoid(b)
    S'      = S0 + delta k^T               new_state
    output  = scale (S0 q + (q.k) delta)   = scale S' q, without a second pass over S'

Grid: one warp-sized CTA per (row, v head, block of BLOCK_V rows of V): the linear CTA number counts
blocks of `state` in memory order. Of each row of S a lane owns 4 consecutive k (16-byte loads, 512
contiguous bytes a warp), so S0 k and S0 q are warp reductions. q/k head j serves v heads 2j, 2j+1.

Bytes: 2 x 512 KiB of state and 6 KiB of vectors per batch row; flops: 7 per state element, about
0.9 a byte. DRAM is the roof at large B; one cold round trip, then the store, at small B.

Idea: all loads of a CTA are issued before the first use, the gates are computed while the state
is in flight, and the state passes through registers once.

Numerics: fp32 throughout; S0 is formed before the sums, as the definition does, so that a decay
near 0 also tames a huge state; output is rounded once to bf16. See docs/kernels/gdn_decode.md.

The portable route is below. The native route, step.cu, is taken where it can be built.
"""

import math
import numbers

import torch
import triton
import triton.language as tl

from .arguments import require, require_disjoint
from .gdn_gates import decay, write_strength
from .target import is_interpreted
from .toolkit import ARCHITECTURES, can_build

try:
    from .native import run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None

NUM_QK_HEADS = 4
NUM_V_HEADS = 8
HEAD_SIZE = 128


@triton.jit
def step_kernel(
    q_ptr,  # [B, 1, 4, 128] bf16
    k_ptr,  # [B, 1, 4, 128] bf16
    v_ptr,  # [B, 1, 8, 128] bf16
    state_ptr,  # [B, 8, 128, 128] fp32, k-last, or None: zeros
    a_log_ptr,  # [8] fp32
    a_ptr,  # [B, 1, 8] bf16
    dt_bias_ptr,  # [8] fp32
    b_ptr,  # [B, 1, 8] bf16
    output_ptr,  # [B, 1, 8, 128] bf16
    new_state_ptr,  # [B, 8, 128, 128] fp32
    scale,
    V_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # v heads per q/k head
    D: tl.constexpr,  # K and V
    BLOCK_V: tl.constexpr,
):
    # Grid: (B * V_HEADS * D / BLOCK_V,)
    block = tl.program_id(0).to(tl.int64)
    head = block // (D // BLOCK_V)  # row * V_HEADS + v head
    offs_k = tl.arange(0, D)
    rows = block * BLOCK_V + tl.arange(0, BLOCK_V)  # of V, counted over all heads and batch rows
    offs_state = rows[:, None] * D + offs_k[None, :]

    # The state is read once by one CTA: it must not push the new state out of L2.
    if state_ptr is None:
        state = tl.zeros([BLOCK_V, D], tl.float32)
    else:
        state = tl.load(state_ptr + offs_state, eviction_policy="evict_first")
    v = tl.load(v_ptr + rows).to(tl.float32)
    q = tl.load(q_ptr + head // GROUP * D + offs_k).to(tl.float32)
    # No load crosses a barrier, and all arithmetic needs one of the loads below it: so every load
    # is in flight before the first is awaited. Left alone, the assembler sinks some of the state's
    # loads behind the gates, which costs a second cold round trip.
    tl.debug_barrier()
    k = tl.load(k_ptr + head // GROUP * D + offs_k).to(tl.float32)
    a = tl.load(a_ptr + head).to(tl.float32)
    b = tl.load(b_ptr + head).to(tl.float32)
    a_log = tl.load(a_log_ptr + head % V_HEADS)
    dt_bias = tl.load(dt_bias_ptr + head % V_HEADS)

    g = decay(a, dt_bias, a_log)
    beta = write_strength(b)
    qk = tl.sum(q * k, axis=0)

    state = state * g
    delta = beta * (v - tl.sum(state * k[None, :], axis=1))
    out = tl.sum(state * q[None, :], axis=1) + qk * delta
    tl.store(new_state_ptr + offs_state, state + delta[:, None] * k[None, :])
    tl.store(output_ptr + rows, (out * scale).to(output_ptr.dtype.element_ty))


# (largest batch, launch). A CTA is one warp: q and k then load in the layout of the state (4
# consecutive k to a lane) and are never exchanged through shared memory, whose barriers would sit
# between the loads. BLOCK_V * 512 bytes of state are in flight per CTA; an SM holds 32 CTAs.
#   B = 1     512 CTAs, one warp for each SM sub-partition: the shortest chain after the loads
#   B <= 16   at most 4096 CTAs, all resident at once: still a single round trip
#   larger    32 CTAs of 4 KiB keep 128 KiB in flight per SM, four times what covers the latency
#             at full bandwidth; the fixed work of a CTA (gates, q.k) is spread over 8 rows
PORTABLE_LAUNCHES = (
    (1, {"BLOCK_V": 2, "num_warps": 1}),
    (16, {"BLOCK_V": 4, "num_warps": 1}),
    (math.inf, {"BLOCK_V": 8, "num_warps": 1}),
)


# The interpreter's cost is per CTA, not per element.
INTERPRETER_LAUNCH = {"BLOCK_V": 64, "num_warps": 1}

# (largest batch, shape of the native route: lanes of a row, rows of a warp, warps of a CTA).
#   B = 1     128 CTAs of two warps, one an SM
#   B <= 8    two to eight CTAs an SM, all resident at once
#   larger    CTAs of one warp: the next begins as soon as one has stored
NATIVE_LAUNCHES = (
    (8, {"lanes": 8, "rows": 4, "warps": 2}),
    (16, {"lanes": 8, "rows": 4, "warps": 1}),
    (math.inf, {"lanes": 16, "rows": 8, "warps": 1}),
)


def choose(
    batch_size,
    *,
    capability=None,
    can_build=False,
    is_aligned=True,
    has_state=True,
    interpreted=False,
):
    """Route, "native" or "portable", and its launch: the first row that reaches batch_size.

    capability: compute capability of the tensors' device, None without one.
    can_build: whether the native route is there and this machine can compile it.
    is_aligned: whether all tensors begin on 16-byte boundaries.
    has_state: whether there is a state to read; zeros are the portable route's work.
    """
    is_native = can_build and is_aligned and has_state and capability in ARCHITECTURES
    if is_native and not interpreted:
        return "native", _first(NATIVE_LAUNCHES, batch_size)
    return "portable", INTERPRETER_LAUNCH if interpreted else _first(PORTABLE_LAUNCHES, batch_size)


def _first(launches, batch_size):
    return next(launch for limit, launch in launches if batch_size <= limit)


def check(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    """Refuse what the definition does not allow. Reads metadata only. Returns the batch size."""
    require(q, "q", (None, 1, NUM_QK_HEADS, HEAD_SIZE), torch.bfloat16)
    batch_size = q.shape[0]
    per_head = (batch_size, 1, NUM_V_HEADS)
    states = (batch_size, NUM_V_HEADS, HEAD_SIZE, HEAD_SIZE)
    require(k, "k", (batch_size, 1, NUM_QK_HEADS, HEAD_SIZE), torch.bfloat16, like=q)
    require(v, "v", (*per_head, HEAD_SIZE), torch.bfloat16, like=q)
    if state is not None:
        require(state, "state", states, torch.float32, like=q)
    require(A_log, "A_log", (NUM_V_HEADS,), torch.float32, like=q)
    require(a, "a", per_head, torch.bfloat16, like=q)
    require(dt_bias, "dt_bias", (NUM_V_HEADS,), torch.float32, like=q)
    require(b, "b", per_head, torch.bfloat16, like=q)
    if scale is not None and not isinstance(scale, numbers.Real):
        raise TypeError(f"scale: expected a number or None, got {type(scale).__name__}")
    require(output, "output", (*per_head, HEAD_SIZE), torch.bfloat16, like=q)
    require(new_state, "new_state", states, torch.float32, like=q)
    require_disjoint(output, "output", new_state, "new_state")
    inputs = {"q": q, "k": k, "v": v, "state": state, "a": a, "b": b}
    inputs.update({"A_log": A_log, "dt_bias": dt_bias})
    for name, tensor in inputs.items():
        require_disjoint(output, "output", tensor, name)
        require_disjoint(new_state, "new_state", tensor, name)
    return batch_size


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    """One decode step for a batch; writes output and new_state, reads everything else.

    q, k [B,1,4,128], v [B,1,8,128], a, b [B,1,8] bf16; A_log, dt_bias [8] fp32; state
    [B,8,128,128] fp32, k-last, or None for zeros; scale a number, None or 0 for 1/sqrt(128);
    output [B,1,8,128] bf16; new_state like state, with memory of its own. All contiguous.
    Raises TypeError or ValueError naming the argument.
    """
    batch_size = check(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state)
    if batch_size == 0:
        return
    tensors = (q, k, v, state, A_log, a, dt_bias, b, output, new_state)
    capability = torch.cuda.get_device_capability(q.device) if q.is_cuda else None
    route, launch = choose(
        batch_size,
        capability=capability,
        can_build=run_native is not None and can_build(capability),
        is_aligned=all(x is None or x.data_ptr() % 16 == 0 for x in tensors),
        has_state=state is not None,
        interpreted=is_interpreted(step_kernel),
    )
    scale = float(scale) if scale else HEAD_SIZE**-0.5
    if route == "native":
        run_native(*tensors[:8], scale, output, new_state, **launch)
    else:
        _run_portable(*tensors, scale, launch)


def _run_portable(q, k, v, state, A_log, a, dt_bias, b, output, new_state, scale, launch):
    grid = (q.shape[0] * NUM_V_HEADS * (HEAD_SIZE // launch["BLOCK_V"]),)
    with torch.cuda.device_of(q):
        step_kernel[grid](
            q,
            k,
            v,
            state,
            A_log,
            a,
            dt_bias,
            b,
            output,
            new_state,
            scale,
            V_HEADS=NUM_V_HEADS,
            GROUP=NUM_V_HEADS // NUM_QK_HEADS,
            D=HEAD_SIZE,
            **launch,
        )
