"""The definitions as flashinfer-bench reads them, and what the reference tests measure them by."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import Definition

from harness.config import load_workspace


def path_of(room: str) -> Path:
    workspace = load_workspace()
    entry = workspace.room(room)
    return workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"


@cache
def definition(room: str) -> Definition:
    return Definition.model_validate_json(path_of(room).read_text(encoding="utf-8"))


@cache
def reference(room: str):
    """The reference as the official evaluator builds it. Call it with the definition's inputs."""
    return BuilderRegistry.get_instance().build_reference(definition(room))


@cache
def parts(room: str) -> dict:
    """The names that the reference text itself defines, its helper functions among them."""
    names: dict = {}
    exec(compile(definition(room).reference, f"{room} reference", "exec"), names)
    return names


def assert_official(room, *, axes, inputs, outputs, constraints, tags):
    """Compare a definition with the official table.

    axes: name -> value, None for a variable axis. inputs, outputs: lines of
    `name [axes] dtype`, `name scalar dtype`; their order counts.
    """
    found = definition(room)
    assert {name: getattr(axis, "value", None) for name, axis in found.axes.items()} == axes
    assert _lines(found.inputs) == [" ".join(line.split()) for line in inputs.strip().splitlines()]
    assert _lines(found.outputs) == [
        " ".join(line.split()) for line in outputs.strip().splitlines()
    ]
    assert found.constraints == constraints
    assert found.tags == tags


def _lines(tensors) -> list[str]:
    def shape(spec):
        return "scalar" if spec.shape is None else f"[{', '.join(spec.shape)}]"

    return [f"{name} {shape(spec)} {spec.dtype.value}" for name, spec in tensors.items()]


def assert_rounded_once(got: torch.Tensor, want: torch.Tensor, same: float = 0.99) -> None:
    """`got` is bf16 and is what fp32 arithmetic with one rounding at the end gives for `want`.

    want: fp64. An fp32 result lies so near to the exact one that it rounds to another bf16 only
    where the exact value lies within some 1e-5 of a tie: at least the share `same` of the
    elements is equal to the last bit, and none is off by more than half a unit (2^-8 relative)
    and what fp32 loses in cancelling sums. A second rounding to bf16 on the way, or a cast before
    the last factor, changes a large share of the last bits and fails.
    """
    assert got.dtype == torch.bfloat16
    assert got.shape == want.shape
    assert want.numel() > 0
    largest = want.abs().max()
    torch.testing.assert_close(got.double(), want, rtol=2.0**-8 + 1e-5, atol=1e-5 * float(largest))
    share = (got == want.to(torch.bfloat16)).double().mean().item()
    assert share >= same, f"only {share:.2%} of the elements are equal to the last bit"
