"""Kernels outside the contest: as plain functions, and as a set for flashinfer-bench's apply.

    import harness
    decode = harness.load("gdn_decode")
    output, new_state = decode(q, k, v, state, A_log, a, dt_bias, b, scale)

A function takes the definition's inputs by position or name, allocates the outputs and returns
them. It is registered with torch as the custom op contest_kernels::<room>_<hash8>, with a fake
kernel made from the definition's axes, so that torch.compile and CUDA graphs take it. The solution
is the packed one, built by flashinfer-bench's own builder: what is served is what was judged.

torch and flashinfer-bench are imported by the first call that needs them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import Room, Workspace, find_root, load_workspace
from harness.errors import EnvironmentUnfit, RecordError, UsageError
from harness.files import expand_home, write_atomically
from harness.packing import Packed, pack
from harness.records import HASH_CHARACTERS, RunRecord, all_latest

OP_NAMESPACE = "contest_kernels"
_loaded: dict[str, Callable[..., Any]] = {}
_loading = threading.Lock()


def load(solution: str | Path, route: str | None = None) -> Callable[..., Any]:
    """A packed solution as a function from the definition's inputs to its outputs.

    solution: a room of this checkout, or the path of a packed JSON whose definition lies in
    definitions/. route: "portable" to leave a room's native route out.
    Returns one tensor, or a tuple in the definition's order; outputs are on the first tensor's
    device. There is no gradient. The same content is built and registered once.
    Raises UsageError or PackingError for what is no solution, EnvironmentUnfit without a GPU unless
    TRITON_INTERPRET=1 was set before Triton was imported.
    """
    name, text, definition = _read_solution(solution, route)
    with _loading:
        if name not in _loaded:
            _loaded[name] = _register(name, text, definition)
        return _loaded[name]


def _read_solution(solution: str | Path, route: str | None) -> tuple[str, str, str]:
    """The op's name, which differs where the content does, and the texts of solution and
    definition."""
    if Path(solution).suffix != ".json":
        workspace = load_workspace()
        room = workspace.room(str(solution))
        packed = pack(workspace, room.name, route)
        name = f"{room.name}_{packed.sha256[:HASH_CHARACTERS]}"
        return name, packed.text, _definition_text(workspace, room)
    if route is not None:
        raise UsageError(f"route: expected a room, which has routes; got {solution}, packed")
    path = expand_home(solution)
    try:
        text = path.read_text(encoding="utf-8")
        definition = json.loads(text)["definition"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path}: expected a packed solution, got {error!r}; `python pack.py ROOM` writes one"
        ) from error
    found = sorted((find_root() / "definitions").glob(f"*/{definition}.json"))
    if not found:
        raise UsageError(f"{path}: expected a definition of definitions/, got {definition!r}")
    plain = re.sub(r"\W|^(?=\d)", "_", path.stem, flags=re.ASCII)
    digits = hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARACTERS]
    return f"{plain}_{digits}", text, found[0].read_text(encoding="utf-8")


def _definition_text(workspace: Workspace, room: Room) -> str:
    path = workspace.root / "definitions" / room.op_type / f"{room.definition}.json"
    return path.read_text(encoding="utf-8")


def _require_device(language: str) -> None:
    import torch

    interpreted = language == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
    if not (torch.cuda.is_available() or interpreted or language in ("python", "cpp")):
        raise EnvironmentUnfit(
            "load: expected a CUDA device, found none; to try a Triton kernel on a CPU, start "
            "Python with TRITON_INTERPRET=1"
        )


def _register(name: str, text: str, definition_text: str) -> Callable[..., Any]:
    """Build the solution, register it as a custom op, and return the function that calls it."""
    import torch
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition, Solution

    definition = Definition.model_validate_json(definition_text)
    try:
        solution = Solution.model_validate_json(text)
    except ValueError as error:
        words = " ".join(str(error).split())
        raise UsageError(f"{name}: flashinfer-bench refuses the packed JSON: {words}") from error
    _require_device(str(solution.spec.language.value))
    runnable = BuilderRegistry.get_instance().build(definition, solution)
    outputs = _OutputMaker.of(definition)

    def compute(*inputs: Any) -> Any:
        made = outputs.make(inputs)
        runnable.call_destination_passing(*inputs, *made)
        return _returned(made)

    def fake(*inputs: Any) -> Any:
        return _returned(outputs.make(inputs))

    op = torch.library.custom_op(
        f"{OP_NAMESPACE}::{name}", compute, mutates_args=(), schema=_schema(definition)
    )
    op.register_fake(fake)

    def call(*inputs: Any, **named: Any) -> Any:
        return op(*inputs, **named)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(argument, kind) for argument in definition.inputs]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = _describe(definition)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _returned(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _schema(definition: Any) -> str:
    """The op's types, such as `(Tensor q, float scale) -> (Tensor, Tensor)`."""
    from flashinfer_bench.utils import dtype_str_to_python_dtype

    arguments = [
        f"{dtype_str_to_python_dtype(_dtype(spec)).__name__ if spec.shape is None else 'Tensor'} "
        f"{name}"
        for name, spec in definition.inputs.items()
    ]
    results = ", ".join("Tensor" for _ in definition.outputs)
    return f"({', '.join(arguments)}) -> ({results})"


