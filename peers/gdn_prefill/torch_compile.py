"""The recurrence in PyTorch, one token a call, under torch.compile (Inductor).

Compiled whole, the reference would be unrolled: one graph of nine operations for each of up to
8192 tokens. So what is compiled is what a user can compile in reasonable time, the gates of all
tokens at once and the step of one token; the loop over tokens stays in Python. Latency is then the
launches, one or two small kernels a token. A step reads and writes its sequence's state in place,
in new_state, k-last. The definition's two outer products are one update here.
"""

import math

import torch

PACKAGE = "torch"
PREPARED = "nothing"


@torch.compile(dynamic=True)
def gates(A_log, a, dt_bias, b):
    """a, b [T, 8] bf16; A_log, dt_bias [8] fp32. Returns decay and write strength, [T, 8] fp32."""
    step = torch.nn.functional.softplus(a.float() + dt_bias)
    return torch.exp(-torch.exp(A_log) * step), torch.sigmoid(b.float())


@torch.compile(dynamic=False)
def step(state, q, k, v, decay, strength, scale, output):
    """state [8, V, K], updated in place. q, k [4, K]; v, output [8, V]; decay, strength [8]."""
    repeats = v.shape[0] // q.shape[0]
    query = q.float().repeat_interleave(repeats, dim=0).unsqueeze(1)
    key = k.float().repeat_interleave(repeats, dim=0).unsqueeze(1)
    decayed = state * decay.view(-1, 1, 1)
    change = strength.unsqueeze(1) * (v.float() - (decayed * key).sum(-1))
    updated = decayed + change.unsqueeze(-1) * key
    state.copy_(updated)
    output.copy_((updated * query).sum(-1) * scale)


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    scale = scale or 1.0 / math.sqrt(q.shape[-1])
    decay, strength = gates(A_log, a, dt_bias, b)
    tokens = list(zip(*(x.unbind(0) for x in (q, k, v, decay, strength, output)), strict=True))
    if state is None:
        new_state.zero_()
    else:
        new_state.copy_(state)
    bounds = cu_seqlens.tolist()
    for current, begin, end in zip(new_state.unbind(0), bounds, bounds[1:], strict=False):
        if end <= begin:
            current.zero_()
        for query, key, value, g, beta, out in tokens[begin:end]:
            step(current, query, key, value, g, beta, scale, out)
