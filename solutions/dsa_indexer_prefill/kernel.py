"""Exact top-2048 of many queries over one long run of keys (definition dsa_prefill_topk_...).

Query i sees the keys j of [row_starts[i], row_ends[i]); 64 heads h, q [Q, 64, 128], k [N, 128]:

    score[i,j] = sum_h weights[i,h] max(0, s[j] (q[i,h] . k[j]))    q, k e4m3, s[j] one fp32 scale
    topk[i]    = the min(2048, length) best j of the range, in any order, then -1

A range of at most 2048 keys is listed and not scored.

The scores of all queries at once, 2 GiB for 4096 x 131072, are never in memory: blocks of queries
take turns with a scratch of bounded size (choose), two launches each.
Grid of score_kernel: (tiles of 256 keys, groups of queries of the block). A CTA keeps its keys in
shared memory and goes through the queries of its group. Keys are the M of the tensor core
instruction, so that the sum over heads stays in a thread and its quad.
Grid of select_kernel: one CTA a query of the block.

Bytes: 132 a key, 8 448 a query, 8 192 of output a query, and 8 a score through L2 or memory, of
which no other kernel of two steps is free. Flops: 16 384 a score: the tensor cores are the roof.

Idea of the selection: a sample of 4096 scores says between which two values the 2048th largest
lies, one pass over the query's scores counts at both, and a second gathers what lies between. The
counts are a certificate: where the sample was wrong, the bracket is cut in three and counted again,
until what is left fits in registers or is all equal. So every distribution is selected exactly, and
only the number of passes depends on it.

Numerics: e4m3 products with fp32 accumulators, of which Hopper keeps 14 bits of the largest term.
A negative scale turns the signs of its key's codes. The selection is exact for the scores
computed; NaN ranks above +inf, as in torch.topk. See docs/kernels/dsa_indexer_prefill.md.

The portable route is below. The native route, prefill.cu, is taken on Hopper where it can be built:
there scores are filtered where they are computed, and only candidates are ever in memory.
"""

import math

import torch
import triton
import triton.language as tl

from .arguments import require, require_disjoint
from .prepared_launch import prepare
from .target import is_interpreted
from .toolkit import can_build

try:
    from .native import run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None

NUM_HEADS = 64
HEAD_DIM = 128
TOPK = 2048
TILE = 8192  # scores that a selecting CTA holds
SAMPLE = 4096
NO_SCORE = tl.constexpr(-(2**31))  # below the bits of every score
MAX_BITS = tl.constexpr(2**31 - 1)
SIGN = tl.constexpr(0x80)  # of an e4m3 code
MARGIN = tl.constexpr(4.0)  # standard deviations of a rank in the sample
SPREAD = tl.constexpr(40503)  # odd: moves each sampled position within its stretch


@triton.jit
def order_bits(score):
    """fp32 as int32 of the same order; every NaN becomes the largest."""
    bits = score.to(tl.int32, bitcast=True)
    return tl.where(score != score, MAX_BITS, tl.where(bits < 0, bits ^ MAX_BITS, bits))


@triton.jit
def load_range(starts_ptr, ends_ptr, queries, mask, num_keys):
    """Start and length of ranges, cut to the keys that there are; an empty one has 0 or less."""
    starts = tl.load(starts_ptr + queries, mask=mask, other=0)
    ends = tl.load(ends_ptr + queries, mask=mask, other=0)
    starts = tl.maximum(starts, 0)  # and ends, or their difference may wrap
    return starts, tl.maximum(tl.minimum(ends, num_keys), 0) - starts


