"""The worker process of a probe: `evaluate`'s, answering with what one function found.

    python -m harness.audit.worker FUNCTION SECRET_SEED READ_FD WRITE_FD DEVICE

FUNCTION: "module:name" below harness.audit, given a Case for each job. It raises Caught where it
finds something against the solution and NotApplicable where the workload can show nothing; it may
return a note (text) or values (an object of JSON).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

from harness.evaluate import judge, start
from harness.evaluate.protocol import Job, Outcome, Stage, Status

PASSED, FAILED, NOT_RUN = "PASSED", "FAILED", "NOT_RUN"
Report = Callable[[Stage], None]


def main(function: str, secret_seed: str, read_fd: str, write_fd: str, device: str) -> None:
    def probe_and_keep(job: Job, report: Report) -> tuple[Outcome, None]:
        return answer(function, int(secret_seed), job, report), None

    judge.judge_and_keep = probe_and_keep  # in this process only
    start.main(read_fd, write_fd, device)


def answer(function: str, secret_seed: int, job: Job, report: Report) -> Outcome:
    """PASSED says that the probe has an answer; `evaluation` holds it."""
    from harness.audit.case import Case, Caught, NotApplicable, one_line

    module, _, name = function.partition(":")
    report(Stage.INPUTS)
    probe = getattr(importlib.import_module(f"harness.audit.{module}"), name)
    values: Any = None
    try:
        case = Case(job, secret_seed, report)
        found = probe(case)
        verdict, detail = PASSED, found if isinstance(found, str) else ""
        values = found if isinstance(found, dict) else None
    except Caught as error:
        verdict, detail = FAILED, str(error)
    except NotApplicable as error:
        verdict, detail = NOT_RUN, str(error)
    except Exception as error:  # of the probe itself, the data set or the machine
        traceback.print_exc()
        return Outcome(Status.INFRASTRUCTURE, detail=f"the probe failed: {one_line(error)}")
    return Outcome(
        Status.PASSED, evaluation={"verdict": verdict, "detail": detail, "values": values}
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
