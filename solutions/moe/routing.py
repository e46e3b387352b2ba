"""Routing: which experts a token goes to, with what weight, and at which packed row.

    s      = sigmoid(logits) [T,256]             s_b = s + bias
    groups : 8 of 32 consecutive experts, scored by the sum of their 2 largest s_b; 4 are kept
    slots  : the 8 largest s_b in the kept groups
    weight = s / (sum of s over the 8 slots + 1e-20) * routed_scaling_factor       (s without bias)

The (token, slot) pairs whose expert is local are packed: packed rows are sorted by local expert,
then by token. `counts` [32] holds the rows per local expert, `row_token` [8T] the token of each
packed row, `slot_row` [T,8] the packed row of each slot, -1 where the expert is not local.

Grid: a few tokens are routed and packed by one program (route_and_pack_kernel). Of more, blocks
are routed and counted in parallel (route_kernel), and each block then finds its rows from the
counts of all blocks (pack_kernel): no atomics, no serial scan over the tokens, and the same
placement on every run.

Numerics: scores in fp32, 1 / (1 + exp(-x)) with a correctly rounded division. Ties go to the lower
group and the lower expert. NaN and -inf scores rank last, as a finite number, so that the 8 slots
of a token are always 8 different experts.
"""

import triton
import triton.language as tl

from .dependent_launch import enter_chain

NUM_EXPERTS = tl.constexpr(256)
NUM_LOCAL_EXPERTS = tl.constexpr(32)
GROUP_SIZE = tl.constexpr(32)
KEPT_GROUPS = tl.constexpr(4)
TOP_K = tl.constexpr(8)
# Scores are held as two halves of 128 experts: a half is one row of a warp, 4 experts to a lane,
# so reductions over experts never cross warps.
HALF = tl.constexpr(128)
HALF_GROUPS = tl.constexpr(4)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # most negative finite fp32: dropped groups
TAKEN = tl.constexpr(-2147483648)  # below the key of every finite score


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def load_logits(logits_ptr, experts, tokens, num_tokens):
    """Logits of `experts` [B,n] or [1,n] for each token [B]; zeros for tokens >= num_tokens."""
    pointers = logits_ptr + tokens.to(tl.int64)[:, None] * NUM_EXPERTS + experts
    return tl.load(pointers, mask=(tokens < num_tokens)[:, None], other=0.0)


@triton.jit
def score_half(logits_ptr, bias_ptr, experts, tokens, num_tokens):
    """Biased scores [B,128] of 128 experts; NaN and -inf become LOWEST."""
    logits = load_logits(logits_ptr, experts[None, :], tokens, num_tokens)
    scores = sigmoid(logits) + tl.load(bias_ptr + experts).to(tl.float32)[None, :]
    return tl.where(scores >= LOWEST, scores, LOWEST)


@triton.jit
def score_groups(scores):
    """Sum of the two largest scores of each group: [B,128] -> [B,4]."""
    members = tl.reshape(scores, [scores.shape[0], HALF_GROUPS, GROUP_SIZE])
    largest = tl.max(members, axis=2)
    position = tl.arange(0, GROUP_SIZE)[None, None, :]
    is_largest = members == largest[:, :, None]
    first = tl.min(tl.where(is_largest, position, GROUP_SIZE), axis=2)
    others = tl.where(position == first[:, :, None], LOWEST, members)
    return largest + tl.max(others, axis=2)


@triton.jit
def count_better(mine, other, WINS_TIES: tl.constexpr):
    """For each group in mine [B,4], how many in other [B,4] beat it.

    WINS_TIES: whether an equal group of `other` goes first; None where both are the same groups,
    of which the lower one goes first.
    """
    mine, other = mine[:, :, None], other[:, None, :]
    if WINS_TIES is None:
        group = tl.arange(0, HALF_GROUPS)
        is_lower = (group[None, :] < group[:, None])[None, :, :]
        is_better = (other > mine) | ((other == mine) & is_lower)
    elif WINS_TIES:
        is_better = other >= mine
    else:
        is_better = other > mine
    return tl.sum(is_better.to(tl.int32), axis=2)


