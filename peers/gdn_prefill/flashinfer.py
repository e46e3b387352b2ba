"""FlashInfer's prefill of the gated delta rule, the function of the definition's fi_api.

`flashinfer.chunk_gated_delta_rule`: one CUTLASS kernel on sm_90, a CuTe DSL kernel on sm_100. It
takes gates where the definition has raw A_log, a, dt_bias and b, so a second kernel, made by
torch.compile, computes decay and write strength and is timed with it. Both outputs are written in
place. The first call compiles 34 CUDA files with nvcc, which takes minutes.
"""

import flashinfer
import torch

PACKAGE = "flashinfer-python"
PREPARED = "nothing"


@torch.compile(dynamic=True)
def gates(A_log, a, dt_bias, b):
    """a, b [T, 8] bf16; A_log, dt_bias [8] fp32. Returns decay and write strength, [T, 8] fp32."""
    step = torch.nn.functional.softplus(a.float() + dt_bias)
    return torch.exp(-torch.exp(A_log) * step), torch.sigmoid(b.float())


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    decay, strength = gates(A_log, a, dt_bias, b)
    flashinfer.chunk_gated_delta_rule(
        q,
        k,
        v,
        decay,
        strength,
        scale or None,
        state,
        True,
        cu_seqlens,
        output=output,
        output_state=new_state,
    )
