"""Where a tuning constant stands in a source, and its replacement there: exact, and reversible byte
for byte, because nothing but the digits of one integer changes.

    NAME                 Python: an assignment of an integer
    NAME.key             an assignment of a dict or of a call: the value of that key or field
    NAME[row].limit      a table of rows (limit, ..., options): the first entry
    NAME[row].value      the last entry, where it is one integer
    NAME[row].key        where it is a dict or a call: the value of that key or field
    Struct::NAME         CUDA: `constexpr int NAME = 64;` inside `struct Struct`

A field of a call may be positional: its place is looked up in the class of the same file.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from harness.errors import ConfigError

_PYTHON = re.compile(r"([A-Za-z_]\w*)(?:\[(\d+)\])?(?:\.([A-Za-z_]\w*))?\Z")
_CUDA = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)\Z")
LIMIT, VALUE = "limit", "value"


@dataclass(frozen=True)
class Span:
    """Characters [start, stop) of a text that hold the integer `value`."""

    start: int
    stop: int
    value: int


def locate(text: str, place: str, label: str) -> Span:
    """Where a constant stands. label: what to call it in messages. Raises ConfigError."""
    if match := _CUDA.match(place):
        return _locate_cuda(text, match[1], match[2], label)
    if match := _PYTHON.match(place):
        row = None if match[2] is None else int(match[2])
        node = _locate_python(ast.parse(text), match[1], row, match[3], label)
        return _span(text, node, label)
    raise ConfigError(
        f"{label}: expected NAME, NAME.key, NAME[row].key or Struct::NAME, got {place!r}"
    )


def replace(text: str, span: Span, value: int) -> str:
    """The text with another integer in the span."""
    return text[: span.start] + str(value) + text[span.stop :]


def limits(text: str, table: str, label: str) -> list[int]:
    """The limits of a table of rows that are integer literals. Raises ConfigError."""
    rows = _rows(_assigned(ast.parse(text), table, label), label)
    first = [row.elts[0] for row in rows]
    return [
        limit.value
        for limit in first
        if isinstance(limit, ast.Constant) and isinstance(limit.value, int)
    ]


def table_of(place: str) -> str | None:
    """The table that a place is the limit of a row of, or None."""
    match = _PYTHON.match(place)
    return match[1] if match and match[2] is not None and match[3] == LIMIT else None


def _locate_python(
    tree: ast.Module, name: str, row: int | None, key: str | None, label: str
) -> ast.expr:
    value = _assigned(tree, name, label)
    if row is None:
        return value if key is None else _entry(tree, value, key, label)
    rows = _rows(value, label)
    if row >= len(rows):
        raise ConfigError(f"{label}: {name} has {len(rows)} rows, got [{row}]")
    limit, options = rows[row].elts[0], rows[row].elts[-1]
    if key in (None, VALUE):
        return options
    return limit if key == LIMIT else _entry(tree, options, str(key), label)


def _assigned(tree: ast.Module, name: str, label: str) -> ast.expr:
    found = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    if len(found) != 1:
        raise ConfigError(f"{label}: expected one assignment of {name}, found {len(found)}")
    return found[0]


def _rows(value: ast.expr, label: str) -> list[ast.Tuple]:
    rows = value.elts if isinstance(value, ast.Tuple) else []
    found = [row for row in rows if isinstance(row, ast.Tuple) and len(row.elts) >= 2]
    if not rows or len(found) != len(rows):
        raise ConfigError(f"{label}: expected a tuple of rows (limit, ..., options)")
    return found


def _entry(tree: ast.Module, options: ast.expr, key: str, label: str) -> ast.expr:
    if isinstance(options, ast.Dict):
        for name, value in zip(options.keys, options.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return value
    if isinstance(options, ast.Call):
        for keyword in options.keywords:
            if keyword.arg == key:
                return keyword.value
        fields = _fields(tree, options)
        if key in fields[: len(options.args)]:
            return options.args[fields.index(key)]
    raise ConfigError(f"{label}: no {key!r} there")


def _fields(tree: ast.Module, call: ast.Call) -> list[str]:
    """The annotated fields of the class that is called, in their order."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == ast.unparse(call.func):
            return [
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            ]
    return []


def _span(text: str, node: ast.expr, label: str) -> Span:
    if not (isinstance(node, ast.Constant) and type(node.value) is int):
        raise ConfigError(f"{label}: expected an integer literal, got {ast.unparse(node)}")
    assert node.end_lineno is not None and node.end_col_offset is not None
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:  # the parser counts columns in bytes
        before = sum(map(len, lines[: line - 1]))
        return before + len(lines[line - 1].encode()[:column].decode())

    start = offset(node.lineno, node.col_offset)
    stop = offset(node.end_lineno, node.end_col_offset)
    return _plain(text, start, stop, label)


def _locate_cuda(text: str, struct: str, name: str, label: str) -> Span:
    body = re.search(rf"\bstruct {struct}\s*\{{(.*?)\n\}};", text, re.DOTALL)
    if body is None:
        raise ConfigError(f"{label}: no struct {struct}")
    found = list(re.finditer(rf"\bconstexpr int {name}\s*=\s*(\d+)\s*;", body[1]))
    if len(found) != 1:
        raise ConfigError(f"{label}: expected one `constexpr int {name} = ...;` in {struct}")
    start, stop = (body.start(1) + edge for edge in found[0].span(1))
    return _plain(text, start, stop, label)


def _plain(text: str, start: int, stop: int, label: str) -> Span:
    """Refuse digits that would not be written again as they stand, such as 1_024 or 0x40."""
    digits = text[start:stop]
    if not digits.isdecimal() or str(int(digits)) != digits:
        raise ConfigError(f"{label}: expected plain digits, got {digits}")
    return Span(start, stop, int(digits))
