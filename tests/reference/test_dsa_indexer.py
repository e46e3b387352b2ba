"""The dsa_indexer definition: its table, and its reference against the fp64 oracle."""

import numpy as np
import pytest
import torch

from tests.oracles.dsa_indexer import (
    TOPK,
    check,
    error_bounds,
    inputs_with_scores,
    integer_inputs,
    oracle,
    random_inputs,
)
from tests.reference.definitions import assert_official, parts, reference

ROOM = "dsa_indexer"
E4M3_ONE, SIGN = 0x38, 0x80


def select(inputs):
    """Returns topk_indices; the inputs must come out as they went in."""
    before = {name: value.clone() for name, value in inputs.items()}
    topk_indices = reference(ROOM)(*inputs.values())  # the Runnable unpacks the 1-tuple
    for name, value in before.items():  # as bytes: unused slots hold NaN
        if value.numel():
            same = torch.equal(inputs[name].view(torch.uint8), value.view(torch.uint8))
            assert same, f"{name} was written"
    return topk_indices


def positions_of(inputs, topk_indices, row):
    """Positions in the sequence of a row's ids, in the row's order."""
    length = int(inputs["seq_lens"][row])
    pages = inputs["block_table"][row].tolist()
    position = {pages[j // 64] * 64 + j % 64: j for j in range(length)}
    return [position[token] for token in topk_indices[row, : min(TOPK, length)].tolist()]


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
    scores, bounds = oracle(*inputs.values()), error_bounds(*inputs.values())
    check(topk_indices, scores, inputs["block_table"], inputs["seq_lens"], bounds)
    for row, (score, bound) in enumerate(zip(scores, bounds, strict=True)):
        listed = positions_of(inputs, topk_indices, row)
        falls = (score + bound)[listed[:-1]] >= (score - bound)[listed[1:]]
        assert falls.all(), f"row {row}: not in descending order"


def test_best_come_first():
    """Scores that fp32 holds exactly, of either sign: their order is the only right one."""
    generator = torch.Generator().manual_seed(41)
    scores = [torch.randn(length, generator=generator) for length in (5, 700, 2500)]
    inputs = inputs_with_scores(scores, seed=41)
    topk_indices = select(inputs)
    for row, score in enumerate(scores):
        best = score.sort(descending=True).indices[:TOPK].tolist()
        assert positions_of(inputs, topk_indices, row) == best


@pytest.mark.parametrize("seq_lens", [[2500], [40, 2049]], ids=str)
def test_ties(seq_lens):
    """Which of the tied tokens win is open, but they are distinct and none better is left out."""
    inputs = integer_inputs(seq_lens, seed=42)
    scores = oracle(*inputs.values())
    assert len(scores[-1].unique()) < 20
    check(select(inputs), scores, inputs["block_table"], inputs["seq_lens"])


def test_all_scores_equal():
    inputs = random_inputs([2500], seed=43)
    inputs["weights"].zero_()
    topk_indices = select(inputs)
    assert len(set(positions_of(inputs, topk_indices, 0))) == TOPK


@pytest.mark.parametrize("unused", ["poison", "best"])
def test_unused_slots_do_not_matter(unused):
    """NaN codes and scales, or the best keys of all, in slots behind a sequence's end."""
    inputs = random_inputs([0, 1, 65, 2049], seed=44, unused=unused)
    scores, bounds = oracle(*inputs.values()), error_bounds(*inputs.values())
    check(select(inputs), scores, inputs["block_table"], inputs["seq_lens"], bounds)


def test_wider_block_table_changes_nothing():
    narrow = random_inputs([130, 7], seed=45)
    wide = random_inputs([130, 7], seed=45, max_num_pages=91)
    assert narrow["block_table"].shape == (2, 3)
    assert wide["block_table"].shape == (2, 91)
    assert torch.equal(select(narrow), select(wide))


def test_page_is_packed_by_columns():
    """Codes of all 64 tokens first, then their scales; bytes are unsigned, scales little-endian."""
    pages = np.zeros((2, 8448), dtype=np.uint8)
    pages[0, 5 * 128 + 9] = E4M3_ONE
    pages[1, 63 * 128 + 127] = SIGN | E4M3_ONE
    pages[:, 8192:] = np.arange(1.0, 129.0, dtype="<f4").reshape(2, 64).view(np.uint8)
    cache = torch.from_numpy(pages.view(np.int8).reshape(2, 64, 1, 132))
    want = torch.zeros(128, 128)
    want[5, 9] = 6.0
    want[127, 127] = -128.0
    for some in ([0, 1], [1], [0]):
        keys = parts(ROOM)["dequantise_pages"](cache[some])
        assert keys.dtype == torch.float32
        assert torch.equal(keys, want.view(2, 64, 128)[some].flatten(0, 1))


def test_relu_comes_before_the_weight():
    """A negative weight makes a positive product count against a token, never a negative one."""
    inputs = inputs_with_scores([[2.0, 0.0, -2.0]], seed=46)
    inputs["q_index_fp8"] = torch.ones(1, 64, 128).to(torch.float8_e4m3fn)
    up, down = torch.full((1, 64), 1.0), torch.full((1, 64), -1.0)
    assert positions_of(inputs, select(inputs | {"weights": up}), 0)[0] == 0
    assert positions_of(inputs, select(inputs | {"weights": down}), 0)[2] == 0


def test_sequences_may_share_pages():
    inputs = random_inputs([130, 130], seed=47)
    for name in ("block_table", "weights", "q_index_fp8"):
        inputs[name][1] = inputs[name][0]
    topk_indices = select(inputs)
    assert torch.equal(topk_indices[0], topk_indices[1])


def test_empty_batch():
    topk_indices = select(random_inputs([], seed=0))
    assert topk_indices.shape == (0, TOPK)
    assert topk_indices.dtype == torch.int32
