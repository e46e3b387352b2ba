"""The native route of gdn_prefill: prefill.cu, compiled at its first use."""

import torch

from .native_build import load_native


def run_native(
    q,
    k,
    v,
    state,
    A_log,
    a,
    dt_bias,
    b,
    cu_seqlens,
    scale,
    output,
    new_state,
    *,
    groups,
):
    """Launch prefill.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries; scale is a number other than 0. groups: 0 for the
    recurrence in one launch, otherwise how many times 64 columns of V a CTA of the scan takes,
    1 or 2. Raises RuntimeError for a failed build or launch.
    """
    with torch.cuda.device_of(q):
        module = load_native("prefill.cu", torch.cuda.get_device_capability(q.device))
        num_bytes = module.count_scratch(q.shape[0], cu_seqlens.shape[0] - 1) if groups else 0
        scratch = q.new_empty(num_bytes, dtype=torch.uint8)
        gates = (A_log, a, dt_bias, b, cu_seqlens)
        module.prefill(q, k, v, state, *gates, scale, output, new_state, scratch, groups)
