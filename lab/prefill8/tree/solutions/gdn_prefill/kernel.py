"""Gated delta rule over whole sequences (definition gdn_prefill_qk4_v8_d128_k_last).

Per sequence and v head, with the state S [K=128, V=128] (stored k-last, [V, K]), token after token:

    S <- g S;   S <- S + k (x) beta (v - S^T k);   output = scale S^T q
    g = exp(-exp(A_log) softplus(a + dt_bias)),   beta = sigmoid(b)

q/k head j serves v heads 2j and 2j + 1. Inputs of a few tokens take one launch that does just this,
with S in registers. Others take chunks of C = 64 tokens: `solve_kernel` does what is independent
between chunks, `scan_kernel` walks along them. G_i is the sum of log g up to token i of the chunk,
D_ij = exp(G_i - G_j) for i >= j and 0 above:

    T     = (I + tril(diag(beta) (K K^T o D), -1))^-1 diag(beta)                          [C, C]
    read  = scale (Q K^T o D) T,        write = diag(exp(G_last - G)) T                   [C, C]
    R     = V - diag(exp(G)) K S                                                          [C, V]
    O     = scale diag(exp(G)) Q S + read R                                               [C, V]
    S    <- exp(G_last) S + K^T (write R)                                                 [K, V]

Grids: `solve_kernel` (bound on the number of chunks, v head); `scan_kernel` and `token_kernel`
(sequence, v head, block of V), the state of the block in registers.

Bytes per token: 6 KiB in and out, 4 KiB of scratch written and read again, once per block of V.
Flops per token: 3.6 MFLOP of bf16 products. The chain of chunks is the roof of few long sequences;
the tensor cores and the L2 cache share it when there are many.

The portable route is below, with its own form of the equations. The native route, prefill.cu, is
taken where it can be built.

Numerics: exponents are differences of fp64 sums and never positive. Factors that bf16 does not hold
exactly are split into two bf16 terms, 16 bits of mantissa; K K^T and Q K^T are exact products. The
state, the inverse of the 16 x 16 blocks and all sums are fp32; the output is rounded once. Where
each rounding happens: docs/kernels/gdn_prefill.md.
"""

import math
import numbers

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .arguments import require, require_disjoint
from .gdn_gates import decay, log_decay, write_strength
from .prepared_launch import prepare
from .target import has_programmatic_launch, is_interpreted
from .toolkit import can_build

try:
    from .native import run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None

NUM_QK_HEADS = 4
NUM_V_HEADS = 8
HEAD_SIZE = 128
CHUNK = 64  # tokens; the tile of the triangular inverse
BLOCK_SEQS = 64  # sequences that solve_kernel looks at in one step of its search
SIZES = ("total_seq_len", "num_seqs")  # one compilation for all values, 1 and multiples of 16 too


@triton.jit
def multiply(x, y, total, ON_GPU: tl.constexpr):
    """total + x @ y of two bf16 tiles: exact products, fp32 sums; total None: zeros."""
    if ON_GPU:
        return tl.dot(x, y, total)
    else:
        return tl.dot(x.to(tl.float32), y.to(tl.float32), total, input_precision="ieee")


@triton.jit
def split(x):
    """An fp32 tile as the sum of two bf16 tiles; what is lost is below 2^-16 of each element.

    The high term is rounded as an integer: conversions to bf16 and back are slow on Hopper.
    """
    bits = x.to(tl.int32, bitcast=True)
    high = ((bits + 0x8000) & -0x10000).to(tl.float32, bitcast=True)
    return high.to(tl.bfloat16), (x - high).to(tl.bfloat16)


@triton.jit
def clip_range(start, stop, total_seq_len):
    """A sequence's tokens, within the tensors whatever cu_seqlens holds; empty if stop <= start."""
    start = tl.minimum(tl.maximum(start, 0), total_seq_len)
    return start, tl.maximum(tl.minimum(stop, total_seq_len), start)


