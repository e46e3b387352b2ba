"""DeepGEMM's scoring of the lightning indexer in prefill, then FlashInfer's exact selection.

`fp8_mqa_logits` writes the scores of each query's range (FP8 tensor cores, fp32 logits), a row a
query from its first column on; what lies behind a range is unwritten.
`flashinfer.top_k_ragged_transform` selects the 2048 best of each row, adds where the range begins
and pads with -1. The scores of all queries at once are in memory: 2 GiB for 4096 x 131072. The
selection returns a new tensor: its copy into the output is timed.
"""

import deep_gemm
import flashinfer
import torch

PACKAGE = "sgl-deep-gemm"
PREPARED = "nothing"
REQUIRES = ("flashinfer-python",)

TOP_K = 2048


@torch.no_grad()
def run(q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices):
    num_keys = k_index_fp8.shape[0]
    logits = deep_gemm.fp8_mqa_logits(
        q_index_fp8, (k_index_fp8, k_scale), weights, row_starts, row_ends, False, num_keys
    )
    lengths = row_ends - row_starts
    chosen = flashinfer.top_k_ragged_transform(logits.contiguous(), row_starts, lengths, TOP_K)
    topk_indices.copy_(chosen)
