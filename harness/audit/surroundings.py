"""Probes of what a call does to its surroundings: the judge, files, threads and processes."""

from __future__ import annotations

import builtins
import importlib
import math
import statistics
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from flashinfer_bench.bench.evaluators import registry

from harness.audit.case import OTHER_POISON_BYTE, Case, Caught, clone, poison, same_bytes

SETTLE_S = 0.5  # after a call, for what it left to others
STEADY_CALLS = 2
OUTSIDE_EVENTS = {
    "open": "opened a file",
    "os.listdir": "listed a folder",
    "socket.connect": "connected to the network",
    "socket.getaddrinfo": "asked for an address",
    "subprocess.Popen": "started a process",
    "os.system": "started a process",
    "os.exec": "started a process",
    "os.fork": "started a process",
    "os.posix_spawn": "started a process",
    "_thread.start_new_thread": "started a thread",
    "gc.get_objects": "searched the interpreter's memory",
    "gc.get_referrers": "searched the interpreter's memory",
    "sys.settrace": "traced the judge",
    "sys.setprofile": "traced the judge",
}
# Whose functions decide a verdict or a latency.
JUDGES = ("flashinfer_bench", "harness", "cupti")
LIBRARIES: tuple[types.ModuleType | type, ...] = (
    torch, torch.cuda, torch.cuda.Event, torch.cuda.Stream, torch.Tensor, torch.testing,
    torch.functional, torch.random, time, builtins, math, statistics, sys,
)  # fmt: skip
IDENTITIES = (types.FunctionType, types.BuiltinFunctionType, type, staticmethod, classmethod)
_REBOUND = ("sys.stdout", "sys.stderr", "sys.displayhook", "sys.excepthook")


def finished_on_return(case: Case) -> str | None:
    """Results are there at once and stay; nothing that the call started lives on."""
    trial = case.trial(0)
    case.build()
    case.call(trial.inputs)  # compilers may start threads of their own at first
    threads, children = set(threading.enumerate()), set(_children())
    found = case.call(trial.inputs)
    at_once = clone(found)
    for output in found:
        poison(output, OTHER_POISON_BYTE)
    left = clone(found)
    new = set(threading.enumerate()) - threads
    started = set(_children()) - children
    time.sleep(SETTLE_S)
    if new:
        names = ", ".join(sorted(thread.name for thread in new))
        raise Caught(f"threads that outlive the call: {names}")
    if started:
        raise Caught(f"processes that outlive the call: {len(started)}")
    for name, now, then in zip(case.definition.outputs, found, left, strict=True):
        if not same_bytes(now, then):
            raise Caught(f"{name}: written after the call had returned")
    case.require_right(trial, at_once, "results at the moment of return")
    return None


def no_outside_access(case: Case) -> str | None:
    """The interpreter's audit events of calls that are no first ones."""
    trial = case.trial(0)
    case.build()
    case.call(trial.inputs)
    seen: list[str] = []
    is_open = [True]

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if is_open[0] and event in OUTSIDE_EVENTS and len(seen) < 8:
            what = f" ({arguments[0]!r:.120})" if arguments else ""
            seen.append(f"{OUTSIDE_EVENTS[event]}{what}")

    outputs = [case.allocate(trial.inputs) for _ in range(STEADY_CALLS)]
    sys.addaudithook(listen)
    try:
        for each in outputs:
            case.launch(trial.inputs, each)
    finally:
        is_open[0] = False
    if seen:
        raise Caught("; ".join(dict.fromkeys(seen)))
    return None


def judge_untouched(case: Case) -> str | None:
    """Every function of the judge and of what it relies on, before loading and after calls."""
    trial = case.trial(0)
    if case.device != "cpu":
        importlib.import_module("cupti.cupti")
    before = _snapshot()
    case.build()
    for _ in range(2):
        case.launch(trial.inputs, case.allocate(trial.inputs))
    after = _snapshot()
    changed = [name for name, identity in before.items() if after.get(name) != identity]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise Caught(f"replaced: {', '.join(sorted(changed)[:5])}{more}")
    return f"{len(before)} functions compared"


def _snapshot() -> dict[str, tuple[int, ...]]:
    """Identities of functions and their code, by dotted name."""
    found: dict[str, tuple[int, ...]] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in JUDGES and isinstance(module, types.ModuleType):
            found[f"sys.modules[{name}]"] = (id(module),)
            found |= _identities(name, module)
            for part, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    found |= _identities(f"{name}.{part}", value)
    for library in LIBRARIES:
        name = library.__name__
        if isinstance(library, type):
            name = f"{library.__module__}.{name}"
        found |= _identities(name, library)
    found["flashinfer_bench.bench.evaluators.registry._EVALUATORS"] = tuple(
        id(each) for each in registry._EVALUATORS
    )
    return found


def _identities(prefix: str, holder: types.ModuleType | type) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name, value in list(vars(holder).items()):
        label = f"{prefix}.{name}"
        if label not in _REBOUND and _is_function(value):
            inner = getattr(value, "__func__", value)
            code, defaults = getattr(inner, "__code__", None), getattr(inner, "__defaults__", None)
            found[label] = (id(value), id(code), id(defaults))
    return found


def _is_function(value: Any) -> bool:
    return isinstance(value, IDENTITIES) or type(value).__name__ in (
        "method_descriptor",
        "wrapper_descriptor",
        "cyfunction",
        "cython_function_or_method",
    )


def _children() -> Iterator[int]:
    """Processes that this one started and that still run. Linux."""
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            yield from map(int, path.read_text(encoding="ascii").split())
        except OSError:
            continue
