"""fp64 oracle of moe, its routing rule for ties, and the inputs that its tests start from.

Only the experts that were hit are dequantised, one at a time. Routing follows the definition in
fp32, written out per token with sorts; where scores tie, the lower expert (and group) goes first,
which is one of the choices that the definition leaves open.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

EXPERTS, LOCAL_EXPERTS, GROUPS, KEPT_GROUPS, TOP_K = 256, 32, 8, 4, 8
HIDDEN, INTERMEDIATE, SCALE_BLOCK = 7168, 2048, 128


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def select(logits: torch.Tensor, bias: torch.Tensor) -> np.ndarray:
    """The 8 experts of each token, best first, int64 [T,8]. logits [T,256] fp32, bias [256]."""
    scores = sigmoid(logits.cpu().numpy()) + bias.cpu().float().numpy()
    assert scores.dtype == np.float32
    size = EXPERTS // GROUPS
    chosen = []
    for row in scores:
        groups = row.reshape(GROUPS, size)
        value = np.sort(groups, axis=1)[:, -2:].sum(axis=1)
        kept = sorted(range(GROUPS), key=lambda group, value=value: (-value[group], group))
        candidates = [
            e for group in kept[:KEPT_GROUPS] for e in range(group * size, (group + 1) * size)
        ]
        chosen.append(
            sorted(candidates, key=lambda expert, row=row: (-row[expert], expert))[:TOP_K]
        )
    return np.array(chosen, dtype=np.int64).reshape(len(chosen), TOP_K)


def weigh(logits: torch.Tensor, chosen: np.ndarray, routed_scaling_factor: float) -> np.ndarray:
    """Weights of the chosen experts, fp64 [T,8]: their scores without bias, normalised."""
    scores = np.take_along_axis(sigmoid(logits.cpu().double().numpy()), chosen, axis=1)
    return scores / (scores.sum(axis=1, keepdims=True) + 1e-20) * routed_scaling_factor


def dequantise(codes: torch.Tensor, scale: torch.Tensor, device="cpu") -> torch.Tensor:
    """Codes [N,K] e4m3 times one scale per 128 x 128 block [N/128,K/128], in fp64."""
    blocks = codes.to(device).double().unflatten(1, (-1, SCALE_BLOCK))
    blocks = blocks.unflatten(0, (-1, SCALE_BLOCK))
    return (blocks * scale.to(device).double()[:, None, :, None]).flatten(0, 1).flatten(1, 2)


def oracle(
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
    device="cpu",
):
    """Inputs as in the definition. Returns (output [T,7168] fp64,), computed on `device`."""
    chosen = select(routing_logits, routing_bias)
    weight = torch.from_numpy(weigh(routing_logits, chosen, routed_scaling_factor)).to(device)
    x = hidden_states.to(device).double().unflatten(1, (-1, SCALE_BLOCK))
    x = (x * hidden_states_scale.to(device).double().T[:, :, None]).flatten(1)
    output = torch.zeros(len(chosen), HIDDEN, dtype=torch.float64, device=device)
    for expert in range(LOCAL_EXPERTS):
        places = np.nonzero(chosen == expert + local_expert_offset)
        if not len(places[0]):
            continue
        tokens, slots = (torch.from_numpy(place).to(device) for place in places)
        w1 = dequantise(gemm1_weights[expert], gemm1_weights_scale[expert], device)
        linear, gate = (x[tokens] @ w1.T).chunk(2, dim=1)
        del w1
        w2 = dequantise(gemm2_weights[expert], gemm2_weights_scale[expert], device)
        result = (torch.nn.functional.silu(gate) * linear) @ w2.T
        output[tokens] += result * weight[tokens, slots][:, None]
    return (output,)


def random_codes(generator, *shape) -> torch.Tensor:
    """e4m3 codes of normal numbers clamped to +-2, as the official harness draws them."""
    values = torch.randn(*shape, generator=generator, device=generator.device)
    return values.clamp_(-2, 2).to(torch.float8_e4m3fn)


def zero_weights(device="cpu"):
    """Weights and scales of both GEMMs, all zero: on a CPU untouched experts cost no memory."""
    fp8 = {"dtype": torch.float8_e4m3fn, "device": device}
    blocks = (HIDDEN // SCALE_BLOCK, INTERMEDIATE // SCALE_BLOCK)
    return {
        "gemm1_weights": torch.zeros(LOCAL_EXPERTS, 2 * INTERMEDIATE, HIDDEN, **fp8),
        "gemm1_weights_scale": torch.zeros(LOCAL_EXPERTS, 2 * blocks[1], blocks[0], device=device),
        "gemm2_weights": torch.zeros(LOCAL_EXPERTS, HIDDEN, INTERMEDIATE, **fp8),
        "gemm2_weights_scale": torch.zeros(LOCAL_EXPERTS, *blocks, device=device),
    }


def fill_expert(weights, expert, generator):
    """Draw one local expert's weights and signed scales."""
    for name in ("gemm1_weights", "gemm2_weights"):
        weights[name][expert] = random_codes(generator, *weights[name].shape[1:])
        scale = weights[f"{name}_scale"]
        scale[expert] = torch.randn(scale.shape[1:], generator=generator, device=generator.device)


