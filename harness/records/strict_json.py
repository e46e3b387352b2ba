"""Strict JSON: encoding, and objects whose keys are checked one by one."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from harness.errors import RecordError

MAX_DIGITS = 19  # of an integer; sizes and counts have fewer
MAX_SEED = 2**63 - 1  # a longer one could be written and never read again
SHORTEST_US, LONGEST_US = 1e-3, 1e12  # CUPTI counts whole ns; 1e12 µs are eleven days
_SHOWN_CHARACTERS = 200  # of a value in a message


def encode(value: Any) -> Any:
    """`value` with floats that JSON lacks as strings, and tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()  # lone surrogates are no text
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def dump(value: Any) -> str:
    """One line of strict JSON; floats keep every digit."""
    return json.dumps(encode(value), ensure_ascii=False, allow_nan=False)


def dump_document(values: Mapping[str, Any], one_a_line: Collection[str]) -> str:
    """A JSON object as text, one key a line; the lists under `one_a_line` one item a line."""
    lines = []
    for key, value in values.items():
        text = dump(value)
        if key in one_a_line:
            text = "[\n" + ",\n".join(f"    {dump(item)}" for item in value) + "\n  ]"
        lines.append(f"  {dump(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for what json accepts or stumbles on: a
    bare NaN, a number beyond a float's range, halves of a character, hundreds of levels."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _refuse_constant(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def read_json(path: Path, command: str) -> Any:
    """The value of a record's file. command: what makes it. Raises RecordError naming the file."""
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise RecordError(f"{path}: expected a JSON record, got a folder or a pipe; move it")
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"{path}: no such record; run `{command}`") from error
    except (ValueError, OSError) as error:
        raise RecordError(
            f"{path}: not a JSON record: {error}; restore it from git, or run `{command}`"
        ) from error


class Fields:
    """One JSON object whose keys are taken one by one; what is left over is an error."""

    def __init__(self, source: str, label: str, values: Any) -> None:
        self.source, self.label = source, label
        if not isinstance(values, dict):
            raise RecordError(
                f"{source}: {label or 'document'}: expected an object, got {_show(values)}"
            )
        self.values = dict(values)

    def fail(self, key: str, expected: str, got: Any) -> RecordError:
        where = f"{self.label}.{key}".lstrip(".")
        return RecordError(f"{self.source}: {where}: expected {expected}, got {_show(got)}")

    def take(self, key: str, kind: type) -> Any:
        if key not in self.values:
            raise self.fail(key, kind.__name__, "nothing")
        value = self.values.pop(key)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.fail(key, kind.__name__, value)
        return value

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        value: str = self.take(key, str)
        if not value or (pattern and not pattern.fullmatch(value)):
            raise self.fail(key, f"text like {pattern.pattern}" if pattern else "text", value)
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.is_null(key) else self.text(key)

    def number(self, key: str, low: float, high: float = math.inf) -> float:
        value: float = self.take(key, float)
        if not (low <= value <= high and math.isfinite(value)):
            raise self.fail(key, f"a number from {low:g} to {high:g}", value)
        return value

    def count(self, key: str, low: int = 0) -> int:
        value: int = self.take(key, int)
        if value < low:
            raise self.fail(key, f"a count of at least {low}", value)
        if value > MAX_SEED:
            raise self.fail(key, f"a count of at most {MAX_SEED}", value)
        return value

    def has(self, key: str) -> bool:
        return key in self.values

    def is_null(self, key: str) -> bool:
        if key not in self.values or self.values[key] is not None:
            return False
        del self.values[key]
        return True

    def error(self, key: str) -> float | None:
        """An error measure: a number, null, or one of the strings for NaN and infinities."""
        if self.is_null(key):
            return None
        if self.values.get(key) in ("NaN", "Infinity", "-Infinity"):
            return float(self.values.pop(key))
        return self.number(key, 0.0)

    def positive(self, key: str) -> float | None:
        """A latency in µs or null. A sentinel such as 0, -1 or inf is refused, and damage."""
        if self.is_null(key):
            return None
        value: float = self.take(key, float)
        if not value > 0.0:
            raise self.fail(key, "a number above 0, or null", value)
        if not SHORTEST_US <= value <= LONGEST_US:
            what = f"a latency from {SHORTEST_US:g} to {LONGEST_US:g} µs, or null"
            raise self.fail(key, what, value)
        return value

    def moment(self, key: str) -> str:
        """A UTC time such as 2026-01-31T23:59:59Z, and one that the calendar has."""
        value = self.text(key)
        try:
            datetime.datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ")
        except ValueError as error:
            raise self.fail(key, "text like 2026-01-31T23:59:59Z", value) from error
        return value

    def instant(self, key: str) -> str:
        """A UTC time in ISO form, with or without a fraction of a second."""
        value = self.text(key)
        try:
            datetime.datetime.fromisoformat(value.removesuffix("Z"))
        except ValueError as error:
            raise self.fail(key, "text like 2026-01-31T23:59:59.000000Z", value) from error
        return value

    def clocks(self, key: str) -> dict[str, Any] | None:
        """What `harness.devices.summarise_clocks` makes, or null."""
        if self.is_null(key):
            return None
        values: dict[str, Any] = self.take(key, dict)
        counts = [values.get(name) for name in ("samples", "throttled")]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise self.fail(key, "counts of samples and of throttled ones", values)
        return values

    def texts(self, key: str) -> dict[str, str]:
        """An object whose values are all text."""
        values: dict[str, str] = self.take(key, dict)
        if not all(isinstance(value, str) for value in values.values()):
            raise self.fail(key, "texts", values)
        return values

    def object(self, key: str) -> Fields:
        return Fields(self.source, f"{self.label}.{key}".lstrip("."), self.take(key, dict))

    def done(self) -> None:
        if self.values:
            raise self.fail(min(self.values), "no such key", self.values[min(self.values)])


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
