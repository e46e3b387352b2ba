"""The native route of dsa_indexer_prefill: prefill.cu, compiled at its first use."""

import torch

from .native_build import load_native


def run_native(
    q_index_fp8, k_index_fp8, k_scale, weights, row_starts, row_ends, topk_indices,
    *, most_queries, most_candidates, table_words, area_bytes,
):  # fmt: skip
    """Launch prefill.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries. Options as kernel.py's choose_native() finds them.
    Raises RuntimeError for a failed build or launch.
    """
    with torch.cuda.device_of(q_index_fp8):
        module = load_native("prefill.cu", torch.cuda.get_device_capability(q_index_fp8.device))
        module.select_topk(
            q_index_fp8.view(torch.uint8),  # older DLPack exchanges know no e4m3
            k_index_fp8.view(torch.uint8),
            k_scale,
            weights,
            row_starts,
            row_ends,
            topk_indices,
            row_starts.new_empty(table_words),
            row_starts.new_empty(area_bytes, dtype=torch.uint8),
            most_queries,
            most_candidates,
        )
