"""The rules for solutions/<room>/config.toml that its reader cannot know."""

from __future__ import annotations

import re
from pathlib import Path

from harness.config import Room, SolutionConfig, Workspace
from harness.errors import ConfigError

COMPILED_LANGUAGES = ("cuda", "cpp")
LANGUAGES = ("python", "triton", "tilelang", *COMPILED_LANGUAGES)
BINDINGS = ("tvm-ffi", "torch")
MAX_NAME_CHARACTERS = 128
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


def is_valid_name(name: str) -> bool:
    """Names become folders and file names of other people's machines."""
    return bool(_NAME.match(name)) and name not in (".", "..")


def key_error(root: Path, config: SolutionConfig, table: str, key: str, text: str) -> ConfigError:
    """A ConfigError that names file, line, table and key."""
    lines = config.path.read_text(encoding="utf-8").split("\n")
    numbers = [n for n, line in enumerate(lines, 1) if re.match(rf'\s*"?{key}"?\s*=', line)]
    place = f":{numbers[0]}" if numbers else ""
    label = config.path.relative_to(root).as_posix()
    return ConfigError(f"{label}{place}: [{table}] {key}: {text}")


def check_config(workspace: Workspace, room: Room, config: SolutionConfig) -> None:
    """Raises ConfigError for a name, definition, language or binding that cannot be judged."""
    objection = (
        _object_to_names(room, config)
        or _object_to_definition(workspace, room, config)
        or _object_to_build(config)
    )
    if objection is not None:
        table, key, text = objection
        raise key_error(workspace.root, config, table, key, text)


Objection = tuple[str, str, str]  # table, key, what is wrong with its value


def _object_to_names(room: Room, config: SolutionConfig) -> Objection | None:
    for key, value in (("name", config.name), ("author", config.author)):
        if not is_valid_name(value):
            text = f"expected 1 to {MAX_NAME_CHARACTERS} of A-Z a-z 0-9 . _ -, got {value!r}"
            return "solution", key, text
    if config.name != room.name:
        text = f"expected the room's name {room.name!r}, got {config.name!r}"
        return "solution", "name", f"{text}; it is packed as {room.name}-<hash>"
    return None


def _object_to_definition(
    workspace: Workspace, room: Room, config: SolutionConfig
) -> Objection | None:
    given, others = config.definition, workspace.rooms.values()
    if given == room.definition:
        return None
    known = [other.definition for other in others]
    tracked = [other.definition for other in others if other.track == given]
    if tracked:
        text = f"{given!r} is a track; expected a definition: {', '.join(tracked)}"
    elif given in known:
        text = (
            f"{given!r} belongs to another room; config.toml at the root gives {room.name} the "
            f"definition {room.definition!r}"
        )
    else:
        text = f"expected one of {', '.join(known)}, got {given!r}"
    return "solution", "definition", text


def _object_to_build(config: SolutionConfig) -> Objection | None:
    if config.language not in LANGUAGES:
        text = f"expected one of {', '.join(LANGUAGES)}, got {config.language!r}"
        return "build", "language", text
    if config.binding is not None and config.language not in COMPILED_LANGUAGES:
        return "build", "binding", f"has no effect for language {config.language!r}; remove it"
    if config.binding is not None and config.binding not in BINDINGS:
        return "build", "binding", f"expected one of {', '.join(BINDINGS)}, got {config.binding!r}"
    if not config.target_hardware or "" in config.target_hardware:
        text = f"expected one name or more, got {list(config.target_hardware)!r}"
        return "build", "target_hardware", text
    if "" in config.dependencies:
        return "build", "dependencies", "expected no empty name"
    return None
