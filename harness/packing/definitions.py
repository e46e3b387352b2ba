"""The arguments that a definition passes to a solution."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from harness.config import Room
from harness.errors import PackingError


@dataclass(frozen=True)
class Signature:
    """Names of a definition's inputs and outputs, in the order of the call."""

    definition: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def load_signature(root: Path, room: Room) -> Signature:
    """Read it from definitions/<op_type>/<definition>.json. Raises PackingError."""
    path = root / "definitions" / room.op_type / f"{room.definition}.json"
    label = path.relative_to(root).as_posix()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        inputs, outputs = dict(document["inputs"]), dict(document["outputs"])
    except FileNotFoundError as error:
        raise PackingError(
            f"{label}: no such file; expected the definition of room {room.name} there "
            f"(scripts/make_definitions.py builds it)"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise PackingError(f"{label}: expected a definition with inputs and outputs") from error
    return Signature(room.definition, tuple(inputs), tuple(outputs))
