"""Inputs of a dsa_prefill workload, drawn on the device from torch's seed: nothing is stored.

Normal queries, keys and weights, as the indexer's workloads have them, unless an axis of the
workload asks for scores that are hostile to a selection (harness/ranges.py names them). Those are
scores that every kernel computes to the last bit: a key is one unit and its scale is the score,
head 0 passes positive ones and head 1 negative ones, and a query multiplies them by a power of two.
Outliers are such keys too, among normal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from harness import ranges
from harness.evaluators import AMAX_FLOOR, FP8_MAX
from harness.ranges import TOPK, row_ranges, score_pattern

NUM_HEADS, HEAD_DIM = 64, 128
QUERY_LIMIT = 2.0  # the official draw of FP8 inputs
UNIT = 16.0  # least distance of two scores: far beyond the rule's atol
GROWTH = 80.0  # steps in which ascending scores grow e-fold: 1.2 % a step, beyond its rtol
OUTLIER_FACTOR = 2.0**20
OUTLIER_WEIGHT = 0.5  # least magnitude: outliers are 1e5 and more from all other scores
CODE_1, CODE_256 = 0x38, 0x78  # e4m3
STRIDE_KEYS = 16  # of each stride that hold the better keys


def draw_inputs(axes: Mapping[str, int], device: str) -> list[torch.Tensor]:
    """The definition's inputs, in its order. Raises UsageError for axes that mean nothing."""
    pattern = score_pattern(axes)
    starts, ends = (torch.from_numpy(values).to(device) for values in row_ranges(axes))
    if pattern is None or pattern[0] == ranges.OUTLIERS:
        tensors = normal_tensors(axes, device)
        if pattern is not None:
            place_outliers(tensors, pattern[1])
    else:
        scores = _SCORES[pattern[0]](axes, pattern[1], device)
        tensors = tensors_with_scores(scores.float(), axes[ranges.QUERIES])
    return [*tensors, starts, ends]


def normal_tensors(axes: Mapping[str, int], device: str) -> list[torch.Tensor]:
    """Queries, keys before their scales, scales and weights, as the official draws have them."""
    queries, keys = axes[ranges.QUERIES], axes[ranges.KEYS]
    q = torch.randn(queries, NUM_HEADS, HEAD_DIM, device=device)
    k = torch.randn(keys, HEAD_DIM, dtype=torch.bfloat16, device=device)
    scale = k.abs().amax(dim=1).float().clamp(min=AMAX_FLOOR) / FP8_MAX
    return [
        q.clamp_(-QUERY_LIMIT, QUERY_LIMIT).to(torch.float8_e4m3fn),
        (k * (1.0 / scale)[:, None]).to(torch.float8_e4m3fn),
        scale,
        torch.randn(queries, NUM_HEADS, device=device),
    ]


def place_outliers(tensors: list[torch.Tensor], count: int) -> None:
    """Turns `count` normal keys, anywhere, into outliers, of a sign that differs between queries.

    FP8 sums are good to some 1e-4 of what scores deviate by. In a normal key of such a scale that
    is more than all other scores, and with a score near 0 rounding decides whether it is chosen. So
    outlier j is one unit of dimension j, which head j alone meets: 256 times its scale and a weight
    that is not near 0, rounded once in whatever order.
    """
    query, keys, scale, weights = tensors
    chosen = torch.randperm(len(scale), device=scale.device)[:count]
    own = torch.arange(len(chosen), device=scale.device) % NUM_HEADS
    query_codes, key_codes = query.view(torch.uint8), keys.view(torch.uint8)
    query_codes[:, :, own] = 0
    query_codes[:, own, own] = CODE_1
    key_codes[chosen] = 0
    key_codes[chosen, own] = CODE_256
    scale[chosen] *= OUTLIER_FACTOR
    weights[:, own] = weights[:, own].abs().clamp(min=OUTLIER_WEIGHT).copysign(weights[:, own])


def tensors_with_scores(scores: torch.Tensor, queries: int) -> list[torch.Tensor]:
    """The same tensors where key j has the score scores[j], times 1, 2 or 4, for each query.

    scores: [num_keys] fp32. What a key's unit does not meet is random, and counts for nothing.
    """
    device = scores.device
    q = torch.randn(queries, NUM_HEADS, HEAD_DIM, device=device).clamp_(-QUERY_LIMIT, QUERY_LIMIT)
    q[:, :, 0] = -1.0
    q[:, 0, 0] = 1.0
    keys = torch.zeros(len(scores), HEAD_DIM, device=device)
    keys[:, 0] = 1.0
    weights = torch.zeros(queries, NUM_HEADS, device=device)
    weights[:, 0] = 2.0 ** (torch.arange(queries, device=device) % 3)
    weights[:, 1] = -weights[:, 0]
    return [q.to(torch.float8_e4m3fn), keys.to(torch.float8_e4m3fn), scores, weights]


def _levels(axes: Mapping[str, int], levels: int, device: str) -> torch.Tensor:
    return UNIT * (1 + torch.randint(levels, (axes[ranges.KEYS],), device=device))


def _above_tie(axes: Mapping[str, int], above: int, device: str) -> torch.Tensor:
    scores = torch.full((axes[ranges.KEYS],), UNIT, device=device)
    scores[torch.randperm(len(scores), device=device)[:above]] *= 2.0
    return scores


def _ascending(axes: Mapping[str, int], _: int, device: str) -> torch.Tensor:
    """The thresholds of causal ranges are neighbours, one a query, the middle one 0. From there the
    steps grow with the scores, so that none is within the rule's tolerance, up to the last
    threshold on either side."""
    keys, half = axes[ranges.KEYS], axes[ranges.QUERIES] // 2
    step = torch.arange(keys, device=device) - (keys - TOPK - half)
    near = step.clamp(-half, half)
    rise = GROWTH * torch.sinh(near / GROWTH)
    return UNIT * (rise + (step - near) * torch.cosh(near / GROWTH))


def _descending(axes: Mapping[str, int], _: int, device: str) -> torch.Tensor:
    return UNIT * (TOPK - torch.arange(axes[ranges.KEYS], device=device))


def _run(axes: Mapping[str, int], size: int, device: str) -> torch.Tensor:
    """The run begins after a third of the keys."""
    position = torch.arange(axes[ranges.KEYS], device=device)
    first = len(position) // 3
    return _better((position >= first) & (position < first + size))


def _stride(axes: Mapping[str, int], stride: int, device: str) -> torch.Tensor:
    position = torch.arange(axes[ranges.KEYS], device=device)
    return _better(position % stride < STRIDE_KEYS)


def _better(chosen: torch.Tensor) -> torch.Tensor:
    """Random multiples of UNIT, of which those of `chosen` are above all others. The threshold of
    the whole is 0, where the rule's tolerance is least."""
    low = torch.randint(-500, 0, chosen.shape, device=chosen.device)
    high = torch.randint(1, 4000, chosen.shape, device=chosen.device)
    scores = torch.where(chosen, high, low)
    threshold = scores.sort(descending=True).values[min(TOPK, len(scores)) - 1]
    return UNIT * (scores - threshold)


_SCORES: dict[str, Callable[[Mapping[str, int], int, str], torch.Tensor]] = {
    ranges.LEVELS: _levels,
    ranges.ABOVE_TIE: _above_tie,
    ranges.ASCENDING: _ascending,
    ranges.DESCENDING: _descending,
    ranges.RUN: _run,
    ranges.STRIDE: _stride,
}
