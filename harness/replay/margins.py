"""How far a top-k selection is from a tie, and how far scores move by rounding.

For scores s the margin is the least |s_i - s_j| over i selected and j left out: the k-th largest
less the next. If no implemented score differs from s by more than epsilon and the margin exceeds
2 epsilon, the selected set cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from harness.evaluators import scores_at
from harness.replay.batch import Boundary


def index_scores(
    values: Mapping[str, Any], rows: torch.Tensor, dtype: torch.dtype, page_size: int
) -> torch.Tensor:
    """Scores of the DSA indexer's definition in `dtype`, [rows, positions]; -inf behind a length.

    values: the definition's inputs by name. rows: int64 indices of sequences.
    """
    cache, seq_lens = values["k_index_cache_fp8"], values["seq_lens"][rows].long()
    used_pages = -(-int(seq_lens.max()) // page_size)
    pages = values["block_table"][rows, :used_pages].long()
    pages = pages.clamp(0, cache.shape[0] - 1)  # unused entries may hold anything
    packed = cache.view(torch.uint8).reshape(cache.shape[0], -1)[pages]
    code_bytes = page_size * (cache.shape[-1] - 4)
    codes = packed[..., :code_bytes].contiguous().view(torch.float8_e4m3fn)
    scales = packed[..., code_bytes:].contiguous().view(torch.float32)
    keys = codes.float().to(dtype).view(len(rows), used_pages * page_size, -1)
    keys = keys * scales.to(dtype).view(len(rows), -1, 1)
    queries = values["q_index_fp8"].float().to(dtype)[rows]
    products = torch.relu(queries @ keys.transpose(1, 2))
    scores = (products * values["weights"][rows].to(dtype).unsqueeze(2)).sum(dim=1)
    behind = torch.arange(scores.shape[1], device=scores.device) >= seq_lens.unsqueeze(1)
    masked: torch.Tensor = scores.masked_fill(behind, float("-inf"))
    return masked


def boundary_margins(scores: torch.Tensor, k: int) -> torch.Tensor:
    """[rows]: the k-th largest score less the next. scores: [rows, more than k]."""
    best = torch.topk(scores, k + 1, dim=1).values
    return best[:, k - 1] - best[:, k]


def measure_boundary(
    values: Mapping[str, Any], rows: torch.Tensor, k: int, page_size: int
) -> Boundary:
    """The least margin over the sequences `rows`, each longer than k, and the rounding error.

    Both from scores of the same formula: fp32 as the reference evaluates it, and float64.
    """
    if not len(rows):
        return Boundary()
    scores = index_scores(values, rows, torch.float32, page_size)
    exact = index_scores(values, rows, torch.float64, page_size)
    # Behind a length both are -inf, and their difference is NaN.
    error = (scores.double() - exact).abs().nan_to_num(0.0).max()
    margin = boundary_margins(scores, k).min()
    margin_value, epsilon = torch.stack([margin.double(), error]).tolist()
    return Boundary((margin_value,), epsilon)


def exchange_gap(
    got: torch.Tensor, want: torch.Tensor, values: Mapping[str, Any], page_size: int
) -> float:
    """Half the largest score difference between a token given up and one taken for it.

    got, want: [batch, k] token ids. A selector takes the best scores that it has, so at least one
    of its scores differs from the reference's by this much.
    """
    gap = 0.0
    all_values = dict(values)
    scores = zip(
        got.long(),
        want.long(),
        scores_at(got.long(), all_values, page_size),
        scores_at(want.long(), all_values, page_size),
        strict=True,
    )
    for ids, wanted, score, wanted_score in scores:
        taken = score[~torch.isin(ids, wanted)]
        given_up = wanted_score[~torch.isin(wanted, ids)]
        if len(taken) and len(given_up):
            gap = max(gap, (given_up.max() - taken.min()).item() / 2.0)
    return gap
