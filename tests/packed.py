"""Solutions as the tests see them: packed by pack.py, built by flashinfer-bench's own builder."""

from __future__ import annotations

import contextlib
from functools import cache

import torch

from harness.config import load_workspace
from harness.packing import pack, pack_peer


@cache
def build(room: str, route: str | None = None):
    """Pack a room and build it. Returns flashinfer-bench's Runnable.

    On a machine without CUDA the Triton interpreter runs the kernels; conftest.py sets the
    environment variable before Triton is imported.
    """
    return _build(room, pack(load_workspace(), room, route).text)


@cache
def build_peer(room: str, library: str):
    """The same of a peer. Its library has to be installed."""
    return _build(room, pack_peer(load_workspace(), room, library).packed.text)


def _build(room, text):
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition, Solution

    workspace = load_workspace()
    entry = workspace.room(room)
    path = workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    definition = Definition.model_validate_json(path.read_text())
    return BuilderRegistry.get_instance().build(definition, Solution.model_validate_json(text))


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill an output with NaN (floats) or 0x7F bytes (integers): what stays was never written."""
    if tensor.is_floating_point():
        return tensor.fill_(float("nan"))
    return tensor.fill_(torch.iinfo(tensor.dtype).max)


def call(room: str, inputs, outputs, route: str | None = None):
    """Run the packed room on `inputs` into the poisoned `outputs` (both in definition order).

    Asserts that no input was written; returns the outputs.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    before = [value.clone() for value in tensors]
    for output in outputs:
        poison(output)
    build(room, route)(*inputs, *outputs)
    for value, old in zip(tensors, before, strict=True):
        assert _bytes_equal(value, old), "an input was written"
    return outputs


def _bytes_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(
        left.contiguous().flatten().view(torch.uint8),
        right.contiguous().flatten().view(torch.uint8),
    )


@contextlib.contextmanager
def raises_naming(error, *words):
    """Expect `error` with a message that contains every word."""
    try:
        yield
    except error as caught:
        for word in words:
            assert word in str(caught), f"{word!r} is not in: {caught}"
    else:
        raise AssertionError(f"expected {error}, nothing was raised")
