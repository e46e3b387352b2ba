"""Gated delta rule over whole sequences: a strict recurrence, one token after the other.

Per sequence and value head, with S [K, V] the state, k, q [K], v [V] and scalars g, beta, each
token in turn does

    g    = exp(-exp(A_log) * softplus(a + dt_bias))          decay, between 0 and 1
    beta = sigmoid(b)                                        strength of the write
    S0   = g * S
    old  = k . S0
    new  = beta * v + (1 - beta) * old
    S    = S0 - k (x) old + k (x) new                        (x): outer product
    out  = scale * (q . S)

Sequence n owns tokens cu_seqlens[n] up to cu_seqlens[n + 1]. A sequence without tokens leaves its
new_state at zero, whatever its state was, and tokens that no sequence owns stay zero. Query and
key head j serve value heads 2j and 2j + 1. States are stored k-last, [V, K]. q and k are taken as
they come: no normalisation here. Everything runs in fp32, the state is carried in fp32, and each
output is rounded to bfloat16 once.
"""

import math
from itertools import pairwise

import torch

DEFINITION = {
    "name": "gdn_prefill_qk4_v8_d128_k_last",
    "description": (
        "Gated delta network, prefill: sequences of any length, packed one after the other, "
        "through the gated delta rule, with grouped value heads (4 query and key heads, 8 value "
        "heads) and a k-last state. Shapes of Qwen3-Next over tensor parallel of 4."
    ),
    "op_type": "gdn",
    "tags": [
        "stage:prefill",
        "status:verified",
        "model:qwen3-next",
        "layout:k-last",
        "fi_api:flashinfer.gdn.chunk_gated_delta_rule",
        "tp:4",
    ],
    "axes": {
        "total_seq_len": {"type": "var", "description": "Tokens of all sequences together."},
        "num_seqs": {"type": "var", "description": "Number of sequences."},
        "num_q_heads": {"type": "const", "value": 4},
        "num_k_heads": {"type": "const", "value": 4},
        "num_v_heads": {"type": "const", "value": 8},
        "head_size": {"type": "const", "value": 128},
        "len_cu_seqlens": {"type": "var", "description": "num_seqs + 1."},
    },
    "constraints": [
        "len_cu_seqlens == num_seqs + 1",
        "total_seq_len == cu_seqlens[-1]",
    ],
    "inputs": {
        "q": {
            "shape": ["total_seq_len", "num_q_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Query.",
        },
        "k": {
            "shape": ["total_seq_len", "num_k_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Key.",
        },
        "v": {
            "shape": ["total_seq_len", "num_v_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Value.",
        },
        "state": {
            "shape": ["num_seqs", "num_v_heads", "head_size", "head_size"],
            "dtype": "float32",
            "description": "Initial states, k-last [N, H, V, K]; optional, none is zeros.",
        },
        "A_log": {
            "shape": ["num_v_heads"],
            "dtype": "float32",
            "description": "Logarithm of the decay rate.",
        },
        "a": {
            "shape": ["total_seq_len", "num_v_heads"],
            "dtype": "bfloat16",
            "description": "Decay step of the token, before bias and softplus.",
        },
        "dt_bias": {
            "shape": ["num_v_heads"],
            "dtype": "float32",
            "description": "Bias of the decay step.",
        },
        "b": {
            "shape": ["total_seq_len", "num_v_heads"],
            "dtype": "bfloat16",
            "description": "Write strength before the sigmoid.",
        },
        "cu_seqlens": {
            "shape": ["len_cu_seqlens"],
            "dtype": "int64",
            "description": "First token of each sequence, and at last the number of tokens.",
        },
        "scale": {
            "shape": None,
            "dtype": "float32",
            "description": "Factor on the output; none or 0 stands for 1/sqrt(head_size).",
        },
    },
    "outputs": {
        "output": {
            "shape": ["total_seq_len", "num_v_heads", "head_size"],
            "dtype": "bfloat16",
            "description": "Read of the state just after each token.",
        },
        "new_state": {
            "shape": ["num_seqs", "num_v_heads", "head_size", "head_size"],
            "dtype": "float32",
            "description": "State after the last token of each sequence, k-last [N, H, V, K].",
        },
    },
}


def gates(A_log, a, dt_bias, b):
    """a, b [..., 8] bf16; A_log, dt_bias [8] fp32. Returns decay and beta, [..., 8] fp32."""
    step = torch.nn.functional.softplus(a.float() + dt_bias.float())
    return torch.exp(-torch.exp(A_log.float()) * step), torch.sigmoid(b.float())


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
    num_tokens, num_v_heads, head_size = v.shape
    num_seqs = cu_seqlens.shape[0] - 1
    if scale is None or scale == 0.0:
        scale = 1.0 / math.sqrt(head_size)

    # What a token needs and the state does not decide is computed for all tokens at once.
    decay, beta = (gate.view(num_tokens, num_v_heads, 1, 1) for gate in gates(A_log, a, dt_bias, b))
    keep = 1.0 - beta
    write = beta * v.float().unsqueeze(2)
    repeats = num_v_heads // q.shape[1]
    query_row = q.float().repeat_interleave(repeats, dim=1).unsqueeze(2)
    key_row = k.float().repeat_interleave(repeats, dim=1).unsqueeze(2)
    key_column = key_row.transpose(-1, -2)

    output = torch.zeros(v.shape, dtype=torch.bfloat16, device=v.device)
    state_shape = (num_seqs, num_v_heads, head_size, head_size)
    new_state = torch.zeros(state_shape, dtype=torch.float32, device=v.device)
    for sequence, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
        if end <= begin:
            continue
        tokens = slice(begin, end)
        carried = torch.zeros(state_shape[1:], dtype=torch.float32, device=v.device)
        if state is not None:
            carried.copy_(state[sequence].transpose(-1, -2))
        reads = torch.empty_like(write[tokens])
        per_token = (query_row, key_row, key_column, decay, keep, write)
        views = (tensor[tokens].unbind(0) for tensor in per_token)
        # Nine small kernels a token, and nothing that waits for the device. The two outer
        # products stay apart: one fused update would round differently.
        for read, q_t, k_t, k_column, g_t, keep_t, write_t in zip(
            reads.unbind(0), *views, strict=True
        ):
            carried.mul_(g_t)
            old = torch.bmm(k_t, carried)
            new = write_t + keep_t * old
            carried.sub_(k_column * old).add_(k_column * new)
            torch.bmm(q_t, carried, out=read)
        output[tokens] = (scale * reads).squeeze(2).to(torch.bfloat16)
        new_state[sequence] = carried.transpose(-1, -2)
    return output, new_state