@triton.jit
def load_rows(ptr, first, count, index, offs, STRIDE: tl.constexpr):
    """Rows first + index of a token-major tensor, zero from the count-th on.

    Row numbers start from `first`: offsets that a loop leaves unchanged would stay in registers.
    """
    ptrs = ptr + (first + index)[:, None] * STRIDE + offs[None, :]
    return tl.load(ptrs, mask=(index < count)[:, None], other=0.0)


@triton.jit
def store_rows(ptr, first, count, index, offs, STRIDE: tl.constexpr, tile):
    """Write the rows that load_rows reads."""
    ptrs = ptr + (first + index)[:, None] * STRIDE + offs[None, :]
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=(index < count)[:, None])


@triton.jit
def clear_rows(output_ptr, first, stop, offs, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Zero output rows [first, stop): tokens that belong to no sequence."""
    index = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK, offs.shape[0]], tl.float32)
    for row in range(first, stop, BLOCK):
        store_rows(output_ptr, row, stop - row, index, offs, STRIDE, zero)


@triton.jit
def find_chunk(
    cu_seqlens_ptr, chunk, total_seq_len, num_seqs, CHUNK: tl.constexpr, BLOCK_SEQS: tl.constexpr
):
    """First token and end of chunk number `chunk` of all sequences; (0, 0) past the last one."""
    first = tl.full([], 0, tl.int64)
    stop = tl.full([], 0, tl.int64)
    before = tl.full([], 0, tl.int64)
    for base in range(0, num_seqs, BLOCK_SEQS):
        seqs = base + tl.arange(0, BLOCK_SEQS)
        starts = tl.load(cu_seqlens_ptr + seqs, mask=seqs < num_seqs, other=0)
        stops = tl.load(cu_seqlens_ptr + seqs + 1, mask=seqs < num_seqs, other=0)
        starts, stops = clip_range(starts, stops, total_seq_len)
        chunks = (stops - starts + CHUNK - 1) // CHUNK
        after = before + tl.cumsum(chunks, axis=0)
        earlier = chunk - after + chunks  # chunks of the same sequence before this one
        is_mine = (earlier >= 0) & (chunk < after)
        first += tl.sum(tl.where(is_mine, starts + earlier * CHUNK, 0), axis=0)
        stop += tl.sum(tl.where(is_mine, stops, 0), axis=0)
        before += tl.sum(chunks, axis=0)
    return first, tl.minimum(first + CHUNK, stop)


@triton.jit
def multiply_pairs(x_high, x_low, y_high, y_low, total, ON_GPU: tl.constexpr):
    """total + x @ y of two tiles that were split; only the product of the low terms is dropped."""
    total = multiply(x_low, y_high, total, ON_GPU)
    total = multiply(x_high, y_low, total, ON_GPU)
    return multiply(x_high, y_high, total, ON_GPU)


@triton.jit
def merge_blocks(inverse, a, index, SIZE: tl.constexpr, ON_GPU: tl.constexpr):
    """Inverses of the diagonal blocks of I + a, from SIZE to 2 SIZE rows: D - D N D.

    N holds the blocks of `a` that lie below the diagonal of a pair, so (D N)^2 = 0.
    """
    row, column = index[:, None] // SIZE, index[None, :] // SIZE
    is_below = (row > column) & (row // 2 == column // 2)
    below_high, below_low = split(tl.where(is_below, a, 0.0))
    high, low = split(inverse)
    step = multiply_pairs(high, low, below_high, below_low, None, ON_GPU)
    step_high, step_low = split(-step)
    return multiply_pairs(step_high, step_low, high, low, inverse, ON_GPU)


@triton.jit
def invert_unit_lower(a, index, ON_GPU: tl.constexpr):
    """(I + a)^-1 of a strictly lower triangular fp32 tile [64, 64].

    The four diagonal 16 x 16 blocks are inverted together in fp32 by elimination, one column after
    the other, which stays accurate where a power series in `a` would cancel (equal keys).
    """
    row = tl.arange(0, 16)[None, :, None]
    column = tl.arange(0, 16)[None, None, :]
    block = tl.arange(0, 4)
    is_diagonal = block[:, None, None, None] == block[None, :, None, None]
    blocks = tl.permute(tl.reshape(a, (4, 16, 4, 16)), (0, 2, 1, 3))
    diagonal = tl.sum(tl.where(is_diagonal, blocks, 0.0), axis=1)
    inverse = tl.where(row == column, 1.0, 0.0) + tl.zeros_like(diagonal)
    for step in range(15):
        factor = tl.sum(tl.where(column == step, diagonal, 0.0), axis=2)
        pivot = tl.sum(tl.where(row == step, inverse, 0.0), axis=1)
        inverse -= factor[:, :, None] * pivot[:, None, :]
    blocks = tl.where(is_diagonal, inverse[:, None, :, :], 0.0)
    inverse = tl.reshape(tl.permute(blocks, (0, 2, 1, 3)), (64, 64))
    inverse = merge_blocks(inverse, a, index, 16, ON_GPU)
    return merge_blocks(inverse, a, index, 32, ON_GPU)


@triton.jit(do_not_specialize=SIZES)
def solve_kernel(
    q_ptr,  # [T, 4, 128] bf16
    k_ptr,  # [T, 4, 128] bf16
    a_log_ptr,  # [8] fp32
    a_ptr,  # [T, 8] bf16
    dt_bias_ptr,  # [8] fp32
    b_ptr,  # [T, 8] bf16
    cu_seqlens_ptr,  # [N + 1] int64
    write_high_ptr,  # [T, 8, 64] bf16, scratch; column j is token j of the chunk
    write_low_ptr,  # [T, 8, 64] bf16, scratch
    read_high_ptr,  # [T, 8, 64] bf16, scratch
    read_low_ptr,  # [T, 8, 64] bf16, scratch
    carry_ptr,  # [T, 8] fp32, scratch: decay from the start of the chunk up to the token
    total_seq_len,
    num_seqs,
    scale,
    V_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # v heads per q/k head
    D: tl.constexpr,  # K and V
    CHUNK: tl.constexpr,
    BLOCK_SEQS: tl.constexpr,
    ON_GPU: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (bound on the number of chunks, V_HEADS)
    if PDL:
        gdc_launch_dependents()  # scan_kernel may start; it waits for our results
    head = tl.program_id(1)
    first, stop = find_chunk(
        cu_seqlens_ptr, tl.program_id(0), total_seq_len, num_seqs, CHUNK, BLOCK_SEQS
    )
    if first >= stop:
        return
    QK_ROW: tl.constexpr = V_HEADS // GROUP * D
    index = tl.arange(0, CHUNK)
    offs_d = tl.arange(0, D)
    count = (stop - first).to(tl.int32)
    is_token = index < count
    k = load_rows(k_ptr + head // GROUP * D, first, count, index, offs_d, QK_ROW)
    q = load_rows(q_ptr + head // GROUP * D, first, count, index, offs_d, QK_ROW)
    slots = first * V_HEADS + head + index * V_HEADS
    a = tl.load(a_ptr + slots, mask=is_token, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + slots, mask=is_token, other=0.0).to(tl.float32)
    beta = tl.where(is_token, write_strength(b), 0.0)
    log_g = log_decay(a, tl.load(dt_bias_ptr + head), tl.load(a_log_ptr + head))
    # exp(-1e4) is 0 as exp(-inf) is, but differences of its sums are numbers.
    log_g = tl.where(log_g < -1e4, -1e4, log_g)
    log_g = tl.where(is_token, log_g, 0.0).to(tl.float64)
    elapsed = tl.cumsum(log_g, axis=0)
    remaining = tl.exp((tl.sum(log_g, axis=0) - elapsed).to(tl.float32))
    gap = (elapsed[:, None] - elapsed[None, :]).to(tl.float32)
    is_past = index[:, None] >= index[None, :]
    fade = tl.exp(tl.where(is_past, gap, float("-inf")))

    k_transposed = tl.trans(k)
    interaction = multiply(k, k_transposed, None, ON_GPU) * fade * beta[:, None]
    interaction = tl.where(index[:, None] > index[None, :], interaction, 0.0)
    solved = invert_unit_lower(interaction, index, ON_GPU) * beta[None, :]

    solved_high, solved_low = split(solved)
    score_high, score_low = split(multiply(q, k_transposed, None, ON_GPU) * fade * scale)
    read = multiply_pairs(score_high, score_low, solved_high, solved_low, None, ON_GPU)
    read_high, read_low = split(read)
    write_high, write_low = split(solved * remaining[:, None])

    tl.store(carry_ptr + slots, tl.exp(elapsed.to(tl.float32)), mask=is_token)
    ROW: tl.constexpr = V_HEADS * CHUNK
    column = head * CHUNK + index
    store_rows(write_high_ptr, first, count, index, column, ROW, write_high)
    store_rows(write_low_ptr, first, count, index, column, ROW, write_low)
    store_rows(read_high_ptr, first, count, index, column, ROW, read_high)
    store_rows(read_low_ptr, first, count, index, column, ROW, read_low)


@triton.jit(do_not_specialize=SIZES)
def scan_kernel(
    q_ptr,  # [T, 4, 128] bf16
    k_ptr,  # [T, 4, 128] bf16
    v_ptr,  # [T, 8, 128] bf16
    state_ptr,  # [N, 8, 128, 128] fp32, k-last, or None: zeros
    cu_seqlens_ptr,  # [N + 1] int64
    write_high_ptr,  # [T, 8, 64] bf16
    write_low_ptr,  # [T, 8, 64] bf16
    read_high_ptr,  # [T, 8, 64] bf16
    read_low_ptr,  # [T, 8, 64] bf16
    carry_ptr,  # [T, 8] fp32
    output_ptr,  # [T, 8, 128] bf16
    new_state_ptr,  # [N, 8, 128, 128] fp32
    total_seq_len,
    num_seqs,
    scale,
    V_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_V: tl.constexpr,
    ON_GPU: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (num_seqs, V_HEADS, D / BLOCK_V)
    seq = tl.program_id(0)
    head = tl.program_id(1)
    index = tl.arange(0, CHUNK)
    offs_d = tl.arange(0, D)
    offs_v = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    offs_state = (seq.to(tl.int64) * V_HEADS + head) * D * D + offs_v[None, :] * D + offs_d[:, None]
    if state_ptr is None:
        state = tl.zeros([D, BLOCK_V], tl.float32)
    else:
        state = tl.load(state_ptr + offs_state)
    start, stop = clip_range(
        tl.load(cu_seqlens_ptr + seq), tl.load(cu_seqlens_ptr + seq + 1), total_seq_len
    )
    state = tl.where(start < stop, state, 0.0)
    if PDL:
        gdc_wait()  # until solve_kernel's results are in memory

    QK_ROW: tl.constexpr = V_HEADS // GROUP * D
    V_ROW: tl.constexpr = V_HEADS * D
    ROW: tl.constexpr = V_HEADS * CHUNK
    offs_qk = head // GROUP * D + offs_d
    offs_out = head * D + offs_v
    column = head * CHUNK + index
    one = head + tl.arange(0, 1)
    last = tl.minimum(start + CHUNK, stop) - 1
    next_carry = tl.load(carry_ptr + last * V_HEADS + head, mask=start < stop, other=0.0)
    for first in range(start, stop, CHUNK):
        count = tl.minimum(stop - first, CHUNK).to(tl.int32)
        k = load_rows(k_ptr, first, count, index, offs_qk, QK_ROW)
        v = load_rows(v_ptr, first, count, index, offs_out, V_ROW).to(tl.float32)
        carry = load_rows(carry_ptr, first, count, index, one, V_HEADS)
        write_high = load_rows(write_high_ptr, first, count, index, column, ROW)
        write_low = load_rows(write_low_ptr, first, count, index, column, ROW)
        q = load_rows(q_ptr, first, count, index, offs_qk, QK_ROW)
        read_high = load_rows(read_high_ptr, first, count, index, column, ROW)
        read_low = load_rows(read_low_ptr, first, count, index, column, ROW)
        # Not pipelined by the compiler: fetched one chunk ahead by hand.
        carry_last = next_carry
        last = tl.minimum(first + 2 * CHUNK, stop) - 1
        next_carry = tl.load(carry_ptr + last * V_HEADS + head)

        state_high, state_low = split(state)
        seen = multiply(k, state_high, multiply(k, state_low, None, ON_GPU), ON_GPU)
        r_high, r_low = split(v - carry * seen)
        u_high, u_low = split(multiply_pairs(write_high, write_low, r_high, r_low, None, ON_GPU))
        state = multiply(tl.trans(k), u_low, state * carry_last, ON_GPU)
        state = multiply(tl.trans(k), u_high, state, ON_GPU)

        out = multiply(q, state_high, multiply(q, state_low, None, ON_GPU), ON_GPU) * (
            scale * carry
        )
        out = multiply_pairs(read_high, read_low, r_high, r_low, out, ON_GPU)
        store_rows(output_ptr, first, count, index, offs_out, V_ROW, out)
    tl.store(new_state_ptr + offs_state, state)

    if seq == 0:
        clear_rows(output_ptr, 0, start, offs_out, V_ROW, CHUNK)
    if seq == num_seqs - 1:
        clear_rows(output_ptr, stop, total_seq_len, offs_out, V_ROW, CHUNK)


@triton.jit
def pick(tile, index, step):
    """Row `step` of a tile as fp32."""
    return tl.sum(tl.where(index[:, None] == step, tile.to(tl.float32), 0.0), axis=0)


@triton.jit(do_not_specialize=SIZES)
def token_kernel(
    q_ptr,  # [T, 4, 128] bf16
    k_ptr,  # [T, 4, 128] bf16
    v_ptr,  # [T, 8, 128] bf16
    state_ptr,  # [N, 8, 128, 128] fp32, k-last, or None: zeros
    a_log_ptr,  # [8] fp32
    a_ptr,  # [T, 8] bf16
    dt_bias_ptr,  # [8] fp32
    b_ptr,  # [T, 8] bf16
    cu_seqlens_ptr,  # [N + 1] int64
    output_ptr,  # [T, 8, 128] bf16
    new_state_ptr,  # [N, 8, 128, 128] fp32
    total_seq_len,
    num_seqs,
    scale,
    V_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    # Grid: (num_seqs, V_HEADS, D / BLOCK_V)
    seq = tl.program_id(0)
    head = tl.program_id(1)
    index = tl.arange(0, BLOCK_T)
    offs_k = tl.arange(0, D)
    offs_v = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    offs_state = (seq.to(tl.int64) * V_HEADS + head) * D * D + offs_v[:, None] * D + offs_k[None, :]
    if state_ptr is None:
        state = tl.zeros([BLOCK_V, D], tl.float32)
    else:
        state = tl.load(state_ptr + offs_state)
    dt_bias = tl.load(dt_bias_ptr + head)
    a_log = tl.load(a_log_ptr + head)
    start, stop = clip_range(
        tl.load(cu_seqlens_ptr + seq), tl.load(cu_seqlens_ptr + seq + 1), total_seq_len
    )
    state = tl.where(start < stop, state, 0.0)

    QK_ROW: tl.constexpr = V_HEADS // GROUP * D
    V_ROW: tl.constexpr = V_HEADS * D
    offs_qk = head // GROUP * D + offs_k
    offs_out = head * D + offs_v
    one = head + tl.arange(0, 1)

    # BLOCK_T tokens in one round trip to memory, and the next ones while these are worked on.
    count = stop - start
    next_q = load_rows(q_ptr, start, count, index, offs_qk, QK_ROW)
    next_k = load_rows(k_ptr, start, count, index, offs_qk, QK_ROW)
    next_v = load_rows(v_ptr, start, count, index, offs_out, V_ROW)
    next_a = load_rows(a_ptr, start, count, index, one, V_HEADS)
    next_b = load_rows(b_ptr, start, count, index, one, V_HEADS)
    for first in range(start, stop, BLOCK_T):
        q_tile, k_tile, v_tile = next_q, next_k, next_v
        g_tile = decay(next_a.to(tl.float32), dt_bias, a_log)
        beta_tile = write_strength(next_b.to(tl.float32))
        following = first + BLOCK_T
        count = stop - following
        next_q = load_rows(q_ptr, following, count, index, offs_qk, QK_ROW)
        next_k = load_rows(k_ptr, following, count, index, offs_qk, QK_ROW)
        next_v = load_rows(v_ptr, following, count, index, offs_out, V_ROW)
        next_a = load_rows(a_ptr, following, count, index, one, V_HEADS)
        next_b = load_rows(b_ptr, following, count, index, one, V_HEADS)
        for step in tl.static_range(BLOCK_T):
            if first + step < stop:
                q = pick(q_tile, index, step)
                k = pick(k_tile, index, step)
                v = pick(v_tile, index, step)
                state *= pick(g_tile, index, step)[None, :]
                delta = pick(beta_tile, index, step) * (v - tl.sum(state * k[None, :], axis=1))
                out = tl.sum(state * q[None, :], axis=1) + tl.sum(q * k, axis=0) * delta
                state += delta[:, None] * k[None, :]
                out_ptrs = output_ptr + (first + step) * V_ROW + offs_out
                tl.store(out_ptrs, (out * scale).to(output_ptr.dtype.element_ty))
    tl.store(new_state_ptr + offs_state, state)

    if seq == 0:
        clear_rows(output_ptr, 0, start, offs_out, V_ROW, BLOCK_T)
    if seq == num_seqs - 1:
        clear_rows(output_ptr, stop, total_seq_len, offs_out, V_ROW, BLOCK_T)


# Up to this many tokens in all, the one launch of token_kernel: its chain is the longest sequence,
# 0.3 us a token, where the two launches of the chunked form took 35 to 40 us at 81 to 92 tokens
# (results/latest/nvidia-h200/gdn_prefill.json).
TOKEN_LIMIT = 80
# One warp a CTA: q and k load in the layout of the state, and no sum leaves the warp.
TOKEN_LAUNCH = {"BLOCK_V": 4, "BLOCK_T": 8, "num_warps": 1}
SOLVE_LAUNCH = {"num_warps": 4}
# (most sequences, launch of scan_kernel). A CTA walks alone along its sequence, and every block of
# V reads all of q, k, read and write: V is cut as finely as it takes to occupy the SMs.
#   N <= 3    64 CTAs a sequence; three stages, so that a chunk arrives while the one before is
#             worked on: 213 KiB, one CTA an SM
#   N <= 15   32 CTAs a sequence, two stages, 164 KiB
#   larger    16 CTAs a sequence, 112 KiB: two an SM hide each other's loads
# Blocks of 16 or 32 with one stage give wrong results on an H200: the assembler of Triton 3.6 forms
# some wgmma descriptors from a wrong register (docs/kernels/gdn_prefill.md, "Launch rows that the
# assembler breaks"). Check any new row on the device against the reference.
SCAN_LAUNCHES = (
    (3, {"BLOCK_V": 16, "num_warps": 4, "num_stages": 3}),
    (15, {"BLOCK_V": 32, "num_warps": 4, "num_stages": 2}),
    (math.inf, {"BLOCK_V": 64, "num_warps": 4, "num_stages": 1}),
)
# The interpreter's cost is per CTA and per token, not per element.
INTERPRETER_BLOCK_V = HEAD_SIZE
INTERPRETER_TOKEN_LIMIT = 32


# Native: the recurrence in one launch takes up to so many tokens, and so many more with every
# sequence. On an H200 (not recorded), recurrence and chunks in us: 96 tokens of one sequence 14.3,
# 15.2; 134 of one 19.6, 15.7; 134 of 16 27.5, 21.2; 216 of 16 33.5, 21.1. A few short sequences are
# left to it all the same: it is fp32 throughout; equal keys of norm 2 overflow the chunks' fp16.
WALK_TOKENS, WALK_TOKENS_A_SEQUENCE, MOST_WALK_TOKENS = 88, 8, 152
# (most sequences, shares). Two CTAs a v head take every sequence of a few; of more, those of more
# than 1 / shares of all chunks, which would end last: halves load more. Beyond 384 none.
SHARES = ((8, math.inf), (384, 8), (math.inf, 0))
NATIVE_CAPABILITY = (9, 0)  # wgmma exists there alone


def choose(
    total_seq_len,
    num_seqs,
    *,
    capability=None,
    can_build=False,
    is_aligned=True,
    interpreted=False,
):
    """Route, "native" or "portable", and its launches. The host knows shapes, not lengths.

    capability: compute capability of the tensors' device, None without one.
    can_build: whether the native route is there and this machine can compile it.
    is_aligned: whether all tensors begin on 16-byte boundaries.
    Native: most_whole, as run_native() takes it. Portable: {"token": options} or {"solve": options,
    "scan": options}.
    """
    if can_build and is_aligned and capability == NATIVE_CAPABILITY and not interpreted:
        short = min(WALK_TOKENS + WALK_TOKENS_A_SEQUENCE * num_seqs, MOST_WALK_TOKENS)
        if total_seq_len <= short:
            return "native", {"most_whole": None}
        shares = next(count for limit, count in SHARES if num_seqs <= limit)
        chunks = bound_chunks(total_seq_len, num_seqs)
        return "native", {"most_whole": int(chunks / shares) if shares else chunks}
    if total_seq_len <= (INTERPRETER_TOKEN_LIMIT if interpreted else TOKEN_LIMIT):
        launches = {"token": TOKEN_LAUNCH}
    else:
        scan = next(launch for limit, launch in SCAN_LAUNCHES if num_seqs <= limit)
        launches = {"solve": SOLVE_LAUNCH, "scan": scan}
    if interpreted:
        walk = "token" if "token" in launches else "scan"
        launches[walk] = launches[walk] | {"BLOCK_V": INTERPRETER_BLOCK_V}
    return "portable", launches


def bound_chunks(total_seq_len, num_seqs):
    """Most chunks that num_seqs sequences of total_seq_len tokens can have, each rounded up."""
    non_empty = min(total_seq_len, num_seqs)
    return (total_seq_len + non_empty * (CHUNK - 1)) // CHUNK


def check(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    """Refuse what the definition does not allow. Metadata only. Returns (tokens, sequences)."""
    require(q, "q", (None, NUM_QK_HEADS, HEAD_SIZE), torch.bfloat16)
    require(cu_seqlens, "cu_seqlens", (None,), torch.int64, like=q)
    if cu_seqlens.shape[0] == 0:
        raise ValueError("cu_seqlens: expected shape [num_seqs + 1], got [0]; pass at least [0]")
    total_seq_len, num_seqs = q.shape[0], cu_seqlens.shape[0] - 1
    per_head = (total_seq_len, NUM_V_HEADS)
    states = (num_seqs, NUM_V_HEADS, HEAD_SIZE, HEAD_SIZE)
    require(k, "k", (total_seq_len, NUM_QK_HEADS, HEAD_SIZE), torch.bfloat16, like=q)
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
    inputs.update({"A_log": A_log, "dt_bias": dt_bias, "cu_seqlens": cu_seqlens})
    for name, tensor in inputs.items():
        require_disjoint(output, "output", tensor, name)
        require_disjoint(new_state, "new_state", tensor, name)
    return total_seq_len, num_seqs


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    """Gated delta rule over a batch of sequences; writes output and new_state, reads the rest.

    q, k [T,4,128], v [T,8,128], a, b [T,8] bf16; A_log, dt_bias [8] fp32; state [N,8,128,128]
    fp32, k-last, or None for zeros; cu_seqlens [N+1] int64, ascending, read on the device only;
    scale a number, None or 0 for 1/sqrt(128); output [T,8,128] bf16; new_state like state, with
    memory of its own. All contiguous. A sequence without tokens gets a zero state, a token without
    a sequence a zero output. Raises TypeError or ValueError naming the argument.
    """
    total_seq_len, num_seqs = check(
        q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state
    )
    if num_seqs == 0:
        output.zero_()
        return
    scale = float(scale) if scale else HEAD_SIZE**-0.5
    gates = (A_log, a, dt_bias, b, cu_seqlens)
    tensors = [x for x in (q, k, v, state, *gates, output, new_state) if x is not None]
    capability = torch.cuda.get_device_capability(q.device) if q.is_cuda else None
    known = {"capability": capability, "interpreted": is_interpreted(scan_kernel)}
    known["is_aligned"] = all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    is_buildable = run_native is not None and can_build(capability)
    route, launches = choose(total_seq_len, num_seqs, can_build=is_buildable, **known)
    arguments = (q, k, v, state, *gates, scale, output, new_state)
    if route == "native":
        run_native(*arguments, **launches)
    else:
        _run_portable(*arguments, launches)


def _run_portable(
    q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state, launches
):
    total_seq_len, num_seqs = q.shape[0], cu_seqlens.shape[0] - 1
    on_gpu = not is_interpreted(scan_kernel)
    gates = (A_log, a, dt_bias, b, cu_seqlens)
    sizes = (total_seq_len, num_seqs, scale)
    shape = {"V_HEADS": NUM_V_HEADS, "GROUP": NUM_V_HEADS // NUM_QK_HEADS, "D": HEAD_SIZE}
    with torch.cuda.device_of(q):
        if "token" in launches:
            grid = (num_seqs, NUM_V_HEADS, HEAD_SIZE // launches["token"]["BLOCK_V"])
            arguments = (q, k, v, state, *gates, output, new_state, *sizes)
            token_kernel[grid](*arguments, **shape, **launches["token"])
            return
        shape |= {"CHUNK": CHUNK, "ON_GPU": on_gpu}
        shape["PDL"] = has_programmatic_launch(q, scan_kernel)
        scratch = q.new_empty((4, total_seq_len, NUM_V_HEADS, CHUNK))
        carry = A_log.new_empty((total_seq_len, NUM_V_HEADS))
        grid = (bound_chunks(total_seq_len, num_seqs), NUM_V_HEADS)
        arguments = (q, k, *gates, *scratch, carry, *sizes)
        options = {"BLOCK_SEQS": BLOCK_SEQS, **launches["solve"]}
        solve = prepare(solve_kernel, grid, *arguments, **shape, **options)
        grid = (num_seqs, NUM_V_HEADS, HEAD_SIZE // launches["scan"]["BLOCK_V"])
        arguments = (q, k, v, state, cu_seqlens, *scratch, carry, output, new_state, *sizes)
        options = {"launch_pdl": True} if shape["PDL"] else {}
        scan = prepare(scan_kernel, grid, *arguments, **shape, **options, **launches["scan"])
        solve()
        scan()
