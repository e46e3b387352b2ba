"""What the peer of dsa_indexer_prefill computes around its libraries, which are stand-ins here."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from tests.oracles.dsa_indexer_prefill import (
    check,
    empty_output,
    error_bounds,
    oracle,
    random_inputs,
)
from tests.packed_peers import load_peer


def stand_in(monkeypatch, package, **names):
    module = ModuleType(package)
    module.__dict__.update(names)
    monkeypatch.setitem(sys.modules, package, module)


def test_deep_gemm_scores_and_flashinfer_selects(tmp_path, monkeypatch):
    """Logits begin where a range does, and are unwritten behind it."""
    ranges = [(0, 2300), (100, 2149), (7, 7), (2000, 2300), (1, 2049)]
    inputs = random_inputs(ranges, 2300, seed=11)

    def logits(q, keys, weights, starts, ends, is_clean, width):
        assert (is_clean, width) == (False, 2300)
        given = dict(zip(inputs, (q, *keys, weights, starts, ends), strict=True))
        result = torch.full((len(q), width + 20), float("nan"))
        for row, scores in enumerate(oracle(given)):
            result[row, : len(scores)] = scores.float()
        return result[:, :width]

    def transform(scores, offsets, lengths, k):
        assert scores.is_contiguous()
        result = torch.full((len(lengths), k), -1, dtype=torch.int32)
        for row, (offset, length) in enumerate(zip(offsets, lengths.tolist(), strict=True)):
            chosen = scores[row, :length].topk(min(k, length)).indices
            result[row, : len(chosen)] = chosen + offset
        return result

    stand_in(monkeypatch, "deep_gemm", fp8_mqa_logits=logits)
    stand_in(monkeypatch, "flashinfer", top_k_ragged_transform=transform)
    output = empty_output(len(ranges))
    load_peer("dsa_indexer_prefill", "deep_gemm", tmp_path).run(*inputs.values(), output)
    check(output, inputs, oracle(inputs), error_bounds(inputs))
