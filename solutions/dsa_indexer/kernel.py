"""Exact top-2048 token selection of paged sequences (definition dsa_topk_indexer_fp8_h64_d128_...).

Per sequence b with tokens j < L = seq_lens[b], 64 heads h, q [64, 128], K [L, 128]:

    score[j]   = sum_h weights[h] max(0, s[j] (q[h] . k[j]))     k e4m3, s[j] one fp32 scale a token
    topk[b]    = block_table[b, j // 64] * 64 + j % 64 for the min(2048, L) best j, then -1

A sequence of at most 2048 tokens is short: all of its tokens are selected and none is scored.

Grid of score_kernel: workers that share out the pages of all long sequences of 32 rows. Which pages
those are, each finds from seq_lens, so that a batch with one long sequence spreads that sequence
over the device. A step scores 64 tokens x 64 heads; tokens are the M of the tensor core
instruction, so that the sum over heads stays in a thread and its quad.
Grid of select_kernel: one CTA a sequence, launched right behind with programmatic dependent launch.
Short sequences are translated at once, a long one waits for its scores. A block table of at most 32
pages holds no long sequence: there select_kernel runs alone.

Bytes: 132 a scored token, 8192 of output a sequence; flops: 16 384 a scored token, 124 a byte. DRAM
is the roof for many long sequences; for one, the chain lengths -> pages -> scores -> threshold ->
ids is.

Idea: a threshold is searched, not an order. Keys (scores as int32 of the same order) stay in
registers; a probe counts those at or above a value, and the count steers the next probe: first a
logistic curve with the scores' mean and deviation, then interpolation, and halving where that
stalls. About six probes find the threshold of normal scores, 79 that of any 8192.

Numerics: codes are widened to fp16, which is exact, and multiplied with fp32 accumulators: the fp8
instructions of Hopper drop low bits of the sum. The selection is exact for the scores computed; NaN
ranks above +inf, as in torch.topk. See docs/kernels/dsa_indexer.md.

The portable route is below. The native route, index.cu, is taken where it can be built, for the
shapes where it is faster.
"""

import math

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .arguments import require, require_disjoint
from .prepared_launch import prepare
from .target import has_programmatic_launch, is_interpreted
from .toolkit import can_build

try:
    from .native import has_clusters, run_native
except ModuleNotFoundError:  # packed with --route portable
    run_native = None

NUM_HEADS = 64
HEAD_DIM = 128
PAGE_SIZE = 64
TOPK = 2048
BYTES_PER_TOKEN = HEAD_DIM + 4  # codes, then one fp32 scale
ROWS = 32  # sequences of a group: what one warp holds a length each of
NO_TOKEN = tl.constexpr(-(2**31))  # below the key of every score
MAX_KEY = tl.constexpr(2**31 - 1)
LOGISTIC = tl.constexpr(1.702)  # logistic(1.702 x) is the normal distribution within 0.01
OVERSHOOT = tl.constexpr(1.3)  # lands the second probe on the other side of the threshold


@triton.jit
def score_to_key(score):
    """fp32 to int32 of the same order; every NaN becomes the largest key."""
    bits = score.to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(score != score, MAX_KEY, key)


@triton.jit
def key_to_score(key):
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def clamp_lengths(lengths, max_num_pages, PAGE: tl.constexpr):
    """No length reaches behind the block table."""
    return tl.minimum(lengths, max_num_pages * PAGE)


