"""Strict JSON: encoding, and objects whose keys are checked one by one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from harness.errors import RecordError


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


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for the bare NaN that json accepts."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


class Fields:
    """One JSON object whose keys are taken one by one; what is left over is an error."""

    def __init__(self, source: str, label: str, values: Any) -> None:
        self.source, self.label = source, label
        if not isinstance(values, dict):
            raise RecordError(
                f"{source}: {label or 'document'}: expected an object, got {values!r}"
            )
        self.values = dict(values)

    def fail(self, key: str, expected: str, got: Any) -> RecordError:
        where = f"{self.label}.{key}".lstrip(".")
        return RecordError(f"{self.source}: {where}: expected {expected}, got {got!r}")

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

    def number(self, key: str, low: float, high: float = math.inf) -> float:
        value: float = self.take(key, float)
        if not (low <= value <= high and math.isfinite(value)):
            raise self.fail(key, f"a number from {low:g} to {high:g}", value)
        return value

    def count(self, key: str, low: int = 0) -> int:
        value: int = self.take(key, int)
        if value < low:
            raise self.fail(key, f"a count of at least {low}", value)
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
        """A latency in µs or null. A sentinel such as 0, -1 or inf is refused."""
        if self.is_null(key):
            return None
        value: float = self.take(key, float)
        if not 0.0 < value < math.inf:
            raise self.fail(key, "a number above 0, or null", value)
        return value

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