@triton.jit
def keep_groups(scores, rank):
    """Keys of scores [B,128]: int32 in the order of the floats; groups ranked 4 or later drop."""
    BLOCK: tl.constexpr = scores.shape[0]
    is_kept = (rank < KEPT_GROUPS)[:, :, None]
    members = tl.where(is_kept, tl.reshape(scores, [BLOCK, HALF_GROUPS, GROUP_SIZE]), LOWEST)
    bits = tl.reshape(members, [BLOCK, HALF]).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def choose_experts(logits_ptr, bias_ptr, tokens, num_tokens):
    """The 8 expert ids of each token [B,8] int32, best first; a token >= num_tokens routes too."""
    BLOCK: tl.constexpr = tokens.shape[0]
    low_experts = tl.arange(0, HALF)
    high_experts = HALF + tl.arange(0, HALF)
    low = score_half(logits_ptr, bias_ptr, low_experts, tokens, num_tokens)
    high = score_half(logits_ptr, bias_ptr, high_experts, tokens, num_tokens)
    low_groups, high_groups = score_groups(low), score_groups(high)
    low_rank = count_better(low_groups, low_groups, None)
    low_rank += count_better(low_groups, high_groups, False)
    high_rank = count_better(high_groups, high_groups, None)
    high_rank += count_better(high_groups, low_groups, True)
    low, high = keep_groups(low, low_rank), keep_groups(high, high_rank)

    slots = tl.arange(0, TOP_K)
    chosen = tl.zeros([BLOCK, TOP_K], tl.int32)
    for slot in tl.static_range(TOP_K):
        # Integer maxima and minima over a warp are one instruction, an argmax is ten shuffles.
        best = tl.max(tl.maximum(low, high), axis=1)[:, None]
        in_low = tl.where(low == best, low_experts[None, :], NUM_EXPERTS)
        in_high = tl.where(high == best, high_experts[None, :], NUM_EXPERTS)
        expert = tl.min(tl.minimum(in_low, in_high), axis=1)[:, None]
        low = tl.where(low_experts[None, :] == expert, TAKEN, low)
        high = tl.where(high_experts[None, :] == expert, TAKEN, high)
        chosen = tl.where(slots[None, :] == slot, expert, chosen)
    return chosen


@triton.jit
def weigh_experts(logits_ptr, chosen, tokens, num_tokens, routed_scaling_factor):
    """Routing weights [B,8] fp32 of the chosen experts: their scores without bias, normalised."""
    scores = sigmoid(load_logits(logits_ptr, chosen, tokens, num_tokens))
    total = tl.sum(scores, axis=1) + 1e-20
    return scores / total[:, None] * routed_scaling_factor


@triton.jit
def to_local(chosen, local_expert_offset, tokens, num_tokens):
    """Local ids [B,8] int32 of global ones; -1 for experts of other ranks and absent tokens."""
    local = chosen - local_expert_offset
    is_local = (local >= 0) & (local < NUM_LOCAL_EXPERTS) & (tokens < num_tokens)[:, None]
    return tl.where(is_local, local, -1).to(tl.int32)


@triton.jit
def membership(local):
    """[B,8,32] int32: slot j of token i goes to local expert e."""
    experts = tl.arange(0, NUM_LOCAL_EXPERTS)
    return (local[:, :, None] == experts[None, None, :]).to(tl.int32)


@triton.jit
def pack_block(local, first_row, tokens, row_token_ptr, slot_row_ptr, num_tokens):
    """Give each local slot of a block of tokens its packed row.

    first_row [32]: the row of the block's first token at each local expert.
    """
    member = membership(local)
    is_member = tl.sum(member, axis=1)
    row = first_row[None, :] + tl.cumsum(is_member, axis=0) - is_member
    slot_row = tl.sum(member * row[:, None, :], axis=2)
    is_local = local >= 0
    everywhere = tl.broadcast_to(tokens[:, None], local.shape)
    tl.store(row_token_ptr + slot_row, everywhere, mask=is_local)
    slots = tokens.to(tl.int64)[:, None] * TOP_K + tl.arange(0, TOP_K)[None, :]
    is_token = (tokens < num_tokens)[:, None]
    tl.store(slot_row_ptr + slots, tl.where(is_local, slot_row, -1), mask=is_token)


@triton.jit(do_not_specialize=["local_expert_offset", "num_tokens"])
def route_and_pack_kernel(
    logits_ptr,  # [T, 256] fp32
    bias_ptr,  # [256] bf16
    slot_weight_ptr,  # [T, 8] fp32, out
    slot_row_ptr,  # [T, 8] int32, out
    row_token_ptr,  # [8T] int32, out
    counts_ptr,  # [32] int32, out
    routed_scaling_factor,
    local_expert_offset,
    num_tokens,
    BLOCK: tl.constexpr,  # tokens, at least num_tokens
):
    # Grid: (1,)
    tokens = tl.arange(0, BLOCK)
    chosen = choose_experts(logits_ptr, bias_ptr, tokens, num_tokens)
    weight = weigh_experts(logits_ptr, chosen, tokens, num_tokens, routed_scaling_factor)
    slots = tokens[:, None] * TOP_K + tl.arange(0, TOP_K)[None, :]
    tl.store(slot_weight_ptr + slots, weight, mask=(tokens < num_tokens)[:, None])

    local = to_local(chosen, local_expert_offset, tokens, num_tokens)
    counts = tl.sum(tl.sum(membership(local), axis=1), axis=0)
    tl.store(counts_ptr + tl.arange(0, NUM_LOCAL_EXPERTS), counts)
    first_row = tl.cumsum(counts, axis=0) - counts
    pack_block(local, first_row, tokens, row_token_ptr, slot_row_ptr, num_tokens)


