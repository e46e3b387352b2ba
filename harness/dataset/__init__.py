"""Definitions, workloads and blobs of one data set: this checkout or the official one.

    manifest      workloads/blobs.sha256
    workloads     rows and definitions, where the set lies, its identity
    selection     all, smoke or UUID prefixes to rows
    facts         workloads/facts.csv
    blobs         safetensors files, written and checked
    draws         random numbers with the same bits everywhere
    gdn, paging, routing    what the blobs hold; recipes: which generator makes which definition
    generation    make, ensure_blobs
    verification  verify
    download      fetch
    layout        export
    progress      how a long command shows where it is

Nothing here imports torch, and numpy is loaded by the first call that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.dataset.selection import select, select_rooms
from harness.dataset.workloads import (
    TornLineWarning,
    WorkloadRow,
    content_sha256,
    find_file,
    is_checkout,
    locate,
    read_definition,
    read_workloads,
)

if TYPE_CHECKING:
    from harness.dataset.download import fetch
    from harness.dataset.generation import ensure_blobs, make
    from harness.dataset.layout import export
    from harness.dataset.verification import repair_step, verify

_HOMES = {
    "ensure_blobs": "generation",
    "export": "layout",
    "fetch": "download",
    "make": "generation",
    "repair_step": "verification",
    "verify": "verification",
}

__all__ = [
    "TornLineWarning",
    "WorkloadRow",
    "content_sha256",
    "ensure_blobs",
    "export",
    "fetch",
    "find_file",
    "is_checkout",
    "locate",
    "make",
    "read_definition",
    "read_workloads",
    "repair_step",
    "select",
    "select_rooms",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load the heavier functions on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
