"""fp64 oracle of gdn_prefill, and the inputs that its tests start from.

The recurrence as it is defined, one token after the other, for all v heads of a sequence at once:
no chunks, no sums of logarithms, k-last states. It shares no text and no order of operations with
the definition's reference or the kernels. It runs where its inputs are, so that long sequences can
be checked on a GPU's fp64 units.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn.functional import normalize

QK_HEADS, V_HEADS, HEAD_SIZE = 4, 8, 128


def gates(A_log, a, dt_bias, b):
    """Decay and write strength, [T, 8] each, in fp64."""
    rate = torch.exp(A_log.double())
    step = a.double() + dt_bias.double()
    softened = torch.logaddexp(step, torch.zeros_like(step))
    return torch.exp(-rate * softened), 1.0 / (1.0 + torch.exp(-b.double()))


def oracle(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
    """Inputs as in the definition. Returns output [T,8,128] and new_state [N,8,128,128], fp64."""
    decay, beta = gates(A_log, a, dt_bias, b)
    head_of = torch.arange(V_HEADS, device=q.device) // (V_HEADS // QK_HEADS)
    queries, keys = q.double()[:, head_of], k.double()[:, head_of]  # [T, 8, 128]
    values = v.double()
    bounds = cu_seqlens.tolist()
    shape = (len(bounds) - 1, V_HEADS, HEAD_SIZE, HEAD_SIZE)
    output = torch.zeros(v.shape, dtype=torch.float64, device=q.device)
    new_state = torch.zeros(shape, dtype=torch.float64, device=q.device)
    for sequence, (start, stop) in enumerate(pairwise(bounds)):
        if stop <= start:
            continue  # new_state stays zero, whatever `state` holds
        carried = torch.zeros(shape[1:], dtype=torch.float64, device=q.device)
        if state is not None:
            carried += state[sequence]
        for token in range(start, stop):
            carried *= decay[token, :, None, None]
            key = keys[token, :, None, :]
            error = values[token] - (carried * key).sum(-1)
            carried += (beta[token, :, None] * error)[..., None] * key
            output[token] = (carried * queries[token, :, None, :]).sum(-1)
        new_state[sequence] = carried
    return output * (scale if scale else HEAD_SIZE**-0.5), new_state


def random_inputs(cu_seqlens, seed, total_seq_len=None, device="cpu"):
    """Inputs by name, in the definition's order: unit-norm q and k, one gate a head from slow to
    fast decay, states of a few hundredths.

    cu_seqlens: first token of each sequence and the end of the last one. total_seq_len: tokens in
    all, when some follow the last sequence.
    """
    generator = torch.Generator().manual_seed(seed)
    total = cu_seqlens[-1] if total_seq_len is None else total_seq_len

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    inputs = {
        "q": normalize(normal(total, QK_HEADS, HEAD_SIZE), dim=-1).bfloat16(),
        "k": normalize(normal(total, QK_HEADS, HEAD_SIZE), dim=-1).bfloat16(),
        "v": normal(total, V_HEADS, HEAD_SIZE).bfloat16(),
        "state": normal(len(cu_seqlens) - 1, V_HEADS, HEAD_SIZE, HEAD_SIZE) / 32,
        "A_log": torch.linspace(-6.0, 1.0, V_HEADS),
        "a": normal(total, V_HEADS).bfloat16(),
        "dt_bias": normal(V_HEADS) / 4,
        "b": normal(total, V_HEADS).bfloat16(),
        "cu_seqlens": torch.tensor(cu_seqlens, dtype=torch.int64),
    }
    return {name: tensor.to(device) for name, tensor in inputs.items()} | {"scale": HEAD_SIZE**-0.5}


def batch_of(lengths, seed, device="cpu"):
    """random_inputs of sequences with these lengths, packed without gaps."""
    cu_seqlens = [0]
    for length in lengths:
        cu_seqlens.append(cu_seqlens[-1] + length)
    return random_inputs(cu_seqlens, seed, device=device)


def hard_inputs(cu_seqlens, seed, device="cpu"):
    """Gates at their ends and keys that repeat, another regime in every v head.

    0: g 1, beta 1 · 1: g 0, beta 1 · 2, 3: all keys equal, g 1, beta 1 and 0 · 4: three keys, g
    flips between 0 and 1 · 5: three keys, g 0.5 · 6: keys nearly parallel, g 0.9999 · 7: g e^-30.
    """
    inputs = random_inputs(cu_seqlens, seed, device="cpu")
    total = cu_seqlens[-1]
    generator = torch.Generator().manual_seed(seed + 1)
    keys = inputs["k"]
    keys[:, 1] = keys[:1, 1]
    keys[:, 2] = keys[torch.randint(min(3, total), (total,), generator=generator), 2]
    keys[:, 3] = normalize(keys[:1, 3].float() + 0.1 * keys[:, 3].float(), dim=-1).bfloat16()
    inputs["A_log"].zero_()
    inputs["dt_bias"].zero_()
    inputs["a"][:] = torch.tensor([-120.0, 120.0, -120.0, -120.0, 0.0, 0.0, -9.2, 30.0])
    inputs["a"][:, 4] = 240.0 * torch.randint(2, (total,), generator=generator) - 120.0
    inputs["b"][:, :4] = torch.tensor([120.0, 120.0, 120.0, -120.0])
    return {
        name: value.to(device) if torch.is_tensor(value) else value
        for name, value in inputs.items()
    }


def empty_outputs(inputs):
    """Uninitialised output and new_state for inputs by name, on their device."""
    num_seqs = inputs["cu_seqlens"].shape[0] - 1
    shape = (num_seqs, V_HEADS, HEAD_SIZE, HEAD_SIZE)
    output = torch.empty_like(inputs["v"])
    return output, torch.empty(shape, dtype=torch.float32, device=output.device)


def count_wrong(got, want, tolerance=1e-2):
    """Elements that the official rule refuses: absolute and relative error above the tolerance."""
    error = (got.double() - want).abs()
    wrong = (error > tolerance) & (error > tolerance * (want.abs() + 1e-8))
    return int((wrong | ~torch.isfinite(got)).sum())
