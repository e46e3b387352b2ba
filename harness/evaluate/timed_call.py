"""A built solution with one trial's inputs and outputs of its own, ready to be timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from flashinfer_bench.bench.evaluators.utils import allocate_outputs
from flashinfer_bench.data import Definition

from harness.evaluate.protocol import HOST_TIMER
from harness.timing import ESTIMATION_CALLS, Measurement, Timer, select_timer


class HostTimer:
    """Each call on the host's clock: it shows that calls happen, and is never a result."""

    name = HOST_TIMER

    def measure(
        self,
        call: Callable[[], Any],
        warmup_runs: int,
        iterations: int,
        *,
        estimation_calls: int = ESTIMATION_CALLS,
    ) -> Measurement:
        for _ in range(1 + estimation_calls + warmup_runs):
            call()
        samples_us = []
        for _ in range(iterations):
            begin = time.perf_counter()
            call()
            samples_us.append((time.perf_counter() - begin) * 1e6)
        return Measurement(statistics.median(samples_us), tuple(samples_us), ())


def find_timer(name: str, device: str) -> Timer:
    """As select_timer, and "host" as well. Raises UsageError, EnvironmentUnfit."""
    return HostTimer() if name == HOST_TIMER else select_timer(name, device)


class TimedCall:
    """One solution on one trial. Every call gets the same tensors; outputs are allocated once.

    Kept by a worker, it can be measured again and again, between measurements of others.
    """

    def __init__(
        self,
        definition: Definition,
        runnable: Any,
        inputs: Sequence[Any],
        device: str,
        timer: Timer,
    ) -> None:
        self.device = device
        self._runnable = runnable
        self._args = list(inputs)
        if runnable.metadata.destination_passing_style:
            self._args += allocate_outputs(definition, list(inputs), device)
        self._timer = timer

    def measure(
        self, warmup_runs: int, iterations: int, estimation_calls: int = ESTIMATION_CALLS
    ) -> Measurement:
        """Raises NoGpuWork, InconsistentGpuWork and whatever the solution raises."""
        with torch.no_grad():
            return self._timer.measure(
                self._call, warmup_runs, iterations, estimation_calls=estimation_calls
            )

    def _call(self) -> None:
        try:
            self._runnable(*self._args)
        except SystemExit as error:  # no Exception: it would end the worker
            raise RuntimeError(f"the solution called sys.exit({error.code!r})") from error
