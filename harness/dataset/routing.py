"""Routing logits and bias that send a chosen number of tokens to a chosen number of local experts.

The routing rule (8 groups of 32, the 4 groups with the largest sum of two, the 8 largest biased
scores) is decided first, in integers, and the logits are computed from it. Scores are whole
multiples of 1/4096 and the bias too, so every comparison of the rule is decided by at least one
such step, two thousand times the rounding error of fp32 sigmoids: no ties, no near-ties.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache

import numpy as np
from numpy.typing import NDArray

from harness.dataset.blobs import Tensor
from harness.dataset.draws import (
    EXACT,
    SIGMA_4,
    Stream,
    apportion,
    bell_4,
    bfloat16_bits,
    zipf_weights,
)
from harness.dataset.facts import Facts
from harness.dataset.workloads import WorkloadRow

NUM_EXPERTS = 256
NUM_GROUPS = 8
GROUP_SIZE = NUM_EXPERTS // NUM_GROUPS  # also the number of local experts
KEPT_GROUPS = 4
TOPK = 8
ZIPF_EXPONENT = "0.6"

SCORE_UNIT = 4096
_MOST_LOCAL = TOPK - (KEPT_GROUPS - 1)  # leaves an expert for each other kept group
_BIAS_LIMIT = 200  # in score units; below 256, so that bfloat16 holds it exactly
_THRESHOLD = (2200, 701)  # a token's 8th score lies above 2200 … 2900 / 4096
_HIGHEST, _LOWEST = 3800, 220  # biased scores; the plain ones stay within 1 … 4095
_SPREAD_SELECTED, _SPREAD_OTHERS = 300, 700


@cache
def _logit_table() -> NDArray[np.float32]:
    """[4096] fp32: ln(s / (4096 - s)) for s = 1 … 4095; entry 0 is not used."""
    logits = [0.0]
    for score in range(1, SCORE_UNIT):
        odds = EXACT.divide(Decimal(score), Decimal(SCORE_UNIT - score))
        logits.append(float(EXACT.ln(odds)))
    return np.array(logits, np.float32)


def expert_loads(tokens: int, experts_hit: int) -> list[int]:
    """Assignments of each expert hit, most first: Zipf 0.6, at least 1, about ``tokens`` in all.

    With 8 of 256 experts a token and 32 local ones, T tokens make T local assignments on average.
    """
    return apportion(max(tokens, experts_hit), zipf_weights(experts_hit, ZIPF_EXPONENT))


def _spread(taken: NDArray[np.bool_]) -> None:
    """Move experts from tokens with more than five local ones to tokens with the fewest."""
    counts = taken.sum(axis=0)
    while counts.max() > _MOST_LOCAL:
        giver = int(counts.argmax())
        expert = int(taken[:, giver].argmax())
        taker = int(np.where(taken[expert], TOPK + 1, counts).argmin())
        taken[expert, [giver, taker]] = False, True
        counts[[giver, taker]] += -1, 1


def _local_choice(uuid: str, tokens: int, experts_hit: int) -> NDArray[np.bool_]:
    """[tokens, 32]: which token goes to which local expert. About half the tokens have none."""
    loads = expert_loads(tokens, experts_hit)
    users = max(-(-tokens // 2), loads[0], -(-sum(loads) // _MOST_LOCAL))
    if users > tokens or experts_hit > GROUP_SIZE:
        raise ValueError(f"{uuid}: {tokens} tokens cannot hit {experts_hit} local experts")
    ranks = np.argsort(np.argsort(Stream(uuid, "routing/tokens").keys(experts_hit, users)))
    taken = ranks < np.array(loads)[:, None]
    _spread(taken)
    chosen = np.zeros((tokens, GROUP_SIZE), np.bool_)
    who = Stream(uuid, "routing/users").order(tokens)[:users]
    experts = Stream(uuid, "routing/experts").order(GROUP_SIZE)[:experts_hit]
    chosen[np.ix_(who, experts)] = taken.T
    return chosen


def _all_choices(
    uuid: str, local: NDArray[np.bool_], local_group: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Groups kept [tokens, 8] and experts chosen [tokens, 8, 32]: 8 a token, 1 or more a group.

    The local group is kept by the tokens that have local experts, and by no other.
    """
    tokens = local.shape[0]
    local_counts = local.sum(axis=1)
    first, last = np.uint64(0), np.uint64(2**63)
    group_keys = Stream(uuid, "routing/groups").keys(tokens, NUM_GROUPS)
    group_keys[:, local_group] = np.where(local_counts > 0, first, last)
    kept = np.argsort(np.argsort(group_keys)) < KEPT_GROUPS

    keys = Stream(uuid, "routing/remote").keys(tokens, NUM_EXPERTS)
    keys = keys.reshape(tokens, NUM_GROUPS, GROUP_SIZE)
    leaders = keys == keys.min(axis=2, keepdims=True)
    keys = np.where(leaders, keys, keys + np.uint64(2**61))  # each kept group's leader goes first
    open_groups = kept.copy()
    open_groups[:, local_group] = False
    keys = np.where(open_groups[:, :, None], keys, last)
    flat = keys.reshape(tokens, NUM_EXPERTS)
    ranks = np.argsort(np.argsort(flat, kind="stable"), kind="stable")
    chosen = (ranks < (TOPK - local_counts)[:, None]).reshape(keys.shape)
    chosen[:, local_group] = local
    return kept, chosen


