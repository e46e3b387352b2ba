"""FlashInfer's fused selection and page lookup, behind scores computed with PyTorch.

`flashinfer.top_k_page_table_transform` selects the 2048 best of each row and looks them up in a
table of physical tokens; rows with fewer tokens are padded with -1. FlashInfer has no kernel that
scores a paged FP8 cache on sm_90 (its DeepGEMM bindings are for sm_100), so PyTorch gathers the
pages, widens them to fp32 and multiplies. The kernel returns a new tensor: its copy into the output
is timed.
"""

import flashinfer
import torch

PACKAGE = "flashinfer-python"
PREPARED = "nothing"

PAGE_SIZE, HEAD_DIM, TOP_K = 64, 128, 2048
CODE_BYTES = PAGE_SIZE * HEAD_DIM


def score(q, cache, weights, block_table):
    """Returns [B, max_num_pages * 64] fp32; what lies past a sequence's end is any number."""
    pages = cache.view(torch.uint8).reshape(cache.shape[0], -1)
    codes = pages[:, :CODE_BYTES][block_table].view(torch.float8_e4m3fn).float()
    scales = pages[:, CODE_BYTES:].view(torch.float32)[block_table]
    keys = codes.view(*scales.shape, HEAD_DIM) * scales.unsqueeze(-1)
    products = torch.bmm(q.float(), keys.flatten(1, 2).mT).relu_()
    return torch.bmm(weights.unsqueeze(1), products).squeeze(1)


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    scores = score(q_index_fp8, k_index_cache_fp8, weights, block_table)
    offset = torch.arange(PAGE_SIZE, dtype=torch.int32, device=block_table.device)
    tokens = (block_table.unsqueeze(-1) * PAGE_SIZE + offset).flatten(1)
    topk_indices.copy_(flashinfer.top_k_page_table_transform(scores, tokens, seq_lens, TOP_K))
