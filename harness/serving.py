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
_OPTIONAL = re.compile(r"\boptional\b")  # in an input's description: None stands for something
_SIZE_RELATION = re.compile(r"(\w+) == (\w+) \+ (\d+)")  # a constraint between two axes
_loaded: dict[str, LoadedKernel] = {}
_loading = threading.Lock()


class LoadedKernel:
    """A solution as a function: what `load` returns. It is pickled as where it was loaded from, and
    loaded again where it is unpickled, which Ray and multiprocessing's spawn do.

    origin: arguments of `load`. run: the custom op. definition: flashinfer-bench's.
    """

    def __init__(
        self, name: str, origin: tuple[str, str | None], run: Callable[..., Any], definition: Any
    ) -> None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(argument, kind) for argument in definition.inputs]
        self.__name__ = self.__qualname__ = name
        self.__doc__ = _describe(definition)
        self.__signature__ = inspect.Signature(parameters)
        self._origin = origin
        self._run = run

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._run(*inputs, **named)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_same, (self.__name__, *self._origin)


def _load_same(name: str, solution: str, route: str | None) -> LoadedKernel:
    kernel = load(solution, route)
    if kernel.__name__ != name:
        raise UsageError(
            f"{solution}: expected {name}, which was pickled; got {kernel.__name__}: use the same "
            "commit in both processes"
        )
    return kernel


def load(solution: str | Path, route: str | None = None) -> LoadedKernel:
    """A packed solution as a function from the definition's inputs to its outputs.

    solution: a room of this checkout, or the path of a packed JSON whose definition lies in
    definitions/. route: "portable" to leave a room's native route out.
    Returns one tensor, or a tuple in the definition's order; outputs are on the first tensor's
    device. There is no gradient. The same content is built and registered once.
    Raises UsageError, ConfigError or PackingError for what is no solution, EnvironmentUnfit without
    a GPU unless TRITON_INTERPRET=1 was set before Triton was imported. The function raises
    TypeError for None where a tensor is required, ValueError for tensors on different devices.
    """
    if not isinstance(solution, str | Path):
        raise UsageError(f"load: expected a room or a path, got {solution!r}")
    name, text, definition = _read_solution(solution, route)
    packed = Path(solution).suffix == ".json"
    origin = str(expand_home(solution).absolute()) if packed else str(solution), route
    with _loading:
        if name not in _loaded:
            _loaded[name] = _register(name, origin, text, definition)
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


def _register(
    name: str, origin: tuple[str, str | None], text: str, definition_text: str
) -> LoadedKernel:
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
    return LoadedKernel(name, origin, op, definition)


def _returned(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _schema(definition: Any) -> str:
    """The op's types, such as `(Tensor q, Tensor? state, float scale) -> (Tensor, Tensor)`."""
    from flashinfer_bench.utils import dtype_str_to_python_dtype

    def kind(spec: Any) -> str:
        if spec.shape is None:
            return str(dtype_str_to_python_dtype(_dtype(spec)).__name__)
        return "Tensor?" if _is_optional(spec) else "Tensor"

    arguments = [f"{kind(spec)} {name}" for name, spec in definition.inputs.items()]
    results = ", ".join("Tensor" for _ in definition.outputs)
    return f"({', '.join(arguments)}) -> ({results})"


def _is_optional(spec: Any) -> bool:
    return _OPTIONAL.search(spec.description or "") is not None


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
    """Allocates a definition's outputs from its inputs, real or fake, and checks what allocation
    depends on: that required tensors are there, and all on one device.

    required: tensor inputs -> whether None is refused, in the definition's order; numbers have
    None. axes: an axis -> the places (input, dimension, surplus) that show its size plus a surplus.
    outputs: shape (sizes, and names of variable axes) and torch dtype of each.
    """

    required: tuple[tuple[str, bool | None], ...]
    axes: dict[str, list[tuple[int, int, int]]]
    outputs: tuple[tuple[tuple[int | str, ...], Any], ...]

    @staticmethod
    def of(definition: Any) -> _OutputMaker:
        from flashinfer_bench.utils import dtype_str_to_torch_dtype

        axes: dict[str, list[tuple[int, int, int]]] = {}
        for index, spec in enumerate(definition.inputs.values()):
            for dimension, axis in enumerate(spec.shape or ()):
                axes.setdefault(axis, []).append((index, dimension, 0))
        for constraint in definition.constraints or ():
            if related := _SIZE_RELATION.fullmatch(constraint):
                longer, shorter, surplus = related.groups()
                places = [(*place[:2], int(surplus)) for place in axes.get(longer, ())]
                axes.setdefault(shorter, []).extend(places)
        outputs = tuple(
            (
                tuple(getattr(definition.axes[axis], "value", axis) for axis in spec.shape or ()),
                dtype_str_to_torch_dtype(_dtype(spec)),
            )
            for spec in definition.outputs.values()
        )
        required = tuple(
            (name, None if spec.shape is None else not _is_optional(spec))
            for name, spec in definition.inputs.items()
        )
        return _OutputMaker(required, axes, outputs)

    def make(self, inputs: Sequence[Any]) -> list[Any]:
        import torch

        device = self._common_device(inputs)
        return [
            torch.empty([self._size(inputs, axis) for axis in shape], dtype=dtype, device=device)
            for shape, dtype in self.outputs
        ]

    def _common_device(self, inputs: Sequence[Any]) -> Any:
        first = None
        for (name, is_required), value in zip(self.required, inputs, strict=True):
            if is_required is None or (value is None and not is_required):
                continue
            if value is None:
                raise TypeError(f"{name}: expected a tensor, got None")
            if first is None:
                first = name, value.device
            elif value.device != first[1]:
                raise ValueError(
                    f"{name}: expected a tensor on {first[1]}, where {first[0]} is; got one on "
                    f"{value.device}"
                )
        return first[1] if first else None

    def _size(self, inputs: Sequence[Any], axis: int | str) -> Any:
        if isinstance(axis, int):
            return axis
        index, dimension, surplus = next(
            place for place in self.axes[axis] if inputs[place[0]] is not None
        )
        return inputs[index].shape[dimension] - surplus


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