@triton.jit(do_not_specialize=["local_expert_offset", "num_tokens"])
def route_kernel(
    logits_ptr,  # [T, 256] fp32
    bias_ptr,  # [256] bf16
    slot_weight_ptr,  # [T, 8] fp32, out
    slot_local_ptr,  # [T, 8] int32, out: local expert or -1
    block_counts_ptr,  # [grid, 32] int32, out: slots per local expert in the block
    routed_scaling_factor,
    local_expert_offset,
    num_tokens,
    BLOCK: tl.constexpr,
):
    # Grid: (cdiv(T, BLOCK),)
    block = tl.program_id(0)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    chosen = choose_experts(logits_ptr, bias_ptr, tokens, num_tokens)
    weight = weigh_experts(logits_ptr, chosen, tokens, num_tokens, routed_scaling_factor)
    local = to_local(chosen, local_expert_offset, tokens, num_tokens)
    slots = tokens.to(tl.int64)[:, None] * TOP_K + tl.arange(0, TOP_K)[None, :]
    is_token = (tokens < num_tokens)[:, None]
    tl.store(slot_weight_ptr + slots, weight, mask=is_token)
    tl.store(slot_local_ptr + slots, local, mask=is_token)
    counts = tl.sum(tl.sum(membership(local), axis=1), axis=0)
    experts = tl.arange(0, NUM_LOCAL_EXPERTS)
    tl.store(block_counts_ptr + block * NUM_LOCAL_EXPERTS + experts, counts)


@triton.jit(do_not_specialize=["num_tokens", "num_blocks"])
def pack_kernel(
    slot_local_ptr,  # [T, 8] int32
    block_counts_ptr,  # [num_blocks, 32] int32
    slot_row_ptr,  # [T, 8] int32, out
    row_token_ptr,  # [8T] int32, out
    counts_ptr,  # [32] int32, out
    num_tokens,
    num_blocks,
    BLOCK: tl.constexpr,  # the same as route_kernel's
    PDL: tl.constexpr,
):
    # Grid: (num_blocks,). Each program adds up the table of block counts: 128 bytes a block.
    enter_chain(PDL)
    CHUNK: tl.constexpr = 64
    block = tl.program_id(0)
    experts = tl.arange(0, NUM_LOCAL_EXPERTS)
    total = tl.zeros([NUM_LOCAL_EXPERTS], tl.int32)
    before = tl.zeros([NUM_LOCAL_EXPERTS], tl.int32)  # in the blocks ahead of this one
    for first in range(0, num_blocks, CHUNK):
        blocks = first + tl.arange(0, CHUNK)
        table = tl.load(
            block_counts_ptr + blocks[:, None] * NUM_LOCAL_EXPERTS + experts[None, :],
            mask=(blocks < num_blocks)[:, None],
            other=0,
        )
        total += tl.sum(table, axis=0)
        before += tl.sum(tl.where((blocks < block)[:, None], table, 0), axis=0)
    if block == 0:
        tl.store(counts_ptr + experts, total)

    tokens = block * BLOCK + tl.arange(0, BLOCK)
    slots = tokens.to(tl.int64)[:, None] * TOP_K + tl.arange(0, TOP_K)[None, :]
    local = tl.load(slot_local_ptr + slots, mask=(tokens < num_tokens)[:, None], other=-1)
    first_row = tl.cumsum(total, axis=0) - total + before
    pack_block(local, first_row, tokens, row_token_ptr, slot_row_ptr, num_tokens)


@triton.jit
def num_row_tiles(counts, BLOCK_ROWS: tl.constexpr):
    """Tiles of at most BLOCK_ROWS packed rows that do not cross an expert's border."""
    return tl.sum((counts + (BLOCK_ROWS - 1)) // BLOCK_ROWS, axis=0)


@triton.jit
def locate_row_tile(tile, counts, BLOCK_ROWS: tl.constexpr):
    """The work list, computed where it is used. counts [32]: packed rows per local expert.

    Returns local expert, first packed row and number of rows (1..BLOCK_ROWS) of tile `tile`.
    """
    experts = tl.arange(0, NUM_LOCAL_EXPERTS)
    tiles = (counts + (BLOCK_ROWS - 1)) // BLOCK_ROWS
    expert = tl.sum((tl.cumsum(tiles, axis=0) <= tile).to(tl.int32), axis=0)
    is_before = experts < expert
    row_in_expert = (tile - tl.sum(tl.where(is_before, tiles, 0), axis=0)) * BLOCK_ROWS
    num_rows = tl.sum(tl.where(experts == expert, counts, 0), axis=0) - row_in_expert
    first_row = tl.sum(tl.where(is_before, counts, 0), axis=0) + row_in_expert
    return expert, first_row, tl.minimum(num_rows, BLOCK_ROWS)
