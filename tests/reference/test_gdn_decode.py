"""The gdn_decode definition: its table, and its reference against the fp64 oracle."""

import math

import pytest
import torch

from tests.oracles.gdn_decode import HEAD_SIZE, V_HEADS, oracle, random_inputs
from tests.reference.definitions import assert_official, assert_rounded_once, reference

ROOM = "gdn_decode"


def decode(inputs):
    """Returns output and new_state; the inputs must come out as they went in."""
    before = {name: value.clone() for name, value in inputs.items() if torch.is_tensor(value)}
    output, new_state = reference(ROOM)(*inputs.values())
    for name, value in before.items():
        assert torch.equal(inputs[name], value), f"{name} was written"
    return output, new_state


def assert_matches(inputs):
    output, new_state = decode(inputs)
    want_output, want_state = oracle(*inputs.values())
    assert_rounded_once(output, want_output)
    assert new_state.dtype == torch.float32
    assert new_state.is_contiguous()
    torch.testing.assert_close(new_state.double(), want_state, rtol=1e-5, atol=2e-6)


def test_table():
    assert_official(
        ROOM,
        axes={
            "batch_size": None,
            "seq_len": 1,
            "num_q_heads": 4,
            "num_k_heads": 4,
            "num_v_heads": 8,
            "head_size": 128,
        },
        inputs="""
            q       [batch_size, seq_len, num_q_heads, head_size]       bfloat16
            k       [batch_size, seq_len, num_k_heads, head_size]       bfloat16
            v       [batch_size, seq_len, num_v_heads, head_size]       bfloat16
            state   [batch_size, num_v_heads, head_size, head_size]     float32
            A_log   [num_v_heads]                                       float32
            a       [batch_size, seq_len, num_v_heads]                  bfloat16
            dt_bias [num_v_heads]                                       float32
            b       [batch_size, seq_len, num_v_heads]                  bfloat16
            scale   scalar                                              float32
        """,
        outputs="""
            output    [batch_size, seq_len, num_v_heads, head_size]     bfloat16
            new_state [batch_size, num_v_heads, head_size, head_size]   float32
        """,
        constraints=[
            "num_v_heads >= num_q_heads",
            "num_v_heads % num_q_heads == 0",
            "num_k_heads == num_q_heads",
        ],
        tags=[
            "stage:decode",
            "status:verified",
            "model:qwen3-next",
            "layout:k-last",
            "fi_api:flashinfer.gdn.gated_delta_rule_decode",
            "tp:4",
        ],
    )


@pytest.mark.parametrize(("batch_size", "scale"), [(1, HEAD_SIZE**-0.5), (3, -0.7), (5, None)])
def test_matches_oracle(batch_size, scale):
    assert_matches(random_inputs(batch_size, seed=batch_size) | {"scale": scale})


def test_keys_need_not_be_normalised():
    inputs = random_inputs(2, seed=7)
    assert_matches(inputs | {"k": inputs["k"] * 1.5, "q": inputs["q"] * 3.0})


@pytest.mark.parametrize("default", [None, 0.0, 0])
def test_absent_or_zero_scale_is_the_default(default):
    inputs = random_inputs(2, seed=11)
    want, _ = decode(inputs | {"scale": 1.0 / math.sqrt(128)})
    got, _ = decode(inputs | {"scale": default})
    assert torch.equal(got, want)


def test_absent_state_is_zeros():
    inputs = random_inputs(2, seed=12)
    absent = decode(inputs | {"state": None})
    zeros = decode(inputs | {"state": torch.zeros_like(inputs["state"])})
    assert torch.equal(absent[0], zeros[0])
    assert torch.equal(absent[1], zeros[1])
    # From nothing, the new state is one outer product: [V, K], not [K, V].
    beta = torch.sigmoid(inputs["b"].float())[:, 0, :, None]
    keys = inputs["k"].float()[:, 0].repeat_interleave(2, dim=1)
    outer = (beta * inputs["v"].float()[:, 0]).unsqueeze(-1) * keys.unsqueeze(-2)
    torch.testing.assert_close(absent[1], outer, rtol=1e-6, atol=0)


def test_softplus_is_the_identity_above_20():
    inputs = random_inputs(1, seed=13)
    inputs["a"].copy_(torch.tensor([19.5, 20.0, 20.5, 40.0, 200.0, -40.0, -200.0, 0.0]))
    inputs["A_log"].copy_(torch.tensor([-4.0, -4.0, -4.0, -4.0, 2.0, 0.0, 0.0, -9.0]))
    assert_matches(inputs | {"dt_bias": torch.zeros(V_HEADS)})


def test_step_is_widened_before_the_sum():
    """1 + 2^-10 is lost where a and dt_bias are added in bf16."""
    inputs = random_inputs(1, seed=14)
    inputs["a"].fill_(1.0)
    inputs["A_log"].fill_(1.0)
    inputs["state"].fill_(1.0)
    inputs["k"].zero_()
    _, narrow = decode(inputs | {"dt_bias": torch.zeros(V_HEADS)})
    _, wide = decode(inputs | {"dt_bias": torch.full((V_HEADS,), 2.0**-10)})
    assert (wide < narrow).all()
    assert_matches(inputs | {"dt_bias": torch.full((V_HEADS,), 2.0**-10), "q": inputs["q"] * 0 + 1})


def test_query_reads_the_updated_state():
    """With beta = 1 and q = k of unit length the read is v itself, whatever the old state was."""
    inputs = random_inputs(1, seed=15)
    inputs["b"].fill_(100.0)
    inputs["k"].zero_()
    inputs["k"][..., 17] = 1.0
    output, new_state = decode(inputs | {"q": inputs["k"].clone(), "scale": 1.0})
    assert torch.equal(output, inputs["v"])
    assert torch.equal(new_state[0, :, :, 17], inputs["v"][0, 0].float())


def test_empty_batch():
    output, new_state = decode(random_inputs(0, seed=0))
    assert output.shape == (0, 1, 8, 128)
    assert new_state.shape == (0, 8, 128, 128)
