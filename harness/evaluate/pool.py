"""A warm worker process and the rules for replacing it. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.evaluate.protocol import SOLUTION_STAGES, Job, Outcome, Stage, Status
from harness.evaluate.secrecy import without_secrets
from harness.evaluate.strays import (
    MARK,
    kill_abandoned,
    kill_descendants,
    kill_strays,
    make_mark,
)

START_LIMIT_S = 120.0  # torch and Triton from a slow disk; a new CUDA context
START_ATTEMPTS = 2
KILL_WAIT_S = 5.0
READ_BYTES = 1 << 16
MESSAGE_LIMIT_BYTES = 1 << 22
LIFE_CHECK_S = 1.0
LOG_TAIL_BYTES = 8192
LOG_LIMIT_BYTES = 64 << 20  # of the disk, a worker's log


class _WorkerGone(Exception):
    """The worker ended without an answer. returncode as subprocess gives it."""

    def __init__(self, returncode: int | None) -> None:
        super().__init__(_describe_exit(returncode))


class _TooLate(Exception):
    """The deadline passed."""


class _Garbled(Exception):
    """Something else than the worker wrote into its pipe."""

    def __init__(self, words: str = "the judge's pipe holds what no judge wrote") -> None:
        super().__init__(words)


class MeasurementFailed(HarnessError):
    """What was kept could not be measured; it is gone, and so is its worker."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.status.value}: {outcome.detail}")
        self.outcome = outcome


@dataclass(frozen=True)
class WorkerCommand:
    """How to start a worker: argv before the two descriptors and the device, and its environment.

    Tests put a fake worker here.
    """

    argv: Sequence[str] = (sys.executable, "-m", "harness.evaluate.worker")
    environment: dict[str, str] | None = None


class Pool:
    """Runs jobs one after another on one device, in one warm worker process.

    A context manager; leaving it kills the worker and what that started. The worker also ends
    with the thread that made it, so one thread uses a pool from its first job to its last.
    """

    def __init__(self, device: str, root: Path, command: WorkerCommand | None = None) -> None:
        self._device, self._root = device, root
        self._command = command or WorkerCommand(environment=worker_environment(device, root))
        self._worker: _Worker | None = None
        self._last_log = ""
        self._keeps = False
        self.replacements = 0
        kill_abandoned(KILL_WAIT_S)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._keeps = False
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def run(self, job: Job, on_stage: Callable[[Stage], None] = lambda stage: None) -> Outcome:
        """One verdict, whatever the solution does. Never raises for a solution's fault."""
        began = time.monotonic()
        self._keeps = False
        worker = self._ready_worker()
        if worker is None:
            return Outcome(
                Status.INFRASTRUCTURE,
                detail=f"{START_ATTEMPTS} workers ended, or were not ready within "
                f"{START_LIMIT_S:g} s; the log says why",
                log=self._last_log,
            )
        worker.stage = Stage.INPUTS
        try:
            answer = _converse(worker, {"job": job.to_json()}, job.settings.timeout_s, on_stage)
            outcome = _read_outcome(answer)
        except (_TooLate, _WorkerGone, _Garbled) as end:
            outcome = _blame(worker, job.settings.timeout_s, end)
        if worker.has_judged and outcome.status in (Status.INFRASTRUCTURE, Status.REFERENCE_ERROR):
            self._replace()  # what an earlier job left behind may be at fault: ask a fresh worker
            return self.run(job, on_stage)
        worker.has_judged = True
        if outcome.faulted or not worker.alive():
            self._replace()
        elif job.keep:
            self._keeps = outcome.status is Status.PASSED
        outcome.stages_s["total"] = round(time.monotonic() - began, 3)
        return outcome

    def measure(self, warmup_runs: int, iterations: int, timeout_s: float) -> tuple[float, ...]:
        """Latency of each iteration, in µs, of what the last job kept; the L2 is cold each time.

        One call and warmup_runs more come first. Raises MeasurementFailed where nothing is kept,
        or the solution fails, dies or takes longer than timeout_s; the worker is then replaced.
        """
        worker = self._worker
        if worker is None or not self._keeps:
            detail = "nothing is kept: run a job with keep that passes, then measure"
            raise MeasurementFailed(Outcome(Status.INFRASTRUCTURE, detail=detail))
        worker.stage = Stage.TIMING
        counts = {"warmup_runs": warmup_runs, "iterations": iterations}
        try:
            answer = _converse(worker, {"measure": counts}, timeout_s)
            if "latencies_us" in answer:
                return _read_latencies(answer, iterations)
            outcome = _read_outcome(answer)
        except (_TooLate, _WorkerGone, _Garbled) as end:
            outcome = _blame(worker, timeout_s, end)
        self._replace()
        raise MeasurementFailed(outcome)

    def _ready_worker(self) -> _Worker | None:
        for _ in range(START_ATTEMPTS):
            if self._worker is not None and self._worker.alive():
                return self._worker
            self.close()
            self._worker = worker = _Worker(self._command, self._device, self._root)
            try:
                worker.receive(time.monotonic() + START_LIMIT_S)
            except (_TooLate, _WorkerGone, _Garbled):
                self._last_log = worker.log_tail()
                self.close()
                continue
            return worker
        return None

    def _replace(self) -> None:
        self.replacements += 1
        self.close()


