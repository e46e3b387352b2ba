"""The study's measurements, on a GPU of sm_90: which sizes, which scores, and in which order.

launches.py says what a time is. Inputs are those of the official workloads, all of one seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from harness.config import load_workspace
from harness.dataset import read_workloads
from harness.devices import ClockSample, DeviceFacts, sample_clocks, summarise_clocks
from harness.errors import EnvironmentUnfit, ToolMissing
from harness.evaluate.sweep import read_commit
from harness.evaluate.verdicts import read_environment, utc_now
from harness.ranges import KEYS, QUERIES, SCORES, TOPK, row_ranges
from harness.rules.prefill_inputs import draw_inputs, tensors_with_scores
from tests.packed import build
from tests.prefill_study.hostile import CASES, HOSTILE
from tests.prefill_study.launches import (
    DEVICE,
    ITERATIONS,
    ROUNDS,
    WARMUP,
    time_in_turns,
    time_steps,
)
from tests.prefill_study.native import (
    CAPABILITY,
    CONTROL_SIZE,
    NativeCall,
    build_control,
    check_control,
    load_room,
)
from tests.prefill_study.record import PARTS, ROOM, Failure, Memory, Record, Size, contents
from tests.shapes import require_written

SIZES = tuple(
    (queries, keys)
    for queries in (4096, 512, 64, 8)
    for keys in (8192, 16_384, 32_768, 65_536, 131_072, 163_840)
)
MEMORY_SIZE = (4096, 131_072)
NORMAL_SIZES = ((4096, 131_072), (64, 131_072))
FORCED_SIZES = ((64, 131_072), (4096, 65_536))
SHORT_CALLS, LONG_CALLS, LONG_SCORES = 10, 3, 1 << 27  # calls in a graph; scores of a long one


def describe(facts: DeviceFacts, commit: str | None) -> dict[str, Any]:
    """A record's head, but for its clocks. Read before anything runs."""
    return {
        "room": ROOM,
        "device": facts.slug,
        "environment": read_environment(facts),
        "timer": "cupti",
        "protocol": {"warmup": WARMUP, "iterations": ITERATIONS, "rounds": ROUNDS},
        "commit": commit or read_commit(load_workspace().root),
        **contents(),
        "measured_at": utc_now(),
    }


def name_of(axes: Mapping[str, int]) -> str:
    names = [f"{name}={value}" for name, value in axes.items() if name in SCORES]
    return " ".join(names) or "normal"


class Study:
    """One run: the built modules, the clocks seen, and how long it has taken."""

    def __init__(self, facts: DeviceFacts) -> None:
        self.facts, self.begin = facts, time.monotonic()
        self.clocks: list[ClockSample] = []
        self.room = build(ROOM)
        self.kernel = sys.modules[self.room._callable.__module__]
        if facts.capability != CAPABILITY:
            raise EnvironmentUnfit(
                f"{facts.name}: expected compute capability 9.0, got {facts.capability}; the study "
                "is of the native route, which is for Hopper alone"
            )
        if not self.kernel.can_build(CAPABILITY):
            raise ToolMissing(
                "native route: expected a CUDA toolkit, a host compiler and ninja, got none that "
                "fit; install them, or set CUDA_HOME"
            )
        load_room(self.kernel)
        self.control = build_control()
        inputs = self.draw({QUERIES: CONTROL_SIZE[0], KEYS: CONTROL_SIZE[1]})
        check_control(self.kernel, self.control, inputs)
        self.say("built, controls right")

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.begin:5.1f} s  {what}", flush=True)

    def draw(self, axes: Mapping[str, int]) -> list[torch.Tensor]:
        torch.cuda.empty_cache()
        torch.manual_seed(1)
        return draw_inputs(axes, DEVICE)

    def measure_size(self, queries: int, keys: int) -> Size:
        inputs = self.draw({QUERIES: queries, KEYS: keys})
        own = NativeCall(self.kernel, inputs)
        output = own.output
        require_written(self.room, (inputs, [output]), f"{ROOM}, {queries} x {keys}")

        def whole() -> None:
            self.room(*inputs, output)

        span_us, steps_us = time_steps(whole)
        own()
        parts = {name: own.part(self.control, name) for name in PARTS}
        count = LONG_CALLS if queries * keys > LONG_SCORES else SHORT_CALLS
        times = time_in_turns({"whole": whole, **parts}, count)
        graph_us = times.pop("whole")
        whole()  # the clocks of a busy device
        self.clocks.append(sample_clocks(self.facts))
        torch.cuda.synchronize(DEVICE)
        size = Size(queries, keys, graph_us, span_us, steps_us, times)
        self.say(f"{size}")
        return size

    def draw_hostile(self, name: str, value: int, queries: int, keys: int) -> list[torch.Tensor]:
        torch.cuda.empty_cache()
        torch.manual_seed(1)
        scores = torch.from_numpy(HOSTILE[name](keys, value)).to(DEVICE)
        ranges = row_ranges({QUERIES: queries, KEYS: keys})
        starts, ends = (torch.from_numpy(values).to(DEVICE) for values in ranges)
        return [*tensors_with_scores(scores, queries), starts, ends]

    def measure_failure(
        self, name: str, inputs: list[torch.Tensor], is_forced: bool = False
    ) -> Failure:
        changes = {"most_candidates": TOPK} if is_forced else {}
        own = NativeCall(self.kernel, inputs, **changes)
        span_us, steps_us = time_steps(own)
        failure = Failure(
            name,
            is_forced,
            own.queries,
            own.keys,
            span_us=span_us,
            repair_us=steps_us["repair"],
            **own.failures(self.kernel),
        )
        self.say(f"{failure}")
        return failure

    def measure_failures(self) -> list[Failure]:
        workspace = load_workspace()
        rows = read_workloads(workspace.root, workspace.room(ROOM))
        hostile = [row.axes for row in rows if set(row.axes) & set(SCORES)]
        normal = [{QUERIES: queries, KEYS: keys} for queries, keys in NORMAL_SIZES]
        forced = [{QUERIES: queries, KEYS: keys} for queries, keys in FORCED_SIZES]
        found = [self.measure_failure(name_of(axes), self.draw(axes)) for axes in normal + hostile]
        for name, value, queries, keys in CASES:
            inputs = self.draw_hostile(name, value, queries, keys)
            found.append(self.measure_failure(f"{name}={value}", inputs))
        return found + [self.measure_failure("normal", self.draw(axes), True) for axes in forced]

    def measure_memory(self, queries: int, keys: int) -> Memory:
        inputs = self.draw({QUERIES: queries, KEYS: keys})
        output = inputs[-1].new_empty((queries, TOPK))
        self.room(*inputs, output)
        torch.cuda.synchronize(DEVICE)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(DEVICE)
        before = torch.cuda.memory_allocated(DEVICE)
        self.room(*inputs, output)
        torch.cuda.synchronize(DEVICE)
        extra = torch.cuda.max_memory_allocated(DEVICE) - before
        self.say(f"{queries} x {keys}: {extra} bytes beside inputs and outputs")
        return Memory(queries, keys, extra)


def measure(facts: DeviceFacts, commit: str | None) -> Record:
    """Raises HarnessError."""
    head = describe(facts, commit)
    study = Study(facts)
    memory = study.measure_memory(*MEMORY_SIZE)
    sizes = [study.measure_size(queries, keys) for queries, keys in SIZES]
    failures = study.measure_failures()
    head["clocks"] = summarise_clocks(study.clocks)
    study.say("measured")
    return Record(head, memory, tuple(sizes), tuple(failures))
