"""A worker that has not begun: it imports what the judge needs, then waits for its go.

    python -m harness.evaluate.standby READ_FD WRITE_FD DEVICE

Importing torch, Triton and flashinfer-bench takes seconds and touches no GPU, so it can be done
beside a worker that measures. The first byte of the pipe of requests is the go; from then on this
is harness.evaluate.start, which makes the CUDA context. A pipe that ends says that nobody is left
to work for.
"""

from __future__ import annotations

import importlib
import os
import sys

from harness.evaluate import worker

MODULES = ("harness.evaluate.judge", "harness.evaluate.start", "harness.evaluators", "triton")


def main(read_fd: str, write_fd: str, device: str) -> None:
    worker._die_with_parent()
    for module in MODULES:
        importlib.import_module(module)
    if os.read(int(read_fd), 1):
        importlib.import_module("harness.evaluate.start").main(read_fd, write_fd, device)


if __name__ == "__main__":
    main(*sys.argv[1:])
