"""The worker process: reads jobs, writes stages and outcomes, one JSON object a line.

A job with keep leaves the solution behind; requests to measure it follow until the next job.

    python -m harness.evaluate.worker READ_FD WRITE_FD DEVICE

stdout and stderr are a log file that the parent opened; the pipes carry the protocol only, so
that nothing a solution prints can be taken for a verdict.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any, TextIO

from harness.evaluate.protocol import Job, Outcome, Stage, Status

LOG_TAIL_BYTES = 16_384


def main(read_fd: str, write_fd: str, device: str) -> None:
    with (
        os.fdopen(int(read_fd), encoding="utf-8") as requests,
        os.fdopen(int(write_fd), "w", encoding="utf-8") as replies,
    ):
        _die_with_parent()
        log = os.dup(1)  # a solution may close its own
        judge = _load_judge(device)
        _send(replies, ready=True)
        kept = None
        for line in requests:
            request = json.loads(line)
            number = request["number"]
            _begin_log(log)
            if "measure" in request:
                answer = _measure(judge, kept, request["measure"], log)
            else:
                kept = None  # releases its memory before the next job allocates
                job = Job.from_json(request["job"])
                outcome, kept = _run(judge, job, replies, number, log)
                if _context_is_lost(device):
                    outcome = replace(outcome, faulted=True)
                answer = {"outcome": outcome.to_json()}
            _send(replies, number=number, **answer)


def _load_judge(device: str) -> Any:
    """Import the heavy modules, register the DSA rules, choose the device."""
    import torch

    from harness.evaluate import judge
    from harness.evaluators import register

    register()
    if device == "cpu":
        # The official evaluators synchronise unconditionally; there is nothing to wait for.
        torch.cuda.synchronize = lambda *_: None
    else:
        torch.cuda.set_device(device)
        torch.cuda.synchronize(device)
    return judge


def _begin_log(log: int) -> None:
    """Empty the log and give stdout and stderr new streams into it: an earlier job may have
    closed or replaced them."""
    _flush_output()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)  # or the next print would leave a hole of NUL bytes before it
    sys.stdout, sys.stderr = (
        open(descriptor, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        for descriptor in (1, 2)
    )


def _run(judge: Any, job: Job, replies: TextIO, number: str, log: int) -> tuple[Outcome, Any]:
    durations_s: dict[str, float] = {}
    current: list[Any] = []

    def report(stage: Stage) -> None:
        now = time.monotonic()
        if current:
            durations_s[current[0]] = round(now - current[1], 3)
        current[:] = [stage.value, now]
        _send(replies, number=number, stage=stage.value)

    outcome, kept = judge.judge_and_keep(job, report)
    durations_s[current[0]] = round(time.monotonic() - current[1], 3)
    return replace(_with_log(outcome, log), stages_s=durations_s), kept


def _measure(judge: Any, kept: Any, counts: dict[str, int], log: int) -> dict[str, Any]:
    """The answer to a request: latencies in µs, or the outcome of a solution that failed."""
    if kept is None:
        return {"outcome": Outcome(Status.INFRASTRUCTURE, detail="nothing is kept").to_json()}
    measured = judge.measure(kept, **counts)
    if isinstance(measured, Outcome):
        return {"outcome": _with_log(measured, log).to_json()}
    return {"latencies_us": measured.samples_us}


def _with_log(outcome: Outcome, log: int) -> Outcome:
    """The outcome with what the job printed, where it did not pass."""
    text = outcome.log if outcome.status is Status.PASSED else outcome.log + _printed(log)
    return replace(outcome, detail=_clean(outcome.detail), log=_clean(text[-LOG_TAIL_BYTES:]))


def _printed(log: int) -> str:
    """The end of what this job wrote to stdout and stderr."""
    _flush_output()
    size = os.fstat(log).st_size
    data = os.pread(log, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
    return data.decode("utf-8", errors="replace")


def _flush_output() -> None:
    """A solution may have put anything in the place of these streams: what they raise is no
    verdict."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _clean(text: str) -> str:
    """Lone surrogates as escapes: no file and no terminal takes them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _die_with_parent() -> None:
    """Linux: SIGKILL when the sweep dies, however it dies; keep orphaned descendants below."""
    parent = os.getppid()
    prctl = ctypes.CDLL(None).prctl
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: harness.evaluate.strays finds them there
    if os.getppid() != parent:
        os._exit(1)


def _context_is_lost(device: str) -> bool:
    """A CUDA fault is sticky: every later call in this process fails too."""
    if device == "cpu":
        return False
    import torch

    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    torch.cuda.empty_cache()
    return False


def _send(replies: TextIO, **message: Any) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
