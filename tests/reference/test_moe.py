"""The moe definition: its table, its routing, and its reference against the fp64 oracle.

The real weights are 1.4 GB. Here the 32 experts are 32 overlapping windows of one buffer, each a
row further than the one before: different experts, a few megabytes.
"""

import pytest
import torch

from tests.oracles.moe import (
    EXPERTS,
    HIDDEN,
    INTERMEDIATE,
    LOCAL_EXPERTS,
    oracle,
    random_inputs,
    route_to,
)
from tests.reference.definitions import assert_official, assert_rounded_once, parts, reference

ROOM = "moe"
FACTOR = 2.5

INPUTS = """
    routing_logits [seq_len, num_experts] float32
    routing_bias [num_experts] bfloat16
    hidden_states [seq_len, hidden_size] float8_e4m3fn
    hidden_states_scale [num_hidden_blocks, seq_len] float32
    gemm1_weights [num_local_experts, gemm1_out_size, hidden_size] float8_e4m3fn
    gemm1_weights_scale [num_local_experts, num_gemm1_out_blocks, num_hidden_blocks] float32
    gemm2_weights [num_local_experts, hidden_size, intermediate_size] float8_e4m3fn
    gemm2_weights_scale [num_local_experts, num_hidden_blocks, num_intermediate_blocks] float32
    local_expert_offset scalar int32
    routed_scaling_factor scalar float32
"""


@pytest.fixture(scope="module")
def weights():
    """The four weight inputs by name, scales of either sign."""
    generator = torch.Generator().manual_seed(51)

    def windows(rows, columns):
        codes = torch.randn(rows + LOCAL_EXPERTS - 1, columns, generator=generator)
        codes = codes.to(torch.float8_e4m3fn)
        return codes.as_strided((LOCAL_EXPERTS, rows, columns), (columns, columns, 1))

    def scales(rows, columns):
        return torch.randn(LOCAL_EXPERTS, rows, columns, generator=generator) * 0.02

    return {
        "gemm1_weights": windows(2 * INTERMEDIATE, HIDDEN),
        "gemm1_weights_scale": scales(32, 56),
        "gemm2_weights": windows(HIDDEN, INTERMEDIATE),
        "gemm2_weights_scale": scales(56, 16),
    }


def forward(inputs):
    """Returns output [T, 7168] bf16."""
    output = reference(ROOM)(*inputs.values())
    assert output.dtype == torch.bfloat16
    assert output.shape == inputs["hidden_states"].shape
    return output


def route(logits, bias=None, factor=FACTOR):
    bias = torch.zeros(EXPERTS, dtype=torch.bfloat16) if bias is None else bias
    return parts(ROOM)["route"](logits, bias, factor)


def test_table():
    assert_official(
        ROOM,
        axes={
            "seq_len": None,
            "num_experts": 256,
            "num_local_experts": 32,
            "hidden_size": 7168,
            "intermediate_size": 2048,
            "gemm1_out_size": 4096,
            "num_hidden_blocks": 56,
            "num_intermediate_blocks": 16,
            "num_gemm1_out_blocks": 32,
        },
        inputs=INPUTS,
        outputs="output [seq_len, hidden_size] bfloat16",
        constraints=[],
        tags=[
            "status:verified",
            "model:deepseek-v3",
            "model:deepseek-r1",
            "quantization:float8_e4m3fn",
            "fi_api:flashinfer.fused_moe.trtllm_fp8_block_scale_moe",
            "ep:8",
        ],
    )


