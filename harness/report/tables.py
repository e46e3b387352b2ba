"""A table as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import re

from harness.records.printable import printable
from harness.records.strict_json import dump, encode
from harness.report.document import Column, Kind, Table, Value, format_value

_PLAIN = re.compile(r"[\w.:+-]+")  # what a code span may hold without further care
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def to_markdown(table: Table) -> str:
    """Header, rule and one line a row; numbers to the right."""
    names = [escape_markdown(column.name) for column in table.columns]
    rule = ["---:" if column.kind.is_number else "---" for column in table.columns]
    rows = [
        [
            _markdown_cell(column.kind, value)
            for column, value in zip(table.columns, row, strict=True)
        ]
        for row in table.rows
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (names, rule, *rows))


def to_csv(table: Table) -> str:
    """One header line; floats with every digit, nothing where nothing is known. An interval is two
    columns. Text that a spreadsheet would take for a formula has an apostrophe before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(name for column in table.columns for name in _csv_names(column))
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        values = (item for column, value in cells for item in _csv_values(column, value))
        writer.writerow(_as_text(item) for item in values)
    return text.getvalue()


def to_json(table: Table) -> str:
    """{"name", "caption", "columns": [{"name", "kind"}], "rows": [[value]]}, one row a line.

    An interval is a list of two numbers.
    """
    columns = [{"name": column.name, "kind": column.kind.value} for column in table.columns]
    rows = ",\n".join(f"    {dump(row)}" for row in table.rows)
    return (
        f'{{\n  "name": {dump(table.name)},\n  "caption": {dump(table.caption)},\n'
        f'  "columns": {dump(columns)},\n  "rows": [{chr(10) if rows else ""}{rows}'
        f"{chr(10) + '  ' if rows else ''}]\n}}\n"
    )


def escape_markdown(text: str) -> str:
    """Text that means itself in a line or a table cell of Markdown."""
    text = re.sub(r"\s+", " ", printable(text))
    text = re.sub(r"[&<>]", lambda match: _ENTITIES[match[0]], text)
    text = re.sub(r"([\\`*\[\]|~])", r"\\\1", text)
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # inside a name it is plain


def markdown_text(text: str) -> str:
    """Running text of a document: escaped, but for its code spans."""
    parts = re.split(r"`([^`\n]+)`", text)
    return "".join(
        f"`{part}`" if index % 2 else escape_markdown(part) for index, part in enumerate(parts)
    )


def _markdown_cell(kind: Kind, value: Value) -> str:
    text = format_value(kind, value)
    label, _, last = text.rpartition(" ") if kind is Kind.CONTENT else ("", "", text)
    if value is not None and kind in (Kind.CODE, Kind.CONTENT) and _PLAIN.fullmatch(last):
        return f"{escape_markdown(label)} `{last}`".lstrip()
    return escape_markdown(text)


def _as_text(value: object) -> object:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA_STARTS)
    return f"'{value}" if is_formula else value


def _csv_names(column: Column) -> tuple[str, ...]:
    if column.kind is Kind.INTERVAL:
        return f"{column.name} low", f"{column.name} high"
    return (column.name,)


def _csv_values(column: Column, value: Value) -> tuple[object, ...]:
    if column.kind is not Kind.INTERVAL:
        return (encode(value),)
    return value if isinstance(value, tuple) else ("", "")