class _Worker:
    """One process, its two pipes and its log file."""

    def __init__(self, command: WorkerCommand, device: str, root: Path) -> None:
        self.stage = Stage.START
        self.has_judged = False
        self._mark = make_mark()
        self._log = tempfile.TemporaryFile(prefix="harness-worker-")  # noqa: SIM115
        child_read, self._write_fd = os.pipe()
        self._read_fd, child_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command.argv, str(child_read), str(child_write), device],
                cwd=root,
                env={
                    **without_secrets(
                        os.environ if command.environment is None else command.environment
                    ),
                    MARK: self._mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(child_read, child_write),
                start_new_session=True,  # so that one signal reaches whatever the worker started
            )
        finally:
            os.close(child_read)
            os.close(child_write)
        os.set_blocking(self._write_fd, False)
        self._pending = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read_fd, selectors.EVENT_READ)

    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: dict[str, Any], deadline: float) -> None:
        data = json.dumps(message).encode() + b"\n"
        with selectors.DefaultSelector() as writable:
            writable.register(self._write_fd, selectors.EVENT_WRITE)
            while data:
                if not writable.select(max(0.0, deadline - time.monotonic())):
                    raise _TooLate
                try:
                    data = data[os.write(self._write_fd, data) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError as error:
                    raise _WorkerGone(self._returncode()) from error

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message. Raises _TooLate or _WorkerGone."""
        while b"\n" not in self._pending:
            left_s = deadline - time.monotonic()
            if left_s <= 0.0:
                raise _TooLate
            if not self._selector.select(min(left_s, LIFE_CHECK_S)):
                if not self.alive():  # a process that it started holds the pipe open
                    raise _WorkerGone(self._returncode())
                self._bound_log()
                continue
            data = os.read(self._read_fd, READ_BYTES)
            if not data:
                raise _WorkerGone(self._returncode())
            self._pending += data
            if len(self._pending) > MESSAGE_LIMIT_BYTES:
                raise _Garbled()
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _Garbled() from error
        return message if isinstance(message, dict) else {}

    def _returncode(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT_S)
        return self._process.poll()

    def log_tail(self) -> str:
        return self._read_tail()[1].decode("utf-8", errors="replace")

    def _read_tail(self) -> tuple[int, bytes]:
        """The end of the log, and where it begins."""
        begin = max(0, os.fstat(self._log.fileno()).st_size - LOG_TAIL_BYTES)
        return begin, os.pread(self._log.fileno(), LOG_TAIL_BYTES, begin)

    def _bound_log(self) -> None:
        """Give back the disk under all but the end of a log that grows without end."""
        descriptor = self._log.fileno()
        if os.fstat(descriptor).st_blocks * 512 > LOG_LIMIT_BYTES:
            begin, tail = self._read_tail()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, tail, begin)  # the worker's own position stays: a hole before it

    def kill(self) -> None:
        """SIGKILL all that it started: a solution may ignore anything softer."""
        if self.alive():
            self._process.send_signal(signal.SIGSTOP)  # it can start nothing more
            kill_descendants(self._process.pid, KILL_WAIT_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT_S)
        kill_strays(self._mark, KILL_WAIT_S)
        self._selector.close()
        for descriptor in (self._read_fd, self._write_fd):
            os.close(descriptor)
        self._log.close()


def _converse(
    worker: _Worker,
    request: dict[str, Any],
    timeout_s: float,
    on_stage: Callable[[Stage], None] = lambda stage: None,
) -> dict[str, Any]:
    """Send a request, follow its stages, return the answer. Raises what _Worker raises.

    The clock starts anew when the solution's own work begins, as the official one does, and when
    it ends.
    """
    deadline = time.monotonic() + timeout_s
    number = secrets.token_hex(8)
    worker.send({**request, "number": number}, deadline)
    while True:
        message = worker.receive(deadline)
        if message.get("number") != number:
            raise _Garbled("the judge's pipe holds an answer to another job")
        if "stage" not in message:
            return message
        was_the_solutions = worker.stage in SOLUTION_STAGES
        try:
            worker.stage = Stage(message["stage"])
        except (TypeError, ValueError) as error:
            raise _Garbled() from error
        if (worker.stage in SOLUTION_STAGES) != was_the_solutions:
            deadline = time.monotonic() + timeout_s
        on_stage(worker.stage)


def _read_outcome(answer: dict[str, Any]) -> Outcome:
    try:
        return Outcome.from_json(answer["outcome"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _Garbled() from error


def _read_latencies(answer: dict[str, Any], count: int) -> tuple[float, ...]:
    try:
        latencies_us = tuple(float(value) for value in answer["latencies_us"])
    except (TypeError, ValueError) as error:
        raise _Garbled() from error
    if len(latencies_us) != count:
        raise _Garbled(f"expected {count} latencies from the judge, got {len(latencies_us)}")
    for value in latencies_us:
        if not 0.0 < value < math.inf:
            raise _Garbled(f"expected latencies above 0 from the judge, got {value}")
    return latencies_us


def _blame(worker: _Worker, timeout_s: float, end: Exception) -> Outcome:
    """Who is at fault when no outcome came: the machine, the reference or the solution."""
    late = isinstance(end, _TooLate)
    if worker.stage is Stage.INPUTS:
        status = Status.INFRASTRUCTURE
    elif worker.stage in (Stage.REFERENCE, Stage.REFERENCE_TIMING):
        status = Status.REFERENCE_ERROR
    else:
        status = Status.TIMEOUT if late else Status.RUNTIME_ERROR
    what = f"no answer within {timeout_s:g} s" if late else str(end)
    return Outcome(
        status,
        detail=f"{what} in stage {worker.stage.value}",
        log=worker.log_tail(),
        faulted=True,
    )


def build_cache() -> Path:
    """Where flashinfer-bench's builders put sources and compiled files."""
    default = Path.home() / ".cache" / "flashinfer_bench" / "cache"
    return Path(os.environ.get("FIB_CACHE_PATH") or default).expanduser()


def build_caches() -> tuple[Path, Path]:
    """That folder, and where native routes are compiled: one that cannot be written is no fault
    of a solution."""
    native = os.environ.get("TVM_FFI_CACHE_DIR") or "~/.cache/tvm-ffi"
    return build_cache(), Path(native).expanduser()


def worker_environment(device: str, root: Path) -> dict[str, str]:
    """The parent's environment, plus what makes kernels run on a CPU."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(root), environment.get("PYTHONPATH", "")) if part
    )
    environment.pop("TRITON_INTERPRET", None)
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    return environment


def _describe_exit(returncode: int | None) -> str:
    if returncode is None:
        return "the worker closed its pipe"
    if returncode < 0:
        known = {each.value: each.name for each in signal.Signals}
        return f"the worker was killed by {known.get(-returncode, f'signal {-returncode}')}"
    return f"the worker exited with code {returncode}"
