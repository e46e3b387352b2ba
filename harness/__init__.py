"""Packs, judges, times and compares kernels for the FlashInfer-Bench contest.

Importing this package loads no torch: every module that needs it imports it on use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(solution: str | Path, route: str | None = None) -> Callable[..., Any]:
    """A room's kernel as a plain function, for use outside the contest: see `harness.serving`.

    solution: a room such as "gdn_decode", or the path of a packed JSON. route: "portable" to leave
    a native route out. The function takes the definition's inputs and returns its outputs; it is a
    torch custom op, so torch.compile and CUDA graphs take it. Raises HarnessError.
    """
    loaded: Callable[..., Any] = importlib.import_module("harness.serving").load(solution, route)
    return loaded
