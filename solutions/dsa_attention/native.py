"""The native route of dsa_attention: attend.cu, compiled at its first use."""

import torch

from .native_build import load_native


def run_native(
    q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse, *, cluster
):
    """Launch attend.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries. cluster: CTAs a token, a power of two up to 16.
    Raises RuntimeError for a failed build or launch.
    """
    module = load_native("attend.cu", torch.cuda.get_device_capability(q_nope.device))
    with torch.cuda.device_of(q_nope):
        module.attend(
            q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse, cluster
        )
