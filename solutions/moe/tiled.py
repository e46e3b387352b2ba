"""Grouped GEMMs for many tokens, bound by the tensor cores.

    gate_up:  C[r, 0:2048]  = silu(X W1[e, 2048:4096]^T) * (X W1[e, 0:2048]^T)    stored as e4m3
    down:     O[r, 0:7168]  = C W2[e]^T                                            stored as bf16

Roof: FP8 tensor cores (88 MFLOP per packed row); next to it the traffic from L2, which grows with
1/BLOCK_ROWS + 1/256. So each program computes two 128-wide column blocks for the same rows: the up
and the gate block that SwiGLU joins in registers, or two neighbouring blocks of O. The two
accumulators and one product in flight fit in the registers of two warpgroups, a single 256-wide
product would not; while one warpgroup adds its scaled product, the other one's product runs.

Grid: persistent programs over (row tile, column block pair), GROUP row tiles at a time, so that a
wave of programs reads few weights and few rows: all of it is in L2 after the first touch.

Numerics: products over one 128-block of k at a time on the FP8 tensor cores, scaled in fp32 and
added to fp32 accumulators. C is rounded to e4m3 with a scale per row and 128 columns.
"""

import triton
import triton.language as tl

from .activation import join_scales, round_to_e4m3, scale_rows, swiglu
from .dependent_launch import enter_chain
from .routing import NUM_LOCAL_EXPERTS, locate_row_tile, num_row_tiles

BLOCK = tl.constexpr(128)  # k and column blocks: those of the scales


@triton.jit
def locate_unit(unit, num_tiles, NUM_PAIRS: tl.constexpr, GROUP: tl.constexpr):
    """(row tile, column pair) of a unit: groups of GROUP row tiles, row tile innermost in each."""
    unit = tl.cast(unit, tl.int32)  # the interpreter counts loops in Python's integers
    group = unit // (GROUP * NUM_PAIRS)
    within = unit % (GROUP * NUM_PAIRS)
    size = tl.minimum(num_tiles - group * GROUP, GROUP)
    return group * GROUP + within % size, within // size


@triton.jit
def multiply_pair(
    x_tile,  # pointers [R, 128] to the first k block of the rows
    x_scale_ptr,  # [K/128, x_scale_stride] fp32
    x_scale_columns,  # [R] int32
    x_scale_stride,
    w_rows_ptr,  # to the first of two blocks of 128 weight rows [128, K]
    w_scales,  # to its scales [K/128]
    K: tl.constexpr,
    DISTANCE: tl.constexpr,  # from the first block of weight rows to the second, in blocks
    STAGES: tl.constexpr,
):
    """Two dequantised products [R,128] fp32 of the same rows with two blocks of weight rows."""
    K_BLOCKS: tl.constexpr = K // BLOCK
    SECOND: tl.constexpr = DISTANCE * BLOCK * K
    SECOND_SCALE: tl.constexpr = DISTANCE * K_BLOCKS
    ROWS: tl.constexpr = x_tile.shape[0]
    first = tl.zeros([ROWS, BLOCK], tl.float32)
    second = tl.zeros([ROWS, BLOCK], tl.float32)
    # Scales are fetched one iteration ahead: only the tiles pass through the pipeline.
    w_tile = w_rows_ptr + (tl.arange(0, BLOCK)[:, None] * K + tl.arange(0, BLOCK)[None, :])
    x_scale = tl.load(x_scale_ptr + x_scale_columns)
    first_scale, second_scale = tl.load(w_scales), tl.load(w_scales + SECOND_SCALE)
    for block in tl.range(0, K_BLOCKS, num_stages=STAGES):
        x = tl.load(x_tile + block * BLOCK)
        first_w = tl.load(w_tile + block * BLOCK)
        second_w = tl.load(w_tile + (SECOND + block * BLOCK))
        ahead = tl.minimum(block + 1, K_BLOCKS - 1)
        next_x_scale = tl.load(x_scale_ptr + (ahead * x_scale_stride + x_scale_columns))
        next_first_scale = tl.load(w_scales + ahead)
        next_second_scale = tl.load(w_scales + SECOND_SCALE + ahead)
        first += tl.dot(x, first_w.T) * join_scales(x_scale, first_scale)[:, None]
        second += tl.dot(x, second_w.T) * join_scales(x_scale, second_scale)[:, None]
        x_scale, first_scale, second_scale = next_x_scale, next_first_scale, next_second_scale
    return first, second


