"""Sparse latent attention: each token attends to the cached tokens that its row of ids names.

With t a query token, h one of 16 heads and j running over the ids of row t that are not -1:

    logit[t,h,j] = (q_nope[t,h,:] . ckv[j,:] + q_pe[t,h,:] . kpe[j,:]) * sm_scale
    lse[t,h]     = log2 of the sum over j of exp(logit[t,h,j])
    output[t,h]  = sum over j of  softmax(logit[t,h,:])[j] * ckv[j,:]

An id addresses the flattened paged cache, page * 64 + offset; -1 may stand anywhere and an id
that occurs twice counts twice. A row without ids gives output 0 and lse -inf. Everything runs in
fp32, the probabilities too; the output is rounded to bfloat16 once.
"""

import math

import torch

DEFINITION = {
    "name": "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64",
    "description": (
        "Sparse multi-head latent attention of DeepSeek-V3.2 in absorbed form: 16 query heads "
        "(128 over tensor parallel of 8) share one latent key of 512 + 64 dimensions, whose first "
        "512 are the value too. Each token attends to the up to 2048 cached tokens that "
        "sparse_indices names. The head dimension before absorption was 128 + 64, so a plain "
        "softmax scale would be 1/sqrt(192)."
    ),
    "op_type": "dsa_paged",
    "tags": [
        "status:verified",
        "model:deepseek-v3.2",
        "sparse:topk",
        "fi_api:flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla",
        "tp:8",
    ],
    "axes": {
        "num_tokens": {"type": "var", "description": "Number of query tokens."},
        "num_qo_heads": {"type": "const", "value": 16, "description": "128 heads / 8 ranks."},
        "head_dim_ckv": {"type": "const", "value": 512, "description": "Compressed key-value."},
        "head_dim_kpe": {"type": "const", "value": 64, "description": "Rotary part of the key."},
        "page_size": {"type": "const", "value": 64, "description": "Tokens a page."},
        "topk": {"type": "const", "value": 2048, "description": "Width of sparse_indices."},
        "num_pages": {"type": "var", "description": "Pages of the whole cache."},
    },
    "constraints": [
        "sparse_indices.shape[0] == num_tokens",
        "sparse_indices.shape[-1] == topk",
        "ckv_cache.shape[1] == page_size",
    ],
    "inputs": {
        "q_nope": {
            "shape": ["num_tokens", "num_qo_heads", "head_dim_ckv"],
            "dtype": "bfloat16",
            "description": "Query without position, absorbed into the latent space.",
        },
        "q_pe": {
            "shape": ["num_tokens", "num_qo_heads", "head_dim_kpe"],
            "dtype": "bfloat16",
            "description": "Rotary part of the query.",
        },
        "ckv_cache": {
            "shape": ["num_pages", "page_size", "head_dim_ckv"],
            "dtype": "bfloat16",
            "description": "Compressed key-value cache: keys and values alike.",
        },
        "kpe_cache": {
            "shape": ["num_pages", "page_size", "head_dim_kpe"],
            "dtype": "bfloat16",
            "description": "Rotary key cache.",
        },
        "sparse_indices": {
            "shape": ["num_tokens", "topk"],
            "dtype": "int32",
            "description": "Physical token ids, page * 64 + offset; -1 is padding.",
        },
        "sm_scale": {
            "shape": None,
            "dtype": "float32",
            "description": "Factor on the logits.",
        },
    },
    "outputs": {
        "output": {
            "shape": ["num_tokens", "num_qo_heads", "head_dim_ckv"],
            "dtype": "bfloat16",
            "description": "Attention output in the latent space.",
        },
        "lse": {
            "shape": ["num_tokens", "num_qo_heads"],
            "dtype": "float32",
            "description": "Log-sum-exp of the scaled logits, base 2.",
        },
    },
}

NUM_HEADS, HEAD_DIM_CKV, HEAD_DIM_KPE = 16, 512, 64


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale):
    num_tokens, device = q_nope.shape[0], q_nope.device
    flat_ckv = ckv_cache.reshape(-1, HEAD_DIM_CKV)
    flat_kpe = kpe_cache.reshape(-1, HEAD_DIM_KPE)
    output = torch.zeros((num_tokens, NUM_HEADS, HEAD_DIM_CKV), dtype=torch.bfloat16, device=device)
    lse = torch.full((num_tokens, NUM_HEADS), -math.inf, dtype=torch.float32, device=device)
    for token in range(num_tokens):
        indices = sparse_indices[token]
        indices = indices[indices != -1].long()
        if indices.numel() == 0:
            continue
        ckv, kpe = flat_ckv[indices].float(), flat_kpe[indices].float()
        logits = q_nope[token].float() @ ckv.t() + q_pe[token].float() @ kpe.t()
        scaled = logits * sm_scale
        lse[token] = torch.logsumexp(scaled, dim=-1) / math.log(2.0)
        output[token] = (torch.softmax(scaled, dim=-1) @ ckv).to(torch.bfloat16)
    return output, lse