@triton.jit(do_not_specialize=["num_queries", "num_keys"])
def score_kernel(
    q_ptr,  # [B, 64, 128] e4m3, of the block of queries like all of size B
    codes_ptr,  # [N, 128] e4m3 as bytes
    scale_ptr,  # [N] fp32
    weights_ptr,  # [B, 64] fp32
    starts_ptr,  # [B] int32
    ends_ptr,  # [B] int32
    bits_ptr,  # [B, N] int32: scores by their order, where a long range has a key
    num_queries,  # B
    num_keys,  # N
    H: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    GROUP: tl.constexpr,  # queries of a CTA
    STAGES: tl.constexpr,
):
    # Grid: (ceil(N / BLOCK_KEYS), ceil(B / GROUP))
    first_key = tl.program_id(0) * BLOCK_KEYS
    queries = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    starts, lengths = load_range(starts_ptr, ends_ptr, queries, queries < num_queries, num_keys)
    meets = (starts < first_key + BLOCK_KEYS) & (starts + lengths > first_key) & (lengths > K)
    first = tl.min(tl.where(meets, queries, num_queries))
    stop = tl.max(tl.where(meets, queries + 1, 0))

    keys = first_key + tl.arange(0, BLOCK_KEYS)
    live = keys < num_keys
    heads = tl.arange(0, H)
    offs_d = tl.arange(0, D)
    scale = tl.load(scale_ptr + keys, mask=live, other=0.0)
    offs_k = keys.to(tl.int64)[:, None] * D + offs_d[None, :]
    codes = tl.load(codes_ptr + offs_k, mask=live[:, None], other=0)
    codes ^= tl.where(scale < 0.0, SIGN, 0).to(tl.uint8)[:, None]
    k = codes.to(tl.float8e4nv, bitcast=True)
    magnitude = tl.abs(scale)
    for query in tl.range(first, stop, num_stages=STAGES):
        q = tl.load(q_ptr + query * (H * D) + heads[:, None] * D + offs_d[None, :])
        w = tl.load(weights_ptr + query * H + heads)
        products = tl.dot(k, tl.trans(q))
        positive = tl.maximum(products, 0.0, propagate_nan=tl.PropagateNan.ALL)
        score = magnitude * tl.sum(positive * w[None, :], axis=1)
        scores_ptr = bits_ptr + tl.cast(query, tl.int64) * num_keys
        tl.store(scores_ptr + keys, order_bits(score), mask=live)


@triton.jit
def thirds(low, high):
    """Two values that cut (low, high] in three; the same twice where it holds only one."""
    span = high.to(tl.int64) - low
    first = low + (span + 2) // 3
    second = low + (2 * span + 2) // 3
    return first.to(tl.int32), second.to(tl.int32)


@triton.jit
def narrow(low, high, at_least, above, need, first, second, reach_first, reach_second):
    """The bracket after scores were counted at or above two of its values, first <= second.

    The need-th largest lies in [low, high]; `at_least` scores are >= low, that is need or more,
    `above` are > high, that is fewer than need.
    """
    is_second = reach_second >= need
    is_first = reach_first >= need
    new_low = tl.where(is_second, second, tl.where(is_first, first, low))
    new_high = tl.where(is_second, high, tl.where(is_first, second - 1, first - 1))
    at_least = tl.where(is_second, reach_second, tl.where(is_first, reach_first, at_least))
    above = tl.where(is_second, above, tl.where(is_first, reach_second, reach_first))
    return new_low, new_high, at_least, above


@triton.jit
def find_threshold(bits, low, high, at_least, need, slack):
    """A value that need to need + slack of `bits` reach, or the one that ties over that border.

    at_least of them are in [low, high], need or more; none is above.
    """
    above = at_least - at_least
    while (at_least > need + slack) & (low < high):
        first, second = thirds(low, high)
        reached = tl.sum((bits >= first).to(tl.int32) + ((bits >= second).to(tl.int32) << 16))
        low, high, at_least, above = narrow(
            low, high, at_least, above, need, first, second, reached & 0xFFFF, reached >> 16
        )
    return low


@triton.jit
def emit_best(bits, ids, low, high, count, need, out_ptr):
    """Store the ids of the `need` largest of `bits`, of which `count` are in [low, high] and the
    rest is below."""
    threshold = find_threshold(bits, low, high, count, need, 0)
    greater = bits > threshold
    equal = bits == threshold
    flags = greater.to(tl.int32) + (equal.to(tl.int32) << 16)
    earlier = tl.cumsum(flags, axis=0) - flags
    slots = tl.where(greater, earlier & 0xFFFF, tl.sum(greater.to(tl.int32)) + (earlier >> 16))
    tl.store(out_ptr + slots, ids, mask=(greater | equal) & (slots < need))


@triton.jit
def guess_bracket(scores_ptr, length, need, SAMPLE: tl.constexpr):
    """Two values, first <= second, between which a sample of the scores puts the need-th largest.

    One random position of each of SAMPLE stretches. The rank that is looked for has in the sample a
    deviation of at most its root.
    """
    offs = tl.arange(0, SAMPLE)
    stretch = length // SAMPLE
    bits = tl.load(scores_ptr + offs * stretch + (offs * SPREAD >> 5) % stretch)
    rank = need.to(tl.float32) * SAMPLE / length.to(tl.float32)
    margin = MARGIN * tl.sqrt(rank) + MARGIN
    low = need - need + (NO_SCORE + 1)
    high = need - need + MAX_BITS
    all_of_it = need - need + SAMPLE
    slack = (margin * 0.5).to(tl.int32)
    rank_first = tl.minimum(rank + margin, SAMPLE).to(tl.int32)
    rank_second = tl.maximum(rank - margin, 1.0).to(tl.int32)
    first = find_threshold(bits, low, high, all_of_it, rank_first, slack)
    second = find_threshold(bits, first, high, all_of_it, rank_second, slack)
    return first, second


