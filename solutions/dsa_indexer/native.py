"""The native route of dsa_indexer: index.cu, compiled at its first use."""

import functools

import torch

from .native_build import load_native


def run_native(
    q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices, *, long_clusters
):
    """Launch index.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries; block_table has at most 128 columns. long_clusters:
    clusters of 16 CTAs that share out the sequences longer than 2048, 0 for a block table of at
    most 32 columns. Raises RuntimeError for a failed build or launch.
    """
    with torch.cuda.device_of(q_index_fp8):
        _module(q_index_fp8.device).index_topk(
            q_index_fp8.view(torch.uint8),  # older DLPack exchanges know no e4m3
            k_index_cache_fp8,
            weights,
            seq_lens,
            block_table,
            topk_indices,
            long_clusters,
        )


@functools.cache
def has_clusters(device):
    """Whether a device can hold clusters of 16 CTAs: a slice of one may not.

    device: torch.device with an index. Raises RuntimeError for a failed build.
    """
    with torch.cuda.device(device):
        return _module(device).count_clusters() > 0


def _module(device):
    return load_native("index.cu", torch.cuda.get_device_capability(device))
