"""fp64 oracle of dsa_indexer, the inputs that its tests start from, and the proof of an output.

The selection of a row is not compared with another selection: `check` proves from the fp64 scores
that no token left out beats one that was chosen. Ties and order are therefore free.
"""

from __future__ import annotations

import numpy as np
import torch

NUM_HEADS, HEAD_DIM, PAGE_SIZE, TOPK = 64, 128, 64, 2048
CODES_BYTES, PAGE_BYTES = 8192, 8448
NAN_CODE, LARGEST_CODE = 0x7F, 0x7E
FAR_PAGE = 2**30  # an entry of the block table that must never become an address
# Each fp32 product and addition rounds by 2^-24 relative, tensor cores truncate: twice that. A
# score takes 128 additions of a head, a scale, a weight, 64 additions of heads.
RELATIVE_ERROR = (HEAD_DIM + NUM_HEADS + 4) * 2.0**-23


def pack_cache(codes, scales):
    """codes [P, 64, 128] uint8 and scales [P, 64] fp32, tensors, each page by columns. Returns the
    cache, [P, 64, 1, 132] int8."""
    parts = codes.flatten(1), scales.contiguous().view(torch.uint8)
    return torch.cat(parts, dim=1).view(torch.int8).view(-1, PAGE_SIZE, 1, PAGE_BYTES // PAGE_SIZE)


def tokens_of(cache, pages):
    """Keys before their scale [n * 64, 128] and scales [n * 64] of pages, fp64."""
    data = cache.view(cache.shape[0], PAGE_BYTES)[pages]
    codes = data[:, :CODES_BYTES].contiguous().view(torch.float8_e4m3fn)
    scales = data[:, CODES_BYTES:].contiguous().view(torch.float32)
    return codes.double().view(-1, HEAD_DIM), scales.double().flatten()


def rows(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table):
    """Of each row: query, keys, scales of its tokens, weights, all fp64."""
    for row, length in enumerate(seq_lens.tolist()):
        pages = block_table[row, : -(-length // PAGE_SIZE)].long()
        keys, scales = tokens_of(k_index_cache_fp8, pages)
        query = q_index_fp8[row].double()
        yield query, keys[:length], scales[:length], weights[row].double()


def oracle(*inputs):
    """Inputs as in the definition. Returns the scores of each row by position, fp64 on the CPU."""
    return [
        (weight @ torch.relu(query @ keys.T * scales)).cpu()
        for query, keys, scales, weight in rows(*inputs)
    ]


def error_bounds(*inputs):
    """How far an fp32 score may be from the oracle's: like oracle(), per position."""
    return [
        (RELATIVE_ERROR * (weight.abs() @ (query.abs() @ keys.abs().T) * scales.abs())).cpu()
        for query, keys, scales, weight in rows(*inputs)
    ]


def check(topk_indices, scores, block_table, seq_lens, bounds=None):
    """Assert that topk_indices [B, 2048] is a right answer to scores (a vector a row, by position).

    bounds: error of each score, like scores; None for scores that fp32 holds exactly. NaN ranks
    above +inf. A page that a row lists twice may be chosen twice.
    """
    assert topk_indices.dtype == torch.int32
    assert tuple(topk_indices.shape) == (len(scores), TOPK)
    for row, (length, score) in enumerate(zip(seq_lens.tolist(), scores, strict=True)):
        chosen, score = topk_indices[row].cpu().numpy(), score.numpy()
        count = min(TOPK, length)
        assert (chosen[count:] == -1).all(), f"row {row}: not -1 behind its {count} tokens"
        chosen = chosen[:count]
        ids = np.repeat(block_table[row].cpu().numpy().astype(np.int64), PAGE_SIZE)[:length]
        ids = ids * PAGE_SIZE + np.arange(length) % PAGE_SIZE
        known, first, available = np.unique(ids, return_index=True, return_counts=True)
        places = np.searchsorted(known, chosen).clip(max=len(known) - 1)
        if count:
            assert (known[places] == chosen).all(), f"row {row}: an id of no token below {length}"
        taken = np.bincount(places, minlength=len(known))
        assert (taken <= available).all(), f"row {row}: an id occurs too often"
        if count < length:
            rank = np.where(np.isnan(score), np.inf, score)[first]
            error = np.zeros(len(known)) if bounds is None else bounds[row].numpy()[first]
            error = np.nan_to_num(error, nan=0.0)  # a NaN score has no error: it ranks first
            worst = (rank + error)[taken > 0].min()
            best_left_out = (rank - error)[taken < available].max()
            assert worst >= best_left_out, f"row {row}: chose {worst}, left out {best_left_out}"


def _block_table(seq_lens, max_num_pages, rng):
    """Every row its own pages, out of order; page 0 is nobody's. Returns the table and the number
    of pages."""
    used = [-(-length // PAGE_SIZE) for length in seq_lens]
    table = np.full((len(seq_lens), max(max_num_pages, *used, 0)), FAR_PAGE, np.int32)
    free = 1 + rng.permutation(sum(used)).astype(np.int32)
    for row, count in enumerate(used):
        table[row, :count], free = free[:count], free[count:]
    return table, 1 + sum(used)


def _live_slots(table, seq_lens, num_pages):
    """[P, 64] bool: the slots that hold a token of some row."""
    live = np.zeros((num_pages, PAGE_SIZE), bool)
    for pages, length in zip(table, seq_lens, strict=True):
        used = pages[: -(-length // PAGE_SIZE)]
        live[used] |= np.arange(used.size * PAGE_SIZE).reshape(-1, PAGE_SIZE) < length
    return torch.from_numpy(live)


def _inputs(query, codes, scales, weights, seq_lens, table, device):
    inputs = {
        "q_index_fp8": query.to(torch.float8_e4m3fn),
        "k_index_cache_fp8": pack_cache(codes, scales),
        "weights": weights.float(),
        "seq_lens": torch.tensor(seq_lens, dtype=torch.int32),
        "block_table": torch.from_numpy(table),
    }
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def random_inputs(seq_lens, seed, device="cpu", max_num_pages=0, unused="poison"):
    """Inputs by name, in the definition's order, with official statistics: normal queries and keys,
    a key's scale is its largest magnitude / 448, normal weights.

    max_num_pages: least width of the block table. unused: "poison" fills the slots of no token with
    NaN codes and scales; "best" gives them the highest scores of all, and makes queries and weights
    positive for that. Unused entries of the block table are far outside the cache.
    """
    generator = torch.Generator().manual_seed(seed)
    table, num_pages = _block_table(seq_lens, max_num_pages, np.random.default_rng(seed))
    keys = torch.randn(num_pages, PAGE_SIZE, HEAD_DIM, generator=generator)
    scales = keys.abs().amax(dim=2) / 448.0
    codes = (keys / scales[:, :, None]).to(torch.float8_e4m3fn).view(torch.uint8)
    query = torch.randn(len(seq_lens), NUM_HEADS, HEAD_DIM, generator=generator).clamp(-2, 2)
    weights = torch.randn(len(seq_lens), NUM_HEADS, generator=generator)
    dead = ~_live_slots(table, seq_lens, num_pages)
    if unused == "best":
        query, weights = query.abs(), weights.abs()
        codes[dead], scales[dead] = LARGEST_CODE, 1.0
    else:
        codes[dead], scales[dead] = NAN_CODE, float("nan")
    return _inputs(query, codes, scales, weights, seq_lens, table, device)


def integer_inputs(seq_lens, seed, device="cpu", max_num_pages=0):
    """Small integers throughout: every score is one too, exact in fp32, and thousands of them tie.

    Three dimensions of the keys and two heads are not zero.
    """
    generator = torch.Generator().manual_seed(seed)
    table, num_pages = _block_table(seq_lens, max_num_pages, np.random.default_rng(seed))
    keys = torch.zeros(num_pages, PAGE_SIZE, HEAD_DIM)
    keys[..., ::50] = torch.randint(-1, 2, (num_pages, PAGE_SIZE, 3), generator=generator).float()
    scales = 2.0 ** torch.randint(0, 2, (num_pages, PAGE_SIZE), generator=generator)
    query = torch.ones(len(seq_lens), NUM_HEADS, HEAD_DIM)
    query[:, 1::2] = -1.0
    weights = torch.zeros(len(seq_lens), NUM_HEADS)
    weights[:, 10], weights[:, 11] = 1.0, -2.0
    dead = ~_live_slots(table, seq_lens, num_pages)
    codes = keys.to(torch.float8_e4m3fn).view(torch.uint8)
    codes[dead], scales[dead] = NAN_CODE, float("nan")
    return _inputs(query, codes, scales, weights, seq_lens, table, device)


def inputs_with_scores(scores, seed, device="cpu", max_num_pages=0):
    """Inputs whose scores, bit for bit, are the given fp32 vectors, one a row: finite ones of
    normal size, zero, +inf or NaN.

    A key is one unit, its scale the score. Head 0 passes positive scores, head 1 negative ones.
    """
    seq_lens = [len(score) for score in scores]
    table, num_pages = _block_table(seq_lens, max_num_pages, np.random.default_rng(seed))
    codes = torch.zeros(num_pages, PAGE_SIZE, HEAD_DIM)
    codes[..., 5] = 1.0
    scales = torch.full((num_pages, PAGE_SIZE), float("nan"))
    for pages, score in zip(table, scores, strict=True):
        positions = np.arange(len(score))
        scales[pages[positions // PAGE_SIZE], positions % PAGE_SIZE] = torch.as_tensor(score)
    query = -torch.ones(len(scores), NUM_HEADS, HEAD_DIM)
    query[:, 0] = 1.0
    weights = torch.zeros(len(scores), NUM_HEADS)
    weights[:, 0], weights[:, 1] = 1.0, -1.0
    codes = codes.to(torch.float8_e4m3fn).view(torch.uint8)
    return _inputs(query, codes, scales, weights, seq_lens, table, device)


def empty_output(batch_size, device="cpu"):
    """Uninitialised topk_indices."""
    return torch.empty(batch_size, TOPK, dtype=torch.int32, device=device)