@triton.jit
def count_scores(scores_ptr, length, first, second, TILE: tl.constexpr):
    """Scores at or above each of two values."""
    offs = tl.arange(0, TILE)
    firsts = tl.zeros([TILE], tl.int32)
    seconds = tl.zeros([TILE], tl.int32)
    for start in range(0, length, TILE):
        bits = tl.load(scores_ptr + start + offs, mask=start + offs < length, other=NO_SCORE)
        firsts += (bits >= first).to(tl.int32)
        seconds += (bits >= second).to(tl.int32)
    return tl.sum(firsts), tl.sum(seconds)


@triton.jit
def gather_scores(
    scores_ptr, candidates_ptr, out_ptr, start, length, low, high, TILE: tl.constexpr
):
    """Store the ids above `high`; copy what is in [low, high] to the candidates, bits and then
    ids, TILE of each. Returns how many candidates there are, at most TILE."""
    offs = tl.arange(0, TILE)
    stored = length - length
    gathered = length - length
    for begin in range(0, length, TILE):
        positions = begin + offs
        bits = tl.load(scores_ptr + positions, mask=positions < length, other=NO_SCORE)
        is_above = bits > high
        is_candidate = (bits >= low) & (bits <= high)
        flags = is_above.to(tl.int32) + (is_candidate.to(tl.int32) << 16)
        earlier = tl.cumsum(flags, axis=0) - flags
        ids = start + positions
        tl.store(out_ptr + stored + (earlier & 0xFFFF), ids, mask=is_above)
        slots = gathered + (earlier >> 16)
        is_kept = is_candidate & (slots < TILE)  # more than TILE are all equal: any will do
        tl.store(candidates_ptr + slots, bits, mask=is_kept)
        tl.store(candidates_ptr + TILE + slots, ids, mask=is_kept)
        found = tl.sum(flags)
        stored += found & 0xFFFF
        gathered += found >> 16
    return tl.minimum(gathered, TILE)


@triton.jit(do_not_specialize=["num_keys"])
def select_kernel(
    bits_ptr,  # [B, N] int32, of the block of queries like all of size B
    starts_ptr,  # [B] int32
    ends_ptr,  # [B] int32
    candidates_ptr,  # [B, 2, TILE] int32, where a range may exceed TILE
    topk_indices_ptr,  # [B, 2048] int32
    num_keys,  # N
    K: tl.constexpr,
    TILE: tl.constexpr,
    SAMPLE: tl.constexpr,
    FITS: tl.constexpr,  # whether TILE reaches the longest range
):
    # Grid: (B,)
    query = tl.program_id(0).to(tl.int64)
    start, length = load_range(starts_ptr, ends_ptr, query, True, num_keys)
    out_ptr = topk_indices_ptr + query * K
    scores_ptr = bits_ptr + query * num_keys + start
    offs = tl.arange(0, TILE)
    need = length - length + K
    if length <= K:
        slots = tl.arange(0, K)
        tl.store(out_ptr + slots, tl.where(slots < length, start + slots, -1))
    elif FITS:
        bits = tl.load(scores_ptr + offs, mask=offs < length, other=NO_SCORE)
        low = need - need + (NO_SCORE + 1)
        high = need - need + MAX_BITS
        emit_best(bits, start + offs, low, high, length, need, out_ptr)
    else:
        low = need - need + (NO_SCORE + 1)
        high = need - need + MAX_BITS
        at_least = length
        above = length - length
        first = low
        second = high
        if length > TILE:
            first, second = guess_bracket(scores_ptr, length, need, SAMPLE)
        while (at_least - above > TILE) & (low < high):
            reach_first, reach_second = count_scores(scores_ptr, length, first, second, TILE)
            low, high, at_least, above = narrow(
                low, high, at_least, above, need, first, second, reach_first, reach_second
            )
            first, second = thirds(low, high)
        candidates_ptr += query * (2 * TILE)
        count = gather_scores(scores_ptr, candidates_ptr, out_ptr, start, length, low, high, TILE)
        tl.debug_barrier()  # candidates were stored by other threads of this CTA
        bits = tl.load(candidates_ptr + offs, mask=offs < count, other=NO_SCORE)
        ids = tl.load(candidates_ptr + TILE + offs, mask=offs < count, other=0)
        emit_best(bits, ids, low, high, count, need - above, out_ptr + above)


