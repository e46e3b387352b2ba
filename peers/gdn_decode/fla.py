"""Flash Linear Attention's fused recurrent kernel of the gated delta rule (Triton).

One launch of `fused_recurrent_gated_delta_rule_fwd_kernel`: gates, sigmoid and the state k-last
inside it, 8 value rows a program. The public function `fused_recurrent_gated_delta_rule` launches
the same kernel with the same numbers into tensors that it allocates; here it writes into the
outputs, so that no copy of the state is timed.
"""

import math

from fla.ops.gated_delta_rule.fused_recurrent import fused_recurrent_gated_delta_rule_fwd_kernel

PACKAGE = "fla-core"
PREPARED = "nothing"

BLOCK_V = 8


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    batch_size, seq_len, num_qk_heads, head_size = q.shape
    num_v_heads = v.shape[2]
    fused_recurrent_gated_delta_rule_fwd_kernel[(head_size // BLOCK_V * batch_size * num_v_heads,)](
        q=q,
        k=k,
        v=v,
        g=a,
        gk=None,
        gv=None,
        beta=b,
        A_log=A_log,
        dt_bias=dt_bias,
        o=output,
        h0=state,
        ht=new_state,
        cu_seqlens=None,
        scale=scale or 1.0 / math.sqrt(head_size),
        T=seq_len,
        H=num_qk_heads,
        HV=num_v_heads,
        K=head_size,
        V=head_size,
        BK=head_size,
        BV=BLOCK_V,
        IS_BETA_HEADWISE=True,
        USE_QK_L2NORM_IN_KERNEL=False,
        APPLY_BETA_SIGMOID=True,
        ALLOW_NEG_EIGVAL=False,
        STATE_V_FIRST=True,
        num_warps=1,
        num_stages=3,
    )
