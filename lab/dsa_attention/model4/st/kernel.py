"""Sparse MLA attention over gathered cache rows.

Definition dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64. Per token, with n valid entries
among its 2048 sparse indices, 16 heads, q = [q_nope | q_pe] [16, 576] and the gathered rows
K = [ckv | kpe] [n, 576]:

    s      = sm_scale (q_nope ckv^T + q_pe kpe^T)      [16, n]
    lse    = log2 sum_j exp(s_j)                        [16]       base 2; -inf if n = 0
    output = softmax(s) ckv                             [16, 512]  0 if n = 0

Grid of attend_kernel: one CTA per (token, split); a split is SPLIT consecutive index slots. Most
tokens hold a few dozen valid entries at the front of their row, so most CTAs find nothing among
their slots and leave. A split that is alone in its token writes the result; otherwise each writes
the maximum, sum and accumulator of its slots, and merge_kernel, launched right behind with
programmatic dependent launch, combines the splits that are used, and reads no other.
Grid of merge_kernel: one warp-sized CTA per (token, head, block of columns).

Bytes: 1152 per valid entry, read once, keys and values alike; flops: 34 816 per valid entry, 30 a
byte. DRAM is the roof for thousands of tokens; for a few, the chain indices -> rows -> merge.

Idea: transposed products, s^T = K q^T and output^T = ckv^T p^T. The gathered tile is the wide
operand of both and lies in shared memory once, and the 16 heads are the narrow side, where an
instruction may be 16 wide.

Numerics: bf16 operands, fp32 accumulators; p is rounded to bf16 for the second product, its sum is
not; exp2 with the scale folded in. Only -1 is padding, but any index outside the cache is treated
as padding, never read. See docs/kernels/dsa_attention.md.

The portable route is below. The native route, attend.cu, is taken where it can be built.
"""

import math
import numbers

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .arguments import require, require_disjoint
from .prepared_launch import prepare
from .target import has_programmatic_launch, is_interpreted
from .toolkit import ARCHITECTURES, can_build

try:
    from .native import has_clusters, run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None

NUM_HEADS = 16
DIM_CKV = 512
DIM_KPE = 64
PAGE_SIZE = 64
TOPK = 2048
LOG2_E = math.log2(math.e)


@triton.jit
def load_rows(cache_ptr, rows, valid, WIDTH: tl.constexpr, OPERAND: tl.constexpr):
    """Rows of a cache [*, WIDTH]; those not valid are 0 and not read."""
    offs = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(cache_ptr + offs, mask=valid[:, None], other=0.0).to(OPERAND)


@triton.jit
def load_query(base_ptr, token, H: tl.constexpr, WIDTH: tl.constexpr, OPERAND: tl.constexpr):
    """The queries of a token, [H, WIDTH]."""
    offs = tl.arange(0, H)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(base_ptr + token * (H * WIDTH) + offs).to(OPERAND)


@triton.jit
def gather(
    ckv_ptr,
    kpe_ptr,
    first_ptr,
    num_rows,
    N: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """The N cache rows named from first_ptr on: ckv [N, C], kpe [N, R], and which are valid."""
    index = tl.load(first_ptr + tl.arange(0, N))
    valid = (index >= 0) & (index < num_rows)
    rows = index.to(tl.int64)
    k = load_rows(ckv_ptr, rows, valid, C, OPERAND)
    return k, load_rows(kpe_ptr, rows, valid, R, OPERAND), valid


@triton.jit
def absorb(q, q_pe, k, k_pe, valid, scale, m, total, acc):
    """Online softmax: add one tile of N rows to the running (max, sum, accumulator).

    Everything is transposed, logits [N, H] and accumulator [512, H]: the gathered tile is the
    first operand of both products and lies in shared memory once. While no valid entry was seen
    the maximum is -inf; 0 stands in for it in the differences, so that -inf - -inf never arises.
    """
    s = tl.dot(k_pe, tl.trans(q_pe), tl.dot(k, tl.trans(q))) * scale
    s = tl.where(valid[:, None], s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, axis=0))
    anchor = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - anchor[None, :])
    fade = tl.exp2(m - anchor)
    total = total * fade + tl.sum(p, axis=0)
    acc = tl.dot(tl.trans(k), p.to(k.dtype), acc * fade[None, :])
    return m_new, total, acc


