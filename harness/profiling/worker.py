"""The worker process of a profile: `evaluate`'s, answering with traces of a job's calls.

    python -m harness.profiling.worker CALL_FILE READ_FD WRITE_FD DEVICE

Each job also leaves its inputs in CALL_FILE, for the one call that NCU looks at.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import asdict
from functools import partial

from harness.evaluate.answering import Report, answer_jobs
from harness.evaluate.protocol import Job, Outcome, Stage, Status


def main(call_file: str, read_fd: str, write_fd: str, device: str) -> None:
    answer_jobs(partial(answer, call_file), read_fd, write_fd, device)


def answer(call_file: str, job: Job, report: Report) -> Outcome:
    """PASSED says that there are traces; `evaluation` holds them, a list of activities a call."""
    from harness.audit.case import Case, Caught, one_line
    from harness.audit.single_call import save
    from harness.profiling.traced_call import trace_calls

    report(Stage.INPUTS)
    try:
        case = Case(job, 0, report)
        case.trial(0)
        case.build()
        save(case, call_file)
        calls = trace_calls(case)
    except Caught as error:
        traceback.print_exc()
        return Outcome(Status.RUNTIME_ERROR, detail=str(error))
    except Exception as error:  # of the profiler, the data set or the machine
        traceback.print_exc()
        return Outcome(Status.INFRASTRUCTURE, detail=one_line(error))
    found = [[asdict(activity) for activity in call] for call in calls]
    return Outcome(Status.PASSED, evaluation={"calls": found})


if __name__ == "__main__":
    main(*sys.argv[1:])
