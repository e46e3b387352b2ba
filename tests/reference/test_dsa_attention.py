"""The dsa_attention definition: its table, and its reference against the fp64 oracle."""

import math

import pytest
import torch

from tests.oracles.dsa_attention import PAGE_SIZE, SM_SCALE, TOPK, oracle, random_inputs
from tests.reference.definitions import assert_official, assert_rounded_once, reference

ROOM = "dsa_attention"


def sparse_inputs(num_valid, seed, num_pages=40):
    """One token for each count in num_valid: distinct ids in any order, -1 anywhere between."""
    inputs = random_inputs(len(num_valid), num_pages, seed)
    generator = torch.Generator().manual_seed(seed)
    for row, count in zip(inputs["sparse_indices"], num_valid, strict=True):
        ids = torch.randperm(num_pages * PAGE_SIZE, generator=generator)[:count]
        columns = torch.randperm(TOPK, generator=generator)[:count]
        row[columns] = ids.int()
    return inputs


def attend(inputs):
    """Returns output and lse; the inputs must come out as they went in."""
    before = {name: value.clone() for name, value in inputs.items() if torch.is_tensor(value)}
    output, lse = reference(ROOM)(*inputs.values())
    for name, value in before.items():
        assert torch.equal(inputs[name], value), f"{name} was written"
    assert lse.dtype == torch.float32
    assert lse.shape == inputs["q_nope"].shape[:2]
    return output, lse


def assert_matches(inputs):
    output, lse = attend(inputs)
    want_output, want_lse = oracle(*inputs.values())
    assert_rounded_once(output, want_output)
    torch.testing.assert_close(lse.double(), want_lse, rtol=1e-6, atol=1e-5)


def test_table():
    assert_official(
        ROOM,
        axes={
            "num_tokens": None,
            "num_qo_heads": 16,
            "head_dim_ckv": 512,
            "head_dim_kpe": 64,
            "page_size": 64,
            "topk": 2048,
            "num_pages": None,
        },
        inputs="""
            q_nope         [num_tokens, num_qo_heads, head_dim_ckv]     bfloat16
            q_pe           [num_tokens, num_qo_heads, head_dim_kpe]     bfloat16
            ckv_cache      [num_pages, page_size, head_dim_ckv]         bfloat16
            kpe_cache      [num_pages, page_size, head_dim_kpe]         bfloat16
            sparse_indices [num_tokens, topk]                           int32
            sm_scale       scalar                                       float32
        """,
        outputs="""
            output         [num_tokens, num_qo_heads, head_dim_ckv]     bfloat16
            lse            [num_tokens, num_qo_heads]                   float32
        """,
        constraints=[
            "sparse_indices.shape[0] == num_tokens",
            "sparse_indices.shape[-1] == topk",
            "ckv_cache.shape[1] == page_size",
        ],
        tags=[
            "status:verified",
            "model:deepseek-v3.2",
            "sparse:topk",
            "fi_api:flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla",
            "tp:8",
        ],
    )


@pytest.mark.parametrize(
    ("num_valid", "sm_scale"),
    [([1], SM_SCALE), ([2048, 33, 7], SM_SCALE), ([65, 0, 500], -0.05)],
)
def test_matches_oracle(num_valid, sm_scale):
    assert_matches(sparse_inputs(num_valid, seed=len(num_valid)) | {"sm_scale": sm_scale})


def test_row_without_ids():
    output, lse = attend(sparse_inputs([5, 0, 9], seed=31))
    assert not output[1].any()
    assert (lse[1] == -math.inf).all()
    assert torch.isfinite(lse[[0, 2]]).all()


def test_padding_may_stand_anywhere():
    """Only the order of the valid ids counts: moving the -1s changes no bit."""
    inputs = sparse_inputs([100], seed=32)
    row = inputs["sparse_indices"][0]
    valid = row[row != -1]
    moved = torch.full((3, TOPK), -1, dtype=torch.int32)
    moved[0, :100] = valid
    moved[1, -100:] = valid
    moved[2, 700:900:2] = valid
    want_output, want_lse = attend(inputs)
    for row in moved:
        output, lse = attend(inputs | {"sparse_indices": row[None]})
        assert torch.equal(output, want_output)
        assert torch.equal(lse, want_lse)


def test_first_and_last_token_of_the_cache_are_ids():
    inputs = sparse_inputs([0, 0], seed=33, num_pages=3)
    inputs["sparse_indices"][0, 5] = 0
    inputs["sparse_indices"][1, 2047] = 3 * PAGE_SIZE - 1
    output, _ = attend(inputs)
    assert torch.equal(output[0], inputs["ckv_cache"][0, 0].expand(16, 512))
    assert torch.equal(output[1], inputs["ckv_cache"][2, 63].expand(16, 512))


@pytest.mark.parametrize("times", [2, 2048])
def test_duplicates_count_each_time(times):
    inputs = sparse_inputs([1], seed=34)
    only = inputs["sparse_indices"].max()
    _, lse_once = attend(inputs)
    inputs["sparse_indices"][0, :] = -1
    inputs["sparse_indices"][0, :times] = only
    output, lse = attend(inputs)
    torch.testing.assert_close(lse, lse_once + math.log2(times), rtol=1e-6, atol=1e-5)
    key = inputs["ckv_cache"].view(-1, 512)[only].expand(16, 512)
    torch.testing.assert_close(output[0], key, rtol=2.0**-8, atol=0)
    assert_matches(inputs)


def test_one_duplicate_among_others_shifts_the_softmax():
    inputs = sparse_inputs([6], seed=35)
    row = inputs["sparse_indices"][0]
    free = int((row == -1).nonzero()[0])
    row[free] = row.max()
    assert_matches(inputs)


def test_lse_is_base_two_of_scaled_logits():
    inputs = sparse_inputs([1], seed=36)
    only = int(inputs["sparse_indices"].max())
    logit = inputs["q_nope"][0].double() @ inputs["ckv_cache"].view(-1, 512)[only].double()
    logit += inputs["q_pe"][0].double() @ inputs["kpe_cache"].view(-1, 64)[only].double()
    _, lse = attend(inputs)
    want = (logit * SM_SCALE / math.log(2.0))[None]
    torch.testing.assert_close(lse.double(), want, rtol=1e-5, atol=1e-5)


def test_large_logits_do_not_overflow():
    inputs = sparse_inputs([50, 3], seed=37)
    assert_matches(inputs | {"q_nope": inputs["q_nope"] * 100})


def test_no_tokens():
    output, lse = attend(sparse_inputs([], seed=0))
    assert output.shape == (0, 16, 512)
    assert output.dtype == torch.bfloat16
    assert lse.shape == (0, 16)