@triton.jit(do_not_specialize=["num_tokens", "capacity"])
def gate_up_kernel(
    x_ptr,  # [T, K] e4m3
    x_scale_ptr,  # [K/128, T] fp32
    row_token_ptr,  # [capacity] int32
    counts_ptr,  # [32] int32
    w_ptr,  # [32, 2 * WIDTH, K] e4m3: up rows, then gate rows
    w_scale_ptr,  # [32, 2 * WIDTH / 128, K/128] fp32
    c_ptr,  # [capacity, WIDTH] e4m3, out
    c_scale_ptr,  # [WIDTH/128, capacity] fp32, out
    num_tokens,
    capacity,
    WIDTH: tl.constexpr,
    K: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (programs,), any number
    enter_chain(PDL)
    NUM_PAIRS: tl.constexpr = WIDTH // BLOCK
    counts = tl.load(counts_ptr + tl.arange(0, NUM_LOCAL_EXPERTS))
    num_tiles = num_row_tiles(counts, BLOCK_ROWS)
    offs_k = tl.arange(0, BLOCK)
    offs_row = tl.arange(0, BLOCK_ROWS)
    for unit in range(tl.program_id(0), num_tiles * NUM_PAIRS, tl.num_programs(0)):
        tile, pair = locate_unit(unit, num_tiles, NUM_PAIRS, GROUP)
        expert, first_row, num_rows = locate_row_tile(tile, counts, BLOCK_ROWS)
        # Rows past the tile's last one repeat it: valid loads, results not stored.
        tokens = tl.load(row_token_ptr + first_row + tl.minimum(offs_row, num_rows - 1))
        up, gate = multiply_pair(
            x_ptr + tokens.to(tl.int64)[:, None] * K + offs_k[None, :],
            x_scale_ptr,
            tokens,
            num_tokens,
            w_ptr + (expert.to(tl.int64) * (2 * WIDTH) + pair * BLOCK) * K,
            w_scale_ptr + (expert * (2 * NUM_PAIRS) + pair) * (K // BLOCK),
            K,
            NUM_PAIRS,
            STAGES,
        )
        scaled, scale = scale_rows(swiglu(up, gate))
        is_row = offs_row < num_rows
        rows = first_row.to(tl.int64) + offs_row
        columns = pair * BLOCK + tl.arange(0, BLOCK)
        c = round_to_e4m3(scaled).to(c_ptr.dtype.element_ty)
        tl.store(c_ptr + rows[:, None] * WIDTH + columns[None, :], c, mask=is_row[:, None])
        tl.store(c_scale_ptr + pair.to(tl.int64) * capacity + rows, scale, mask=is_row)


@triton.jit(do_not_specialize=["capacity"])
def down_kernel(
    c_ptr,  # [capacity, K] e4m3
    c_scale_ptr,  # [K/128, capacity] fp32
    counts_ptr,  # [32] int32
    w_ptr,  # [32, N, K] e4m3
    w_scale_ptr,  # [32, N/128, K/128] fp32
    out_ptr,  # [capacity, N] bf16, out
    capacity,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (programs,), any number
    enter_chain(PDL)
    NUM_PAIRS: tl.constexpr = N // (2 * BLOCK)
    counts = tl.load(counts_ptr + tl.arange(0, NUM_LOCAL_EXPERTS))
    num_tiles = num_row_tiles(counts, BLOCK_ROWS)
    offs_k = tl.arange(0, BLOCK)
    offs_row = tl.arange(0, BLOCK_ROWS)
    for unit in range(tl.program_id(0), num_tiles * NUM_PAIRS, tl.num_programs(0)):
        tile, pair = locate_unit(unit, num_tiles, NUM_PAIRS, GROUP)
        expert, first_row, num_rows = locate_row_tile(tile, counts, BLOCK_ROWS)
        rows = first_row.to(tl.int64) + offs_row
        valid_rows = tl.minimum(offs_row, num_rows - 1)
        left, right = multiply_pair(
            c_ptr + first_row.to(tl.int64) * K + (valid_rows[:, None] * K + offs_k[None, :]),
            c_scale_ptr + first_row,
            valid_rows,
            capacity,
            w_ptr + (expert.to(tl.int64) * N + pair * (2 * BLOCK)) * K,
            w_scale_ptr + (expert * (N // BLOCK) + pair * 2) * (K // BLOCK),
            K,
            1,
            STAGES,
        )
        columns = pair * (2 * BLOCK) + tl.arange(0, BLOCK)
        out = out_ptr + rows[:, None] * N + columns[None, :]
        mask = (offs_row < num_rows)[:, None]
        tl.store(out, left.to(out_ptr.dtype.element_ty), mask=mask)
        tl.store(out + BLOCK, right.to(out_ptr.dtype.element_ty), mask=mask)