def route_to(choices, seed=0):
    """Logits [T,256] that send token t to the 8 experts choices[t], with weights of their own.

    At most 4 groups of 32 experts may occur in a row of choices.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.rand(len(choices), EXPERTS, generator=generator) - 6.0
    for token, experts in enumerate(choices):
        assert len(set(experts)) == TOP_K
        logits[token, list(experts)] = torch.linspace(2.0, -1.0, TOP_K)
    return logits


def wide_logits(seq_len, seed):
    return torch.randn(seq_len, EXPERTS, generator=torch.Generator().manual_seed(seed)) * 2


def one_token_per_expert():
    """32 tokens; token t sends its best slot to local expert t of offset 0, the rest elsewhere."""
    return route_to([[t, *range(200, 207)] for t in range(32)])


# Logits and bias of some tokens; those in TIED leave a choice open, which select() makes.
EXTREMES = {
    "all equal": (torch.zeros(5, EXPERTS), torch.zeros(EXPERTS)),
    "equal groups": (torch.arange(32.0).repeat(3, 8) * 0.1, torch.zeros(EXPERTS)),
    "plus and minus 200": (wide_logits(20, 1).sign() * 200, torch.zeros(EXPERTS)),
    "all minus 200": (torch.full((3, EXPERTS), -200.0), torch.zeros(EXPERTS)),
    "minus 200 and a bias": (torch.full((3, EXPERTS), -200.0), torch.arange(256.0).roll(9)),
    "all plus 200": (torch.full((3, EXPERTS), 200.0), torch.zeros(EXPERTS)),
    "large bias": (wide_logits(20, 2), torch.linspace(-1e4, 1e4, EXPERTS).roll(77)),
    "large bias, no order": (
        wide_logits(20, 4),
        torch.linspace(-1e4, 1e4, EXPERTS)[torch.arange(EXPERTS) * 101 % EXPERTS],
    ),
    "negative bias": (wide_logits(20, 3), torch.full((EXPERTS,), -1e38)),
    "one token per expert": (one_token_per_expert(), torch.zeros(EXPERTS)),
    "all on one local expert": (route_to([[3, *range(40, 47)]] * 40), torch.zeros(EXPERTS)),
    "all slots local": (route_to([list(range(8, 16))] * 40), torch.zeros(EXPERTS)),
    "no local expert": (route_to([list(range(100, 108))] * 40), torch.zeros(EXPERTS)),
}
TIED = {
    "all equal",
    "equal groups",
    "plus and minus 200",
    "all minus 200",
    "all plus 200",
    "negative bias",
}


def random_inputs(logits, weights, offset, seed, device="cpu"):
    """Inputs by name, in the definition's order, with normal (signed) activation scales."""
    generator = torch.Generator(device).manual_seed(seed)
    seq_len = logits.shape[0]
    scale = torch.randn(HIDDEN // SCALE_BLOCK, seq_len, generator=generator, device=device)
    return {
        "routing_logits": logits.to(device),
        "routing_bias": torch.zeros(EXPERTS, dtype=torch.bfloat16, device=device),
        "hidden_states": random_codes(generator, seq_len, HIDDEN),
        "hidden_states_scale": scale,
        **weights,
        "local_expert_offset": offset,
        "routed_scaling_factor": 2.5,
    }


class Uninitialised:
    """Stands for a torch.empty tensor in a pickle: as small as its shape."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype

    def __reduce__(self):
        return functools.partial(torch.empty, dtype=self.dtype), (self.shape,)
