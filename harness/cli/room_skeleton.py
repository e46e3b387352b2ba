"""The first files of a room, written from its definition.

The entry of the skeleton checks every argument and then raises: a room without a kernel fails
aloud wherever it is judged, and can never pass.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import Evaluation, Workspace
from harness.errors import PackingError, UsageError
from harness.packing.folders import SHELF

LINE_LENGTH = 100
MAX_ROOM_CHARACTERS = 64
_ROOM = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
_SAYS_NOTHING = re.compile(r"(^|_)(utils?|helpers?|misc|new|old|final|tmp|v\d+)(_|$)")
_NUMBER_KINDS = {"int": "Integral", "bool": "Integral"}  # of a scalar; all others are Real

CONFIG_TABLE = """\
[rooms.{room}]
definition = "{definition}"
op_type = "{op_type}"
{track}smoke = {smoke}
smoke_cpu = {smoke_cpu}

[rooms.{room}.evaluation]
{evaluation}
"""
USUAL = Evaluation(
    warmup_runs=10,
    iterations=50,
    trials=3,
    atol=0.01,
    rtol=0.01,
    required_matched_ratio=1.0,
    timeout_s=300,
)
_SOLUTION = """\
[solution]
name = "{room}"
definition = "{definition}"
author = "{author}"

[build]
language = "triton"
entry_point = "kernel.py::run"
destination_passing_style = true
"""
_TEST = '''\
"""{room}, packed and built as the judge builds it."""

import pytest

from harness.config import load_workspace
from harness.packing import pack
from harness.packing.official import validate
from tests.packed import build

ROOM = "{room}"


def test_the_official_schema_takes_it():
    assert validate(pack(load_workspace(), ROOM))


def test_arguments_that_are_no_tensors_are_named():
    with pytest.raises(TypeError, match=r"^{first}: "):
        build(ROOM)(*[object()] * {count})
'''
_README = """\
# {room}

Definition `{definition}`.

{description}

Depth: `docs/kernels/{room}.md`.

## Routes

| route | files | runs on |
|---|---|---|
| portable | `kernel.py` | nothing yet: the entry checks its arguments and raises |

## Limits
"""
_PAGE = """\
# {room} in depth

Definition `{definition}`, kernel `solutions/{room}/kernel.py`. Letters: see
[notation](../notation.md).

## The operation

## Bytes, flops, roof

## The kernel

## Numerics

