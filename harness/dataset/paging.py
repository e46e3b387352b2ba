"""Paged tensors of the two sparse-attention rooms: page tables, lengths, sparse indices.

A sequence's pages are one contiguous run, as the prefill allocated it, in which a few slots hold
overflow pages from elsewhere, as decoding grew it. Page 0 belongs to nobody; in a page table it
fills the unused columns. No page occurs twice, except that padding tokens share page 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.dataset.blobs import Tensor
from harness.dataset.draws import Stream
from harness.dataset.facts import Facts
from harness.dataset.workloads import WorkloadRow

PAGE_SIZE = 64
TOPK = 2048
PADDING_TOKEN = 64  # the first token of page 1: what a padding row of a captured graph attends to

_LONG_PAGES = 32  # a table this long has overflow pages three times in four, a shorter one in four
_MOST_OVERFLOW = 4
_MOST_GAP = 8  # pages between two runs, freed by sequences that have ended

# A full row keeps 2048 of 2048 + 100 … 320 tokens; 16 … 64 of them, near the selection's threshold,
# follow the others. Both break unit steps: 7 to 22 % of them, and each overflow page two more.
_DROPPED = (100, 221)
_TAIL = (16, 49)


def _overflow_counts(stream: Stream, counts: Sequence[int]) -> list[int]:
    chances = stream.below(4, len(counts)).tolist()
    sizes = (1 + stream.below(_MOST_OVERFLOW, len(counts))).tolist()
    result = []
    for count, chance, size in zip(counts, chances, sizes, strict=True):
        if count >= _LONG_PAGES:
            result.append(size if chance < 3 else 0)
        else:
            result.append(1 if chance < 1 and count > 2 else 0)
    return result


def allocate_pages(
    uuid: str, counts: Sequence[int], num_pages: int, first_page: int = 1
) -> list[NDArray[np.int64]]:
    """Page numbers of each sequence, ``counts[i]`` of them, in [first_page, num_pages).

    Raises ValueError when the pool is too small.
    """
    rows = len(counts)
    overflow = _overflow_counts(Stream(uuid, "pages/overflow"), counts)
    gaps = (1 + Stream(uuid, "pages/gaps").below(_MOST_GAP, rows)).tolist()
    tables: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * rows
    holes: list[int] = []
    cursor = first_page
    for row in Stream(uuid, "pages/order").order(rows).tolist():
        run_end = cursor + counts[row] - overflow[row]
        tables[row] = np.arange(cursor, run_end, dtype=np.int64)
        cursor = run_end + gaps[row] + overflow[row]
        holes.extend(range(run_end, cursor))
    if cursor > num_pages:
        raise ValueError(f"{uuid}: {sum(counts)} live pages do not fit into {num_pages}")
    shuffled = np.array(holes)[Stream(uuid, "pages/holes").order(len(holes))]
    slots = Stream(uuid, "pages/slots")
    for row, extra in enumerate(overflow):
        if extra == 0:
            continue
        places = np.sort(1 + slots.order(counts[row] - 1)[:extra])
        tables[row] = np.insert(tables[row], places - np.arange(extra), shuffled[:extra])
        shuffled = shuffled[extra:]
    return tables


def _pages(tokens: int) -> int:
    return -(-tokens // PAGE_SIZE)


def indexer_tensors(row: WorkloadRow, facts: Facts) -> dict[str, Tensor]:
    """seq_lens [batch_size] and block_table [batch_size, max_num_pages], int32."""
    lengths = facts["seq_lens"]
    counts = [_pages(length) for length in lengths]
    tables = allocate_pages(row.uuid, counts, row.axes["num_pages"])
    block_table = np.zeros((len(lengths), row.axes["max_num_pages"]), np.int32)
    for index, table in enumerate(tables):
        block_table[index, : table.size] = table
    return {
        "seq_lens": Tensor("int32", np.array(lengths, np.int32)),
        "block_table": Tensor("int32", block_table),
    }


def _token_ids(table: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return table[positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE


def _selected_positions(stream: Stream, length: int) -> NDArray[np.int64]:
    """2048 of ``length`` positions: most in order, then those near the threshold, in order."""
    order = stream.order(length)
    tail_size = _TAIL[0] + int(stream.below(_TAIL[1], 1)[0])
    head, tail = np.split(order[:TOPK], [TOPK - tail_size])
    return np.concatenate([np.sort(head), np.sort(tail)])


def sparse_indices(uuid: str, valid_counts: Sequence[int], num_pages: int) -> NDArray[np.int32]:
    """[tokens, 2048] int32: a row's valid indices, then -1.

    A row with fewer than 2048 lists its whole sequence in order. A row with one is padding and
    names the first token of page 1.
    """
    rows = len(valid_counts)
    dropped = (_DROPPED[0] + Stream(uuid, "selection/dropped").below(_DROPPED[1], rows)).tolist()
    lengths = [
        count + extra if count == TOPK else count
        for count, extra in zip(valid_counts, dropped, strict=True)
    ]
    live = [index for index, count in enumerate(valid_counts) if count > 1]
    tables = allocate_pages(uuid, [_pages(lengths[i]) for i in live], num_pages, first_page=2)
    indices = np.full((rows, TOPK), -1, np.int32)
    indices[[count == 1 for count in valid_counts], 0] = PADDING_TOKEN
    for index, table in zip(live, tables, strict=True):
        positions = np.arange(lengths[index])
        if valid_counts[index] == TOPK:
            positions = _selected_positions(Stream(uuid, f"selection/{index}"), lengths[index])
        indices[index, : positions.size] = _token_ids(table, positions)
    return indices


def attention_tensors(row: WorkloadRow, facts: Facts) -> dict[str, Tensor]:
    """sparse_indices [num_tokens, 2048] int32."""
    indices = sparse_indices(row.uuid, facts["valid_counts"], row.axes["num_pages"])
    return {"sparse_indices": Tensor("int32", indices)}
