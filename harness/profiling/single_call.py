"""One call of a packed solution on inputs from a file: what NCU looks at.

    python -m harness.profiling.single_call FILE

FILE is what `harness.audit.single_call.save` left in a worker, which also compiled the kernels.
"""

from __future__ import annotations

import sys

import torch

from harness.audit.single_call import load
from harness.profiling.traced_call import WARMUP_CALLS, flush_buffer


def main(path: str) -> None:
    """Warm up, flush the L2, then call once with the profiler on for that call alone."""
    case, inputs = load(path)
    outputs = case.allocate(inputs)
    for _ in range(WARMUP_CALLS):
        case.call(inputs, outputs)
    flush_buffer(case.device).zero_()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    case.launch(inputs, outputs)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(*sys.argv[1:])
