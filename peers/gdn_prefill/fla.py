"""Flash Linear Attention's chunked gated delta rule (Triton).

`fla.ops.gated_delta_rule.chunk_gated_delta_rule` with gates and sigmoid inside its kernels and the
state k-last: about eight launches, chosen by autotuning in the first calls (a minute). It returns
new tensors; two copies into the outputs are timed with it.
"""

import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

PACKAGE = "fla-core"
PREPARED = (
    "nothing by this file; the library itself keeps the chunk table of a cu_seqlens tensor that it "
    "has seen, which favours it"
)


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    result, final_state = chunk_gated_delta_rule(
        q.unsqueeze(0),
        k.unsqueeze(0),
        v.unsqueeze(0),
        g=a.unsqueeze(0),
        beta=b.unsqueeze(0),
        scale=scale or None,
        initial_state=state,
        output_final_state=True,
        use_gate_in_kernel=True,
        A_log=A_log,
        dt_bias=dt_bias,
        use_beta_sigmoid_in_kernel=True,
        state_v_first=True,
        cu_seqlens=cu_seqlens,
    )
    output.copy_(result.squeeze(0))
    new_state.copy_(final_state)
