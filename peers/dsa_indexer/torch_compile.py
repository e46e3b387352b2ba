"""The indexer in PyTorch, all sequences at once, under torch.compile (Inductor).

The reference loops over sequences with lengths that it reads back from the device, which
torch.compile cannot follow: it would run uncompiled. This is the same arithmetic with rows padded
to the block table's width, which compiles once into one graph with dynamic sizes: gather, widen,
fp32 matrix product, mask, torch.topk, page lookup. Only the views of the cache's bytes stay
outside the graph.
"""

import torch

PACKAGE = "torch"
PREPARED = "nothing"

PAGE_SIZE, HEAD_DIM, TOP_K = 64, 128, 2048
CODE_BYTES = PAGE_SIZE * HEAD_DIM


@torch.compile(dynamic=True)
def select(q, codes, scales, weights, seq_lens, block_table, topk_indices):
    """codes [pages, 64 * 128] FP8, scales [pages, 64] fp32."""
    scale = scales[block_table]
    keys = codes[block_table].float().view(*scale.shape, HEAD_DIM) * scale.unsqueeze(-1)
    products = torch.bmm(q.float(), keys.flatten(1, 2).mT).relu()
    scores = (products * weights.unsqueeze(-1)).sum(1)
    length = seq_lens.unsqueeze(1)
    position = torch.arange(scores.shape[1], device=scores.device)
    scores = scores.masked_fill(position >= length, float("-inf"))
    index = scores.topk(min(TOP_K, scores.shape[1]), dim=1).indices
    token = torch.gather(block_table, 1, index // PAGE_SIZE) * PAGE_SIZE + index % PAGE_SIZE
    topk_indices.fill_(-1)
    topk_indices[:, : index.shape[1]] = token.masked_fill(index >= length, -1)


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    pages = k_index_cache_fp8.view(torch.uint8).reshape(k_index_cache_fp8.shape[0], -1)
    codes = pages[:, :CODE_BYTES].view(torch.float8_e4m3fn)
    scales = pages[:, CODE_BYTES:].view(torch.float32)
    select(q_index_fp8, codes, scales, weights, seq_lens, block_table, topk_indices)
