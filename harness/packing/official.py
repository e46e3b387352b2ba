"""A packed text against flashinfer-bench's own models, where that package is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.config import SolutionConfig
from harness.errors import PackingError, ToolMissing, UsageError
from harness.packing import Packed, content_sha256

_ALIAS = "_flashinfer_bench_data"


def load_solution_model() -> Any | None:
    """flashinfer-bench's Solution class, or None where it or pydantic is not installed.

    Importing the package takes seconds, because its __init__ loads torch; the models need pydantic
    alone. Unless the package is loaded already, its data folder is therefore imported by itself.
    """
    loaded = sys.modules.get("flashinfer_bench.data")
    if loaded is not None:
        return loaded.Solution
    spec = importlib.util.find_spec("flashinfer_bench")
    if spec is None or not spec.submodule_search_locations:
        return None
    if importlib.util.find_spec("pydantic") is None:
        return None
    if _ALIAS not in sys.modules:
        package = ModuleType(_ALIAS)
        package.__path__ = [str(Path(spec.submodule_search_locations[0]) / "data")]
        sys.modules[_ALIAS] = package
    return importlib.import_module(f"{_ALIAS}.solution").Solution


def validate(packed: Packed) -> bool:
    """True if the official schema accepts the text whole, False if it is not installed.

    Raises PackingError with the schema's words, also for a key that it would drop in silence.
    """
    model = load_solution_model()
    if model is None:
        return False
    try:
        solution = model.model_validate_json(packed.text)
    except ValueError as error:
        raise PackingError(f"{packed.name}: flashinfer-bench refuses it: {error}") from error
    if json.loads(solution.model_dump_json()) != json.loads(packed.text):
        raise PackingError(
            f"{packed.name}: flashinfer-bench reads it and keeps other fields or values; "
            f"its schema differs from the one packed for, 0.1.2"
        )
    return True


def read_packed(path: Path) -> tuple[Packed, str]:
    """A packed JSON as it lies there, with the content hash that its room's packer gives it, and
    the definition that it solves. Raises ToolMissing, UsageError."""
    model = load_solution_model()
    if model is None:
        raise ToolMissing(f"{path}: flashinfer-bench reads packed solutions and is not installed")
    try:
        text = path.read_text(encoding="utf-8")
        solution = model.model_validate_json(text)
    except (OSError, ValueError) as error:
        words = " ".join(str(error).split())
        raise UsageError(f"{path}: expected a packed solution, got: {words}") from error
    values = json.loads(solution.spec.model_dump_json())
    config = SolutionConfig(
        path=path,
        name=solution.name,
        definition=solution.definition,
        author=solution.author,
        language=values["language"],
        entry_point=values["entry_point"],
        destination_passing_style=values["destination_passing_style"],
        binding=values["binding"],
        target_hardware=tuple(values["target_hardware"]),
    )
    texts = {source.path: source.content for source in solution.sources}
    sha256 = content_sha256(config, texts)
    return Packed(solution.name, sha256, text, path, tuple(texts)), solution.definition
