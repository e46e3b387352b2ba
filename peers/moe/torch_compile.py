"""The definition's reference under torch.compile with its default settings (Inductor).

The loop over experts asks the device which tokens each one has, so the loop itself runs in Python;
routing and the dequantisation of an expert's weights are functions of their own and are compiled
into fused kernels. Matrix products are fp32, as in the reference.
"""

import torch

from .reference import run as reference

PACKAGE = "torch"
PREPARED = "nothing"

compiled = torch.compile(reference)


@torch.no_grad()
def run(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    gemm1_weights,
    gemm1_weights_scale,
    gemm2_weights,
    gemm2_weights_scale,
    local_expert_offset,
    routed_scaling_factor,
    output,
):
    result = compiled(
        routing_logits,
        routing_bias,
        hidden_states,
        hidden_states_scale,
        gemm1_weights,
        gemm1_weights_scale,
        gemm2_weights,
        gemm2_weights_scale,
        local_expert_offset,
        routed_scaling_factor,
    )
    output.copy_(result[0] if isinstance(result, tuple) else result)
