"""Says where an output is wrong: worst element, first bad index, likely cause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from harness.files import atomic_file

CHUNK_ELEMENTS = 1 << 24  # bounds the fp32 copies that a comparison makes
LOG_BASE_RATIOS = {math.log2(math.e): "base 2", math.log(2.0): "the natural base"}


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether every element is finite, without a full-size temporary."""
    if not tensor.is_floating_point():
        return True
    chunks = torch.split(tensor.reshape(-1), CHUNK_ELEMENTS)
    return all(bool(torch.isfinite(chunk.float()).all()) for chunk in chunks)


def describe_reference(names: Sequence[str], outputs: Sequence[torch.Tensor]) -> str | None:
    """A sentence about NaN or Inf in a reference, or None.

    -inf in an output called lse is a value of the definition: the logarithm of an empty sum.
    """
    for name, tensor in zip(names, outputs, strict=True):
        if not tensor.is_floating_point():
            continue
        bad = ~torch.isfinite(tensor)
        if name == "lse":
            bad &= ~torch.isneginf(tensor)
        count = int(bad.sum())
        if count:
            share = 100.0 * count / tensor.numel()
            return f"reference {name}: {count} elements ({share:.2g} %) are NaN or Inf"
    return None


def describe_mismatch(
    name: str, got: torch.Tensor, want: torch.Tensor, atol: float, rtol: float, ratio: float
) -> str | None:
    """A sentence about one output's wrong elements, or None where the output is accepted."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return (
            f"{name}: expected {tuple(want.shape)} {want.dtype}, got {tuple(got.shape)} {got.dtype}"
        )
    total, wrong, first = want.numel(), 0, None
    worst_error, worst_at = -1.0, 0
    start = 0
    pairs = zip(
        torch.split(got.reshape(-1), CHUNK_ELEMENTS),
        torch.split(want.reshape(-1), CHUNK_ELEMENTS),
        strict=True,
    )
    for got_chunk, want_chunk in pairs:
        x, y = got_chunk.float(), want_chunk.float()
        same = (x == y) | (x.isnan() & y.isnan())
        absolute = (x - y).abs().masked_fill(same, 0.0)
        relative = absolute / (y.abs() + 1e-8)
        comparable = torch.isfinite(x) & torch.isfinite(y)
        bad = ~same & (~comparable | ((absolute > atol) & (relative > rtol)))
        count = int(bad.sum())
        if count:
            wrong += count
            if first is None:
                first = start + int(bad.int().argmax())
            ranked = absolute.nan_to_num(math.inf, math.inf).masked_fill(~bad, -1.0)
            error, at = ranked.max(dim=0)
            if error.item() > worst_error:
                worst_error, worst_at = error.item(), start + int(at)
        start += len(x)
    allowed = math.floor((1.0 - ratio) * total + 1e-9)
    if first is None or (wrong <= allowed and is_finite(got)):
        return None
    worst_got, worst_want = (t.reshape(-1)[worst_at].item() for t in (got, want))
    text = (
        f"{name}: {wrong} of {total} elements wrong (allowed {allowed}); first at "
        f"{_index(first, want.shape)}; worst at {_index(worst_at, want.shape)}: "
        f"expected {worst_want:.6g}, got {worst_got:.6g} (atol {atol:g}, rtol {rtol:g})"
    )
    return text + _guess_cause(name, got, want)


def _guess_cause(name: str, got: torch.Tensor, want: torch.Tensor) -> str:
    if name != "lse":
        return ""
    both = torch.isfinite(got) & torch.isfinite(want) & (want.abs() > 1e-3)
    if not both.any():
        return ""
    ratios = (want[both] / got[both]).double()
    for ratio, base in LOG_BASE_RATIOS.items():
        if torch.allclose(ratios, torch.full_like(ratios, ratio), rtol=1e-3):
            return f"; every value is off by {ratio:.6f}: the definition's logarithm has {base}"
    return ""


def _index(flat: int, shape: Sequence[int]) -> list[int]:
    index: list[int] = []
    for size in reversed(shape):
        index.insert(0, flat % size)
        flat //= size
    return index


def dump_inputs(folder: str, stem: str, names: Sequence[str], values: Sequence[Any]) -> str:
    """Keep a failing trial's inputs: <folder>/<stem>.safetensors, scalars in its metadata."""
    from safetensors.torch import save

    tensors = {
        name: value.detach().cpu().contiguous()
        for name, value in zip(names, values, strict=True)
        if isinstance(value, torch.Tensor)
    }
    scalars = {
        name: repr(value)
        for name, value in zip(names, values, strict=True)
        if not isinstance(value, torch.Tensor)
    }
    path = Path(folder) / f"{stem}.safetensors"
    with atomic_file(path) as file:
        file.write(save(tensors, metadata=scalars))
    return str(path)
