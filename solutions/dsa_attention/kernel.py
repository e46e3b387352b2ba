"""Sparse MLA attention over gathered cache rows (definition dsa_sparse_attention_h16_ckv512_...).

Per token, with n valid entries of its 2048 sparse indices, 16 heads, q = [q_nope | q_pe] [16, 576]
and the gathered rows K = [ckv | kpe] [n, 576]:

    s      = sm_scale (q_nope ckv^T + q_pe kpe^T)     [16, n]
    lse    = log2 sum_j exp(s_j)                       [16]        base 2; -inf if n = 0
    output = softmax(s) ckv                            [16, 512]   0 if n = 0

Grid of attend_kernel: one CTA per (token, split); a split is SPLIT consecutive index slots, walked
in tiles of BLOCK_N. Most tokens hold a few dozen valid entries at the front of their row, so most
splits are empty and leave after one look at the indices. A split that is alone in its token writes
the result; the others write (max, sum, accumulator) of their slots, and merge_kernel, launched
right behind with programmatic dependent launch, combines the splits that are not empty.
Grid of merge_kernel: one warp-sized CTA per (token, head, block of columns).

Bytes: 1152 per valid entry, read once for keys and values; flops: 34 816 per valid entry, 30 a
byte: DRAM is the roof for thousands of tokens; below, the chain index -> rows -> merge is.

Idea: 16 heads are exactly one M of the tensor core instruction. The 512 columns go in 4 chunks, so
that q k^T is 4 short independent chains of products instead of one long one, and each chunk of the
gathered tile serves as key and as value.

Numerics: bf16 operands, fp32 accumulators; p is rounded to bf16 for p V; exp2 with the scale folded
in. Only -1 is padding; an index outside the cache is not read and counts as padding too. See
docs/kernels/dsa_attention.md.
"""

import math
import numbers

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .arguments import require, require_disjoint

NUM_HEADS = 16
DIM_CKV = 512
DIM_KPE = 64
PAGE_SIZE = 64
TOPK = 2048
LOG2_E = math.log2(math.e)
MERGE_COLUMNS = 128


@triton.jit
def load_rows(cache_ptr, rows, valid, WIDTH: tl.constexpr, OPERAND: tl.constexpr):
    """Rows of a cache [*, WIDTH]; those not valid are 0 and not read."""
    offs = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(cache_ptr + offs, mask=valid[:, None], other=0.0).to(OPERAND)


@triton.jit
def attend_kernel(
    q_nope_ptr,  # [T, 16, 512] bf16
    q_pe_ptr,  # [T, 16, 64] bf16
    ckv_ptr,  # [num_rows, 512] bf16
    kpe_ptr,  # [num_rows, 64] bf16
    indices_ptr,  # [T, 2048] int32
    output_ptr,  # [T, 16, 512] bf16
    lse_ptr,  # [T, 16] fp32
    max_ptr,  # [T, 2048 / SPLIT, 16] fp32: maximum of each split, only of splits not alone
    sum_ptr,  # like max_ptr
    acc_ptr,  # [T, 2048 / SPLIT, 16, 512] fp32
    scale,  # sm_scale * log2(e)
    num_rows,
    H: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    SLOTS: tl.constexpr,  # 2048
    SPLIT: tl.constexpr,  # slots of a CTA
    BLOCK_N: tl.constexpr,  # slots of a tile
    STAGES: tl.constexpr,  # tiles in flight where a CTA has several
    OPERAND: tl.constexpr,  # dtype of the products: bf16, or fp32 in the interpreter
    PDL: tl.constexpr,
):
    # Grid: (T * SLOTS / SPLIT,)
    SPLITS: tl.constexpr = SLOTS // SPLIT
    token = tl.program_id(0).to(tl.int64) // SPLITS
    split = tl.program_id(0) % SPLITS
    if PDL:
        gdc_launch_dependents()

    first = split * SPLIT
    slot = tl.arange(0, SLOTS)
    everything = tl.load(indices_ptr + token * SLOTS + slot)
    is_valid = (everything >= 0) & (everything < num_rows)
    is_mine = slot // SPLIT == split
    stop = tl.max(tl.where(is_valid & is_mine, slot + 1, 0))  # behind my last valid slot

    if stop > 0:
        heads = tl.arange(0, H)
        offs_c = tl.arange(0, C)
        q = tl.load(q_nope_ptr + (token * H + heads[:, None]) * C + offs_c[None, :]).to(OPERAND)
        q_pe = tl.load(q_pe_ptr + (token * H + heads[:, None]) * R + tl.arange(0, R)[None, :]).to(OPERAND)
        m = tl.full([H], float("-inf"), tl.float32)
        l = tl.zeros([H], tl.float32)
        acc = tl.zeros([C, H], tl.float32)
        for start in tl.range(first, stop, BLOCK_N, num_stages=STAGES):
            rows = tl.load(indices_ptr + token * SLOTS + start + tl.arange(0, BLOCK_N))
            valid = (rows >= 0) & (rows < num_rows)
            rows = rows.to(tl.int64)
            k = load_rows(ckv_ptr, rows, valid, C, OPERAND)
            k_pe = load_rows(kpe_ptr, rows, valid, R, OPERAND)
            s = tl.dot(k, tl.trans(q))
            s = tl.dot(k_pe, tl.trans(q_pe), s) * scale
            s = tl.where(valid[:, None], s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, axis=0))
            anchor = tl.where(m_new == float("-inf"), 0.0, m_new)
            p = tl.exp2(s - anchor[None, :])
            fade = tl.exp2(m - anchor)
            m = m_new
            l = l * fade + tl.sum(p, axis=0)
            acc = tl.dot(tl.trans(k), p.to(OPERAND), acc * fade[None, :])

        others = tl.max(tl.where(is_valid & (is_mine == 0), 1, 0))
        offs_out = heads[None, :] * C + offs_c[:, None]
        if others == 0:
            tl.store(output_ptr + token * H * C + offs_out, (acc / l[None, :]).to(output_ptr.dtype.element_ty))
            tl.store(lse_ptr + token * H + heads, m + tl.log2(l))
        else:
            part = token * SPLITS + split
            tl.store(max_ptr + part * H + heads, m)
            tl.store(sum_ptr + part * H + heads, l)
            tl.store(acc_ptr + part * H * C + offs_out, acc)
