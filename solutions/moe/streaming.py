"""Grouped GEMMs for few tokens: every hit expert's weights stream through once.

    partial[s, r, n] = sum over the k of split s of  W[e(r), n, k] x[r, k]    (W and x dequantised)

Roof: DRAM. 44 MB of weights per hit expert against at most a few dozen tokens each. So the
weights are the tall operand of the tensor core (64 rows or more) and the tokens the narrow one
(16 columns or more): a padded token column costs no bytes.

Grid: persistent programs over units (n tile, split of K, row tile), row tile innermost: programs
that share weights run at the same time and share them in L2. Units are cut small enough (split K)
that the last round of programs is short. One program streams BLOCK_N x 128 weights an iteration,
STAGES deep.

Numerics: FP8 tensor-core products of one 128-block of k at a time, each scaled in fp32 and added
to an fp32 accumulator. The operand of the second GEMM carries a residual plane (activation.py),
which costs tensor-core time only, of which there is plenty here.
"""

import triton
import triton.language as tl

from .activation import join_scales, round_to_e4m3, scale_rows, swiglu
from .dependent_launch import enter_chain
from .routing import NUM_LOCAL_EXPERTS, locate_row_tile, num_row_tiles

SCALE_BLOCK = tl.constexpr(128)


@triton.jit(do_not_specialize=["num_x_rows", "capacity"])
def stream_kernel(
    x_ptr,  # [num_x_rows, K] e4m3; with residual [2, num_x_rows, K]
    x_scale_ptr,  # [K/128, num_x_rows] fp32
    row_x_ptr,  # [capacity] int32: row of x of each packed row; None: the same
    counts_ptr,  # [32] int32: packed rows per local expert
    w_ptr,  # [32, N, K] e4m3
    w_scale_ptr,  # [32, N/128, K/128] fp32
    partial_ptr,  # [SPLITS, capacity, N] fp32, out
    num_x_rows,
    capacity,
    N: tl.constexpr,
    K: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (programs,), any number
    enter_chain(PDL)
    K_BLOCKS: tl.constexpr = K // SCALE_BLOCK
    UNIT_BLOCKS: tl.constexpr = K_BLOCKS // SPLITS
    counts = tl.load(counts_ptr + tl.arange(0, NUM_LOCAL_EXPERTS))
    num_tiles = num_row_tiles(counts, BLOCK_ROWS)
    offs_k = tl.arange(0, SCALE_BLOCK)
    columns = tl.arange(0, BLOCK_ROWS)
    residual_offset = tl.cast(num_x_rows, tl.int64) * K
    for unit in range(tl.program_id(0), num_tiles * SPLITS * (N // BLOCK_N), tl.num_programs(0)):
        expert, first_row, num_rows = locate_row_tile(unit % num_tiles, counts, BLOCK_ROWS)
        split = unit // num_tiles % SPLITS
        block_n = unit // num_tiles // SPLITS

        # Columns past the tile's last row repeat it: valid loads, results not stored.
        rows = first_row + tl.minimum(columns, num_rows - 1)
        x_rows = rows if row_x_ptr is None else tl.load(row_x_ptr + rows)
        first_k = split * UNIT_BLOCKS
        w_rows = expert.to(tl.int64) * N + block_n * BLOCK_N
        w_tile = w_ptr + (w_rows * K + first_k * SCALE_BLOCK)
        w_tile += tl.arange(0, BLOCK_N)[:, None] * K + offs_k[None, :]
        x_tile = x_ptr + first_k * SCALE_BLOCK + x_rows.to(tl.int64)[:, None] * K + offs_k[None, :]
        w_scales = w_scale_ptr + w_rows // SCALE_BLOCK * K_BLOCKS + first_k
        if BLOCK_N > SCALE_BLOCK:  # else one scale holds for all weight rows of the tile
            w_scales += (tl.arange(0, BLOCK_N) // SCALE_BLOCK * K_BLOCKS)[:, None]
        x_scales = x_scale_ptr + first_k * num_x_rows

        acc = tl.zeros([BLOCK_N, BLOCK_ROWS], tl.float32)
        # Scales are fetched one iteration ahead: only the tiles pass through the pipeline.
        w_scale, x_scale = tl.load(w_scales), tl.load(x_scales + x_rows)
        for block in tl.range(0, UNIT_BLOCKS, num_stages=STAGES):
            w = tl.load(w_tile + block * SCALE_BLOCK)
            x = tl.load(x_tile + block * SCALE_BLOCK)
            ahead = tl.minimum(block + 1, UNIT_BLOCKS - 1)
            next_w_scale = tl.load(w_scales + ahead)
            next_x_scale = tl.load(x_scales + (ahead * num_x_rows + x_rows))
            product = tl.dot(w, x.T)
            if HAS_RESIDUAL:
                residual = tl.load(x_tile + residual_offset + block * SCALE_BLOCK)
                product = tl.dot(w, residual.T, product)
            acc += product * join_scales(x_scale[None, :], w_scale)
            w_scale, x_scale = next_w_scale, next_x_scale

        out_rows = split.to(tl.int64) * capacity + first_row + columns
        out_n = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
        tl.store(
            partial_ptr + out_rows[None, :] * N + out_n[:, None],
            acc,
            mask=(columns < num_rows)[None, :],
        )


@triton.jit(do_not_specialize=["capacity"])
def activate_kernel(
    partial_ptr,  # [SPLITS, capacity, 2 * WIDTH] fp32: up columns, then gate columns
    counts_ptr,  # [32] int32
    c_ptr,  # [2, capacity, WIDTH] e4m3, out: values and residuals
    c_scale_ptr,  # [WIDTH/128, capacity] fp32, out
    capacity,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (cdiv(capacity, BLOCK_ROWS), WIDTH / 128); most programs find no rows
    enter_chain(PDL)
    num_rows = tl.sum(tl.load(counts_ptr + tl.arange(0, NUM_LOCAL_EXPERTS)), axis=0)
    first_row = tl.program_id(0) * BLOCK_ROWS
    block = tl.program_id(1)
    if first_row < num_rows:
        rows = first_row + tl.arange(0, BLOCK_ROWS)
        mask = (rows < num_rows)[:, None]
        columns = block * SCALE_BLOCK + tl.arange(0, SCALE_BLOCK)
        up = tl.zeros([BLOCK_ROWS, SCALE_BLOCK], tl.float32)
        gate = tl.zeros([BLOCK_ROWS, SCALE_BLOCK], tl.float32)
        for split in tl.static_range(SPLITS):
            split_rows = rows.to(tl.int64) + split * capacity
            tile = partial_ptr + split_rows[:, None] * (2 * WIDTH) + columns[None, :]
            up += tl.load(tile, mask=mask, other=0.0)
            gate += tl.load(tile + WIDTH, mask=mask, other=0.0)
        scaled, scale = scale_rows(swiglu(up, gate))
        rounded = round_to_e4m3(scaled)
        residual = round_to_e4m3(scaled - rounded)
        c_tile = c_ptr + rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        residual_tile = c_tile + tl.cast(capacity, tl.int64) * WIDTH
        tl.store(c_tile, rounded.to(c_ptr.dtype.element_ty), mask=mask)
        tl.store(residual_tile, residual.to(c_ptr.dtype.element_ty), mask=mask)
        tl.store(c_scale_ptr + block.to(tl.int64) * capacity + rows, scale, mask=rows < num_rows)
