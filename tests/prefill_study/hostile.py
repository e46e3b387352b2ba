"""Scores that no workload has: a tie in one run, and those whose rows the filter cannot prove.

Each is a pure function of the number of keys, fp32 [num_keys]; prefill_inputs.tensors_with_scores
makes inputs of them. What the filter samples and which keys a warp has follows plan.cuh.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

STRETCH, SHORT_STRETCH, SHORT = 48, 64, 16_384  # struct Tuning of plan.cuh
TILE, ROWS = 128, 16  # keys of a tile; rows of it that a warp has
FAR = 4096.0  # beyond all normal scores

Scores = NDArray[np.float32]


def sampled_keys(num_keys: int) -> NDArray[np.int64]:
    """One of each stretch: sampled_key() of plan.cuh."""
    stretch = SHORT_STRETCH if num_keys <= SHORT else STRETCH
    slots = np.arange(-(-num_keys // stretch), dtype=np.int64)
    random = (slots * 2_654_435_761 & 0xFFFFFFFF) >> 16
    keys = slots * stretch + (random * stretch >> 16)
    return keys[keys < num_keys]


def keys_of_a_warp(num_keys: int) -> NDArray[np.int64]:
    """Those of the first: rows move on by 16 from tile to tile, as place_of() of plan.cuh says."""
    keys = np.arange(num_keys)
    return keys[keys % TILE // ROWS == keys // TILE % (TILE // ROWS)]


def _normal(num_keys: int) -> Scores:
    return np.random.default_rng(num_keys).standard_normal(num_keys).astype(np.float32)


def _tied_run(num_keys: int, size: int) -> Scores:
    """The run begins after a third of the keys, and ties on top of all."""
    scores = _normal(num_keys)
    scores[num_keys // 3 : num_keys // 3 + size] = FAR
    return scores


def _good_sample(num_keys: int, _: int) -> Scores:
    """The threshold is one of the sampled keys' scores, which alone reach it: too few."""
    scores = _normal(num_keys)
    scores[sampled_keys(num_keys)] += FAR
    return scores


def _bad_sample(num_keys: int, _: int) -> Scores:
    """All keys that are not sampled reach the threshold: more than a selecting CTA holds."""
    scores = _normal(num_keys)
    scores[sampled_keys(num_keys)] -= FAR
    return scores


def _one_warp(num_keys: int, _: int) -> Scores:
    """All candidates are keys of one warp: more than its segment holds where a CTA has most."""
    scores = _normal(num_keys)
    scores[keys_of_a_warp(num_keys)] += FAR
    return scores


def _infinite(num_keys: int, size: int) -> Scores:
    """A tie that nothing but NaN is above."""
    scores = _normal(num_keys)
    scores[num_keys // 3 : num_keys // 3 + size] = np.inf
    return scores


HOSTILE: dict[str, Callable[[int, int], Scores]] = {
    "tied_run": _tied_run,
    "good_sample": _good_sample,
    "bad_sample": _bad_sample,
    "one_warp": _one_warp,
    "infinite_run": _infinite,
}
# (name, value, queries, keys), in the order of the table
CASES = (
    ("tied_run", 4096, 8, 131_072),
    ("tied_run", 4096, 64, 131_072),
    ("tied_run", 4096, 4096, 65_536),
    ("good_sample", 1, 64, 131_072),
    ("bad_sample", 1, 64, 131_072),
    ("one_warp", 1, 4096, 65_536),
    ("infinite_run", 16_384, 64, 131_072),
)
