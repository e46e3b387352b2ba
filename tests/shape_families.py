"""Sizes between the official ones, by room: what tests/shapes.py measures.

A family varies one size and keeps the rest. Its anchors are official sizes and, beyond them, sizes
that a user may come to; what lies between is held against a line through the anchors beside it.
Borders of a room's choice have a size on both sides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.oracles import dsa_attention, dsa_indexer, gdn_decode, gdn_prefill, moe

Call = tuple[list[Any], list[Any]]  # inputs and outputs, in the definition's order
LIBRARY_POOL_PAGES = 8462  # of every official workload of dsa_attention
RATE = 1024


@dataclass(frozen=True)
class Family:
    """name: what the size counts. make(size, device) gives a call. peers: libraries that are
    measured beside the room at the sizes `against`. rates: sizes whose latency is also shown per
    RATE of what the size counts."""

    name: str
    anchors: tuple[int, ...]
    between: tuple[int, ...]
    make: Callable[[int, str], Call]
    peers: tuple[str, ...] = ()
    against: tuple[int, ...] = ()
    rates: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.anchors, *self.between}))


def _decode(batch_size: int, device: str) -> Call:
    inputs = gdn_decode.random_inputs(batch_size, seed=batch_size, device=device)
    return list(inputs.values()), list(gdn_decode.empty_outputs(batch_size, device))


def _prefill(num_seqs: int) -> Callable[[int, str], Call]:
    def make(tokens: int, device: str) -> Call:
        lengths = [tokens // num_seqs + (i < tokens % num_seqs) for i in range(num_seqs)]
        inputs = gdn_prefill.batch_of(lengths, seed=tokens, device=device)
        return list(inputs.values()), list(gdn_prefill.empty_outputs(inputs))

    return make


def _attend(counts: list[int], device: str) -> Call:
    inputs = dsa_attention.random_inputs(len(counts), LIBRARY_POOL_PAGES, 1, device)
    for token, count in enumerate(counts):
        rows = dsa_attention.random_rows(LIBRARY_POOL_PAGES, count, token, device)
        inputs["sparse_indices"][token, :count] = rows
    return list(inputs.values()), list(dsa_attention.empty_outputs(len(counts), device))


def _index(seq_lens: list[int], device: str) -> Call:
    inputs = dsa_indexer.random_inputs(seq_lens, seed=1, device=device)
    return list(inputs.values()), [dsa_indexer.empty_output(len(seq_lens), device)]


@functools.cache
def _moe_weights(device: str) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Weights of all sizes, 1.4 GB, and the local experts that are drawn already."""
    return moe.zero_weights(device), []


def _moe_call(logits: torch.Tensor, experts: int, device: str) -> Call:
    """Of the first `experts` local ones weights are drawn."""
    weights, drawn = _moe_weights(device)
    for expert in range(len(drawn), experts):
        moe.fill_expert(weights, expert, torch.Generator(device).manual_seed(expert))
        drawn.append(expert)
    tokens = logits.shape[0]
    inputs = moe.random_inputs(logits, weights, 0, seed=tokens, device=device)
    output = torch.empty(tokens, moe.HIDDEN, dtype=torch.bfloat16, device=device)
    return list(inputs.values()), [output]


def _moe_in_turns(tokens: int, device: str) -> Call:
    """A local expert for each token, in turns, as many assignments as tokens: what uniform routing
    gives on average, without its chance, which decides what few tokens cost."""
    elsewhere = tuple(range(moe.LOCAL_EXPERTS, moe.LOCAL_EXPERTS + moe.TOP_K - 1))
    logits = moe.route_to([(t % moe.LOCAL_EXPERTS, *elsewhere) for t in range(tokens)])
    return _moe_call(logits, min(tokens, moe.LOCAL_EXPERTS), device)


def _moe_routed(tokens: int, device: str) -> Call:
    """Random logits: half of the tokens have no local expert, a third several. All are hit."""
    logits = torch.randn(tokens, moe.EXPERTS, generator=torch.Generator().manual_seed(tokens))
    return _moe_call(logits, moe.LOCAL_EXPERTS, device)


def _prefill_family(num_seqs: int) -> Family:
    """One sequence also far beyond the official ones: its chain grows with it, a peer's too."""
    walked = min(88 + 8 * num_seqs, 152)  # tokens that the recurrence takes
    anchors, between = (35, 134, 574, 983, 2107, 8192), (50, walked, walked + 1, 300, 1200, 4096)
    if num_seqs > 1:
        return Family(f"tokens of {num_seqs} sequences", anchors, between, _prefill(num_seqs))
    longest = 65536
    cut = (1216, 1217, 3008, 3009, 10176, 10177)  # from 20, 48 and 160 chunks on: segments
    return Family(
        "tokens of one sequence",
        (*anchors, longest),
        (*between, *cut, 16384),
        _prefill(num_seqs),
        ("fla",),
        (longest,),
        rates=(8192, 16384, longest),
    )


FAMILIES: dict[str, tuple[Family, ...]] = {
    "gdn_decode": (
        Family("sequences", (1, 4, 8, 16, 32, 48, 64, 128), (2, 3, 12, 24, 40, 96), _decode),
    ),
    "gdn_prefill": tuple(_prefill_family(num_seqs) for num_seqs in (1, 3, 16)),
    "dsa_attention": (
        Family(
            "tokens of 64 valid entries",
            (1, 2, 4, 6, 8, 32, 128),
            (3, 5, 16, 64),
            lambda tokens, device: _attend([64] * tokens, device),
        ),
        Family(
            "valid entries of one token",
            (0, 2, 64, 256, 1024, 2048),
            (1, 128, 129, 512),
            lambda count, device: _attend([count], device),
        ),
        Family(
            "tokens of 2048 valid entries",
            (1, 8, 1024),
            (),
            lambda tokens, device: _attend([2048] * tokens, device),
            ("flash_mla",),
            (8, 1024),
        ),
    ),
    "moe": (
        Family(
            "tokens, one local expert each",
            (1, 7, 16, 32, 80, 901, 11948, 14107),
            (3, 11, 12, 17, 100, 256, 1536, 1537, 2048, 3072, 3073, 4096, 4128, 5000, 8192),
            _moe_in_turns,
        ),
        Family(
            "tokens with random logits",
            (80, 901, 11948, 14107, 32256),
            (256, 1536, 1537, 2048, 3072, 3073, 4096, 5000, 8192, 15872, 16384),
            _moe_routed,
        ),
    ),
    "dsa_indexer": (
        Family(
            "tokens of one sequence beside 14 of 100",
            (2112, 2500, 3500, 5806, 8192, 32768, 163840),
            (2049, 3000, 4096, 16384),
            lambda tokens, device: _index([tokens] + [100] * 14, device),
        ),
        Family(
            "sequences, one of 4096 tokens and the rest of 150",
            (1, 4, 8, 16, 31, 32, 128),
            (5, 17, 64),
            lambda batch_size, device: _index([4096] + [150] * (batch_size - 1), device),
        ),
        Family(
            "sequences of 5824 tokens",
            (1, 4, 8, 16, 30, 32, 128),
            (5, 17, 64),
            lambda batch_size, device: _index([5824] * batch_size, device),
            ("deep_gemm",),
            (30,),
        ),
        Family(
            "sequences of 131072 tokens",
            (1, 4, 16),
            (),
            lambda batch_size, device: _index([131072] * batch_size, device),
            ("deep_gemm",),
            (4,),
        ),
    ),
}
