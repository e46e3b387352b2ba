"""fp64 oracle of gdn_decode, and the inputs that its tests start from.

The recurrence is written out per batch row and v head, in numpy. It shares no text and no order
of operations with the definition's reference or the kernel: one rank-1 update of a k-last state.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import normalize

QK_HEADS, V_HEADS, HEAD_SIZE = 4, 8, 128


def as_float64(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()


def gates(A_log, a, dt_bias, b):
    """Decay and write strength, [..., 8] each, in fp64."""
    step = as_float64(a) + as_float64(dt_bias)
    decay = np.exp(-np.exp(as_float64(A_log)) * np.logaddexp(0.0, step))
    return decay, 1.0 / (1.0 + np.exp(-as_float64(b)))


def oracle(q, k, v, state, A_log, a, dt_bias, b, scale):
    """Inputs as in the definition. Returns output [B,1,8,128] and new_state [B,8,128,128], fp64."""
    batch_size, _, v_heads, head_size = v.shape
    with np.errstate(all="ignore"):  # non-finite inputs are a subject of the tests
        decay, beta = gates(A_log, a, dt_bias, b)
        queries, keys, values = as_float64(q), as_float64(k), as_float64(v)
        shape = (batch_size, v_heads, head_size, head_size)
        old_state = np.zeros(shape) if state is None else as_float64(state)
        scale = scale if scale else 1.0 / np.sqrt(head_size)
        output = np.empty((batch_size, 1, v_heads, head_size))
        new_state = np.empty(shape)
        for row, head in np.ndindex(batch_size, v_heads):
            query = queries[row, 0, head // (v_heads // QK_HEADS)]
            key = keys[row, 0, head // (v_heads // QK_HEADS)]
            decayed = decay[row, 0, head] * old_state[row, head]
            error = values[row, 0, head] - decayed @ key
            updated = decayed + beta[row, 0, head] * np.outer(error, key)
            new_state[row, head] = updated
            output[row, 0, head] = scale * (updated @ query)
    return torch.from_numpy(output), torch.from_numpy(new_state)


def random_inputs(batch_size, seed, device="cpu"):
    """Inputs by name, in the definition's order: unit-norm q and k, gates from slow to fast."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    inputs = {
        "q": normalize(normal(batch_size, 1, QK_HEADS, HEAD_SIZE), dim=-1).bfloat16(),
        "k": normalize(normal(batch_size, 1, QK_HEADS, HEAD_SIZE), dim=-1).bfloat16(),
        "v": normal(batch_size, 1, V_HEADS, HEAD_SIZE).bfloat16(),
        "state": normal(batch_size, V_HEADS, HEAD_SIZE, HEAD_SIZE) * 0.1,
        "A_log": normal(V_HEADS),
        "a": normal(batch_size, 1, V_HEADS).bfloat16(),
        "dt_bias": normal(V_HEADS),
        "b": normal(batch_size, 1, V_HEADS).bfloat16(),
    }
    return {name: tensor.to(device) for name, tensor in inputs.items()} | {"scale": HEAD_SIZE**-0.5}


def empty_outputs(batch_size, device="cpu"):
    """Uninitialised output and new_state."""
    output = torch.empty(batch_size, 1, V_HEADS, HEAD_SIZE, dtype=torch.bfloat16, device=device)
    new_state = torch.empty(batch_size, V_HEADS, HEAD_SIZE, HEAD_SIZE, device=device)
    return output, new_state
