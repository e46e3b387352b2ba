"""The worker's loop for whoever asks something else of a job than a verdict.

A trial of a replay, a probe of an audit and a profile run in a process like the judge's: under its
rules for logs, stages, time limits and lost devices. Only what answers a job differs. The loop
stands here, and not in worker.py, because that file's bytes are a part of the judge's identity.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.evaluate import worker
from harness.evaluate.protocol import Job, Outcome, Stage

Report = Callable[[Stage], None]
Answer = Callable[[Job, Report], Outcome]


@dataclass(frozen=True)
class _Respondent:
    """What the worker's `_run` asks, in the place of the module that judges."""

    answer: Answer

    def judge_and_keep(self, job: Job, report: Report) -> tuple[Outcome, None]:
        return self.answer(job, report), None


def answer_jobs(answer: Answer, read_fd: str, write_fd: str, device: str) -> None:
    """Answer jobs until the parent closes the pipe. answer: reports each stage as it begins."""
    from harness.evaluate.start import know_every_rule

    respondent = _Respondent(answer)
    with (
        os.fdopen(int(read_fd), encoding="utf-8") as requests,
        os.fdopen(int(write_fd), "w", encoding="utf-8") as replies,
    ):
        worker._die_with_parent()
        log = os.dup(1)  # a solution may close its own
        worker._load_judge(device)
        know_every_rule()
        worker._send(replies, ready=True)
        for line in requests:
            request = json.loads(line)
            worker._begin_log(log)
            number, job = request["number"], Job.from_json(request["job"])
            outcome, _ = worker._run(respondent, job, replies, number, log)
            if worker._context_is_lost(device):
                outcome = replace(outcome, faulted=True)
            worker._send(replies, number=number, outcome=outcome.to_json())
