"""How moe routes on a CUDA device: weights that mark the experts, so that outputs tell them."""

import pytest
import torch

from tests.gpu.test_moe import BOTH_SIDES, ROOM, STREAMED, empty_output, poison_workspace, refer
from tests.oracles.moe import (
    EXPERTS,
    EXTREMES,
    HIDDEN,
    INTERMEDIATE,
    LOCAL_EXPERTS,
    SCALE_BLOCK,
    TIED,
    random_inputs,
    select,
    weigh,
    wide_logits,
    zero_weights,
)
from tests.packed import call

pytestmark = pytest.mark.gpu

# One length for each way to route and pack: by each CTA alone, told in the stream, in tiles of 64
# and of 128 rows, by launches of their own. Then both sides of all their limits.
ROUTED_LENGTHS = [4, STREAMED, 600, 2000, 5000]
ROUTED_LIMITS = sorted(BOTH_SIDES | {15872, 32256, 32257})
E4M3_ONE, E4M3_EIGHT, E4M3_NAN = 0x38, 0x50, 0x7F
EXPERT_COLUMNS = HIDDEN // LOCAL_EXPERTS
LEAST_NORMAL = 2.0**-126  # of bf16 and of fp32


@pytest.fixture(scope="module")
def marking_weights():
    """An expert's output is in columns of its own: what its row of the hidden states has in k = 0,
    times silu of what that has in k = 128."""
    weights = zero_weights("cuda")
    w1, w2 = (weights[name].view(torch.uint8) for name in ("gemm1_weights", "gemm2_weights"))
    w1[:, :INTERMEDIATE, 0] = E4M3_ONE
    w1[:, INTERMEDIATE:, SCALE_BLOCK] = E4M3_ONE
    for expert in range(LOCAL_EXPERTS):
        columns = slice(expert * EXPERT_COLUMNS, (expert + 1) * EXPERT_COLUMNS)
        w2[expert, columns, 0] = E4M3_ONE
    for name in ("gemm1_weights_scale", "gemm2_weights_scale"):
        weights[name].fill_(1.0)
    return weights


def assert_routed(weights, logits, bias, seq_len, *, is_tied, offset=0):
    """Each token's weight of each local expert, read off its output, is that of the routing rule.
    Logits of some tokens are repeated; the tokens' hidden states are not alike."""
    bias = bias.bfloat16()
    tokens = torch.arange(seq_len) % len(logits)
    inputs = random_inputs(logits[tokens], weights, offset, seed=0, device="cuda")
    inputs["routing_bias"] = bias.cuda()
    codes, scale = inputs["hidden_states"].view(torch.uint8), inputs["hidden_states_scale"]
    codes.zero_()
    codes[:, 0], codes[:, SCALE_BLOCK] = E4M3_ONE, E4M3_EIGHT
    scale.fill_(1.0)
    scale[0] = 1.0 + torch.arange(seq_len, device="cuda") % 97 / 97
    poison_workspace()
    (output,) = call(ROOM, list(inputs.values()), (empty_output(seq_len),))

    chosen = select(logits, bias)
    of_experts = torch.zeros(len(logits), EXPERTS, dtype=torch.float64)
    of_experts.scatter_(1, torch.from_numpy(chosen), torch.from_numpy(weigh(logits, chosen, 2.5)))
    of_local = of_experts[tokens, offset : offset + LOCAL_EXPERTS].cuda()
    mark = torch.nn.functional.silu(torch.tensor(8.0, dtype=torch.float64)).item() * scale[0]
    want = (of_local * mark[:, None]).repeat_interleave(EXPERT_COLUMNS, dim=1)
    for wanted in [want] if is_tied else [want, refer(inputs).double()]:
        error = (output.double() - wanted).abs()
        most = (wanted * 2.0**-7).clamp(min=LEAST_NORMAL)  # beneath, bf16 has fewer bits, or none
        assert (error <= most.where(wanted != 0, 0.0)).all()  # zeros are zeros: no other expert


@pytest.mark.parametrize("seq_len", ROUTED_LENGTHS)
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_routing(marking_weights, name, seq_len):
    offset = 64 if "large bias" in name else 0  # some of the chosen experts
    assert_routed(marking_weights, *EXTREMES[name], seq_len, is_tied=name in TIED, offset=offset)


@pytest.mark.parametrize("seq_len", ROUTED_LIMITS)
def test_routing_on_both_sides_of_every_limit(marking_weights, seq_len):
    bias = torch.linspace(0.02, -0.02, EXPERTS)
    assert_routed(marking_weights, wide_logits(1000, 48), bias, seq_len, is_tied=False)


@pytest.mark.parametrize("seq_len", ROUTED_LENGTHS)
def test_nan_scores_rank_last(marking_weights, seq_len):
    """As those of logits so low that nobody chooses them."""
    outputs = []
    for low in (-200.0, float("nan")):
        logits = wide_logits(seq_len, 49)
        logits[:, ::32] = low
        inputs = random_inputs(logits, marking_weights, 64, seed=0, device="cuda")
        outputs += call(ROOM, list(inputs.values()), (empty_output(seq_len),))
    assert outputs[0].any()
    assert torch.equal(*outputs)


@pytest.mark.parametrize("seq_len", ROUTED_LENGTHS)
@pytest.mark.parametrize("route", [None, "portable"])
def test_nan_codes_give_nan_in_their_rows_alone(marking_weights, route, seq_len):
    inputs = random_inputs(wide_logits(seq_len, 51), marking_weights, 64, seed=0, device="cuda")
    (want,) = call(ROOM, list(inputs.values()), (empty_output(seq_len),), route)
    codes = inputs["hidden_states"].view(torch.uint8)
    codes[1::3, 0] = E4M3_NAN
    (output,) = call(ROOM, list(inputs.values()), (empty_output(seq_len),), route)
    chosen = torch.from_numpy(select(inputs["routing_logits"].cpu(), torch.zeros(EXPERTS)))
    is_local = ((chosen >= 64) & (chosen < 64 + LOCAL_EXPERTS)).any(dim=1)
    has_nan = is_local & (torch.arange(seq_len) % 3 == 1)
    assert has_nan.any()
    assert output[has_nan].isnan().all()
    assert torch.equal(output[~has_nan], want[~has_nan])
