"""The native route of dsa_attention: attend.cu, compiled at its first use."""

import functools

import torch

from .native_build import load_native


def run_native(
    q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse, *, cluster
):
    """Launch attend.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries. cluster: CTAs a token, 1, 2, 8 or 16.
    Raises RuntimeError for a failed build or launch.
    """
    with torch.cuda.device_of(q_nope):
        _module(q_nope.device).attend(
            q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse, cluster
        )


@functools.cache
def has_clusters(device):
    """Whether a device can hold clusters of 16 CTAs, the largest used: a slice of one may not.

    device: torch.device with an index. Raises RuntimeError for a failed build.
    """
    with torch.cuda.device(device):
        return _module(device).count_clusters() > 0


def _module(device):
    return load_native("attend.cu", torch.cuda.get_device_capability(device))