def _dtype(spec: Any) -> str:
    return str(getattr(spec.dtype, "value", spec.dtype))


def _describe(definition: Any) -> str:
    def lines(specs: Any) -> str:
        return "\n".join(
            f"    {name}: {_dtype(spec)} "
            f"{'number' if spec.shape is None else '[' + ', '.join(spec.shape) + ']'}"
            for name, spec in specs.items()
        )

    return (
        f"{definition.name}\n\nInputs:\n{lines(definition.inputs)}\n"
        f"Outputs:\n{lines(definition.outputs)}\n"
    )


@dataclass(frozen=True)
class _OutputMaker:
    """Allocates a definition's outputs from its inputs, real or fake.

    axes: an axis -> (input, dimension) that shows its size. outputs: shape (sizes, and names of
    variable axes) and torch dtype of each.
    """

    axes: dict[str, tuple[int, int]]
    outputs: tuple[tuple[tuple[int | str, ...], Any], ...]

    @staticmethod
    def of(definition: Any) -> _OutputMaker:
        from flashinfer_bench.utils import dtype_str_to_torch_dtype

        axes: dict[str, tuple[int, int]] = {}
        for index, spec in enumerate(definition.inputs.values()):
            for dimension, axis in enumerate(spec.shape or ()):
                axes.setdefault(axis, (index, dimension))
        outputs = tuple(
            (
                tuple(getattr(definition.axes[axis], "value", axis) for axis in spec.shape or ()),
                dtype_str_to_torch_dtype(_dtype(spec)),
            )
            for spec in definition.outputs.values()
        )
        return _OutputMaker(axes, outputs)

    def make(self, inputs: Sequence[Any]) -> list[Any]:
        import torch

        device = next(value.device for value in inputs if isinstance(value, torch.Tensor))
        return [
            torch.empty([self._size(inputs, axis) for axis in shape], dtype=dtype, device=device)
            for shape, dtype in self.outputs
        ]

    def _size(self, inputs: Sequence[Any], axis: int | str) -> Any:
        if isinstance(axis, int):
            return axis
        index, dimension = self.axes[axis]
        return inputs[index].shape[dimension]


def write_apply_set(workspace: Workspace, room_name: str, directory: Path) -> Packed:
    """A folder for `flashinfer_bench.enable_apply`: definition, packed solution, traces of a room.

    The traces say which sizes were judged, and how fast; they come from results/latest, from the
    record of exactly these bytes with the most workloads. Raises RecordError where there is none.
    Returns what was packed.
    """
    room, packed = workspace.room(room_name), pack(workspace, room_name)
    records = [
        record
        for record in all_latest(workspace.root)
        if record.room == room_name and record.solution_sha256 == packed.sha256
    ]
    if not records:
        raise RecordError(
            f"results/latest/*/{room_name}.json: expected a record of {packed.name}, got none; run "
            f"`python -m harness evaluate {room_name} --workloads all --record` on a GPU"
        )
    record = max(records, key=lambda one: one.passed)
    author = json.loads(packed.text)["author"]
    place, parent = f"{room.op_type}/{room.definition}", expand_home(directory)
    write_atomically(parent / f"definitions/{place}.json", _definition_text(workspace, room))
    write_atomically(parent / f"solutions/{author}/{place}/{packed.name}.json", packed.text)
    write_atomically(parent / f"traces/{author}/{place}.jsonl", _trace_lines(record))
    return packed


def _trace_lines(record: RunRecord) -> str:
    """Official traces of a record's passed workloads. They carry axes and no inputs: apply reads
    the sizes only, and the inputs' files are not part of the set."""
    lines = []
    for row in record.workloads:
        if row.status != "PASSED":
            continue
        evaluation = {
            "status": "PASSED",
            "environment": {"hardware": record.device, "libs": dict(record.libraries)},
            "timestamp": record.measured_at,
            "log": "",
            "correctness": {
                "max_absolute_error": row.max_abs_error or 0.0,
                "max_relative_error": row.max_rel_error or 0.0,
            },
            "performance": {"latency_ms": (row.latency_us or 0.0) / 1e3},
        }
        workload = {"uuid": row.uuid, "axes": dict(row.axes), "inputs": {}}
        trace = {
            "definition": record.definition,
            "workload": workload,
            "solution": record.solution_name,
            "evaluation": evaluation,
        }
        lines.append(json.dumps(trace) + "\n")
    return "".join(lines)
