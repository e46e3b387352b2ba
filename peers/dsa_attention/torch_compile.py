"""Sparse latent attention in PyTorch, all tokens at once, under torch.compile (Inductor).

The reference loops over tokens and drops padding with a mask, whose size only the device knows;
torch.compile cannot follow and would run it uncompiled. This is the same arithmetic over all 2048
columns, padding masked: one graph of gathers, fp32 matrix products and a softmax.
"""

import math

import torch

PACKAGE = "torch"
PREPARED = "nothing"


@torch.compile(dynamic=True)
def attend(q_nope, q_pe, ckv, kpe, indices, sm_scale, output, lse):
    """ckv [N, 512], kpe [N, 64]: the flat caches."""
    is_padding = (indices == -1).unsqueeze(1)
    slot = indices.clamp(min=0)
    values, positions = ckv[slot].float(), kpe[slot].float()
    logits = torch.bmm(q_nope.float(), values.mT) + torch.bmm(q_pe.float(), positions.mT)
    logits = (logits * sm_scale).masked_fill(is_padding, float("-inf"))
    lse.copy_(torch.logsumexp(logits, dim=-1) / math.log(2.0))
    probabilities = torch.softmax(logits, dim=-1).masked_fill(is_padding, 0.0)
    output.copy_(torch.bmm(probabilities, values))


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    ckv, kpe = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    attend(q_nope, q_pe, ckv, kpe, sparse_indices, sm_scale, output, lse)
