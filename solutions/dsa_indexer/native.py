"""The native route of dsa_indexer: index.cu, compiled at its first use."""

import functools

import torch

from .native_build import load_native

PAGE_SIZE = 64


def run_native(
    q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices, *, long_clusters
):
    """Launch index.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries. long_clusters: clusters of 16 CTAs that share out the
    sequences longer than 2048 in one launch, for a block table of at most 128 columns; 0 for one of
    at most 32; None for two launches, which take any. Raises RuntimeError for a failed build or
    launch.
    """
    arguments = (
        q_index_fp8.view(torch.uint8),  # older DLPack exchanges know no e4m3
        k_index_cache_fp8,
        weights,
        seq_lens,
        block_table,
        topk_indices,
    )
    with torch.cuda.device_of(q_index_fp8):
        module = _module(q_index_fp8.device)
        if long_clusters is None:
            batch_size, max_num_pages = block_table.shape
            keys = seq_lens.new_empty((batch_size, max_num_pages * PAGE_SIZE))
            module.index_topk_of_many(*arguments, keys)
        else:
            module.index_topk(*arguments, long_clusters)


@functools.cache
def has_clusters(device):
    """Whether a device can hold clusters of 16 CTAs: a slice of one may not.

    device: torch.device with an index. Raises RuntimeError for a failed build.
    """
    with torch.cuda.device(device):
        return _module(device).count_clusters() > 0


def _module(device):
    return load_native("index.cu", torch.cuda.get_device_capability(device))