@triton.jit
def attend_kernel(
    q_nope_ptr,  # [T, 16, 512] bf16
    q_pe_ptr,  # [T, 16, 64] bf16
    ckv_ptr,  # [num_rows, 512] bf16
    kpe_ptr,  # [num_rows, 64] bf16
    indices_ptr,  # [T, 2048] int32
    output_ptr,  # [T, 16, 512] bf16
    lse_ptr,  # [T, 16] fp32
    part_ptr,  # [T, 2048 / SPLIT, 16, 2] fp32: maximum and sum
    acc_ptr,  # [T, 2048 / SPLIT, 16, 512] fp32
    scale,  # sm_scale * log2(e)
    num_rows,
    H: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    SLOTS: tl.constexpr,  # 2048
    SPLIT: tl.constexpr,  # slots of a CTA
    BLOCK_N: tl.constexpr,  # slots of a tile
    STAGES: tl.constexpr,  # 2: rows are copied asynchronously; 3: indices a tile ahead as well
    OPERAND: tl.constexpr,  # dtype of the products: bf16, or fp32 in the interpreter
    PDL: tl.constexpr,
):
    # Grid: (T * SLOTS / SPLIT,)
    SPLITS: tl.constexpr = SLOTS // SPLIT
    token = tl.program_id(0).to(tl.int64) // SPLITS
    split = tl.program_id(0) % SPLITS
    heads = tl.arange(0, H)
    offs_out = heads[None, :] * C + tl.arange(0, C)[:, None]  # [C, H]
    if PDL:
        gdc_launch_dependents()

    # One look at the whole row: my valid entries in the low half of the sum, others' in the high.
    slots = tl.arange(0, SLOTS)
    index = tl.load(indices_ptr + token * SLOTS + slots)
    is_valid = (index >= 0) & (index < num_rows)
    counts = tl.sum(tl.where(is_valid, tl.where(slots // SPLIT == split, 1, 65536), 0))
    mine = counts % 65536

    if mine > 0:
        q = load_query(q_nope_ptr, token, H, C, OPERAND)
        q_pe = load_query(q_pe_ptr, token, H, R, OPERAND)
        m = tl.full([H], float("-inf"), tl.float32)
        total = tl.zeros([H], tl.float32)
        acc = tl.zeros([C, H], tl.float32)
        first_ptr = indices_ptr + token * SLOTS + split * SPLIT
        is_mine = is_valid & (slots // SPLIT == split)
        stop = tl.max(tl.where(is_mine, slots % SPLIT + 1, 0))  # behind my last valid entry
        for start in tl.range(0, stop, BLOCK_N, num_stages=STAGES):
            k, k_pe, valid = gather(
                ckv_ptr, kpe_ptr, first_ptr + start, num_rows, BLOCK_N, C, R, OPERAND
            )
            m, total, acc = absorb(q, q_pe, k, k_pe, valid, scale, m, total, acc)

        if counts == mine:
            out = acc / total[None, :]
            tl.store(output_ptr + token * H * C + offs_out, out.to(output_ptr.dtype.element_ty))
            tl.store(lse_ptr + token * H + heads, m + tl.log2(total))
        else:
            part = token * SPLITS + split
            tl.store(acc_ptr + part * H * C + offs_out, acc)
            offs_part = heads[:, None] * 2 + tl.arange(0, 2)[None, :]
            tl.store(part_ptr + part * H * 2 + offs_part, tl.join(m, total))
    elif (counts == 0) & (split == 0):
        nothing = tl.zeros([C, H], output_ptr.dtype.element_ty)
        tl.store(output_ptr + token * H * C + offs_out, nothing)
        tl.store(lse_ptr + token * H + heads, tl.full([H], float("-inf"), tl.float32))


@triton.jit
def merge_kernel(
    indices_ptr,  # [T, 2048] int32
    part_ptr,  # [T, 2048 / SPLIT, 16, 2] fp32
    acc_ptr,  # [T, 2048 / SPLIT, 16, 512] fp32
    output_ptr,  # [T, 16, 512] bf16
    lse_ptr,  # [T, 16] fp32
    num_rows,
    H: tl.constexpr,
    C: tl.constexpr,
    SLOTS: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (T * H * C / COLUMNS,)
    SPLITS: tl.constexpr = SLOTS // SPLIT
    row = tl.program_id(0).to(tl.int64) // (C // COLUMNS)  # token * H + head
    block = tl.program_id(0) % (C // COLUMNS)
    offs_c = block * COLUMNS + tl.arange(0, COLUMNS)

    # The indices are an input: which splits are used is known before attend_kernel has ended.
    splits = tl.arange(0, SPLITS)
    slots = splits[:, None] * SPLIT + tl.arange(0, SPLIT)[None, :]
    index = tl.load(indices_ptr + row // H * SLOTS + slots)
    is_valid = (index >= 0) & (index < num_rows)
    is_used = tl.max(is_valid.to(tl.int32), axis=1) > 0

    if tl.sum(is_used.to(tl.int32)) > 1:
        if PDL:
            gdc_wait()
        part = (row // H * SPLITS + splits) * H + row % H
        offs_acc = part[:, None] * C + offs_c[None, :]
        acc = tl.load(acc_ptr + offs_acc, mask=is_used[:, None], other=0.0)
        # No load crosses a barrier, and all arithmetic needs one of the loads below it: every load
        # is in flight before the first is awaited.
        tl.debug_barrier()
        m = tl.load(part_ptr + part * 2, mask=is_used, other=float("-inf"))
        sums = tl.load(part_ptr + part * 2 + 1, mask=is_used, other=0.0)
        top = tl.max(m, axis=0)
        weight = tl.exp2(m - tl.where(top == float("-inf"), 0.0, top))
        total = tl.sum(sums * weight, axis=0)
        out = tl.sum(acc * weight[:, None], axis=0) / total
        tl.store(output_ptr + row * C + offs_c, out.to(output_ptr.dtype.element_ty))
        if block == 0:
            tl.store(lse_ptr + row, top + tl.log2(total))
    elif PDL:
        gdc_wait()  # whatever follows this kernel must find attend_kernel ended too


# (largest number of tokens, launch of attend_kernel). Shared memory stays below 99 KiB, which every
# architecture from sm_86 on has. On sm_90 tiles of 32 rows take mma.sync for K q^T and wgmma for
# ckv^T p^T. Tiles of 64 rows take wgmma for both and give wrong results: the assembler of Triton
# 3.6 forms descriptors of p from a wrong register (docs/kernels/gdn_prefill.md, "Launch rows that
# the assembler breaks"). Check any new row on the device against the reference.
#   T <= 16    32 splits of two tiles: best of seven shapes on eight mixes of valid counts (one
#              H200, 2026-11-29, docs/log.md)
#   T <= 131   8 splits: fewer accumulators (32 KiB a used split) to write and to merge once the
#              tokens nearly fill the SMs
#   larger     one split: every SM has a token of its own, and nothing is merged
# On sm_90 one tile of rows is in shared memory at a time, whatever STAGES is.
PORTABLE_LAUNCHES = (
    (16, {"SPLIT": 64, "BLOCK_N": 32, "STAGES": 2, "num_warps": 8}),
    (131, {"SPLIT": 256, "BLOCK_N": 32, "STAGES": 3, "num_warps": 4}),
    (math.inf, {"SPLIT": TOPK, "BLOCK_N": 32, "STAGES": 3, "num_warps": 4}),
)
# One warp per CTA: a lane owns 4 columns of every split, and nothing but the weights is exchanged.
MERGE_LAUNCH = {"COLUMNS": 128, "num_warps": 1}
# The interpreter's cost is per CTA, not per element: the same three forms with larger blocks.
INTERPRETER_LAUNCHES = (
    (16, {"SPLIT": 512, "BLOCK_N": 512, "STAGES": 1}),
    (131, {"SPLIT": 1024, "BLOCK_N": 256, "STAGES": 1}),
    (math.inf, {"SPLIT": TOPK, "BLOCK_N": 512, "STAGES": 1}),
)
INTERPRETER_MERGE_LAUNCH = {"COLUMNS": DIM_CKV}


# (largest number of tokens, CTAs a token). An H200 holds 7 clusters of 16 CTAs at once, 15 of 8 and
# 66 of 2 (cudaOccupancyMaxActiveClusters), with one CTA an SM. Measured: docs/kernels/
# dsa_attention.md, "How many CTAs a token".
#   T <= 8    16: official mixes 7.8 µs in the mean, with 8 CTAs 8.8
#   T <= 16   8: 16 full rows 29 µs, with 2 CTAs 36, with 1 62
#   T <= 64   2: 32 full rows 40 µs, with 4 CTAs 47; 64 full rows 51, with 1 CTA 68
#   larger    1: 128 full rows 84 µs, with 2 CTAs 91; 1024 595, with 2 635
NATIVE_CLUSTERS = ((8, 16), (16, 8), (64, 2), (math.inf, 1))


def choose(num_tokens, *, capability=None, can_build=False, is_aligned=True, interpreted=False):
    """Route, "native" or "portable", and its launch: the first row that reaches num_tokens.

    capability: compute capability of the tensors' device, None without one.
    can_build: whether the native route is there and this machine can compile it.
    is_aligned: whether all tensors begin on 16-byte boundaries.
    """
    if can_build and is_aligned and capability in ARCHITECTURES and not interpreted:
        cluster = next(cluster for limit, cluster in NATIVE_CLUSTERS if num_tokens <= limit)
        return "native", {"cluster": cluster}
    launches = INTERPRETER_LAUNCHES if interpreted else PORTABLE_LAUNCHES
    launch = next(launch for limit, launch in launches if num_tokens <= limit)
    merge_launch = INTERPRETER_MERGE_LAUNCH if interpreted else MERGE_LAUNCH
    return "portable", {"launch": launch, "merge_launch": merge_launch}


def check(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    """Refuse what the definition does not allow. Reads metadata only. Returns (tokens, pages)."""
    require(q_nope, "q_nope", (None, NUM_HEADS, DIM_CKV), torch.bfloat16)
    num_tokens = q_nope.shape[0]
    require(q_pe, "q_pe", (num_tokens, NUM_HEADS, DIM_KPE), torch.bfloat16, like=q_nope)
    require(ckv_cache, "ckv_cache", (None, PAGE_SIZE, DIM_CKV), torch.bfloat16, like=q_nope)
    num_pages = ckv_cache.shape[0]
    pages = (num_pages, PAGE_SIZE, DIM_KPE)
    require(kpe_cache, "kpe_cache", pages, torch.bfloat16, like=q_nope)
    require(sparse_indices, "sparse_indices", (num_tokens, TOPK), torch.int32, like=q_nope)
    if not isinstance(sm_scale, numbers.Real):
        raise TypeError(f"sm_scale: expected a number, got {type(sm_scale).__name__}")
    require(output, "output", (num_tokens, NUM_HEADS, DIM_CKV), torch.bfloat16, like=q_nope)
    require(lse, "lse", (num_tokens, NUM_HEADS), torch.float32, like=q_nope)
    require_disjoint(output, "output", lse, "lse")
    inputs = {"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": ckv_cache, "kpe_cache": kpe_cache}
    inputs["sparse_indices"] = sparse_indices
    for name, tensor in inputs.items():
        require_disjoint(output, "output", tensor, name)
        require_disjoint(lse, "lse", tensor, name)
    return num_tokens, num_pages


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    """Attention of every token over the cache rows that its indices name; writes output and lse.

    q_nope [T,16,512], q_pe [T,16,64], ckv_cache [P,64,512], kpe_cache [P,64,64] bf16;
    sparse_indices [T,2048] int32, -1 anywhere is padding; sm_scale a number; output [T,16,512]
    bf16, lse [T,16] fp32, base 2. All contiguous. Raises TypeError or ValueError naming the
    argument. Indices are data and not checked: one outside the cache counts as padding.
    """
    num_tokens, num_pages = check(
        q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse
    )
    if num_tokens == 0:
        return
    tensors = (q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, output, lse)
    capability = torch.cuda.get_device_capability(q_nope.device) if q_nope.is_cuda else None
    known = {"capability": capability, "interpreted": is_interpreted(attend_kernel)}
    known["is_aligned"] = all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    is_buildable = run_native is not None and can_build(capability)
    route, options = choose(num_tokens, can_build=is_buildable, **known)
    if route == "native" and not has_clusters(q_nope.device):
        route, options = choose(num_tokens, **known)
    if route == "native":
        run_native(*tensors[:5], float(sm_scale), output, lse, **options)
    else:
        scale, num_rows = float(sm_scale) * LOG2_E, num_pages * PAGE_SIZE
        _run_portable(*tensors[:5], scale, num_rows, output, lse, **options)


def _run_portable(
    q_nope,
    q_pe,
    ckv_cache,
    kpe_cache,
    sparse_indices,
    scale,
    num_rows,
    output,
    lse,
    *,
    launch,
    merge_launch,
):
    num_tokens, interpreted = q_nope.shape[0], is_interpreted(attend_kernel)
    num_splits = TOPK // launch["SPLIT"]
    num_parts = num_tokens * num_splits if num_splits > 1 else 0
    part = torch.empty((num_parts, NUM_HEADS, 2), dtype=torch.float32, device=q_nope.device)
    acc = torch.empty((num_parts, NUM_HEADS, DIM_CKV), dtype=torch.float32, device=q_nope.device)

    inputs = (q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices)
    sizes = {"H": NUM_HEADS, "C": DIM_CKV, "SLOTS": TOPK}
    sizes["PDL"] = num_splits > 1 and has_programmatic_launch(q_nope, attend_kernel)
    operand = {"R": DIM_KPE, "OPERAND": tl.float32 if interpreted else tl.bfloat16}
    with torch.cuda.device_of(q_nope):
        grid = (num_tokens * num_splits,)
        arguments = (*inputs, output, lse, part, acc, scale, num_rows)
        launches = [prepare(attend_kernel, grid, *arguments, **sizes, **operand, **launch)]
        if num_splits > 1:
            grid = (num_tokens * NUM_HEADS * (DIM_CKV // merge_launch["COLUMNS"]),)
            arguments = (sparse_indices, part, acc, output, lse, num_rows)
            options = {"SPLIT": launch["SPLIT"], **merge_launch}
            if sizes["PDL"]:
                options["launch_pdl"] = True
            launches.append(prepare(merge_kernel, grid, *arguments, **sizes, **options))
        for start in launches:
            start()
