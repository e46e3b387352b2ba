"""Probes of what a call reads, writes and keeps. Each takes an unbuilt Case and raises Caught."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.audit.case import (
    OTHER_POISON_BYTE,
    POISON_BYTE,
    Case,
    Caught,
    Trial,
    clone,
    one_line,
    poison,
    same_bytes,
    same_elements,
)
from harness.evaluate.protocol import HOST_TIMER
from harness.evaluate.timed_call import TimedCall, find_timer

RUNS = 4
RUN_TO_RUN_SHARE = 0.1  # of the official tolerance, by which two runs may differ
GUARD_BYTES = 4096  # before and after each tensor; a multiple of every alignment in use
GUARD_BYTE = 0xA5
HOST_LOOP_CALLS = 6  # of the timing loop where no GPU is timed
WARMUP_RUNS, ITERATIONS = 10, 50  # of the timing loop on a GPU


def fresh_values(case: Case) -> str | None:
    """Two trials, one after the other, through the same input and output tensors."""
    case.require_fresh()
    first, second = case.trial(0), case.trial(1)
    case.build()
    inputs = clone(first.inputs)
    outputs = case.allocate(inputs)
    case.require_right(first, case.call(inputs, outputs), "first call")
    _refill(inputs, second)
    for output in outputs:
        poison(output)
    found = case.call(inputs, outputs)
    case.require_right(second, found, "new values behind the same pointers")
    return None


def fresh_pointers(case: Case) -> str | None:
    """The same values in other tensors, while the first ones are alive and hold poison."""
    trial = case.trial(0)
    case.build()
    inputs = clone(trial.inputs)
    kept = case.call(inputs)
    case.require_right(trial, kept, "first call")
    others = clone(inputs)
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.numel():
            poison(value)
    found = case.call(others)
    case.require_right(trial, found, "same values behind new pointers")
    return None


def every_element_counts(case: Case) -> str | None:
    """Trial 1 with elements of trial 0 in it, after a call on trial 0."""
    case.require_fresh()
    first, mixed = case.trial(0), case.mixed_trial()
    case.build()
    inputs = clone(first.inputs)
    case.require_right(first, case.call(inputs), "first call")
    _refill(inputs, mixed)
    found = case.call(inputs)
    case.require_right(mixed, found, "inputs that share some elements with the call before")
    return None


def outputs_written(case: Case) -> str | None:
    """Elements that still hold the poison of two kinds after two calls were never written."""
    trial = case.trial(0)
    case.build()
    if not case.is_dps:
        case.require_right(trial, case.call(trial.inputs), "first call")
        return "it returns its outputs; there is none to leave unwritten"
    case.require_right(trial, case.call(trial.inputs), "a call on poisoned outputs")
    left = []
    for byte in (POISON_BYTE, OTHER_POISON_BYTE):
        outputs = case.allocate(trial.inputs, byte)
        before = clone(outputs)
        case.call(trial.inputs, outputs)
        left.append([same_elements(old, new) for old, new in zip(before, outputs, strict=True)])
    for name, once, twice in zip(case.definition.outputs, *left, strict=True):
        count = int((once & twice).sum())
        if count:
            raise Caught(f"{name}: {count} of {once.numel()} elements are not written")
    return None


def outputs_are_tensors(case: Case) -> str | None:
    """No subclass that computes when it is looked at, no view that changes with something else."""
    trial = case.trial(0)
    case.build()
    found = case.call(trial.inputs)
    names = list(case.definition.outputs)
    for name, value in zip(names, found, strict=False):
        if type(value) is not torch.Tensor:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise Caught(f"{name}: expected a torch.Tensor, got {kind}")
        if value.numel() and not value.data_ptr():
            raise Caught(f"{name}: a tensor without memory")
    if len(found) != len(names):
        raise Caught(f"expected {len(names)} outputs, got {len(found)}")
    case.require_right(trial, found, "the call")
    return None


def guard_bands(case: Case) -> str | None:
    """Inputs and outputs lie between bytes that must stay as they are."""
    trial = case.trial(0)
    case.build()
    bands = _Bands()
    inputs = [bands.place(x) for x in trial.inputs]
    outputs = [bands.place(x) for x in case.allocate(trial.inputs)]
    found = case.call(inputs, outputs)
    names = (*case.definition.inputs, *(case.definition.outputs if outputs else ()))
    bands.require_whole(names)
    case.require_right(trial, found, "a call between guard bands")
    return None


def inputs_unchanged(case: Case) -> str | None:
    """Two calls: a solution may leave alone what it sees for the first time."""
    trial = case.trial(0)
    case.build()
    inputs = clone(trial.inputs)
    for when in ("the first call", "the second call"):
        case.call(inputs)
        for name, now, then in zip(case.definition.inputs, inputs, trial.inputs, strict=True):
            if isinstance(now, torch.Tensor) and not same_bytes(now, then):
                changed = int((~same_elements(now, then)).sum())
                raise Caught(f"{name}: {changed} of {now.numel()} elements changed by {when}")
    return None


def runs_alike(case: Case) -> str | None:
    """Bit by bit, or within a tenth of the tolerance of the first run."""
    trial = case.trial(0)
    case.build()
    first = clone(case.call(trial.inputs))
    case.require_right(trial, first, "first call")
    note = None
    for run in range(2, RUNS + 1):
        other = case.call(trial.inputs)
        if all(same_bytes(a, b) for a, b in zip(first, other, strict=True)):
            continue
        objection = case.objection(trial.inputs, first, other, RUN_TO_RUN_SHARE)
        if objection is not None:
            raise Caught(
                f"run {run} differs from run 1 by more than {RUN_TO_RUN_SHARE:g} of the tolerance: "
                f"{objection}"
            )
        note = f"runs differ in bits, by no more than {RUN_TO_RUN_SHARE:g} of the tolerance"
    return note or f"{RUNS} runs alike to the bit"


def nothing_kept(case: Case) -> str | None:
    """Overwrite every tensor that a call left alive, and ask for the same result again."""
    trial = case.trial(0)
    case.build()
    alive = list(_live_tensors())  # held, or another could take a freed one's identity
    own = {id(x) for x in alive}
    outputs = case.call(trial.inputs)
    case.require_right(trial, outputs, "first call")
    spared = {_memory(x) for x in (*trial.inputs, *trial.references) if _is_tensor(x)}
    ours = {id(x) for x in outputs}
    kept = [x for x in _live_tensors() if id(x) not in own | ours and _memory(x) not in spared]
    for value in (*kept, *outputs):  # a cache may have handed out its own tensors
        poison(value.detach())
    shapes = sorted({f"{x.dtype} {list(x.shape)}".removeprefix("torch.") for x in kept})
    found = case.call(trial.inputs)
    when = f"with the {len(kept)} tensors overwritten that the first call kept ({shapes})"
    case.require_right(trial, found, when if kept else "second call")
    return f"{len(kept)} tensors kept, all of them scratch: {', '.join(shapes)}" if kept else None


def right_after_timing(case: Case) -> str | None:
    """The timing loop; then one more call, on the loop's own tensors."""
    trial = case.trial(0)
    case.build()
    is_on_cpu = case.device == "cpu"
    timer = find_timer(HOST_TIMER if is_on_cpu else "cupti", case.device)
    recorded = _Recorded(case.runnable)
    timed = TimedCall(case.definition, recorded, clone(trial.inputs), case.device, timer)
    try:
        if is_on_cpu:
            timed.measure(0, 1, HOST_LOOP_CALLS)
        else:
            timed.measure(WARMUP_RUNS, ITERATIONS)
    except Exception as error:
        raise Caught(f"in the timing loop: {one_line(error)}") from error
    inputs, outputs = (
        recorded.arguments[: len(trial.inputs)],
        recorded.arguments[len(trial.inputs) :],
    )
    for name, now, then in zip(case.definition.inputs, inputs, trial.inputs, strict=True):
        if isinstance(now, torch.Tensor) and not same_bytes(now, then):
            raise Caught(f"{name}: changed in the timing loop")
    for output in outputs:
        poison(output)
    case.require_right(trial, case.call(inputs, outputs), "a call after the timing loop")
    return None


