"""A warm worker process and the rules for replacing it. Imports no torch."""

from __future__ import annotations

import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.evaluate.process import KILL_WAIT_S, Garbled, TooLate, WorkerGone, WorkerProcess
from harness.evaluate.protocol import SOLUTION_STAGES, Job, Outcome, Stage, Status
from harness.evaluate.strays import kill_abandoned
from harness.files import expand_home

START_LIMIT_S = 120.0  # torch and Triton from a slow disk; a new CUDA context
START_ATTEMPTS = 2


class MeasurementFailed(HarnessError):
    """What was kept could not be measured; it is gone, and so is its worker."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.status.value}: {outcome.detail}")
        self.outcome = outcome


@dataclass(frozen=True)
class WorkerCommand:
    """How to start a worker: argv before the two descriptors and the device, and its environment.

    waits: it leaves the device alone until it has read a byte, as harness.evaluate.standby does.
    Tests put a fake worker here.
    """

    argv: Sequence[str] = (sys.executable, "-m", "harness.evaluate.start")
    environment: dict[str, str] | None = None
    waits: bool = False


class Pool:
    """Runs jobs one after another on one device, in one warm worker process.

    A context manager; leaving it kills the worker, the one on standby and what they started. They
    also end with the thread that made them, so one thread uses a pool from its first job to its
    last.
    """

    def __init__(self, device: str, root: Path, command: WorkerCommand | None = None) -> None:
        self._device, self._root = device, root
        self._command = command or WorkerCommand(
            (sys.executable, "-m", "harness.evaluate.standby"),
            worker_environment(device, root),
            waits=True,
        )
        self._worker: WorkerProcess | None = None
        self._standby: WorkerProcess | None = None
        self._last_log = ""
        self._keeps = False
        self.replacements = 0
        kill_abandoned(KILL_WAIT_S)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._end_worker()
        if self._standby is not None:
            self._standby.kill()
            self._standby = None

    def stand_by(self) -> None:
        """Start the process that the next worker will be, unless one is there.

        Meanwhile it imports what a worker needs, which takes seconds, and touches no GPU.
        """
        if self._standby is None and self._command.waits:
            self._standby = self._start()

    def renew(self) -> None:
        """The next job gets a new worker, which begins at once where one is on standby."""
        self._end_worker()
        if self._standby is not None:
            self._worker, self._standby = self._standby, None
            self._worker.begin()

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
        except (TooLate, WorkerGone, Garbled) as end:
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
        except (TooLate, WorkerGone, Garbled) as end:
            outcome = _blame(worker, timeout_s, end)
        self._replace()
        raise MeasurementFailed(outcome)

    def _ready_worker(self) -> WorkerProcess | None:
        for _ in range(START_ATTEMPTS):
            worker = self._worker
            if worker is None or not worker.alive():
                self.renew()
                worker = self._worker = self._worker or self._start()
                worker.begin()
            if worker.is_ready:
                return worker
            try:
                worker.receive(time.monotonic() + START_LIMIT_S)
            except (TooLate, WorkerGone, Garbled):
                self._last_log = worker.log_tail()
                self._end_worker()
                continue
            worker.is_ready = True
            return worker
        return None

    def _start(self) -> WorkerProcess:
        command = self._command
        environment = os.environ if command.environment is None else command.environment
        return WorkerProcess(command.argv, environment, self._device, self._root, command.waits)

    def _end_worker(self) -> None:
        self._keeps = False
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _replace(self) -> None:
        self.replacements += 1
        self._end_worker()


def _converse(
    worker: WorkerProcess,
    request: dict[str, Any],
    timeout_s: float,
    on_stage: Callable[[Stage], None] = lambda stage: None,
) -> dict[str, Any]:
    """Send a request, follow its stages, return the answer. Raises what WorkerProcess raises.

    The clock starts anew when the solution's own work begins, as the official one does, and when
    it ends.
    """
    deadline = time.monotonic() + timeout_s
    number = secrets.token_hex(8)
    worker.send({**request, "number": number}, deadline)
    while True:
        message = worker.receive(deadline)
        if message.get("number") != number:
            raise Garbled("the judge's pipe holds an answer to another job")
        if "stage" not in message:
            return message
        was_the_solutions = worker.stage in SOLUTION_STAGES
        try:
            worker.stage = Stage(message["stage"])
        except (TypeError, ValueError) as error:
            raise Garbled() from error
        if (worker.stage in SOLUTION_STAGES) != was_the_solutions:
            deadline = time.monotonic() + timeout_s
        on_stage(worker.stage)


def _read_outcome(answer: dict[str, Any]) -> Outcome:
    try:
        return Outcome.from_json(answer["outcome"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Garbled() from error


def _read_latencies(answer: dict[str, Any], count: int) -> tuple[float, ...]:
    try:
        latencies_us = tuple(float(value) for value in answer["latencies_us"])
    except (TypeError, ValueError) as error:
        raise Garbled() from error
    if len(latencies_us) != count:
        raise Garbled(f"expected {count} latencies from the judge, got {len(latencies_us)}")
    for value in latencies_us:
        if not 0.0 < value < math.inf:
            raise Garbled(f"expected latencies above 0 from the judge, got {value}")
    return latencies_us


def _blame(worker: WorkerProcess, timeout_s: float, end: Exception) -> Outcome:
    """Who is at fault when no outcome came: the machine, the reference or the solution."""
    late = isinstance(end, TooLate)
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
    return expand_home(os.environ.get("FIB_CACHE_PATH") or default)


def build_caches() -> tuple[Path, Path]:
    """That folder, and where native routes are compiled: one that cannot be written is no fault
    of a solution."""
    native = os.environ.get("TVM_FFI_CACHE_DIR") or "~/.cache/tvm-ffi"
    return build_cache(), expand_home(native)


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
