"""Rates of rare failures: intervals, and what a number of trials can find.

Trials of one workload are taken as independent draws that fail with one probability p.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

CONFIDENCE = 0.95
QUANTILES = (0.0, 0.001, 0.01, 0.1, 0.5)


def clopper_pearson(
    failures: int, trials: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The exact two-sided interval of p (Clopper and Pearson, 1934); (0, 1) without trials."""
    from scipy.stats import beta

    tail = (1.0 - confidence) / 2.0
    low = float(beta.ppf(tail, failures, trials - failures + 1)) if failures else 0.0
    high = (
        float(beta.ppf(1.0 - tail, failures + 1, trials - failures)) if failures < trials else 1.0
    )
    return low, high


def detection_probability(p: float, trials: int) -> float:
    """1 - (1 - p)^n: the chance that n trials show at least one failure."""
    return 1.0 if p >= 1.0 and trials else -math.expm1(trials * math.log1p(-p)) if trials else 0.0


def trials_needed(p: float, confidence: float = CONFIDENCE) -> int | None:
    """The fewest trials that show a failure with probability `confidence`; None where p is 0."""
    if p <= 0.0:
        return None
    if p >= 1.0:
        return 1
    return math.ceil(math.log(1.0 - confidence) / math.log1p(-p))


def set_passes(rates: Iterable[float], trials: int) -> float:
    """The product over workloads of (1 - p_w)^n: the chance that a sweep of n trials each shows
    nothing."""
    rates = list(rates)
    if trials and any(p >= 1.0 for p in rates):
        return 0.0
    return math.exp(trials * math.fsum(math.log1p(-p) for p in rates)) if trials else 1.0


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least of the ascending values that at least `share` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
