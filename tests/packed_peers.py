"""Peers as the tests see them: packed, and imported from their packed sources."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

from harness.config import load_workspace
from harness.packing import pack_peer


def load_peer(room: str, library: str, folder: Path) -> ModuleType:
    """The peer's module, imported anew from a package that is written into `folder`."""
    solution = json.loads(pack_peer(load_workspace(), room, library).packed.text)
    package = f"peer_{room}_{library}_{abs(hash(str(folder)))}"
    for source in solution["sources"]:
        (folder / source["path"]).write_text(source["content"])
    init = folder / "__init__.py"
    init.touch()
    spec = importlib.util.spec_from_file_location(
        package, init, submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.{library}")
