"""Workloads grouped along each axis that varies: where a side is fast, and where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_SINGLE_VALUES = 8  # an axis with more values is cut at the powers of two


class HasAxes(Protocol):
    """What is grouped: a workload of a dataset or of a record."""

    @property
    def uuid(self) -> str: ...

    @property
    def axes(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Regime:
    """The workloads whose `axis` has the value, or lies in the closed range, that `label` says."""

    axis: str
    label: str
    uuids: tuple[str, ...]


def regimes(rows: Sequence[HasAxes]) -> list[Regime]:
    """Groups of every axis that takes more than one value, axes in the rows' order, ranges rising.

    An axis of at most 8 values has a group for each; others are cut after the powers of two:
    1, 2, 3-4, 5-8, 9-16.
    """
    found = []
    for axis in dict.fromkeys(axis for row in rows for axis in row.axes):
        sized = [(row.axes[axis], row.uuid) for row in rows if axis in row.axes]
        values = {size for size, _ in sized}
        if len(values) < 2:
            continue
        by_value = len(values) <= MAX_SINGLE_VALUES
        buckets: dict[tuple[int, int], list[str]] = {}
        for size, uuid in sized:
            bucket = (size, size) if by_value else _power_range(size)
            buckets.setdefault(bucket, []).append(uuid)
        for (low, high), uuids in sorted(buckets.items()):
            found.append(Regime(axis, str(low) if low == high else f"{low}-{high}", tuple(uuids)))
    return found


def _power_range(size: int) -> tuple[int, int]:
    """The range (2^k, 2^(k+1)] that holds `size`; 0 and 1 stand alone."""
    if size <= 1:
        return size, size
    high = 1 << (size - 1).bit_length()
    return high // 2 + 1, high
