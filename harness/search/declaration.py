"""solutions/<room>/tuning.toml: the constants that a search may change, and to what.

    [block_v]
    hypothesis = "smaller blocks of V spread a batch over more SMs"
    answers = ["latency", "memory"]

    [block_v.constants]
    "kernel.py:LAUNCHES[0].BLOCK_V" = [1, 2, 4, 8]

One table a direction. A constant is "file:place" as harness.search.constants reads it, with all
values that it may take; the one in the tree is among them. `not_on = ["9.0"]` names the compute
capabilities where none of the direction's constants is of code that runs: there it is left out, as
its candidates would all be the room itself. The harness alone reads this file: it is never packed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.controller.directions import Direction
from harness.controller.state import BOTTLENECKS
from harness.errors import ConfigError
from harness.packing.folders import Source
from harness.packing.python_source import parse
from harness.search.constants import limits, locate, replace, table_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "tuning.toml"
KEYS = {"hypothesis", "answers", "constants"}  # of a direction; not_on may be missing


@dataclass(frozen=True)
class TuningDirection:
    """A direction and its constants: "file:place" to the values that it may take, rising.

    not_on: compute capabilities where the constants are of code that does not run.
    """

    direction: Direction
    constants: Mapping[str, tuple[int, ...]]
    not_on: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Declaration:
    """A room's tuning.toml."""

    path: Path
    directions: tuple[TuningDirection, ...]

    @property
    def constants(self) -> dict[str, tuple[int, ...]]:
        """Of all directions; one that two of them name has the values of both."""
        found: dict[str, set[int]] = {}
        for one in self.directions:
            for constant, values in one.constants.items():
                found.setdefault(constant, set()).update(values)
        return {constant: tuple(sorted(values)) for constant, values in found.items()}

    def on(self, capability: tuple[int, int] | None) -> Declaration:
        """What of it runs on a device of this compute capability; all of it where none is known.

        Raises ConfigError where nothing does.
        """
        left = tuple(one for one in self.directions if capability not in one.not_on)
        if not left:
            version = ".".join(map(str, capability or ()))
            raise ConfigError(
                f"{self.path}: expected a direction whose constants run on compute capability "
                f"{version}, got none; declare one, or search with --command or --folder"
            )
        return Declaration(self.path, left)

    def read(self, sources: Mapping[str, str]) -> dict[str, int]:
        """What every declared constant is in these sources. Raises ConfigError."""
        return {
            constant: locate(*self._place(sources, constant)).value for constant in self.constants
        }

    def apply(self, sources: Mapping[str, str], edits: Mapping[str, int]) -> dict[str, str]:
        """The sources with other values. Raises ConfigError for a constant or value that is not
        declared, and where the limits of a table would not rise."""
        result, bounds = dict(sources), self.constants
        for constant, value in edits.items():
            if value not in bounds.get(constant, ()):
                raise ConfigError(
                    f"{self.path}: {constant}: expected one of "
                    f"{bounds.get(constant, 'the declared constants')}, got {value}"
                )
            text, place, label = self._place(result, constant)
            file_name = constant.partition(":")[0]
            result[file_name] = replace(text, locate(text, place, label), value)
        for constant in edits:
            text, place, label = self._place(result, constant)
            table = table_of(place)
            rising = limits(text, table, label) if table is not None else []
            if sorted(set(rising)) != rising:
                raise ConfigError(f"{label}: the limits of {table} must rise, got {rising}")
        return result

    def _place(self, sources: Mapping[str, str], constant: str) -> tuple[str, str, str]:
        file_name, _, place = constant.partition(":")
        label = f"{self.path}: {constant}"
        if file_name not in sources:
            raise ConfigError(f"{label}: no such file; the room has {', '.join(sorted(sources))}")
        return sources[file_name], place, label


def load_declaration(root: Path, room: str, sources: Mapping[str, str]) -> Declaration:
    """Read a room's tuning.toml and check it against the room's sources.

    Raises ConfigError that names file, table and key, and PackingError for a source that is not
    Python, as packing it does.
    """
    path = root / "solutions" / room / FILE_NAME
    for name, text in sources.items():
        if name.endswith(".py"):
            parse(Source(name, f"solutions/{room}/{name}", text, on_shelf=False))
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no such file; declare constants there (docs/controller.md), or search with "
            "--command or --folder"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    declaration = Declaration(
        path, tuple(_read_direction(path, name, values) for name, values in tables.items())
    )
    if not declaration.directions:
        raise ConfigError(f"{path}: expected at least one table, a direction; got none")
    bounds = declaration.constants
    for constant, value in declaration.read(sources).items():
        if value not in bounds[constant]:
            raise ConfigError(
                f"{path}: {constant}: stands at {value}; expected that among its values, got "
                f"{list(bounds[constant])}"
            )
    return declaration


def _read_direction(path: Path, name: str, values: Any) -> TuningDirection:
    if not isinstance(values, dict) or values.keys() - {"not_on"} != KEYS:
        raise ConfigError(
            f"{path}: [{name}]: expected the keys hypothesis, answers and constants, and not_on "
            f"where it is needed, got {', '.join(values) if isinstance(values, dict) else values!r}"
        )
    hypothesis, answers = values["hypothesis"], values["answers"]
    if not isinstance(hypothesis, str) or not hypothesis:
        raise ConfigError(f"{path}: [{name}] hypothesis: expected text, got {hypothesis!r}")
    if not isinstance(answers, list) or not all(one in BOTTLENECKS for one in answers):
        raise ConfigError(
            f"{path}: [{name}] answers: expected some of {', '.join(BOTTLENECKS)}, got {answers!r}"
        )
    constants = values["constants"]
    if not isinstance(constants, dict) or not constants:
        raise ConfigError(f"{path}: [{name}] constants: expected at least one, got {constants!r}")
    return TuningDirection(
        Direction(name, hypothesis, tuple(answers)),
        {constant: _read_values(path, constant, of) for constant, of in constants.items()},
        _read_capabilities(path, name, values.get("not_on", [])),
    )


def _read_capabilities(path: Path, name: str, values: Any) -> frozenset[tuple[int, int]]:
    is_list = isinstance(values, list) and all(isinstance(value, str) for value in values)
    if not is_list or not all(re.fullmatch(r"\d+\.\d", value) for value in values):
        raise ConfigError(
            f'{path}: [{name}] not_on: expected compute capabilities such as "9.0", got {values!r}'
        )
    pairs = (value.split(".") for value in values)
    return frozenset((int(major), int(minor)) for major, minor in pairs)


def _read_values(path: Path, constant: str, values: Any) -> tuple[int, ...]:
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if not is_list or not all(type(value) is int and value >= 0 for value in values):
        raise ConfigError(f"{path}: {constant}: expected integers from 0 on, got {values!r}")
    if len(set(values)) < 2:
        raise ConfigError(f"{path}: {constant}: expected at least two values, got {values!r}")
    return tuple(sorted(set(values)))
