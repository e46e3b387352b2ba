"""One call of each prepared workload: what NCU looks at, all of a room's in one process.

    python -m harness.audit.counted_calls FOLDER

FOLDER holds the files that `single_call.save` left. A marker kernel stands before each call, so
that a table of launches can be cut into calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from harness.audit.single_call import load

WARMUP_CALLS = 3  # the first one loads modules


def main(folder: str) -> None:
    """Call each in the order of the files' names, with the profiler on for marker and call."""
    for path in sorted(Path(folder).glob("*.pt")):
        _call(path)


def _call(path: Path) -> None:
    case, inputs = load(str(path))
    outputs = case.allocate(inputs)
    for _ in range(WARMUP_CALLS):
        case.call(inputs, outputs)
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # harness.audit.counting.MARKER
    torch.cuda.synchronize()
    case.launch(inputs, outputs)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(*sys.argv[1:])
