"""A packed solution: the official JSON and the hash of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import SolutionConfig
from harness.packing.solution_config import COMPILED_LANGUAGES

NAME_HASH_CHARACTERS = 8


@dataclass(frozen=True)
class Packed:
    """One packed solution. text: the JSON; path: where write() puts it; sources: file names."""

    name: str
    sha256: str
    text: str
    path: Path
    sources: tuple[str, ...] = ()


def assemble(stem: str, config: SolutionConfig, texts: Mapping[str, str], path: Path) -> Packed:
    """The solution of these sources (file name -> text), named after stem and content."""
    sha256 = content_sha256(config, texts)
    name = f"{stem}-{sha256[:NAME_HASH_CHARACTERS]}"
    return Packed(name, sha256, _to_json(name, config, texts), path, tuple(texts))


def content_sha256(config: SolutionConfig, texts: Mapping[str, str]) -> str:
    """The solution hash: what is built and called, no metadata such as author or description.

    JSON keeps the fields apart: neither a moved character nor a flipped flag can go unseen.
    """
    content: dict[str, Any] = {
        "definition": config.definition,
        "language": config.language,
        "entry_point": config.entry_point,
        "destination_passing_style": config.destination_passing_style,
        "sources": [[name, texts[name]] for name in sorted(texts)],
    }
    if config.language in COMPILED_LANGUAGES:  # only their builders read these two
        content["binding"] = config.binding
        content["target_hardware"] = config.target_hardware
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _to_json(name: str, config: SolutionConfig, texts: Mapping[str, str]) -> str:
    """The official schema's fields in its order, as ASCII so that every reader gets the text."""
    solution = {
        "name": name,
        "definition": config.definition,
        "author": config.author,
        "spec": {
            "language": config.language,
            "target_hardware": list(config.target_hardware),
            "entry_point": config.entry_point,
            "dependencies": list(config.dependencies),
            "destination_passing_style": config.destination_passing_style,
            "binding": config.binding,
        },
        "sources": [{"path": path, "content": text} for path, text in texts.items()],
        "description": config.description,
    }
    return json.dumps(solution, indent=2) + "\n"
