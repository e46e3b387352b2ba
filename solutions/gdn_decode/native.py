"""The native route of gdn_decode: step.cu, compiled at its first use."""

import torch

from .native_build import load_native


def run_native(
    q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state, *, lanes, rows, warps
):
    """Launch step.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    state is there, scale a float; all tensors begin on 16-byte boundaries. lanes hold a row of V,
    a warp takes rows of them, a CTA warps: one of the shapes that step.cu lists.
    Raises RuntimeError for a failed build or launch.
    """
    tensors = (q, k, v, state, A_log, a, dt_bias, b)
    with torch.cuda.device_of(q):
        module = load_native("step.cu", torch.cuda.get_device_capability(q.device))
        module.step(*tensors, scale, output, new_state, lanes, rows, warps)
