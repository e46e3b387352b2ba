"""config.toml files as frozen values: the only reader of them.

Standard library only (tomli on Python 3.10), so that pack.py needs nothing installed.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The one definition that is not the contest's. Here, because those who need its name may need no
# more than the standard library.
DSA_PREFILL = "dsa_prefill_topk_indexer_fp8_h64_d128_topk2048"

_REQUIRED = object()
_LIBRARY = re.compile(r"[a-z][a-z0-9_]*\Z")
_PACKAGE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_VERSION = re.compile(r"\d+(\.[0-9a-z]+)*\Z")


@dataclass(frozen=True)
class Evaluation:
    """Official settings of one definition.

    warmup_runs, iterations, trials: counts. atol, rtol: the element rule. required_matched_ratio:
    share of right elements in (0, 1]. timeout_s: seconds for build, correctness and timing.
    """

    warmup_runs: int
    iterations: int
    trials: int
    atol: float
    rtol: float
    required_matched_ratio: float
    timeout_s: int


@dataclass(frozen=True)
class Room:
    """One folder of solutions/ and the definition that it answers.

    track: the contest's, that counts the room. None: the room is not in the contest, which this
    alone says; it is judged like the others where it is named.
    """

    name: str
    definition: str
    op_type: str
    track: str | None
    evaluation: Evaluation
    smoke: tuple[str, ...]
    smoke_cpu: tuple[str, ...]

    @property
    def in_contest(self) -> bool:
        return self.track is not None


@dataclass(frozen=True)
class Peer:
    """A library that a user would pick instead: its distribution and the version compared with.

    requires: the exact release of each other distribution that makes its kernels what they are.
    """

    name: str
    package: str
    version: str
    requires: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Workspace:
    """The root config.toml. ``root`` is the checkout it was read from."""

    root: Path
    name: str
    author: str
    team: str
    dataset_name: str
    dataset_repository: str
    dataset_revision: str
    rooms: Mapping[str, Room]
    peers: Mapping[str, Peer] = field(default_factory=dict)

    @property
    def contest_rooms(self) -> dict[str, Room]:
        """The rooms of the contest: what commands mean where no room is named."""
        return {name: room for name, room in self.rooms.items() if room.in_contest}

    def room(self, name: str) -> Room:
        """The room called ``name``. Raises ConfigError that lists the rooms, or says that a folder
        of solutions/ has no table yet."""
        if name not in self.rooms:
            folders = (path.parent for path in self.root.glob("solutions/*/config.toml"))
            if name in {folder.name for folder in folders}:
                raise ConfigError(
                    f"room: solutions/{name} exists, but config.toml has no [rooms.{name}]; add "
                    "the table that `python -m harness new` printed (CONTRIBUTING.md, A room)"
                )
            raise ConfigError(
                f"room: expected one of {', '.join(self.rooms)}; got {name!r}. "
                f"Definitions and tracks are not room names"
            )
        return self.rooms[name]


@dataclass(frozen=True)
class SolutionConfig:
    """solutions/<room>/config.toml, with the starter kit's keys."""

    path: Path
    name: str
    definition: str
    author: str
    language: str
    entry_point: str
    destination_passing_style: bool
    description: str = ""
    binding: str | None = None
    dependencies: tuple[str, ...] = ()
    target_hardware: tuple[str, ...] = ("cuda",)


