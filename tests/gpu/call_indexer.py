"""Calls each native path of dsa_indexer once and checks the result: what a sanitizer runs.

compute-sanitizer --tool racecheck python -m tests.gpu.call_indexer
"""

import sys

import torch

from tests.oracles.dsa_indexer import (
    check,
    empty_output,
    error_bounds,
    integer_inputs,
    oracle,
    random_inputs,
)
from tests.packed import build, poison

# A plain grid; clusters in one launch; two launches, a CTA a sequence, then a cluster a sequence.
CALLS = [
    (random_inputs, [100, 2048]),
    (random_inputs, [2112, 60, 3]),
    (random_inputs, [2100 if row % 9 == 0 else 5 for row in range(33)]),
    (random_inputs, [9000, 2500, 7]),
    (integer_inputs, [8300, 9]),
]


def kernel():
    """The module of the whole room."""
    return sys.modules[build("dsa_indexer")._callable.__module__]


def main() -> None:
    kernel()._run_portable = None  # nothing reaches it unnoticed
    for make, seq_lens in CALLS:
        inputs = make(seq_lens, seed=3, device="cuda")
        output = poison(empty_output(len(seq_lens), "cuda"))
        build("dsa_indexer")(*inputs.values(), output)
        torch.cuda.synchronize()
        values = list(inputs.values())
        bounds = None if make is integer_inputs else error_bounds(*values)
        check(output, oracle(*values), inputs["block_table"], inputs["seq_lens"], bounds)


if __name__ == "__main__":
    main()
