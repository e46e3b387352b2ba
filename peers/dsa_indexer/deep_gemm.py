"""DeepGEMM's paged scoring of the lightning indexer, then torch.topk.

`get_paged_mqa_logits_metadata` and `fp8_paged_mqa_logits` score every token of the block table
(FP8 tensor cores, fp32 logits); PyTorch masks what lies past seq_len, selects with torch.topk and
turns positions into physical tokens. The metadata kernel depends on seq_lens alone and is launched
in every call. Servers put a selection kernel of their own in the place of torch.topk.
"""

import deep_gemm
import torch

PACKAGE = "sgl-deep-gemm"
PREPARED = "nothing"

PAGE_SIZE, TOP_K = 64, 2048


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    context = seq_lens.view(-1, 1)
    width = block_table.shape[1] * PAGE_SIZE
    schedule = deep_gemm.get_paged_mqa_logits_metadata(
        context, PAGE_SIZE, deep_gemm.get_num_sms(), None
    )
    logits = deep_gemm.fp8_paged_mqa_logits(
        q_index_fp8.unsqueeze(1),
        k_index_cache_fp8.view(torch.uint8),
        weights,
        context,
        block_table,
        schedule,
        width,
        False,
    )[:, :width]
    position = torch.arange(width, device=logits.device)
    logits = logits.masked_fill(position >= context, float("-inf"))
    index = logits.topk(min(TOP_K, width), dim=1).indices
    token = torch.gather(block_table, 1, index // PAGE_SIZE) * PAGE_SIZE + index % PAGE_SIZE
    topk_indices.fill_(-1)
    topk_indices[:, : index.shape[1]] = token.masked_fill(index >= context, -1)
