"""FlashInfer's fused selection and page lookup, behind scores computed with PyTorch.

`flashinfer.top_k_page_table_transform` selects the 2048 best of each row and looks them up in a
table of physical tokens; rows with fewer tokens are padded with -1. FlashInfer has no kernel that
scores a paged FP8 cache on sm_90 (its DeepGEMM bindings are for sm_100), so PyTorch under
torch.compile gathers the pages, widens them to fp32 and multiplies. The kernel returns a new
tensor: its copy into the output is timed.
"""

import flashinfer
import torch

PACKAGE = "flashinfer-python"
PREPARED = "nothing"
STANDS_IN = "top_k_page_table_transform behind scores of PyTorch"

PAGE_SIZE, HEAD_DIM, TOP_K = 64, 128, 2048
CODE_BYTES = PAGE_SIZE * HEAD_DIM


@torch.compile(dynamic=True)
def score(q, codes, scales, weights, block_table):
    """codes [pages, 64 * 128] FP8, scales [pages, 64] fp32.

    Returns scores [B, max_num_pages * 64] fp32, any number past a sequence's end, and the physical
    token of each.
    """
    scale = scales[block_table]
    keys = codes[block_table].float().view(*scale.shape, HEAD_DIM) * scale.unsqueeze(-1)
    products = torch.bmm(q.float(), keys.flatten(1, 2).mT).relu()
    scores = (products * weights.unsqueeze(-1)).sum(1)
    offset = torch.arange(PAGE_SIZE, dtype=torch.int32, device=block_table.device)
    return scores, (block_table.unsqueeze(-1) * PAGE_SIZE + offset).flatten(1)


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    pages = k_index_cache_fp8.view(torch.uint8).reshape(k_index_cache_fp8.shape[0], -1)
    codes = pages[:, :CODE_BYTES].view(torch.float8_e4m3fn)
    scales = pages[:, CODE_BYTES:].view(torch.float32)
    scores, tokens = score(q_index_fp8, codes, scales, weights, block_table)
    topk_indices.copy_(flashinfer.top_k_page_table_transform(scores, tokens, seq_lens, TOP_K))
