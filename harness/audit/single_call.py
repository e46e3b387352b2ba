"""One call of a packed solution on inputs from a file: what runs under a sanitizer.

    python -m harness.audit.single_call FILE

FILE is torch.save's, made by `prepare` in an ordinary worker, which also compiled the kernels.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from harness.audit.case import Case
from harness.audit.sanitizers import FINISHED, JOB_VARIABLE
from harness.evaluate.protocol import Job


def prepare(case: Case) -> str | None:
    """Write inputs and job to the file that JOB_VARIABLE names; the solution must be right."""
    trial = case.trial(0)
    case.build()
    case.require_right(trial, case.call(trial.inputs), "the call")
    save(case, os.environ[JOB_VARIABLE])
    return None


def save(case: Case, path: str) -> None:
    """Write the job and the inputs of its trial 0."""
    inputs = [x.cpu() if isinstance(x, torch.Tensor) else x for x in case.trial(0).inputs]
    torch.save({"job": case.job.to_json(), "inputs": inputs}, path)


def load(path: str) -> tuple[Case, list[Any]]:
    """The built solution, and its inputs on the device."""
    saved = torch.load(path, weights_only=True)
    case = Case(Job.from_json(saved["job"]), 0)
    torch.cuda.set_device(case.device)
    inputs = [x.to(case.device) if isinstance(x, torch.Tensor) else x for x in saved["inputs"]]
    case.build()
    return case, inputs


def main(path: str) -> None:
    """Call once, and say that the call has ended."""
    case, inputs = load(path)
    outputs = case.allocate(inputs)
    torch.cuda.synchronize()
    case.launch(inputs, outputs)
    torch.cuda.synchronize()
    print(FINISHED, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
