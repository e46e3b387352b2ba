"""How far dsa_attention is from fp64, beside the definition's reference, which computes in fp32.

python -m tests.gpu.attention_errors     # a line for each call, and the worst of all

lse: its largest error may be twice the reference's. A reference that happens to be exact would
allow nothing, so one ulp of fp32 is allowed always, which storing the lse may cost; and the largest
are compared over all seeds of a shape, as the 16 numbers of one token are few.

output: by row, what its errors have beyond rounding to bf16 may have 2^-9 of the row's norm. Not by
element: an output is a sum of values of both signs, and weights that are rounded to bf16, as the
tensor cores take them, leave 2^-9 of the terms, while the terms may cancel.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass, fields

import torch

from harness.devices import read_facts
from harness.errors import run_program
from tests.gpu.references import reference
from tests.oracles.dsa_attention import empty_outputs, oracle, random_inputs, random_rows
from tests.packed import call

ROOM = "dsa_attention"
PAGES = 8462  # of every official workload
SEEDS = range(101, 107)
# Valid entries per token of official workloads: alone, merged, and both in one call.
COUNTS = [
    [2],
    [18, 11],
    [33, 52],
    [92, 48],
    [6, 337],
    [142, 138, 2012, 141, 305, 538],
    [18, 11, 2048, 20, 25, 45, 135],
    [17, 13, 1887, 16, 180, 1986, 413, 1],
]


@dataclass(frozen=True)
class Errors:
    """Of one call, against fp64. Those of the output are relative to its row, a token's head."""

    lse: float  # the largest
    reference_lse: float  # the largest of the definition's reference in fp32
    lse_ulp: float  # of fp32 at the largest |lse|: what storing it may cost
    output_max: float  # the largest, by its row's largest |output|
    output_rms: float  # root mean square of all, by that of the output
    # The largest norm of a row's errors, each less half an ulp of bf16, by the norm of the row.
    output_beyond_rounding: float

    @property
    def lse_limit(self) -> float:
        return max(2 * self.reference_lse, self.lse_ulp)


OUTPUT_LIMIT = 2.0**-9  # of output_beyond_rounding


def worst_of(found) -> Errors:
    """The largest of each over several calls."""
    return Errors(*(max(getattr(one, field.name) for one in found) for field in fields(Errors)))


def inputs_with_counts(counts, seed, num_pages=PAGES, device="cuda"):
    """Tokens with so many valid entries each, at the front of their rows."""
    inputs = random_inputs(len(counts), num_pages, seed, device)
    for token, count in enumerate(counts):
        rows = random_rows(num_pages, count, seed + token, device)
        inputs["sparse_indices"][token, :count] = rows
    return inputs


def run_room(inputs):
    """Output and lse of the room as it is."""
    device = inputs["q_nope"].device
    return call(ROOM, list(inputs.values()), empty_outputs(inputs["q_nope"].shape[0], device))


def half_ulp_of_bf16(x):
    """What rounding to bf16 may cost x, in its own precision; 0 for 0."""
    return torch.where(x == 0, 0.0, torch.ldexp(torch.ones_like(x), torch.frexp(x).exponent - 9))


def measure(inputs, run=run_room) -> Errors:
    """Every token of `inputs` has a valid entry. run: inputs by name -> (output, lse)."""
    output, lse = (x.double().cpu() for x in run(inputs))
    want, want_lse = oracle(**inputs)
    reference_lse = reference(ROOM)(*inputs.values())[1].double().cpu()
    error = (output - want).abs()
    beyond = (error - half_ulp_of_bf16(want)).clamp(min=0)
    largest_lse = want_lse.abs().max()
    return Errors(
        lse=(lse - want_lse).abs().max().item(),
        reference_lse=(reference_lse - want_lse).abs().max().item(),
        lse_ulp=2.0 ** (torch.frexp(largest_lse).exponent.item() - 24),
        output_max=(error / want.abs().amax(dim=-1, keepdim=True)).max().item(),
        output_rms=(error.norm() / want.norm()).item(),
        output_beyond_rounding=(beyond.norm(dim=-1) / want.norm(dim=-1)).max().item(),
    )


def describe(errors: Errors) -> str:
    values = [f"{name} {value:.2e}" for name, value in asdict(errors).items()]
    return ", ".join(values) + f"; lse by its limit {errors.lse / errors.lse_limit:.2f}"


def main() -> int:
    """Print the errors of every shape. Raises EnvironmentUnfit without a GPU."""
    argparse.ArgumentParser(
        prog="python -m tests.gpu.attention_errors",
        description="Print how far dsa_attention is from fp64, beside its reference; on a GPU.",
    ).parse_args()
    read_facts("cuda:0")
    shapes = []
    for counts in COUNTS:
        calls = []
        for seed in SEEDS:
            calls.append(measure(inputs_with_counts(counts, seed)))
            print(f"{counts}, seed {seed}: {describe(calls[-1])}")
        shapes.append(worst_of(calls))
        print(f"{counts}: {describe(shapes[-1])}")
    ratio = max(one.lse / one.lse_limit for one in shapes)
    print(f"worst of all: {describe(worst_of(shapes))}")
    print(f"lse by its limit, worst shape: {ratio:.2f}; limit of output: {OUTPUT_LIMIT:.2e}")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
