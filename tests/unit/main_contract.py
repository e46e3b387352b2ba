"""What flashinfer-bench's main branch asks of solutions, traces, folders and evaluators.

A stand-in written from its behaviour, without its code, so that CI holds the contract while the
pinned release is installed. Where main itself is installed, test_main_contract.py compares the
two. Read at commit 40e6ca78 (docs/main.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

LANGUAGES = ("python", "triton", "cpp", "cuda", "tilelang")
BINDINGS = ("tvm-ffi", "torch", None)
STATUSES = {  # status -> (holds correctness, holds performance)
    "PASSED": (True, True),
    "INCORRECT_NUMERICAL": (True, False),
    **dict.fromkeys(
        ("INCORRECT_SHAPE", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"),
        (False, False),
    ),
}

# Layers of settings between main's defaults and what is asked for on the command line
PACKAGED_BY_OP_TYPE = {
    "moe": {"required_matched_ratio": 0.95},
    "sampling": {"extra": {"sampling_validation_trials": 100, "sampling_tvd_threshold": 0.2}},
}
# What BenchmarkConfig takes
CONFIG_FIELDS = {
    *("use_isolated_runner", "definitions", "solutions", "timeout_seconds", "profile_baseline"),
    *("log_dir", "warmup_runs", "iterations", "num_trials", "rtol", "atol"),
    *("required_matched_ratio", "sampling_validation_trials", "sampling_tvd_threshold"),
    *("op_type_config", "definition_config"),
}
# Parameters that the runners give by name, for each method of an evaluator
_TRIALS = ("definition", "sol_runnable", "inputs")
EVALUATOR = {
    "can_evaluate": ("definition",),
    "build_baseline": ("definition", "workload", "cfg", "device", "trace_set_root"),
    "check_correctness": (*_TRIALS, "ref_outputs", "cfg", "log_path", "device"),
    "eval_performance": (*_TRIALS, "ref_mean_latency_ms", "cfg", "log_path", "device"),
    "evaluate": (
        *(*_TRIALS, "ref_outputs", "ref_mean_latency_ms", "cfg", "log_path", "device"),
    ),
}  # fmt: skip
# Names that this repository takes from it, by module
PROVIDES = {
    "flashinfer_bench.bench.config": {"BenchmarkConfig"},
    "flashinfer_bench.bench.evaluators": {"registry"},
    "flashinfer_bench.bench.evaluators.default": {"DefaultEvaluator"},
    "flashinfer_bench.bench.evaluators.registry": {"resolve_evaluator"},
    "flashinfer_bench.bench.evaluators.utils": {"allocate_outputs", "normalize_result"},
    "flashinfer_bench.bench.runner.runner": {"BaselineHandle", "DeviceBaseline"},
    "flashinfer_bench.bench.timing": {"time_runnable"},
    "flashinfer_bench.bench.utils": {
        *("compute_error_stats", "gen_inputs", "load_safetensors", "make_eval"),
    },
    "flashinfer_bench.cli.main": {"cli"},
    "flashinfer_bench.compile": {"BuilderRegistry"},
    "flashinfer_bench.data": {
        *("Correctness", "Definition", "EvaluationStatus", "Performance", "Solution", "Workload"),
    },
    "flashinfer_bench.utils": {"dtype_str_to_python_dtype", "dtype_str_to_torch_dtype"},
}


@dataclass(frozen=True)
class Resolved:
    """The settings that main gives an evaluator: every layer merged, nothing left open."""

    warmup_runs: int = 10
    iterations: int = 50
    num_trials: int = 3
    rtol: float = 1e-2
    atol: float = 1e-2
    required_matched_ratio: float | None = None
    profile_baseline: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)


def resolve(op_type: str, asked: Mapping[str, Any]) -> Resolved:
    """Defaults, then what is packaged for the op_type, then what is asked for and not None."""
    known = {one.name for one in fields(Resolved)}
    given = {name: value for name, value in asked.items() if value is not None and name in known}
    return Resolved(**{**PACKAGED_BY_OP_TYPE.get(op_type, {}), **given})


def solution_objections(values: Mapping[str, Any]) -> list[str]:
    """Why main would not load a packed solution."""
    found = [
        f"{key}: expected text"
        for key in ("name", "definition", "author")
        if not isinstance(values.get(key), str) or not values[key]
    ]
    spec, sources = values.get("spec", {}), values.get("sources", [])
    if spec.get("language") not in LANGUAGES:
        found.append("spec.language")
    if spec.get("binding") not in BINDINGS:
        found.append("spec.binding")
    if not spec.get("target_hardware"):
        found.append("spec.target_hardware: expected at least one")
    if not isinstance(spec.get("destination_passing_style", True), bool):
        found.append("spec.destination_passing_style")
    paths = [source.get("path", "") for source in sources]
    for source, path in zip(sources, paths, strict=True):
        pure = PurePosixPath(path)
        if not path or pure.is_absolute() or ".." in pure.parts:
            found.append(f"sources: path {path!r}")
        if not source.get("content"):
            found.append(f"sources: {path!r} is empty")
    if not paths or len(set(paths)) != len(paths):
        found.append("sources: expected some, each once")
    file, separator, symbol = spec.get("entry_point", "").partition("::")
    if not separator or "::" in symbol or file not in paths:
        found.append("spec.entry_point")
    return found


def trace_objections(values: Mapping[str, Any], solutions: Iterable[str]) -> list[str]:
    """Why main would not load a line of traces/, or not accept it for these solutions."""
    evaluation = values.get("evaluation")
    if not values.get("solution") or not evaluation:
        return ["expected a solution and an evaluation"]
    found = []
    if values["solution"] not in set(solutions):
        found.append(f"solution {values['solution']!r} is not in the set")
    if not {"uuid", "axes", "inputs"} <= values.get("workload", {}).keys():
        found.append("workload")
    status = evaluation.get("status")
    if status not in STATUSES:
        return [*found, f"status {status!r}"]
    for key, expected in zip(("correctness", "performance"), STATUSES[status], strict=True):
        if (evaluation.get(key) is not None) != expected:
            found.append(f"{key} beside {status}")
    if not evaluation.get("timestamp") or not evaluation.get("environment", {}).get("hardware"):
        found.append("timestamp and environment.hardware")
    return found


def layout_objections(root: Path) -> list[str]:
    """Files that main's `validate` would skip or refuse for where they lie."""
    depths = {"definitions": 2, "workloads": 2, "solutions": 4, "traces": 3}
    found = []
    for folder, depth in depths.items():
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root / folder).parts
            if path.is_file() and path.suffix in (".json", ".jsonl") and len(parts) != depth:
                found.append(path.relative_to(root).as_posix())
    return found


def binds(function: Callable[..., Any], num_inputs: int, num_outputs: int, is_dps: bool) -> bool:
    """Whether main's builder takes an entry: one positional argument for each tensor."""
    arguments = [None] * (num_inputs + num_outputs if is_dps else num_inputs)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True