@dataclass
class _Table:
    """One TOML table whose keys are taken one by one; what is left over is an error."""

    path: Path
    label: str
    values: dict[str, Any]
    taken: set[str] = field(default_factory=set)

    def take(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        self.taken.add(key)
        if key not in self.values:
            if default is _REQUIRED:
                raise ConfigError(f"{self.path}: [{self.label}] lacks {key!r} ({kind.__name__})")
            return default
        value = self.values[key]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ConfigError(
                f"{self.path}: [{self.label}] {key}: expected {kind.__name__}, got {value!r}"
            )
        return value

    def take_strings(self, key: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        values = self.take(key, list, default)
        if not all(isinstance(value, str) for value in values):
            raise ConfigError(
                f"{self.path}: [{self.label}] {key}: expected strings, got {values!r}"
            )
        return tuple(values)

    def table(self, key: str, default: Any = _REQUIRED) -> _Table:
        label = f"{self.label}.{key}".lstrip(".")
        return _Table(self.path, label, self.take(key, dict, default))

    def done(self) -> None:
        unknown = sorted(set(self.values) - self.taken)
        if unknown:
            raise ConfigError(
                f"{self.path}: [{self.label}] has the unknown key {unknown[0]!r}; "
                f"known keys are {', '.join(sorted(self.taken))}"
            )


def _read(path: Path) -> _Table:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; run inside a checkout") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return _Table(path, "", values)


def _read_evaluation(table: _Table) -> Evaluation:
    evaluation = Evaluation(
        warmup_runs=table.take("warmup_runs", int),
        iterations=table.take("iterations", int),
        trials=table.take("trials", int),
        atol=table.take("atol", float),
        rtol=table.take("rtol", float),
        required_matched_ratio=table.take("required_matched_ratio", float),
        timeout_s=table.take("timeout_s", int),
    )
    table.done()
    positive = {
        "iterations": evaluation.iterations,
        "trials": evaluation.trials,
        "atol": evaluation.atol,
        "rtol": evaluation.rtol,
        "timeout_s": evaluation.timeout_s,
    }
    for key, value in positive.items():
        if not (value > 0 and math.isfinite(value)):  # a NaN tolerance would match everything
            raise ConfigError(f"{table.path}: [{table.label}] {key}: expected > 0, got {value}")
    if evaluation.warmup_runs < 0 or not 0.0 < evaluation.required_matched_ratio <= 1.0:
        raise ConfigError(
            f"{table.path}: [{table.label}] expected warmup_runs >= 0 and required_matched_ratio "
            f"in (0, 1], got {evaluation.warmup_runs} and {evaluation.required_matched_ratio}"
        )
    return evaluation


def _read_room(name: str, table: _Table) -> Room:
    room = Room(
        name=name,
        definition=table.take("definition", str),
        op_type=table.take("op_type", str),
        track=table.take("track", str, None),
        evaluation=_read_evaluation(table.table("evaluation")),
        smoke=table.take_strings("smoke"),
        smoke_cpu=table.take_strings("smoke_cpu"),
    )
    table.done()
    return room


def _read_peer(name: str, table: _Table) -> Peer:
    others = table.table("requires", {})
    requires = {package: others.take(package, str) for package in others.values}
    peer = Peer(name, table.take("package", str), table.take("version", str), requires)
    table.done()
    if not _LIBRARY.match(name):
        raise ConfigError(
            f"{table.path}: [{table.label}] expected a library's short name of a-z, 0-9 and _, "
            f"which is a file of peers/<room>/; got {name!r}"
        )
    packages = [("package", peer.package), *(("requires", package) for package in requires)]
    versions = [("version", peer.version)]
    versions += [(f"requires.{package}", release) for package, release in requires.items()]
    checks = [(*pair, _PACKAGE, "a distribution's name") for pair in packages]
    checks += [(*pair, _VERSION, "one exact release") for pair in versions]
    for key, value, pattern, expected in checks:
        if not pattern.match(value):
            raise ConfigError(
                f"{table.path}: [{table.label}] {key}: expected {expected}, got {value!r}"
            )
    return peer


def find_root(start: Path | None = None) -> Path:
    """The nearest folder, from ``start`` (default: this checkout) upwards, with a config.toml
    that has a [workspace] table. Raises ConfigError."""
    start = (start or Path(__file__).parent).resolve()
    for folder in (start, *start.parents):
        path = folder / "config.toml"
        if path.is_file() and "workspace" in _read(path).values:
            return folder
    raise ConfigError(f"{start}: no config.toml with [workspace] here or above; run in a checkout")


def load_workspace(root: Path | None = None) -> Workspace:
    """Read the root config.toml. Raises ConfigError that names file, table and key."""
    root = find_root(root)
    document = _read(root / "config.toml")
    workspace, dataset = document.table("workspace"), document.table("dataset")
    rooms, peers = document.table("rooms"), document.table("peers", {})
    result = Workspace(
        root=root,
        name=workspace.take("name", str),
        author=workspace.take("author", str),
        team=workspace.take("team", str),
        dataset_name=dataset.take("name", str),
        dataset_repository=dataset.take("repository", str),
        dataset_revision=dataset.take("revision", str),
        rooms={name: _read_room(name, rooms.table(name)) for name in list(rooms.values)},
        peers={name: _read_peer(name, peers.table(name)) for name in list(peers.values)},
    )
    for table in (workspace, dataset, document):
        table.done()
    return result


def load_solution_config(path: Path) -> SolutionConfig:
    """Read one solutions/<room>/config.toml. Raises ConfigError that names file, table and key.

    Only keys that travel into a packed solution are known: compile flags, for example, have no
    place in the official schema and are refused.
    """
    document = _read(path)
    solution, build = document.table("solution"), document.table("build")
    result = SolutionConfig(
        path=path,
        name=solution.take("name", str),
        definition=solution.take("definition", str),
        author=solution.take("author", str),
        description=solution.take("description", str, ""),
        language=build.take("language", str),
        entry_point=build.take("entry_point", str),
        destination_passing_style=build.take("destination_passing_style", bool),
        binding=build.take("binding", str, None),
        dependencies=build.take_strings("dependencies", []),
        target_hardware=build.take_strings("target_hardware", ["cuda"]),
    )
    for table in (solution, build, document):
        table.done()
    return result
