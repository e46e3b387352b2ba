"""Which keys each query of a prefill workload may see, and what its draw makes of the scores.

A workload of dsa_prefill says so in axes beyond those of its tensors (docs/dataset.md). Ranges are
pure functions of the axes, the same in every trial: bytes and flops depend on them alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError

QUERIES, KEYS = "num_queries", "num_keys"  # of the definition's tensors
RAGGED = "ragged_ranges"  # 1: ranges of every length, anywhere; else causal ones
# Of the scores, one a workload; without any, queries and keys are normal.
LEVELS = "score_levels"  # so many different scores; 1: all are equal
ABOVE_TIE = "keys_above_tie"  # so many keys are better than all others, which are equal
ASCENDING, DESCENDING = "ascending_scores", "descending_scores"
OUTLIERS = "outlier_keys"  # so many scores of normal keys a million times larger
RUN = "candidate_run"  # all better keys lie in one run of so many
STRIDE = "candidate_stride"  # all better keys are among the first 16 of each so many
SCORES = (LEVELS, ABOVE_TIE, ASCENDING, DESCENDING, OUTLIERS, RUN, STRIDE)

TOPK = 2048  # keys that a query keeps: the same in every DSA definition
_FIXED_LENGTHS = (0, TOPK, TOPK + 1, 1)  # of the first four of each 16 ragged ranges
_STEP_START, _STEP_LENGTH = 2_654_435_761, 2_246_822_519  # odd, of 32 bits: they spread multiples


def score_pattern(axes: Mapping[str, int]) -> tuple[str, int] | None:
    """The axis that shapes a workload's scores, and its value; None for normal ones.

    Raises UsageError for an axis that nobody knows and for two of them.
    """
    unknown = sorted(set(axes) - {QUERIES, KEYS, RAGGED, *SCORES})
    found = [(name, axes[name]) for name in SCORES if name in axes]
    if unknown or len(found) > 1:
        wrong = unknown or [name for name, _ in found]
        raise UsageError(
            f"axes: expected {QUERIES}, {KEYS}, {RAGGED} and one of {', '.join(SCORES)} at most; "
            f"got {', '.join(wrong)}"
        )
    return found[0] if found else None


def row_ranges(axes: Mapping[str, int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """row_starts and row_ends of a workload, [num_queries] each.

    Causal: the queries are the last tokens of the context, each sees all up to itself. Raises
    UsageError for more queries than keys.
    """
    queries, keys = axes[QUERIES], axes[KEYS]
    if axes.get(RAGGED):
        return _ragged_ranges(queries, keys)
    if queries > keys:
        raise UsageError(f"axes: expected {QUERIES} <= {KEYS}, got {queries} and {keys}")
    ends = np.arange(keys - queries + 1, keys + 1, dtype=np.int32)
    return np.zeros(queries, np.int32), ends


def _ragged_ranges(queries: int, keys: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Starts anywhere, lengths up to what is left; of each 16 rows four lengths around TOPK."""
    rows = np.arange(queries, dtype=np.uint64)
    starts = _spread(rows, _STEP_START) * np.uint64(keys) >> np.uint64(32)
    left = np.uint64(keys) - starts
    lengths = _spread(rows, _STEP_LENGTH) * (left + np.uint64(1)) >> np.uint64(32)
    for row, length in enumerate(_FIXED_LENGTHS):
        lengths[row::16] = np.minimum(left[row::16], length)
    return starts.astype(np.int32), (starts + lengths).astype(np.int32)


def _spread(rows: NDArray[np.uint64], step: int) -> NDArray[np.uint64]:
    """[0, 2^32) evenly, far apart from row to row."""
    spread: NDArray[np.uint64] = (rows + np.uint64(1)) * np.uint64(step) & np.uint64(0xFFFFFFFF)
    return spread
