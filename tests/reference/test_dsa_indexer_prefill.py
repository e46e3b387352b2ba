"""The dsa_indexer_prefill definition: its table, and its reference against the fp64 oracle."""

import pytest
import torch

from tests.oracles.dsa_indexer_prefill import (
    TOPK,
    check,
    error_bounds,
    inputs_with_scores,
    integer_inputs,
    oracle,
    random_inputs,
)
from tests.reference.definitions import assert_official, reference

ROOM = "dsa_indexer_prefill"


def select(inputs):
    """Returns topk_indices; the inputs must come out as they went in."""
    before = {name: value.clone() for name, value in inputs.items()}
    topk_indices = reference(ROOM)(*inputs.values())  # the Runnable unpacks the 1-tuple
    for name, value in before.items():
        assert torch.equal(inputs[name].float(), value.float()), f"{name} was written"
    return topk_indices


def test_table():
    assert_official(
        ROOM,
        axes={
            "num_queries": None,
            "num_keys": None,
            "num_index_heads": 64,
            "index_head_dim": 128,
            "topk": 2048,
        },
        inputs="""
            q_index_fp8 [num_queries, num_index_heads, index_head_dim] float8_e4m3fn
            k_index_fp8 [num_keys, index_head_dim]                     float8_e4m3fn
            k_scale     [num_keys]                                     float32
            weights     [num_queries, num_index_heads]                 float32
            row_starts  [num_queries]                                  int32
            row_ends    [num_queries]                                  int32
        """,
        outputs="topk_indices [num_queries, topk] int32",
        constraints=[],
        tags=[
            "stage:indexer",
            "status:unofficial",
            "model:deepseek-v3.2",
            "sparse:topk",
            "quant:fp8",
        ],
    )


def test_matches_oracle():
    ranges = [(0, 1), (3, 2050), (3, 2051), (3, 2052), (0, 3000), (2000, 2990), (5, 5)]
    inputs = random_inputs(ranges, 3000, seed=1)
    topk_indices = select(inputs)
    check(topk_indices, inputs, oracle(inputs), error_bounds(inputs))
    for row, (score, bound) in enumerate(zip(oracle(inputs), error_bounds(inputs), strict=True)):
        start, end = ranges[row]
        listed = topk_indices[row, : min(TOPK, end - start)].long() - start
        falls = (score + bound)[listed[:-1]] >= (score - bound)[listed[1:]]
        assert falls.all(), f"row {row}: not in descending order"


def test_best_come_first():
    """Scores that fp32 holds exactly, of either sign: their order is the only right one."""
    scores = torch.randn(2500, generator=torch.Generator().manual_seed(2))
    inputs = inputs_with_scores(scores, [(0, 2500), (100, 400)])
    topk_indices = select(inputs)
    assert topk_indices[0].tolist() == scores.sort(descending=True).indices[:TOPK].tolist()
    inside = scores[100:400].sort(descending=True).indices + 100
    assert topk_indices[1, :300].tolist() == inside.tolist()


def test_ties():
    inputs = integer_inputs([(0, 2500), (7, 2100)], 2500, seed=3)
    check(select(inputs), inputs, oracle(inputs))


def test_relu_comes_before_the_weight_and_a_negative_scale_turns_a_key():
    inputs = inputs_with_scores([2.0, 0.0, -2.0], [(0, 3)])
    inputs["q_index_fp8"] = torch.ones(1, 64, 128).to(torch.float8_e4m3fn)
    up, down = torch.full((1, 64), 1.0), torch.full((1, 64), -1.0)
    assert select(inputs | {"weights": up})[0, 0] == 0
    assert select(inputs | {"weights": down})[0, 2] == 0


def test_ranges_are_cut_to_the_keys():
    ranges = [(-7, 3), (1, 2**31 - 1), (4, 2), (9, 12), (-(2**31), 2**31 - 1)]
    topk_indices = select(random_inputs(ranges, 5, seed=4))
    chosen = [sorted(row[row >= 0].tolist()) for row in topk_indices]
    assert chosen == [[0, 1, 2], [1, 2, 3, 4], [], [], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize(("ranges", "num_keys"), [([], 5), ([(0, 9)], 0)], ids=str)
def test_nothing_to_select(ranges, num_keys):
    topk_indices = select(random_inputs(ranges, num_keys, seed=5))
    assert topk_indices.shape == (len(ranges), TOPK)
    assert topk_indices.dtype == torch.int32
    assert (topk_indices == -1).all()
