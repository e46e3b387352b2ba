"""The dsa_indexer definition: its table, and its reference against the fp64 oracle."""

import numpy as np
import pytest
import torch

from tests.oracles.dsa_indexer import oracle
from tests.reference.definitions import assert_official, parts, reference

ROOM = "dsa_indexer"
TOPK, PAGE_SIZE, NUM_HEADS, HEAD_DIM = 2048, 64, 64, 128
CODES_BYTES, PAGE_BYTES = 8192, 8448
E4M3_NAN, E4M3_ONE = 0x7F, 0x38


def pack_cache(codes, scales):
    """codes [P, 64, 128] uint8 and scales [P, 64] fp32, each page by columns. Returns the cache
    [P, 64, 1, 132] int8."""
    pages = np.empty((codes.shape[0], PAGE_BYTES), dtype=np.uint8)
    pages[:, :CODES_BYTES] = codes.reshape(codes.shape[0], -1)
    pages[:, CODES_BYTES:] = scales.astype("<f4").view(np.uint8)
    return torch.from_numpy(pages.view(np.int8).reshape(-1, PAGE_SIZE, 1, 132))


def random_inputs(seq_lens, seed, unused="zero"):
    """Scattered pages, page 0 never used. `unused` says what slots and table entries of no
    sequence hold: zeros, or NaN codes, NaN scales and page numbers far outside."""
    rng = np.random.default_rng(seed)
    num_used = [-(-length // PAGE_SIZE) for length in seq_lens]
    num_pages = 1 + sum(num_used)
    max_num_pages = max([1, *num_used])
    free = rng.permutation(np.arange(1, num_pages))
    fill = 0 if unused == "zero" else 2**30
    block_table = np.full((len(seq_lens), max_num_pages), fill, dtype=np.int32)
    live = np.zeros((num_pages, PAGE_SIZE), dtype=bool)
    for row, length in enumerate(seq_lens):
        pages, free = free[: num_used[row]], free[num_used[row] :]
        block_table[row, : num_used[row]] = pages
        live[pages] = np.arange(num_used[row] * PAGE_SIZE).reshape(-1, PAGE_SIZE) < length
    keys = torch.from_numpy(rng.standard_normal((num_pages, PAGE_SIZE, HEAD_DIM), np.float32))
    codes = keys.to(torch.float8_e4m3fn).view(torch.uint8).numpy().copy()
    scales = rng.uniform(0.5, 2.0, (num_pages, PAGE_SIZE)).astype(np.float32)
    codes[~live] = 0 if unused == "zero" else E4M3_NAN
    scales[~live] = 0 if unused == "zero" else np.nan
    queries = torch.from_numpy(
        rng.standard_normal((len(seq_lens), NUM_HEADS, HEAD_DIM), np.float32)
    )
    return {
        "q_index_fp8": queries.clamp(-2, 2).to(torch.float8_e4m3fn),
        "k_index_cache_fp8": pack_cache(codes, scales),
        "weights": torch.from_numpy(rng.standard_normal((len(seq_lens), NUM_HEADS), np.float32)),
        "seq_lens": torch.tensor(seq_lens, dtype=torch.int32),
        "block_table": torch.from_numpy(block_table),
    }


def select(inputs):
    """Returns topk_indices; the inputs must come out as they went in."""
    before = {name: value.clone() for name, value in inputs.items()}
    topk_indices = reference(ROOM)(*inputs.values())  # the Runnable unpacks the 1-tuple
    for name, value in before.items():  # as bytes: unused slots may hold NaN
        if value.numel():
            same = torch.equal(inputs[name].view(torch.uint8), value.view(torch.uint8))
            assert same, f"{name} was written"
    assert topk_indices.dtype == torch.int32
    assert topk_indices.shape == (len(inputs["seq_lens"]), TOPK)
    return topk_indices


def physical_ids(inputs, row):
    """The ids of a sequence's tokens, in the order of their positions."""
    length = int(inputs["seq_lens"][row])
    pages = inputs["block_table"][row].tolist()
    return [pages[j // PAGE_SIZE] * PAGE_SIZE + j % PAGE_SIZE for j in range(length)]


def scores_by_id(inputs, row, scores):
    return dict(zip(physical_ids(inputs, row), scores.tolist(), strict=True))


def assert_best_first(chosen, by_id):
    """`chosen` are distinct ids of the sequence, best first, and no better one was left out.

    fp32 against fp64: scores are sums of 64 heads of products of 128, so two that differ by less
    than 2e-5 of the largest may swap.
    """
    assert len(chosen) == min(TOPK, len(by_id))
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(by_id)
    slack = 2e-5 * max(abs(score) for score in by_id.values())
    listed = np.array([by_id[token] for token in chosen])
    assert (np.diff(listed) <= slack).all(), "not in descending order"
    left_out = [score for token, score in by_id.items() if token not in set(chosen)]
    assert max(left_out, default=-np.inf) <= listed[-1] + slack


def test_table():
    assert_official(
        ROOM,
        axes={
            "batch_size": None,
            "num_index_heads": 64,
            "index_head_dim": 128,
            "page_size": 64,
            "topk": 2048,
            "max_num_pages": None,
            "num_pages": None,
            "kv_cache_num_heads": 1,
            "head_dim_with_scale": 132,
        },
        inputs="""
            q_index_fp8       [batch_size, num_index_heads, index_head_dim]  float8_e4m3fn
            k_index_cache_fp8 [num_pages, page_size, kv_cache_num_heads, head_dim_with_scale] int8
            weights           [batch_size, num_index_heads]                  float32
            seq_lens          [batch_size]                                   int32
            block_table       [batch_size, max_num_pages]                    int32
        """,
        outputs="topk_indices [batch_size, topk] int32",
        constraints=["topk <= max_num_pages * page_size"],
        tags=[
            "stage:indexer",
            "status:verified",
            "model:deepseek-v3.2",
            "sparse:topk",
            "quant:fp8",
        ],
    )


@pytest.mark.parametrize(
    "seq_lens", [[1], [63, 64, 65], [0, 200, 0], [2047, 2048, 2049], [3000, 17]], ids=str
)
def test_matches_oracle(seq_lens):
    inputs = random_inputs(seq_lens, seed=sum(seq_lens))
    topk_indices = select(inputs)
    scores = oracle(*inputs.values())
    for row, length in enumerate(seq_lens):
        count = min(TOPK, length)
        assert (topk_indices[row, count:] == -1).all()
        if count:
            by_id = scores_by_id(inputs, row, scores[row])
            assert_best_first(topk_indices[row, :count].tolist(), by_id)


def test_unused_slots_do_not_matter():
    """NaN codes, NaN scales and page numbers far outside, wherever no sequence reads."""
    seq_lens = [0, 1, 65, 2049]
    zeros = select(random_inputs(seq_lens, seed=41))
    poisoned = select(random_inputs(seq_lens, seed=41, unused="poison"))
    assert torch.equal(zeros, poisoned)


def test_page_is_packed_by_columns():
    """Codes of all 64 tokens first, then their scales; bytes are unsigned."""
    codes = np.zeros((2, PAGE_SIZE, HEAD_DIM), dtype=np.uint8)
    codes[0, 5, 9] = E4M3_ONE
    codes[1, 63, 127] = 0x80 | E4M3_ONE
    scales = np.arange(1.0, 129.0, dtype=np.float32).reshape(2, PAGE_SIZE) / 3
    keys = parts(ROOM)["dequantise_pages"](pack_cache(codes, scales))
    want = torch.zeros(2 * PAGE_SIZE, HEAD_DIM)
    want[5, 9] = float(scales[0, 5])
    want[127, 127] = -float(scales[1, 63])
    assert keys.dtype == torch.float32
    assert torch.equal(keys, want)


def test_relu_comes_before_the_weight():
    """A negative weight makes a positive product count against a token, never a negative one."""
    codes = np.zeros((2, PAGE_SIZE, HEAD_DIM), dtype=np.uint8)
    codes[1, 0, 0] = E4M3_ONE  # product +1
    codes[1, 1, 0] = 0x80 | E4M3_ONE  # product -1
    inputs = random_inputs([3], seed=42)
    inputs["k_index_cache_fp8"] = pack_cache(codes, np.ones((2, PAGE_SIZE), np.float32))
    inputs["q_index_fp8"] = torch.ones(1, NUM_HEADS, HEAD_DIM).to(torch.float8_e4m3fn)
    last = select(inputs | {"weights": torch.full((1, NUM_HEADS), -1.0)})[0, 2]
    first = select(inputs | {"weights": torch.full((1, NUM_HEADS), 1.0)})[0, 0]
    assert int(last) == int(first) == PAGE_SIZE


def test_ties_give_distinct_tokens():
    """Every score is equal: which tokens win is open, that they are 2048 different ones is not."""
    inputs = random_inputs([2500], seed=43)
    inputs["weights"].zero_()
    chosen = select(inputs)[0].tolist()
    assert len(set(chosen)) == TOPK
    assert set(chosen) <= set(physical_ids(inputs, 0))


def test_sequences_may_share_pages():
    inputs = random_inputs([130, 130], seed=44)
    inputs["block_table"][1] = inputs["block_table"][0]
    inputs["weights"][1] = inputs["weights"][0]
    inputs["q_index_fp8"][1] = inputs["q_index_fp8"][0]
    topk_indices = select(inputs)
    assert torch.equal(topk_indices[0], topk_indices[1])


def test_empty_batch():
    assert select(random_inputs([], seed=0)).shape == (0, TOPK)
