"""Every score that the native route of dsa_indexer_prefill computes, and the candidates that a
call's filter left. tests/cuda/prefill_scores.cu stores the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from harness.ranges import TOPK
from tests.prefill_study.native import NativeCall, build_beside_room

SOURCE = Path(__file__).parent / "cuda" / "prefill_scores.cu"
MOST_BYTES = 1_000_000_000  # of scores that are in memory at once
STEP = 64  # queries: slices are multiples where they hold as many, and begin on whole blocks


def build_scores() -> Any:
    return build_beside_room(SOURCE)


def slices(num_queries: int, num_keys: int, most_bytes: int = MOST_BYTES) -> list[slice]:
    """Queries whose scores fit, one at least."""
    most = max(most_bytes // max(4 * num_keys, 1), 1)
    if most > STEP:
        most -= most % STEP
    return [slice(first, min(first + most, num_queries)) for first in range(0, num_queries, most)]


def native_scores(
    module: Any, inputs: Mapping[str, torch.Tensor], most_bytes: int = MOST_BYTES
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Queries in turn with their scores, fp32 [queries, num_keys], which hold until the next turn.

    NaN outside a range, and where the range is not scored as it has no more than 2048 keys.
    """
    codes, scales = inputs["k_index_fp8"].view(torch.uint8), inputs["k_scale"]
    num_keys = len(codes)
    turns = slices(len(inputs["row_starts"]), num_keys, most_bytes)
    memory = scales.new_empty(
        (max((turn.stop - turn.start for turn in turns), default=0), num_keys)
    )
    for rows in turns:
        scores = memory[: rows.stop - rows.start].fill_(torch.nan)
        queries = inputs["q_index_fp8"][rows].view(torch.uint8)
        starts, ends = inputs["row_starts"][rows], inputs["row_ends"][rows]
        lengths = ends.clamp(0, num_keys) - starts.clamp(0, num_keys)
        listed = (lengths > TOPK).nonzero().flatten().int()
        listed = torch.cat([listed.new_tensor([len(listed)]), listed])
        if num_keys > TOPK:
            weights = inputs["weights"][rows]
            module.store_scores(queries, codes, scales, weights, starts, ends, listed, scores)
        yield rows, scores


def candidates_of(native: NativeCall, kernel: Any, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and keys that the filter of the last call stored of a query, a long one, on the CPU.

    The memory is the repair's too: of no use where a query went there. kernel: the packed room's
    kernel.py.
    """
    block, segments, capacity = kernel.QUERY_BLOCK, kernel.QUERY_WARPS, kernel.CAPACITY
    table, area = native.scratch
    blocks = -(-native.queries // block)
    areas = native.queries + kernel.MOST_CTAS * block
    first, pieces, step = table[: 3 * blocks].view(blocks, 3)[row // block].tolist()
    counts = table[3 * blocks :][: areas * segments].view(areas, segments)
    pairs = area[: areas * segments * capacity * 8].view(torch.int32)
    pairs = pairs.view(areas, segments, capacity, 2)
    ctas = [first + step * piece for piece in range(1, pieces)]
    own = [row, *(native.queries + cta * block + row % block for cta in ctas)]
    stored = torch.arange(capacity, device=area.device) < counts[own].unsqueeze(2)
    found = pairs[own][stored].cpu()
    return found[:, 0].contiguous().view(torch.float32), found[:, 1]
