"""Why rows went to the repair, from the scratch that a call leaves behind.

select_kernel lists the rows that fail and not why. Its decision follows from what the filter
counted for each segment of candidates, and these counts are still in the table when the call is
over: so the host decides once more, with no change to the kernels, and what it finds must be the
very rows that the device listed. A row whose candidates do not fit a CTA is a row overflow, whether
or not one of its segments was full too; one that fits but had a full segment, so that candidates
were dropped, a segment overflow; the rest have fewer than 2048 candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.errors import InfrastructureFailure
from harness.ranges import TOPK

CLASSES = ("segment_overflow", "row_overflow", "underflow")


@dataclass(frozen=True)
class Layout:
    """Of the table of one group of launches: kernel.py's constants of the native route."""

    block: int  # queries
    segments: int  # of a query in an area
    capacity: int  # candidates of a segment
    most_ctas: int


def classify(
    table: NDArray[np.int32], lengths: NDArray[np.int64], layout: Layout, most_candidates: int
) -> dict[str, int]:
    """Rows of each class. lengths: of each query's range, cut to the keys.

    Raises InfrastructureFailure where the device listed other rows.
    """
    queries = len(lengths)
    blocks = -(-queries // layout.block)
    areas = queries + layout.most_ctas * layout.block
    begin, stop = 3 * blocks, 3 * blocks + areas * layout.segments
    shares = table[:begin].reshape(blocks, 3)
    counts = table[begin:stop].reshape(areas, layout.segments)
    failed = table[stop + 2 * queries :]  # behind thresholds and told counts
    listed = set(failed[1 : 1 + int(failed[0])].tolist())
    found: dict[str, set[int]] = {name: set() for name in CLASSES}
    for row in np.flatnonzero(lengths > TOPK).tolist():
        first, pieces, step = (int(value) for value in shares[row // layout.block])
        later = first + step * np.arange(1, pieces)  # CTAs
        own = [row, *(queries + later * layout.block + row % layout.block).tolist()]
        name = _class_of(counts[own], layout.capacity, most_candidates)
        if name is not None:
            found[name].add(row)
    expected = set[int]().union(*found.values())
    if expected != listed:
        differ = sorted(expected ^ listed)
        raise InfrastructureFailure(
            f"rows to repair: expected the {len(expected)} that the counts of candidates tell, got "
            f"{len(listed)} on the device's list; {differ[:4]} are on one side alone: "
            "tests/prefill_study/failures.py has to follow select_kernel"
        )
    return {name: len(rows) for name, rows in found.items()}


def _class_of(offered: NDArray[np.int32], capacity: int, most_candidates: int) -> str | None:
    """offered: candidates of each segment, those that were dropped included."""
    total = int(offered.sum())
    if total > most_candidates:
        return "row_overflow"
    if (offered > capacity).any():
        return "segment_overflow"
    return "underflow" if total < TOPK else None
