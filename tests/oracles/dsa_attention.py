"""fp64 oracle of dsa_attention, and the inputs that its tests start from.

One token and one head at a time, from a plain list of the indices that are not padding; numpy.
"""

from __future__ import annotations

import numpy as np
import torch

HEADS, DIM_CKV, DIM_KPE, PAGE_SIZE, TOPK = 16, 512, 64, 64, 2048
SM_SCALE = 0.1352337788608801  # of every official workload


def as_float64(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()


def oracle(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale):
    """Inputs as in the definition. Returns output [T,16,512] and base-2 lse [T,16], fp64."""
    indices = sparse_indices.cpu().numpy()
    queries = np.concatenate([as_float64(q_nope), as_float64(q_pe)], axis=2)
    num_tokens, heads, _ = queries.shape
    flat_ckv, flat_kpe = ckv_cache.reshape(-1, DIM_CKV), kpe_cache.reshape(-1, DIM_KPE)
    output = np.zeros((num_tokens, heads, DIM_CKV))
    lse = np.full((num_tokens, heads), -np.inf)
    for token in range(num_tokens):
        chosen = torch.tensor([int(i) for i in indices[token] if i != -1], dtype=torch.int64)
        if not len(chosen):
            continue
        values = as_float64(flat_ckv[chosen.to(flat_ckv.device)])
        keys = np.hstack([values, as_float64(flat_kpe[chosen.to(flat_kpe.device)])])
        for head in range(heads):
            logits = sm_scale * (keys @ queries[token, head])
            largest = logits.max()
            weights = np.exp(logits - largest)
            output[token, head] = (weights / weights.sum()) @ values
            lse[token, head] = (largest + np.log(weights.sum())) / np.log(2.0)
    return torch.from_numpy(output), torch.from_numpy(lse)


def random_inputs(num_tokens, num_pages, seed, device="cpu"):
    """Inputs by name, in the definition's order; every index is -1: the tests fill them in."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        values = torch.randn(*shape, generator=generator, device=device, dtype=torch.float32)
        return values.bfloat16()

    return {
        "q_nope": normal(num_tokens, HEADS, DIM_CKV),
        "q_pe": normal(num_tokens, HEADS, DIM_KPE),
        "ckv_cache": normal(num_pages, PAGE_SIZE, DIM_CKV),
        "kpe_cache": normal(num_pages, PAGE_SIZE, DIM_KPE),
        "sparse_indices": torch.full((num_tokens, TOPK), -1, dtype=torch.int32, device=device),
        "sm_scale": SM_SCALE,
    }


def random_rows(num_pages, count, seed, device="cpu"):
    """`count` indices into the cache, repeats allowed, int32."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(num_pages * PAGE_SIZE, (count,), generator=generator, dtype=torch.int32)
    return rows.to(device)


def empty_outputs(num_tokens, device="cpu"):
    """Uninitialised output and lse."""
    output = torch.empty(num_tokens, HEADS, DIM_CKV, dtype=torch.bfloat16, device=device)
    return output, torch.empty(num_tokens, HEADS, device=device)
