"""What a report is made of, without a checkout: two rooms measured as the tests ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.compare.record import CompareRecord
from harness.config import Workspace, load_workspace
from harness.records import RunRecord
from harness.report.evidence import Evidence, pair_with_others
from tests.sample_compare import OURS_SHA256, side_sha256

ROOMS = ("moe", "gdn_decode")
LIBRARIES = ("flashinfer", "fla", "torch_compile")


def small_workspace() -> Workspace:
    """The real workspace with two of its rooms."""
    real = load_workspace()
    return replace(real, rooms={name: real.rooms[name] for name in ROOMS})


def evidence(
    latest: Sequence[RunRecord] = (), compared: Sequence[CompareRecord] = (), **changes: Any
) -> Evidence:
    """Nothing is stale: rooms pack to what the sample records name, peers to what theirs do."""
    values: dict[str, Any] = {
        "workspace": small_workspace(),
        "packed": dict.fromkeys(ROOMS, OURS_SHA256),
        "packed_peers": {("gdn_decode", name): side_sha256(name) for name in LIBRARIES},
        "latest": tuple(latest),
        "runs": tuple(latest),
        "promoted": None,
        "compared": {one.room: pair_with_others(one) for one in compared},
        "verdicts": (),
        "side_logs": {},
        "work": {},
        "without_work": {(one.room, one.dataset.sha256): "no data here" for one in latest},
        "published": {},
    }
    return Evidence(**{**values, **changes})