# Scratch of a block of queries: scores and candidates. Below it blocks are too small to fill the
# device, above it 4096 x 131072 would need more than the 256 MiB that a call may take.
SCRATCH_MIB = 160
BLOCK_STEP = 64  # queries: a block is a multiple, where it holds as many
# Two scoring CTAs an SM, so that one multiplies while the other sums: 128 registers at most.
SCORE_LAUNCH = {"BLOCK_KEYS": 256, "STAGES": 3, "num_warps": 8, "maxnreg": 128}
SELECT_LAUNCH = {"num_warps": 16}
MOST_GROUP = 64  # queries of a scoring CTA
LEAST_GROUP = 8
LEAST_PROGRAMS = 528  # scoring CTAs of a block, four for each SM of an H200
# The interpreter's cost is per operation, not per element.
INTERPRETER_LAUNCH = {"BLOCK_KEYS": 4096, "STAGES": 1, "num_warps": 8}


# The native route, its sizes reasoned: docs/kernels/dsa_indexer_prefill.md, "Native route".
NATIVE_CAPABILITY = (9, 0)  # wgmma exists there alone
NATIVE_KEYS = 1 << 20  # most keys; the samples of 4096 queries fill the area at 720 000
NATIVE_QUERIES = 4096  # most of a group of launches
AREA_MIB = 236  # 4096 queries and 132 CTAs' blocks of four, 8 x 832 candidates of 8 bytes each
QUERY_BLOCK, QUERY_WARPS, CAPACITY, STRETCH, MOST_CTAS = 4, 8, 832, 48, 132  # as in plan.cuh
# (most queries of a group of launches, candidates that a selecting CTA holds)
#   132 queries    an SM to each: 20 KiB + 168 KiB of shared memory; 2047 above a tie that warps of
#                  132 CTAs store, 2047 + 132 x 8 x 20, fit
#   larger         four selecting CTAs an SM; 3840 are wanted, and 429 is the deviation
MOST_CANDIDATES = ((132, 25600), (math.inf, 6912))


