"""The gdn_prefill definition: its table, and its reference against the fp64 oracle."""

import math

import pytest
import torch

from tests.oracles.gdn_prefill import HEAD_SIZE, V_HEADS, oracle, random_inputs
from tests.reference.definitions import assert_official, assert_rounded_once, reference

ROOM = "gdn_prefill"


def prefill(inputs):
    """Returns output and new_state; the inputs must come out as they went in."""
    before = {name: value.clone() for name, value in inputs.items() if torch.is_tensor(value)}
    output, new_state = reference(ROOM)(*inputs.values())
    for name, value in before.items():
        assert torch.equal(inputs[name], value), f"{name} was written"
    assert output.dtype == torch.bfloat16
    assert output.shape == inputs["v"].shape
    assert new_state.dtype == torch.float32
    assert new_state.is_contiguous()
    return output, new_state


def assert_matches(inputs):
    output, new_state = prefill(inputs)
    want_output, want_state = oracle(*inputs.values())
    assert_rounded_once(output, want_output)
    torch.testing.assert_close(new_state.double(), want_state, rtol=1e-5, atol=5e-6)


def test_table():
    assert_official(
        ROOM,
        axes={
            "total_seq_len": None,
            "num_seqs": None,
            "num_q_heads": 4,
            "num_k_heads": 4,
            "num_v_heads": 8,
            "head_size": 128,
            "len_cu_seqlens": None,
        },
        inputs="""
            q          [total_seq_len, num_q_heads, head_size]          bfloat16
            k          [total_seq_len, num_k_heads, head_size]          bfloat16
            v          [total_seq_len, num_v_heads, head_size]          bfloat16
            state      [num_seqs, num_v_heads, head_size, head_size]    float32
            A_log      [num_v_heads]                                    float32
            a          [total_seq_len, num_v_heads]                     bfloat16
            dt_bias    [num_v_heads]                                    float32
            b          [total_seq_len, num_v_heads]                     bfloat16
            cu_seqlens [len_cu_seqlens]                                 int64
            scale      scalar                                           float32
        """,
        outputs="""
            output     [total_seq_len, num_v_heads, head_size]          bfloat16
            new_state  [num_seqs, num_v_heads, head_size, head_size]    float32
        """,
        constraints=["len_cu_seqlens == num_seqs + 1", "total_seq_len == cu_seqlens[-1]"],
        tags=[
            "stage:prefill",
            "status:verified",
            "model:qwen3-next",
            "layout:k-last",
            "fi_api:flashinfer.gdn.chunk_gated_delta_rule",
            "tp:4",
        ],
    )


@pytest.mark.parametrize(
    ("cu_seqlens", "scale"),
    [([0, 1], HEAD_SIZE**-0.5), ([0, 3, 20, 21, 61], None), ([0, 150], -0.7)],
)
def test_matches_oracle(cu_seqlens, scale):
    assert_matches(random_inputs(cu_seqlens, seed=len(cu_seqlens)) | {"scale": scale})


def test_is_the_decode_step_repeated():
    """Two definitions, one recurrence: decoding token by token gives the same."""
    inputs = random_inputs([0, 9], seed=21)
    output, new_state = prefill(inputs)
    state = inputs["state"]
    for token in range(9):
        q, k, v, a, b = (inputs[name][token, None, None] for name in ("q", "k", "v", "a", "b"))
        step = (q, k, v, state, inputs["A_log"], a, inputs["dt_bias"], b, inputs["scale"])
        read, state = reference("gdn_decode")(*step)
        torch.testing.assert_close(read[0, 0], output[token], rtol=2.0**-7, atol=1e-7)
    torch.testing.assert_close(state, new_state, rtol=1e-5, atol=1e-7)


def test_sequence_without_tokens_leaves_zero():
    """Not its initial state: the definition says zero."""
    inputs = random_inputs([0, 0, 4, 4, 7, 7], seed=22)
    output, new_state = prefill(inputs)
    for empty in (0, 2, 4):
        assert not new_state[empty].any()
    without = {
        **inputs,
        "state": inputs["state"][[1, 3]],
        "cu_seqlens": torch.tensor([0, 4, 7]),
    }
    alone_output, alone_state = prefill(without)
    assert torch.equal(output, alone_output)
    assert torch.equal(new_state[[1, 3]], alone_state)
    assert_matches(inputs)


def test_tokens_of_no_sequence_stay_zero():
    inputs = random_inputs([2, 5, 6], seed=23, total_seq_len=9)
    output, _ = prefill(inputs)
    assert not output[[0, 1, 6, 7, 8]].any()
    assert output[2:6].abs().amax(dim=(1, 2)).gt(0).all()


def test_sequence_of_negative_length_is_empty():
    inputs = random_inputs([0, 4, 2, 6], seed=24)
    output, new_state = prefill(inputs)
    assert not new_state[1].any()
    # The same tensors: on some CPUs torch's vector code differs in the last bit with their sizes.
    alone = inputs | {"state": inputs["state"][2:], "cu_seqlens": torch.tensor([2, 6])}
    alone_output, alone_state = prefill(alone)
    assert torch.equal(output[2:6], alone_output[2:6])
    assert torch.equal(new_state[2:], alone_state)


def test_sequences_do_not_meet():
    inputs = random_inputs([0, 5, 12], seed=25)
    output, new_state = prefill(inputs)
    changed = {**inputs, "v": inputs["v"].clone(), "state": inputs["state"].clone()}
    changed["v"][:5] = 3.0
    changed["state"][0] = 1.0
    other_output, other_state = prefill(changed)
    assert torch.equal(output[5:], other_output[5:])
    assert torch.equal(new_state[1], other_state[1])
    assert not torch.equal(output[:5], other_output[:5])


def test_no_sequences_and_no_tokens():
    output, new_state = prefill(random_inputs([0], seed=0))
    assert output.numel() == 0
    assert new_state.shape == (0, V_HEADS, HEAD_SIZE, HEAD_SIZE)
    output, new_state = prefill(random_inputs([0, 0], seed=0))
    assert output.shape == (0, V_HEADS, HEAD_SIZE)
    assert not new_state.any()


def test_absent_state_is_zeros():
    inputs = random_inputs([0, 2, 6], seed=26)
    absent = prefill(inputs | {"state": None})
    zeros = prefill(inputs | {"state": torch.zeros_like(inputs["state"])})
    assert torch.equal(absent[0], zeros[0])
    assert torch.equal(absent[1], zeros[1])
    assert_matches(inputs | {"state": None})


@pytest.mark.parametrize("default", [None, 0.0, 0])
def test_absent_or_zero_scale_is_the_default(default):
    inputs = random_inputs([0, 3], seed=27)
    want, _ = prefill(inputs | {"scale": 1.0 / math.sqrt(128)})
    got, _ = prefill(inputs | {"scale": default})
    assert torch.equal(got, want)