def route_by_hand(logits, bias, factor):
    """One token in fp64 with sorts instead of top-k. Returns weights by expert."""
    scores = torch.sigmoid(logits.double())
    biased = scores + bias.double()
    groups = biased.view(8, 32).sort(dim=1, descending=True).values[:, :2].sum(dim=1)
    kept = groups.sort(descending=True).indices[:4].tolist()
    eligible = [expert for expert in range(EXPERTS) if expert // 32 in kept]
    best = sorted(eligible, key=lambda expert: -float(biased[expert]))[:8]
    total = sum(float(scores[expert]) for expert in best) + 1e-20
    return {expert: float(scores[expert]) / total * factor for expert in best}


@pytest.mark.parametrize("bias_scale", [0.0, 0.3, 30.0])
def test_routing_matches_a_sort(bias_scale):
    generator = torch.Generator().manual_seed(53)
    logits = torch.randn(20, EXPERTS, generator=generator) * 2
    bias = (torch.randn(EXPERTS, generator=generator) * bias_scale).bfloat16()
    experts, found = route(logits, bias)
    assert found.dtype == torch.float32
    for token in range(20):
        want = route_by_hand(logits[token], bias, FACTOR)
        got = dict(zip(experts[token].tolist(), found[token].tolist(), strict=True))
        assert got == pytest.approx(want, rel=1e-5)


def test_only_four_groups_are_kept():
    """Eight groups with one strong expert each: half of the strong ones lose with their group."""
    logits = torch.full((1, EXPERTS), -4.0)
    logits[0, ::32] = torch.arange(8.0)
    experts, _ = route(logits)
    assert {expert // 32 for expert in experts[0].tolist()} == {4, 5, 6, 7}
    assert {128, 160, 192, 224} <= set(experts[0].tolist())


def test_group_is_scored_by_its_two_best():
    """A group with one giant loses to groups with two good ones."""
    logits = torch.full((1, EXPERTS), -9.0)
    logits[0, 0] = 3.0  # 0.95 + 0.0001
    for group in (1, 2, 3, 4):
        logits[0, [32 * group, 32 * group + 1]] = 1.0  # 0.73 + 0.73
    experts, _ = route(logits)
    assert sorted(experts[0].tolist()) == [32, 33, 64, 65, 96, 97, 128, 129]


def test_experts_of_dropped_groups_lose_even_to_negative_scores():
    """Dropped experts rank below everything, not at zero."""
    bias = torch.full((EXPERTS,), -2.0, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(54)
    logits = torch.randn(4, EXPERTS, generator=generator)
    experts, _ = route(logits, bias)
    for token in range(4):
        assert sorted(experts[token].tolist()) == sorted(route_by_hand(logits[token], bias, 1.0))


def test_bias_selects_and_does_not_weigh():
    bias = torch.zeros(EXPERTS, dtype=torch.bfloat16)
    bias[:8] = 5.0
    experts, found = route(torch.zeros(1, EXPERTS), bias)
    assert sorted(experts[0].tolist()) == list(range(8))
    torch.testing.assert_close(found, torch.full((1, 8), FACTOR / 8))


def test_weights_are_divided_before_they_are_scaled():
    """A factor near the fp32 limit would overflow if it came first."""
    logits = torch.full((1, EXPERTS), 20.0)
    _, found = route(logits, factor=3e38)
    torch.testing.assert_close(found, torch.full((1, 8), 3e38 / 8))


def test_underflowing_scores_give_zero_weights():
    bias = torch.zeros(EXPERTS, dtype=torch.bfloat16)
    bias[40:48] = 1.0
    experts, found = route(torch.full((2, EXPERTS), -200.0), bias)
    assert sorted(experts[0].tolist()) == list(range(40, 48))
    assert torch.equal(found, torch.zeros(2, 8))


def test_ties_give_distinct_experts():
    experts, found = route(torch.zeros(3, EXPERTS))
    for token in experts.tolist():
        assert len(set(token)) == 8
        assert len({expert // 32 for expert in token}) <= 4
    torch.testing.assert_close(found, torch.full((3, 8), FACTOR / 8))


def test_matches_oracle(weights):
    """Tokens with two, one and no local experts; an expert with two tokens, in token order."""
    choices = [
        [64, 95, 0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 95, 200, 201, 202],
        [0, 1, 2, 3, 4, 5, 6, 7],
    ]
    inputs = random_inputs(route_to(choices), weights, offset=64, seed=52)
    output = forward(inputs)
    (want,) = oracle(*inputs.values())
    assert not output[2].any()
    assert not want[2].any()
    for token in (0, 1):
        assert_rounded_once(output[token], want[token])


@pytest.mark.parametrize("offset", [240, -16])
def test_experts_outside_the_range_are_skipped(weights, offset):
    inside = [255] if offset > 0 else [0]
    outside = [1, 2, 3, 4, 5, 6, 7] if offset > 0 else [249, 250, 251, 252, 253, 254, 255]
    inputs = random_inputs(route_to([inside + outside]), weights, offset, seed=55)
    output = forward(inputs)
    assert output.any()
    (want,) = oracle(*inputs.values())
    assert_rounded_once(output, want)


def test_token_without_local_expert_is_exactly_zero(weights):
    logits = route_to([range(8), range(128, 136)])
    inputs = random_inputs(logits, weights, offset=96, seed=56)
    assert torch.equal(forward(inputs), torch.zeros(2, HIDDEN, dtype=torch.bfloat16))


def test_zero_weight_gives_zero_not_nan(weights):
    """Scores that underflow: 0 / (0 + 1e-20), on a local expert."""
    bias = torch.zeros(EXPERTS, dtype=torch.bfloat16)
    bias[[0, 100, 101, 102, 103, 104, 105, 106]] = 1.0
    logits = torch.full((1, EXPERTS), -200.0)
    inputs = random_inputs(logits, weights, offset=0, seed=57) | {"routing_bias": bias}
    assert not forward(inputs).any()


def test_wrong_shape_is_refused(weights):
    inputs = random_inputs(route_to([range(8)]), weights, offset=0, seed=58)
    inputs["hidden_states_scale"] = inputs["hidden_states_scale"].t()
    with pytest.raises(AssertionError, match="expected \\(56, 1\\), got \\(1, 56\\)"):
        forward(inputs)


def test_no_tokens(weights):
    inputs = random_inputs(torch.zeros(0, EXPERTS), weights, offset=0, seed=59)
    assert forward(inputs).shape == (0, HIDDEN)