def choose_native(num_queries, num_keys):
    """Options of run_native: queries of a group of launches, and scratch."""
    if num_keys <= TOPK:  # ranges are listed
        sizes = {"most_queries": NATIVE_QUERIES, "most_candidates": 0}
        return {**sizes, "table_words": 0, "area_bytes": 0}
    area, slots = AREA_MIB << 20, -(-num_keys // STRETCH)
    most = min(NATIVE_QUERIES, area // (4 * slots) // QUERY_BLOCK * QUERY_BLOCK)
    blocks = -(-num_queries // -(-num_queries // most) // QUERY_BLOCK)
    most = blocks * QUERY_BLOCK
    areas = most + MOST_CTAS * QUERY_BLOCK
    repair = QUERY_BLOCK * 4 * num_keys  # scores of a CTA
    return {
        "most_queries": most,
        "most_candidates": next(count for limit, count in MOST_CANDIDATES if most <= limit),
        "table_words": 3 * blocks + areas * QUERY_WARPS + 3 * most + 1,
        "area_bytes": max(
            areas * QUERY_WARPS * CAPACITY * 8,
            most * slots * 4,
            min(min(blocks, MOST_CTAS) * repair, area // repair * repair),
        ),
    }


def choose(
    num_queries, num_keys, *, capability=None, can_build=False, is_aligned=True, interpreted=False
):
    """Route, "native" or "portable", and its launches. The host knows shapes, not ranges.

    capability: compute capability of the tensors' device, None without one.
    can_build: whether the native route is there and this machine can compile it.
    is_aligned: whether all tensors begin on 16-byte boundaries.
    Portable: queries of a block, of a scoring CTA, and tile sizes.
    """
    is_native = can_build and is_aligned and capability == NATIVE_CAPABILITY and not interpreted
    if is_native and num_keys <= NATIVE_KEYS:
        return "native", choose_native(num_queries, num_keys)
    fits = num_keys <= TILE
    query_bytes = 4 * num_keys + (0 if fits else 8 * TILE)
    most = max(1, (SCRATCH_MIB << 20) // max(query_bytes, 1))
    if most > BLOCK_STEP:
        most -= most % BLOCK_STEP
    blocks = -(-num_queries // most)
    block = min(most, -(-num_queries // blocks // BLOCK_STEP) * BLOCK_STEP, num_queries)
    score = INTERPRETER_LAUNCH if interpreted else SCORE_LAUNCH
    tiles, group = -(-num_keys // score["BLOCK_KEYS"]), MOST_GROUP
    while group > LEAST_GROUP and tiles * -(-block // group) < LEAST_PROGRAMS:
        group //= 2
    select = {"FITS": fits, "TILE": TILE, "SAMPLE": SAMPLE, **SELECT_LAUNCH}
    return "portable", {"block": block, "score": {"GROUP": group, **score}, "select": select}


def require_fp8(tensor):
    """Refuse a GPU whose instructions do not multiply e4m3. Raises RuntimeError."""
    if not tensor.is_cuda:
        return
    gpu = torch.cuda.get_device_properties(tensor.device)
    if (gpu.major, gpu.minor) < (8, 9):
        raise RuntimeError(
            f"dsa_indexer_prefill: expected FP8 (compute capability 8.9 or newer), got {gpu.name} "
            f"with {gpu.major}.{gpu.minor}; run it on an Ada, Hopper or Blackwell GPU"
        )


def check(q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices):
    """Refuse what the definition does not allow. Reads metadata only. Returns Q and N."""
    require(q_index_fp8, "q_index_fp8", (None, NUM_HEADS, HEAD_DIM), torch.float8_e4m3fn)
    num_queries = q_index_fp8.shape[0]
    require(k_index_fp8, "k_index_fp8", (None, HEAD_DIM), torch.float8_e4m3fn, like=q_index_fp8)
    num_keys = k_index_fp8.shape[0]
    inputs = {
        "k_scale": (k_scale, (num_keys,), torch.float32),
        "weights": (weights, (num_queries, NUM_HEADS), torch.float32),
        "row_starts": (row_starts, (num_queries,), torch.int32),
        "row_ends": (row_ends, (num_queries,), torch.int32),
    }
    for name, (tensor, shape, dtype) in inputs.items():
        require(tensor, name, shape, dtype, like=q_index_fp8)
    require(topk_indices, "topk_indices", (num_queries, TOPK), torch.int32, like=q_index_fp8)
    tensors = {name: tensor for name, (tensor, _, _) in inputs.items()}
    tensors |= {"q_index_fp8": q_index_fp8, "k_index_fp8": k_index_fp8}
    for name, tensor in tensors.items():
        require_disjoint(topk_indices, "topk_indices", tensor, name)
    return num_queries, num_keys


def run(q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices):
    """Selects the 2048 best keys of each query's range; writes topk_indices, reads everything else.

    q_index_fp8 [Q,64,128], k_index_fp8 [N,128] e4m3; k_scale [N], weights [Q,64] fp32; row_starts,
    row_ends [Q], topk_indices [Q,2048] int32. All contiguous. Ranges are read on the device alone
    and cut to [0, N). Takes scratch from torch's allocator: on the native route at most 237 MiB, on
    the portable one 160 MiB, or one query's scores.
    Raises TypeError or ValueError naming the argument, RuntimeError where the GPU knows no FP8.
    """
    num_queries, num_keys = check(
        q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices
    )
    if num_queries == 0:
        return
    require_fp8(q_index_fp8)
    tensors = (q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices)
    device = q_index_fp8.device
    capability = torch.cuda.get_device_capability(device) if q_index_fp8.is_cuda else None
    known = {"capability": capability, "interpreted": is_interpreted(score_kernel)}
    known["is_aligned"] = all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    known["can_build"] = run_native is not None and can_build(capability)
    route, options = choose(num_queries, num_keys, **known)
    (run_native if route == "native" else _run_portable)(*tensors, **options)


def _run_portable(
    q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices,
    *, block, score, select,
):  # fmt: skip
    num_queries, num_keys = q_index_fp8.shape[0], k_index_fp8.shape[0]
    codes, sizes = k_index_fp8.view(torch.uint8), {"H": NUM_HEADS, "D": HEAD_DIM, "K": TOPK}
    launches = []
    with torch.cuda.device_of(q_index_fp8):
        bits = row_starts.new_empty((block, num_keys))
        candidates = None if select["FITS"] else row_starts.new_empty((block, 2, TILE))
        for first in range(0, num_queries, block):
            queries = slice(first, min(first + block, num_queries))
            count, starts, ends = queries.stop - first, row_starts[queries], row_ends[queries]
            arguments = (q_index_fp8[queries], codes, k_scale, weights[queries], starts, ends, bits)
            grid = (-(-num_keys // score["BLOCK_KEYS"]), -(-count // score["GROUP"]))
            if num_keys > TOPK:
                launches.append(
                    prepare(score_kernel, grid, *arguments, count, num_keys, **sizes, **score)
                )
            arguments = (bits, starts, ends, candidates, topk_indices[queries], num_keys)
            launches.append(prepare(select_kernel, (count,), *arguments, K=TOPK, **select))
        for start in launches:
            start()