def _distances(uuid: str, name: str, tokens: int, spread: int) -> NDArray[np.int64]:
    """[tokens, 8, 32] distances from a threshold, half-normal of ``spread`` score units."""
    bell = bell_4(Stream(uuid, name), tokens * NUM_EXPERTS).astype(np.int64)
    distances: NDArray[np.int64] = np.abs(bell) * spread // round(SIGMA_4)
    return distances.reshape(tokens, NUM_GROUPS, GROUP_SIZE)


def _biased_scores(
    uuid: str, kept: NDArray[np.bool_], chosen: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """[tokens, 8, 32] scores with bias, in units of 1/4096, under which the rule chooses so.

    Chosen experts lie above a token's threshold and the others of kept groups below it. The other
    groups lie below it too, and below half of what the weakest kept group sums to.
    """
    tokens = kept.shape[0]
    threshold = _THRESHOLD[0] + Stream(uuid, "routing/threshold").below(_THRESHOLD[1], tokens)
    threshold = threshold[:, None, None]
    above = threshold + 1 + _distances(uuid, "routing/above", tokens, _SPREAD_SELECTED)
    below = _distances(uuid, "routing/below", tokens, _SPREAD_OTHERS)
    scores = np.where(
        chosen, np.minimum(above, _HIGHEST), np.maximum(threshold - 1 - below, _LOWEST)
    )
    group_sums = np.sort(scores, axis=2)[:, :, -2:].sum(axis=2)
    weakest = np.where(kept, group_sums, 2 * SCORE_UNIT).min(axis=1)[:, None, None]
    ceiling = np.minimum(threshold - 1, (weakest - 1) // 2)
    left_out = np.maximum(ceiling - below, _LOWEST)
    result: NDArray[np.int64] = np.where(kept[:, :, None], scores, left_out)
    return result


def moe_tensors(row: WorkloadRow, facts: Facts) -> dict[str, Tensor]:
    """routing_logits [seq_len, 256] fp32 and routing_bias [256] bf16."""
    tokens = row.axes["seq_len"]
    local_group = int(row.inputs["local_expert_offset"]["value"]) // GROUP_SIZE
    local = _local_choice(row.uuid, tokens, facts["experts_hit"][0])
    kept, chosen = _all_choices(row.uuid, local, local_group)
    biased = _biased_scores(row.uuid, kept, chosen).reshape(tokens, NUM_EXPERTS)
    bias = Stream(row.uuid, "routing_bias").below(2 * _BIAS_LIMIT + 1, NUM_EXPERTS) - _BIAS_LIMIT
    return {
        "routing_logits": Tensor("float32", _logit_table()[biased - bias]),
        "routing_bias": Tensor("bfloat16", bfloat16_bits(bias / SCORE_UNIT)),
    }
