"""Starts a worker that knows the rules of every definition, the contest's and others.

    python -m harness.evaluate.start READ_FD WRITE_FD DEVICE

The judge's own files are part of each record's identity. What is added here changes nothing for a
definition of the contest.
"""

from __future__ import annotations

import sys

import torch

from harness import rules
from harness.evaluate import judge, worker
from harness.evaluate.diagnosis import describe_mismatch


def main(read_fd: str, write_fd: str, device: str) -> None:
    know_every_rule()
    worker.main(read_fd, write_fd, device)


def know_every_rule() -> None:
    """In this process only."""
    rules.register()
    judge.describe_mismatch = describe_values  # type: ignore[attr-defined]


def describe_values(
    name: str, got: torch.Tensor, want: torch.Tensor, atol: float, rtol: float, ratio: float
) -> str | None:
    """As describe_mismatch. None for ids, whose order is free: the rule says which are wrong."""
    if not want.is_floating_point():
        return None
    return describe_mismatch(name, got, want, atol, rtol, ratio)


if __name__ == "__main__":
    main(*sys.argv[1:])