## Limits
"""


def skeleton(workspace: Workspace, room: str, definition_path: Path) -> dict[Path, str]:
    """Texts of a new room's files by their paths; nothing is written.

    Raises UsageError for a name that no room can have.
    """
    _check_name(room)
    definition = _read(definition_path)
    names = {
        "room": room,
        "definition": definition.name,
        "description": textwrap.fill(definition.description, LINE_LENGTH),
        "author": workspace.author,
        "first": definition.tensors[0],
        "count": len(definition.arguments),
    }
    root = workspace.root
    return {
        root / "solutions" / room / "config.toml": _SOLUTION.format(**names),
        root / "solutions" / room / "kernel.py": definition.kernel(room),
        root / "solutions" / room / "README.md": _README.format(**names),
        root / "tests" / "unit" / f"test_{room}.py": _TEST.format(**names),
        root / "docs" / "kernels" / f"{room}.md": _PAGE.format(**names),
    }


def _check_name(room: str) -> None:
    fits = _ROOM.match(room) and len(room) <= MAX_ROOM_CHARACTERS and not keyword.iskeyword(room)
    if not fits or room == SHELF or _SAYS_NOTHING.search(room):
        raise UsageError(
            f"room: expected a short noun such as gdn_decode in a-z, 0-9 and _, that is no version "
            f"and neither {SHELF}, utils, helpers nor misc; got {room!r}"
        )


def _read(path: Path) -> _Definition:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _Definition(
            name=document["name"],
            description=document.get("description") or document["name"],
            axes=document["axes"],
            inputs=document["inputs"],
            outputs=document["outputs"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PackingError(f"{path}: expected a definition, got {error}") from error


@dataclass(frozen=True)
class _Definition:
    """What a kernel file needs of a definition."""

    name: str
    description: str
    axes: Mapping[str, Mapping[str, Any]]
    inputs: Mapping[str, Mapping[str, Any]]
    outputs: Mapping[str, Mapping[str, Any]]

    @property
    def arguments(self) -> dict[str, Mapping[str, Any]]:
        return {**self.inputs, **self.outputs}

    @property
    def tensors(self) -> list[str]:
        return [name for name, spec in self.arguments.items() if spec["shape"] is not None]

    def kernel(self, room: str) -> str:
        """The text of kernel.py."""
        tensors = self.tensors
        scalars = [name for name in self.arguments if name not in tensors]
        empty = " and ".join(f"{name}.numel() == 0" for name in self.outputs)
        message = f'"{room}: no kernel is launched yet; launch it here"'
        lines = [
            *textwrap.wrap(f'"""{room}: {self.description}', LINE_LENGTH),
            "",
            f"Definition {self.name}.",
            '"""',
            "",
            *(["import numbers", ""] if scalars else []),
            "import torch",
            "",
            "from .arguments import require, require_disjoint",
            "",
            *self._constants(tensors),
            "",
            *_call("def check", self.arguments, end=":"),
            '    """Raises TypeError or ValueError that names the argument, expected and got."""',
            *[line for position in range(len(tensors)) for line in self._check(tensors, position)],
            *[line for name in scalars for line in self._check_scalar(name)],
            *self._check_overlap([name for name in self.inputs if name in tensors]),
            "",
            "",
            *_call("def run", self.arguments, end=":"),
            f'    """Writes {" and ".join(self.outputs)}; everything else is only read."""',
            *_call("    check", self.arguments),
            f"    if {empty}:",
            "        return",
            *_call("    raise RuntimeError", [message]),
        ]
        return "\n".join(lines) + "\n"

    def _constants(self, tensors: Sequence[str]) -> list[str]:
        used = {axis for name in tensors for axis in self.arguments[name]["shape"]}
        constants = {name: axis["value"] for name, axis in self.axes.items() if "value" in axis}
        lines = [f"{name.upper()} = {value}" for name, value in constants.items() if name in used]
        return [*lines, ""] if lines else lines

    def _check(self, tensors: Sequence[str], position: int) -> list[str]:
        """The check of one tensor; it binds the axes that it is the first to show to later ones."""
        name = tensors[position]
        axes: list[str] = self.arguments[name]["shape"]
        seen = {axis for other in tensors[:position] for axis in self.arguments[other]["shape"]}
        later = {
            axis for other in tensors[position + 1 :] for axis in self.arguments[other]["shape"]
        }
        free = [
            axis for axis in dict.fromkeys(axes) if not self._is_constant(axis) and axis not in seen
        ]
        sizes = ["None" if axis in free else self._size(axis) for axis in axes]
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        call = [name, f'"{name}"', shape, f"torch.{self.arguments[name]['dtype']}"]
        lines = _call("    require", [*call, f"like={tensors[0]}"] if position else call)
        lines += [
            f"    {self._size(axis)} = {name}.shape[{axes.index(axis)}]"
            for axis in free
            if axis in later
        ]
        return lines

    def _is_constant(self, axis: str) -> bool:
        return "value" in self.axes[axis]

    def _size(self, axis: str) -> str:
        """How the code spells an axis: a constant, or a variable that hides no argument."""
        if self._is_constant(axis):
            return axis.upper()
        return f"{axis}_size" if axis in self.arguments else axis

    def _check_scalar(self, name: str) -> list[str]:
        kind = _NUMBER_KINDS.get(re.sub(r"\d.*", "", self.arguments[name]["dtype"]), "Real")
        message = f'f"{name}: expected a number, got {{type({name}).__name__}}"'
        return [
            f"    if not isinstance({name}, numbers.{kind}):",
            *_call("        raise TypeError", [message]),
        ]

    def _check_overlap(self, tensors: Sequence[str]) -> list[str]:
        """Kernels read while they write: no output may share memory with an input or another."""
        pairs = _call("    inputs = dict", [f"{name}={name}" for name in tensors])
        loop = ["    for name, tensor in inputs.items():"]
        outputs = list(self.outputs)
        loop += [f'        require_disjoint({out}, "{out}", tensor, name)' for out in outputs]
        between = [
            f'    require_disjoint({one}, "{one}", {other}, "{other}")'
            for position, one in enumerate(outputs)
            for other in outputs[position + 1 :]
        ]
        return [*pairs, *loop, *between]


def _call(head: str, arguments: Sequence[str] | Mapping[str, Any], end: str = "") -> list[str]:
    """`head(arguments)`, on one line where it fits, else in the two ways of the formatter."""
    indent = " " * (len(head) - len(head.lstrip()))
    inner = ", ".join(arguments)
    if len(f"{head}({inner}){end}") <= LINE_LENGTH:
        return [f"{head}({inner}){end}"]
    if len(f"{indent}    {inner}") <= LINE_LENGTH:
        return [f"{head}(", f"{indent}    {inner}", f"{indent}){end}"]
    return [f"{head}(", *(f"{indent}    {name}," for name in arguments), f"{indent}){end}"]