@triton.jit
def score_tokens(
    q_ptr,  # of the sequence
    cache_ptr,
    scales_ptr,
    weights_ptr,  # of the sequence
    pages,  # [TOKENS] int64
    slots,  # [TOKENS] in the page
    live,  # [TOKENS] whether there is such a token
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Scores, [TOKENS] fp32. Tokens that are not live are not read."""
    heads = tl.arange(0, H)
    offs_d = tl.arange(0, D)
    page_words = pages * (PAGE * (D // 4 + 1))  # of 4 bytes
    offs_k = page_words * 4 + slots * D
    # The keys last: the compiler moves them on as soon as they are loaded, behind a barrier that no
    # other load crosses.
    q = tl.load(q_ptr + heads[:, None] * D + offs_d[None, :])
    w = tl.load(weights_ptr + heads)
    s = tl.load(scales_ptr + page_words + PAGE * D // 4 + slots, mask=live, other=0.0)
    k = tl.load(cache_ptr + offs_k[None, :] + offs_d[:, None], mask=live[None, :], other=0)
    k = k.to(tl.float8e4nv, bitcast=True).to(OPERAND)
    products = tl.dot(tl.trans(k), tl.trans(q.to(OPERAND)), input_precision="ieee")
    positive = tl.maximum(products * s[:, None], 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.sum(positive * w[None, :], axis=1)


@triton.jit(do_not_specialize=["batch_size", "max_num_pages", "num_pages", "workers"])
def score_kernel(
    q_ptr,  # [B, 64, 128] e4m3
    cache_ptr,  # [P, 64 * 132] bytes: 64 rows of 128 codes, then 64 scales
    scales_ptr,  # the same memory as fp32
    weights_ptr,  # [B, 64] fp32
    seq_lens_ptr,  # [B] int32
    block_table_ptr,  # [B, M] int32
    keys_ptr,  # [B, M * 64] int32: of long sequences, up to their length
    batch_size,
    max_num_pages,
    num_pages,
    workers,  # of a group
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    SPAN: tl.constexpr,  # pages of a step
    OPERAND: tl.constexpr,
    PDL: tl.constexpr,
):
    # Grid: (ceil(B / ROWS) * workers,)
    if PDL:
        gdc_launch_dependents()
    TOKENS: tl.constexpr = SPAN * PAGE
    worker = tl.program_id(0) % workers
    first_row = tl.program_id(0) // workers * ROWS
    lanes = tl.arange(0, ROWS)
    columns = tl.arange(0, SPAN)
    rows = (first_row + lanes).to(tl.int64)
    in_batch = rows < batch_size
    lengths = tl.load(seq_lens_ptr + rows, mask=in_batch, other=0)
    # If one sequence of the group is long, this worker's first step is number `worker` of that
    # sequence: its pages, fetched for all sequences while the lengths are, save a round trip.
    first_columns = worker * SPAN + columns
    first_pages = tl.load(
        block_table_ptr + rows[:, None] * max_num_pages + first_columns[None, :],
        mask=in_batch[:, None] & (first_columns < max_num_pages)[None, :],
        other=0,
    )
    lengths = clamp_lengths(lengths, max_num_pages, PAGE)
    counts = tl.where(lengths > K, (lengths + TOKENS - 1) // TOKENS, 0)
    stops = tl.cumsum(counts, axis=0)
    total = tl.sum(counts)
    for step in tl.range(worker, total, workers, num_stages=1):
        is_row = (step < stops) & (step >= stops - counts)
        lane = tl.sum(tl.where(is_row, lanes, 0))
        block = step - tl.sum(tl.where(is_row, stops - counts, 0))
        length = tl.sum(tl.where(is_row, lengths, 0))
        row = (first_row + lane).to(tl.int64)
        if block == worker:
            pages = tl.sum(tl.where(is_row[:, None], first_pages, 0), axis=0)
        else:
            here = block * SPAN + columns
            table_ptr = block_table_ptr + row * max_num_pages
            pages = tl.load(table_ptr + here, mask=here < max_num_pages, other=0)
        pages = tl.reshape(tl.broadcast_to(pages[:, None], (SPAN, PAGE)), (TOKENS,))
        offs = tl.arange(0, TOKENS)
        tokens = block * TOKENS + offs
        live = tokens < length
        score = score_tokens(
            q_ptr + row * (H * D),
            cache_ptr,
            scales_ptr,
            weights_ptr + row * H,
            pages.to(tl.int64),
            offs % PAGE,
            live & (pages >= 0) & (pages < num_pages),
            H,
            D,
            PAGE,
            OPERAND,
        )
        tl.store(keys_ptr + row * max_num_pages * PAGE + tokens, score_to_key(score), mask=live)


@triton.jit
def translate(table_ptr, positions, mask, PAGE: tl.constexpr):
    """Physical token ids of positions in a sequence, through its row of the block table."""
    pages = tl.load(table_ptr + positions // PAGE, mask=mask, other=0)
    return pages * PAGE + positions % PAGE


@triton.jit
def first_guess(count, need, total, total_of_squares):
    """Where a logistic curve puts the need-th largest of `count` scores, and its slope there,
    in scores per rank."""
    share = need.to(tl.float32) / count.to(tl.float32)
    mean = total / count
    deviation = tl.sqrt(tl.maximum(total_of_squares / count - mean * mean, 0.0)) / LOGISTIC
    guess = mean + deviation * tl.log((1.0 - share) / share)
    return guess, deviation / (count * share * (1.0 - share))


@triton.jit
def next_probe(low, high, at_least, above, need, guess, rounds, has_stalled):
    """The key in (low, high] to count at next: see narrow()."""
    low_score = key_to_score(low)
    share = (at_least - need).to(tl.float32) / (at_least - above).to(tl.float32)
    between = low_score + share * (key_to_score(high) - low_score)
    probe = score_to_key(tl.where(rounds < 2, guess, between))
    middle = ((low.to(tl.int64) + high.to(tl.int64) + 1) >> 1).to(tl.int32)
    return tl.minimum(tl.maximum(tl.where(has_stalled > 0, middle, probe), low + 1), high)


@triton.jit
def narrow(low, high, at_least, above, need, rounds, has_stalled, probe, reached):
    """The bracket after `reached` keys were counted at or above `probe`.

    The need-th largest key lies in [low, high]; `at_least` keys are >= low, that is need or more,
    `above` keys are > high, that is fewer than need. A bracket that an interpolated probe did not
    halve in keys is halved in values next, which bounds the search for every input.
    """
    before = at_least - above
    is_low = reached >= need
    low = tl.where(is_low, probe, low)
    high = tl.where(is_low, high, probe - 1)
    at_least = tl.where(is_low, reached, at_least)
    above = tl.where(is_low, above, reached)
    has_stalled = (rounds >= 2) & (has_stalled == 0) & (2 * (at_least - above) > before)
    return low, high, at_least, above, rounds + 1, has_stalled.to(tl.int32)


@triton.jit
def tile_positions(EACH: tl.constexpr, THREADS: tl.constexpr):
    """Positions of the keys that a CTA holds, [THREADS, EACH]: a thread has EACH of them.

    They descend along the threads. A warp's loads coalesce all the same, and the compiler, which
    looks for ascending addresses, leaves single words in the threads, where the scattered store
    needs them: no exchange between layouts.
    """
    ascending = tl.arange(0, EACH)[None, :] * THREADS + tl.arange(0, THREADS)[:, None]
    return EACH * THREADS - 1 - ascending


@triton.jit
def sum_pair(a, b):
    """Sums of two tensors of [THREADS, EACH] through one exchange between warps."""
    return tl.split(tl.sum(tl.join(tl.sum(a, axis=1), tl.sum(b, axis=1)), axis=0))


@triton.jit
def key_range(keys):
    """Smallest and largest key of [THREADS, EACH], without those that are NO_TOKEN."""
    mirrored = tl.where(keys != NO_TOKEN, -1 - keys, NO_TOKEN)
    extremes = tl.max(tl.join(tl.max(mirrored, axis=1), tl.max(keys, axis=1)), axis=0)
    lowest, high = tl.split(extremes)
    return -1 - lowest, high


@triton.jit
def rank_flags(first, second):
    """How many elements of each of two disjoint sets come before an element, in any fixed order.

    first, second: [THREADS, EACH] bool. Returns two int32 tensors and the sizes of the sets.
    """
    flags = first.to(tl.int32) + (second.to(tl.int32) << 16)
    of_thread = tl.sum(flags, axis=1)
    earlier = tl.cumsum(flags, axis=1) - flags + (tl.cumsum(of_thread, axis=0) - of_thread)[:, None]
    return earlier & 0xFFFF, earlier >> 16, of_thread


@triton.jit
def emit_largest(keys, ids, count, need, out_ptr):
    """Store the ids of the `need` largest of `count` keys held in registers, 0 < need <= count.

    keys, ids: [THREADS, EACH]; keys are NO_TOKEN where there is none.
    """
    scores = tl.where(keys != NO_TOKEN, key_to_score(keys), 0.0)
    total, total_of_squares = sum_pair(scores, scores * scores)
    guess, step = first_guess(count, need, total, total_of_squares)
    low, high = key_range(keys)
    at_least = count
    above = count - count
    rounds = count - count
    has_stalled = count - count
    while (at_least != need) & (low != high):
        probe = next_probe(low, high, at_least, above, need, guess, rounds, has_stalled)
        reached = tl.sum((keys >= probe).to(tl.int32))
        guess += OVERSHOOT * step * (reached - need)
        low, high, at_least, above, rounds, has_stalled = narrow(
            low, high, at_least, above, need, rounds, has_stalled, probe, reached
        )
    # Either exactly the wanted keys are >= low, or all keys of the bracket are equal: then those
    # above it are taken, and as many of it as are missing.
    is_exact = at_least == need
    edge = tl.where(is_exact, low - 1, low)
    above = tl.where(is_exact, need, above)
    earlier_above, earlier_equal, _ = rank_flags(keys > edge, keys == edge)
    slots = tl.where(keys > edge, earlier_above, above + earlier_equal)
    tl.store(out_ptr + slots, ids, mask=(keys >= edge) & (slots < need))


@triton.jit
def emit_long(
    keys_ptr,  # of the sequence, L of them
    candidates_ptr,  # of the sequence: TILE keys, then TILE positions
    table_ptr,
    out_ptr,
    length,
    need,
    PAGE: tl.constexpr,
    EACH: tl.constexpr,
    THREADS: tl.constexpr,
):
    """emit_largest for a sequence that does not fit into registers: passes over its keys narrow the
    bracket until at most TILE keys are in it; those above it are stored, those in it are gathered.
    """
    TILE: tl.constexpr = EACH * THREADS
    offs = tile_positions(EACH, THREADS)
    lows = tl.full([THREADS, EACH], MAX_KEY, tl.int32)
    highs = tl.full([THREADS, EACH], NO_TOKEN, tl.int32)
    sums = tl.zeros([THREADS, EACH], tl.float32)
    squares = tl.zeros([THREADS, EACH], tl.float32)
    for start in range(0, length, TILE):
        keys = tl.load(keys_ptr + start + offs, mask=start + offs < length, other=NO_TOKEN)
        is_token = keys != NO_TOKEN
        lows = tl.minimum(lows, tl.where(is_token, keys, MAX_KEY))
        highs = tl.maximum(highs, keys)
        scores = tl.where(is_token, key_to_score(keys), 0.0)
        sums += scores
        squares += scores * scores
    total, total_of_squares = sum_pair(sums, squares)
    guess, step = first_guess(length, need, total, total_of_squares)
    low = tl.min(lows)
    high = tl.max(highs)
    at_least = length
    above = length - length
    rounds = length - length
    has_stalled = length - length
    while (at_least != need) & (low != high) & (at_least - above > TILE):
        probe = next_probe(low, high, at_least, above, need, guess, rounds, has_stalled)
        counts = tl.zeros([THREADS, EACH], tl.int32)
        for start in range(0, length, TILE):
            keys = tl.load(keys_ptr + start + offs, mask=start + offs < length, other=NO_TOKEN)
            counts += (keys >= probe).to(tl.int32)
        reached = tl.sum(counts)
        guess += OVERSHOOT * step * (reached - need)
        low, high, at_least, above, rounds, has_stalled = narrow(
            low, high, at_least, above, need, rounds, has_stalled, probe, reached
        )
    is_exact = at_least == need
    high = tl.where(is_exact, low - 1, high)  # leaves no candidate
    above = tl.where(is_exact, need, above)

    stored = length - length
    gathered = length - length
    for start in range(0, length, TILE):
        positions = start + offs
        keys = tl.load(keys_ptr + positions, mask=positions < length, other=NO_TOKEN)
        is_above = keys > high
        is_candidate = (keys >= low) & (keys <= high)
        earlier_above, earlier_candidates, of_thread = rank_flags(is_above, is_candidate)
        ids = translate(table_ptr, positions, is_above, PAGE)
        tl.store(out_ptr + stored + earlier_above, ids, mask=is_above)
        # More than TILE candidates are all equal: any TILE of them will do.
        slots = gathered + earlier_candidates
        is_kept = is_candidate & (slots < TILE)
        tl.store(candidates_ptr + slots, keys, mask=is_kept)
        tl.store(candidates_ptr + TILE + slots, positions, mask=is_kept)
        found = tl.sum(of_thread)
        stored += found & 0xFFFF
        gathered += found >> 16
    if above < need:
        tl.debug_barrier()  # candidates were stored by other threads of this CTA
        count = tl.minimum(at_least - above, TILE)
        keys = tl.load(candidates_ptr + offs, mask=offs < count, other=NO_TOKEN)
        positions = tl.load(candidates_ptr + TILE + offs, mask=offs < count, other=0)
        ids = translate(table_ptr, positions, offs < count, PAGE)
        emit_largest(keys, ids, count, need - above, out_ptr + above)


@triton.jit
def emit_all(table_ptr, out_ptr, length, max_num_pages, K: tl.constexpr, PAGE: tl.constexpr):
    """All tokens of a short sequence in the order of their positions, then -1."""
    slots = tl.arange(0, K)
    # Not masked by the length, so that both loads are in flight together.
    ids = translate(table_ptr, slots, slots < max_num_pages * PAGE, PAGE)
    tl.store(out_ptr + slots, tl.where(slots < length, ids, -1))


@triton.jit(do_not_specialize=["max_num_pages"])
def select_kernel(
    seq_lens_ptr,  # [B] int32
    block_table_ptr,  # [B, M] int32
    keys_ptr,  # [B, M * 64] int32
    candidates_ptr,  # [B, 2, TILE] int32, where a sequence may exceed TILE
    topk_indices_ptr,  # [B, 2048] int32
    max_num_pages,
    PAGE: tl.constexpr,
    K: tl.constexpr,
    EACH: tl.constexpr,  # keys that a thread holds; 0: no sequence is long
    THREADS: tl.constexpr,
    FITS: tl.constexpr,  # whether EACH * THREADS reaches the longest sequence
    PDL: tl.constexpr,
):
    # Grid: (B,)
    row = tl.program_id(0).to(tl.int64)
    table_ptr = block_table_ptr + row * max_num_pages
    out_ptr = topk_indices_ptr + row * K
    length = clamp_lengths(tl.load(seq_lens_ptr + row), max_num_pages, PAGE)
    if EACH == 0:
        emit_all(table_ptr, out_ptr, length, max_num_pages, K, PAGE)
    elif length <= K:
        emit_all(table_ptr, out_ptr, length, max_num_pages, K, PAGE)
        if PDL:
            gdc_wait()  # a dependent grid may not end before the one it depends on
    elif FITS:
        positions = tile_positions(EACH, THREADS)
        ids = translate(table_ptr, positions, positions < length, PAGE)
        if PDL:
            gdc_wait()
        keys_ptr += row * max_num_pages * PAGE
        keys = tl.load(keys_ptr + positions, mask=positions < length, other=NO_TOKEN)
        emit_largest(keys, ids, length, length - length + K, out_ptr)
    else:
        if PDL:
            gdc_wait()
        emit_long(
            keys_ptr + row * max_num_pages * PAGE,
            candidates_ptr + row * 2 * EACH * THREADS,
            table_ptr,
            out_ptr,
            length,
            length - length + K,
            PAGE,
            EACH,
            THREADS,
        )


# (most pages of a sequence, launch of select_kernel).
#   32    no sequence is long: one store of 16 bytes a thread
#   64    4096 keys: the fixed cost of a probe (barriers) is that of 8 warps
#   128   8192 keys
#   more  passes over memory, 32 KiB in flight
PORTABLE_LAUNCHES = (
    (TOPK // PAGE_SIZE, {"EACH": 0, "FITS": True, "num_warps": 16}),
    (64, {"EACH": 16, "FITS": True, "num_warps": 8}),
    (128, {"EACH": 16, "FITS": True, "num_warps": 16}),
    (math.inf, {"EACH": 16, "FITS": False, "num_warps": 16}),
)
# Scoring CTAs. Four fit an SM (122 registers a thread), so that 128 SMs hold all of them at once;
# 34 KiB in flight per SM cover the latency of DRAM.
RESIDENT_WORKERS = 512
LEAST_WORKERS = 32  # of a group, when there are many groups
# The interpreter's cost is per operation, not per element.
INTERPRETER_WORKERS = 2
INTERPRETER_SPAN = 8


# (most pages of a sequence, most sequences, clusters of 16 CTAs that share out the long ones in one
# launch; None: two launches, in which all SMs do). One H200, docs/kernels/dsa_indexer.md, "One launch
# or two".
NATIVE_CLUSTERS = (
    (TOPK // PAGE_SIZE, math.inf, 0),  # no sequence is long: a plain grid lists all tokens
    (128, 8, 6),
    (128, 31, 4),
    (2**24, math.inf, None),  # 2^30 tokens: positions are 32-bit
)
NATIVE_CAPABILITY = (9, 0)  # wgmma exists there alone


def choose(
    batch_size,
    max_num_pages,
    *,
    capability=None,
    can_build=False,
    is_aligned=True,
    interpreted=False,
):
    """Route, "native" or "portable", and its launch. The host knows shapes, not lengths.

    capability: compute capability of the tensors' device, None without one.
    can_build: whether the native route is there and this machine can compile it.
    is_aligned: whether all tensors begin on 16-byte boundaries.
    Native: long_clusters as in NATIVE_CLUSTERS. Portable: workers of a group of ROWS
    sequences (0: score_kernel is not needed) and the launch of select_kernel.
    """
    if can_build and is_aligned and capability == NATIVE_CAPABILITY and not interpreted:
        for most_pages, most_sequences, clusters in NATIVE_CLUSTERS:
            if max_num_pages <= most_pages and batch_size <= most_sequences:
                most = None if clusters is None else min(clusters, batch_size)
                return "native", {"long_clusters": most}
    select = next(launch for limit, launch in PORTABLE_LAUNCHES if max_num_pages <= limit)
    if max_num_pages * PAGE_SIZE <= TOPK:
        return "portable", {"workers": 0, "select": select}
    most = INTERPRETER_WORKERS if interpreted else RESIDENT_WORKERS
    groups = -(-batch_size // ROWS)
    pages = min(batch_size, ROWS) * max_num_pages
    workers = min(pages, max(most // groups, min(most, LEAST_WORKERS)))
    return "portable", {"workers": workers, "select": select}


def require_fp8(tensor):
    """Refuse a GPU whose instructions do not convert e4m3. Raises RuntimeError."""
    if not tensor.is_cuda:
        return
    gpu = torch.cuda.get_device_properties(tensor.device)
    if (gpu.major, gpu.minor) < (8, 9):
        raise RuntimeError(
            f"dsa_indexer: expected FP8 (compute capability 8.9 or newer), got {gpu.name} with "
            f"{gpu.major}.{gpu.minor}; run it on an Ada, Hopper or Blackwell GPU"
        )


def check(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    """Refuse what the definition does not allow. Reads metadata only. Returns B and M."""
    require(q_index_fp8, "q_index_fp8", (None, NUM_HEADS, HEAD_DIM), torch.float8_e4m3fn)
    batch_size = q_index_fp8.shape[0]
    inputs = {
        "k_index_cache_fp8": (k_index_cache_fp8, (None, PAGE_SIZE, 1, BYTES_PER_TOKEN), torch.int8),
        "weights": (weights, (batch_size, NUM_HEADS), torch.float32),
        "seq_lens": (seq_lens, (batch_size,), torch.int32),
        "block_table": (block_table, (batch_size, None), torch.int32),
    }
    for name, (tensor, shape, dtype) in inputs.items():
        require(tensor, name, shape, dtype, like=q_index_fp8)
    if k_index_cache_fp8.data_ptr() % 4:
        raise ValueError(
            "k_index_cache_fp8: expected an address that is a multiple of 4 (it holds fp32 "
            f"scales), got {k_index_cache_fp8.data_ptr():#x}; pass k_index_cache_fp8.clone()"
        )
    require(topk_indices, "topk_indices", (batch_size, TOPK), torch.int32, like=q_index_fp8)
    require_disjoint(topk_indices, "topk_indices", q_index_fp8, "q_index_fp8")
    for name, (tensor, _, _) in inputs.items():
        require_disjoint(topk_indices, "topk_indices", tensor, name)
    return batch_size, block_table.shape[1]


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    """Selects the 2048 best tokens of each sequence; writes topk_indices, reads everything else.

    q_index_fp8 [B,64,128] e4m3; k_index_cache_fp8 [P,64,1,132] int8, each page 64 rows of 128 codes
    and then 64 fp32 scales; weights [B,64] fp32; seq_lens [B], block_table [B,M], topk_indices
    [B,2048] int32. All contiguous. Lengths and pages are read on the device alone; a length beyond
    the block table is cut to it, and a page outside the cache is not read.
    Raises TypeError or ValueError naming the argument, RuntimeError where the GPU knows no FP8.
    """
    batch_size, max_num_pages = check(
        q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices
    )
    if batch_size == 0:
        return
    require_fp8(q_index_fp8)
    tensors = (q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices)
    capability = torch.cuda.get_device_capability(seq_lens.device) if seq_lens.is_cuda else None
    known = {"capability": capability, "interpreted": is_interpreted(score_kernel)}
    known["is_aligned"] = all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    is_buildable = run_native is not None and can_build(capability)
    route, options = choose(batch_size, max_num_pages, can_build=is_buildable, **known)
    if route == "native" and not has_clusters(seq_lens.device):
        route, options = choose(batch_size, max_num_pages, **known)
    (run_native if route == "native" else _run_portable)(*tensors, **options)


def _run_portable(
    q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices, *, workers, select
):
    batch_size, max_num_pages = block_table.shape
    interpreted, threads = is_interpreted(score_kernel), 32 * select["num_warps"]
    scales, num_pages = k_index_cache_fp8.view(torch.float32), k_index_cache_fp8.shape[0]
    sizes = {"PAGE": PAGE_SIZE, "K": TOPK}
    sizes["PDL"] = workers > 0 and has_programmatic_launch(q_index_fp8, score_kernel)
    keys = candidates = None
    launches = []
    with torch.cuda.device_of(q_index_fp8):
        if workers:
            keys = seq_lens.new_empty((batch_size, max_num_pages * PAGE_SIZE))
            if not select["FITS"]:
                candidates = seq_lens.new_empty((batch_size, 2, select["EACH"] * threads))
            grid = (-(-batch_size // ROWS) * workers,)
            arguments = (q_index_fp8, k_index_cache_fp8, scales, weights, seq_lens, block_table)
            arguments += (keys, batch_size, max_num_pages, num_pages, workers)
            options = {"H": NUM_HEADS, "D": HEAD_DIM, "ROWS": ROWS, "num_warps": 4, **sizes}
            options["SPAN"] = INTERPRETER_SPAN if interpreted else 1
            options["OPERAND"] = tl.float32 if interpreted else tl.float16
            launches.append(prepare(score_kernel, grid, *arguments, **options))
        arguments = (seq_lens, block_table, keys, candidates, topk_indices, max_num_pages)
        options = {"THREADS": threads, **select, **sizes}
        if sizes["PDL"]:
            options["launch_pdl"] = True
        launches.append(prepare(select_kernel, (batch_size,), *arguments, **options))
        for start in launches:
            start()
