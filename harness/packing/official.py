"""A packed text against flashinfer-bench's own models, where that package is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import PackingError
from harness.packing import Packed

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
