"""Latencies as people read them: microseconds with four significant digits, and three averages."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SIGNIFICANT_DIGITS = 4
ABSENT = "-"  # no number is known; ASCII, for terminals that have nothing else


@dataclass(frozen=True)
class Summary:
    """Over the workloads of one room, each counted once, in µs. p95 interpolates linearly."""

    mean_us: float
    median_us: float
    p95_us: float


def summarise(latencies_us: Sequence[float | None]) -> Summary | None:
    """None where there is no workload or any lacks a latency: the rest would compare with
    nothing."""
    known = sorted(value for value in latencies_us if value is not None)
    if not known or len(known) < len(latencies_us):
        return None
    rank = 0.95 * (len(known) - 1)
    below, above = known[math.floor(rank)], known[math.ceil(rank)]
    return Summary(
        mean_us=math.fsum(known) / len(known),
        median_us=statistics.median(known),
        p95_us=below + (above - below) * (rank - math.floor(rank)),
    )


def format_us(latency_us: float | None) -> str:
    """Four significant digits, all digits of larger whole numbers: 2.187 and 2.401 differ."""
    return format_digits(latency_us, SIGNIFICANT_DIGITS)


def format_digits(value: float | None, digits: int) -> str:
    """`value` with that many significant digits and never an exponent; a dash for None."""
    if value is None:
        return ABSENT
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == 0.0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{value:.{max(0, decimals)}f}"
