"""The worker process: reads jobs, writes stages and outcomes, one JSON object a line.

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

from harness.evaluate.protocol import Job, Outcome, Stage

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
        for line in requests:
            request = json.loads(line)
            number = request["number"]
            outcome = _run(judge, Job.from_json(request["job"]), replies, number, log)
            if _context_is_lost(device):
                outcome = replace(outcome, faulted=True)
            _send(replies, number=number, outcome=outcome.to_json())


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


def _run(judge: Any, job: Job, replies: TextIO, number: str, log: int) -> Outcome:
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)  # or the next print would leave a hole of NUL bytes before it
    durations_s: dict[str, float] = {}
    current: list[Any] = []

    def report(stage: Stage) -> None:
        now = time.monotonic()
        if current:
            durations_s[current[0]] = round(now - current[1], 3)
        current[:] = [stage.value, now]
        _send(replies, number=number, stage=stage.value)

    outcome: Outcome = judge.judge(job, report)
    durations_s[current[0]] = round(time.monotonic() - current[1], 3)
    text = outcome.log if outcome.status.value == "PASSED" else outcome.log + _printed(log)
    return replace(
        outcome,
        detail=_clean(outcome.detail),
        log=_clean(text[-LOG_TAIL_BYTES:]),
        stages_s=durations_s,
    )


def _printed(log: int) -> str:
    """The end of what this job wrote to stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError, AttributeError):
            stream.flush()
    size = os.fstat(log).st_size
    data = os.pread(log, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
    return data.decode("utf-8", errors="replace")


def _clean(text: str) -> str:
    """Lone surrogates as escapes: no file and no terminal takes them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _die_with_parent() -> None:
    """Linux: SIGKILL when the sweep dies, however it dies."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
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
