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
    most_whole,
):
    """Launch prefill.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries; scale is a number other than 0. most_whole: None for
    the recurrence in one launch, otherwise how many chunks a sequence may have that one CTA of the
    scan takes with all columns of V. Raises RuntimeError for a failed build or launch.
    """
    with torch.cuda.device_of(q):
        module = load_native("prefill.cu", torch.cuda.get_device_capability(q.device))
        is_walk, num_seqs = most_whole is None, cu_seqlens.shape[0] - 1
        num_bytes = 0 if is_walk else module.count_scratch(q.shape[0], num_seqs)
        scratch = q.new_empty(num_bytes, dtype=torch.uint8)
        gates = (A_log, a, dt_bias, b, cu_seqlens)
        outputs = (output, new_state, scratch)
        module.prefill(q, k, v, state, *gates, scale, *outputs, -1 if is_walk else most_whole)
