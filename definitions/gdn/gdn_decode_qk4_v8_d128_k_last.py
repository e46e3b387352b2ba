"""Gated delta rule, one token: decays a state, corrects it towards (k, v) and reads it with q.

Per sequence and value head, with S [K, V] the state, k, q [K], v [V] and scalars g, beta:

    g    = exp(-exp(A_log) * softplus(a + dt_bias))          decay, between 0 and 1
    beta = sigmoid(b)                                        strength of the write
    S0   = g * S
    old  = k . S0
    new  = beta * v + (1 - beta) * old
    S'   = S0 - k (x) old + k (x) new                        (x): outer product
    out  = scale * (q . S')

Query and key head j serve value heads 2j and 2j + 1. The state is stored k-last, [V, K]. q and k
are taken as they come: no normalisation here. Every bf16 operand is widened on its own before
any arithmetic; everything runs in fp32; the output is rounded to bfloat16 once.
"""

import math

import torch

DEFINITION = {
    "name": "gdn_decode_qk4_v8_d128_k_last",
    "description": (
        "Gated delta network, decode: one token for each sequence through the gated delta rule, "
        "with grouped value heads (4 query and key heads, 8 value heads) and a k-last state. "
        "Shapes of Qwen3-Next over tensor parallel of 4."
    ),
    "op_type": "gdn",
    "tags": [
        "stage:decode",
        "status:verified",
        "model:qwen3-next",
        "layout:k-last",
        "fi_api:flashinfer.gdn.gated_delta_rule_decode",
        "tp:4",
    ],
    "axes": {
        "batch_size": {"type": "var", "description": "Number of sequences."},
        "seq_len": {"type": "const", "value": 1, "description": "Decode: one token each."},
        "num_q_heads": {"type": "const", "value": 4},
        "num_k_heads": {"type": "const", "value": 4},
        "num_v_heads": {"type": "const", "value": 8},
        "head_size": {"type": "const", "value": 128},
    },
    "constraints": [
        "num_v_heads >= num_q_heads",
        "num_v_heads % num_q_heads == 0",
        "num_k_heads == num_q_heads",
    ],
    "inputs": {
        "q": {
            "shape": ["batch_size", "seq_len", "num_q_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Query.",
        },
        "k": {
            "shape": ["batch_size", "seq_len", "num_k_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Key.",
        },
        "v": {
            "shape": ["batch_size", "seq_len", "num_v_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Value.",
        },
        "state": {
            "shape": ["batch_size", "num_v_heads", "head_size", "head_size"],
            "dtype": "float32",
            "description": "State before the token, k-last [B, H, V, K]; optional, none is zeros.",
        },
        "A_log": {
            "shape": ["num_v_heads"],
            "dtype": "float32",
            "description": "Logarithm of the decay rate.",
        },
        "a": {
            "shape": ["batch_size", "seq_len", "num_v_heads"],
            "dtype": "bfloat16",
            "description": "Decay step of the token, before bias and softplus.",
        },
        "dt_bias": {
            "shape": ["num_v_heads"],
            "dtype": "float32",
            "description": "Bias of the decay step.",
        },
        "b": {
            "shape": ["batch_size", "seq_len", "num_v_heads"],
            "dtype": "bfloat16",
            "description": "Write strength before the sigmoid.",
        },
        "scale": {
            "shape": None,
            "dtype": "float32",
            "description": "Factor on the output; none or 0 stands for 1/sqrt(head_size).",
        },
    },
    "outputs": {
        "output": {
            "shape": ["batch_size", "seq_len", "num_v_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Read of the updated state.",
        },
        "new_state": {
            "shape": ["batch_size", "num_v_heads", "head_size", "head_size"],
            "dtype": "float32",
            "description": "State after the token, k-last [B, H, V, K].",
        },
    },
}


def gates(A_log, a, dt_bias, b):
    """a, b [..., 8] bf16; A_log, dt_bias [8] fp32. Returns decay and beta, [..., 8] fp32."""
    step = torch.nn.functional.softplus(a.float() + dt_bias.float())
    return torch.exp(-torch.exp(A_log.float()) * step), torch.sigmoid(b.float())


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, scale):
    batch_size, _, num_v_heads, head_size = v.shape
    if scale is None or scale == 0.0:
        scale = 1.0 / math.sqrt(head_size)
    if state is None:
        shape = (batch_size, num_v_heads, head_size, head_size)
        state = torch.zeros(shape, dtype=torch.float32, device=v.device)

    decay, beta = (gate.view(batch_size, num_v_heads, 1, 1) for gate in gates(A_log, a, dt_bias, b))
    repeats = num_v_heads // q.shape[2]
    query_row = q.float().repeat_interleave(repeats, dim=2).transpose(1, 2)
    key_row = k.float().repeat_interleave(repeats, dim=2).transpose(1, 2)
    key_column = key_row.transpose(-1, -2)
    value_row = v.float().transpose(1, 2)

    # Rows are [B, 8, 1, 128]; the state is [B, 8, K, V] from here to the end.
    decayed = decay * state.float().transpose(-1, -2)
    old = key_row @ decayed
    new = beta * value_row + (1.0 - beta) * old
    updated = decayed - key_column * old + key_column * new
    output = scale * (query_row @ updated)
    return output.transpose(1, 2).to(torch.bfloat16), updated.transpose(-1, -2).contiguous()
