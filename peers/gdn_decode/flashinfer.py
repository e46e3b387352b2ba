"""FlashInfer's decode of the gated delta rule with an fp32 state k-last (CuTe DSL).

`flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose`, the function of the definition's
fi_api that keeps the state [B, H, V, K]. It updates the state in place, and the definition's inputs
may not be written: the state is first copied into new_state, which is a kernel of its own and is
timed, with the gap that the host leaves between the two. A server that lets the state be
overwritten does not pay for either. The kernel is compiled once for each batch size.
"""

import flashinfer.gdn_decode

PACKAGE = "flashinfer-python"
PREPARED = "nothing"
REQUIRES = ("nvidia-cutlass-dsl",)
CAVEAT = (
    "its latency holds a copy of the state, which a server that updates in place does not make, "
    "and the gap that the host leaves between copy and kernel"
)


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    if flashinfer.gdn_decode.run_pretranspose_decode is None:
        raise RuntimeError(
            "FlashInfer's gated delta rule decode is written in CuTe DSL, and nvidia-cutlass-dsl "
            "is not installed or does not import"
        )
    new_state.zero_() if state is None else new_state.copy_(state)
    flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose(
        q, k, v, new_state, A_log, a, dt_bias, b, scale or None, output, use_qk_l2norm=False
    )