class _Recorded:
    """A runnable that remembers what it was called with last."""

    def __init__(self, runnable: Any) -> None:
        self.metadata = runnable.metadata
        self.arguments: tuple[Any, ...] = ()
        self._runnable = runnable

    def __call__(self, *args: Any) -> Any:
        self.arguments = args
        return self._runnable(*args)


class _Bands:
    """Tensors in the middle of larger buffers."""

    def __init__(self) -> None:
        self._placed: list[tuple[torch.Tensor, int] | None] = []  # buffer, bytes inside

    def place(self, value: Any) -> Any:
        """The same value between guard bands; what is no tensor, or holds nothing, as it is."""
        if not isinstance(value, torch.Tensor) or not value.numel():
            self._placed.append(None)
            return value
        size = value.numel() * value.element_size()
        room = -(-size // GUARD_BYTES) * GUARD_BYTES
        buffer = torch.full(
            (2 * GUARD_BYTES + room,), GUARD_BYTE, dtype=torch.uint8, device=value.device
        )
        self._placed.append((buffer, size))
        inside = buffer[GUARD_BYTES : GUARD_BYTES + size].view(value.dtype).view(value.shape)
        return inside.copy_(value)

    def require_whole(self, names: Sequence[str]) -> None:
        """Raises Caught naming the tensor beside which something was written."""
        for name, placed in zip(names, self._placed, strict=True):
            if placed is None:
                continue
            buffer, size = placed
            bands = {"before": buffer[:GUARD_BYTES], "behind": buffer[GUARD_BYTES + size :]}
            for place, band in bands.items():
                changed = int((band != GUARD_BYTE).sum())
                if changed:
                    raise Caught(f"{changed} bytes {place} {name} were written")


def _refill(inputs: Sequence[Any], trial: Trial) -> None:
    """Other values in the same memory. Scalars of a workload are the same in every trial."""
    for value, source in zip(inputs, trial.inputs, strict=True):
        if isinstance(value, torch.Tensor):
            value.copy_(source)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _live_tensors() -> Iterator[torch.Tensor]:
    """Tensors with memory that Python's collector knows of."""
    gc.collect()
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.numel():
            yield thing
