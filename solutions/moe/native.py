"""The native route of moe: moe.cu, compiled at its first use."""

import torch

from .native_build import load_native


def run_native(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    weights,
    scalars,
    output,
    *,
    way,
):
    """Launch moe.cu on the current stream. Arguments as in kernel.py's run(), checked there.

    All tensors begin on 16-byte boundaries. weights: gemm1 and gemm2 weights, each with its
    scales; scalars: expert offset within +-512, scaling factor. way: "stream" or "tiles", as in
    NATIVE_WAYS.
    Raises RuntimeError for a failed build or launch.
    """
    device = output.device
    w1, w1_scale, w2, w2_scale = weights
    offset, scaling = scalars
    with torch.cuda.device_of(output):
        module = load_native("moe.cu", torch.cuda.get_device_capability(device))
        scratch_bytes = module.count_scratch_bytes(output.shape[0])
        scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device=device)
        module.moe(
            routing_logits,
            routing_bias,
            hidden_states.view(torch.uint8),  # older DLPack exchanges know no e4m3
            hidden_states_scale,
            w1.view(torch.uint8),
            w1_scale,
            w2.view(torch.uint8),
            w2_scale,
            offset,
            float(scaling),
            output,
            scratch,
            torch.cuda.get_device_properties(device).multi_processor_count,
            way == "tiles",
        )
