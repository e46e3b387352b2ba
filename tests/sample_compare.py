"""Comparison records for tests, complete and valid: as the JSON of results/compare/<room>.json.

    record = compare_record({"flashinfer": 2.0, "fla": 0.8})

is ours and a control against two peers, of which the first takes twice our time.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.record import CompareRecord
from tests.sample_records import DEFINITION

OURS, CONTROL = "ours", "control"
OURS_SHA256 = "a" * 64
PACKAGES = {"torch_compile": "torch", "fla": "fla-core", "flashinfer": "flashinfer-python"}
NOISE = 0.001  # standard deviation of a round, as a share of its latency

# A side that fails: (position of the workload, status, detail).
Failure = tuple[int, str, str]


def compare_record(*arguments: Any, **keywords: Any) -> CompareRecord:
    """`compare_values` as a checked record."""
    return CompareRecord.from_json(compare_values(*arguments, **keywords))


def compare_values(
    peers: Mapping[str, float] | None = None,
    *,
    axes: Sequence[Mapping[str, int]] = ({"batch_size": 1}, {"batch_size": 4}, {"batch_size": 16}),
    rounds: int = 6,
    control: bool = True,
    missing: Mapping[str, str] | None = None,
    failing: Mapping[str, Failure] | None = None,
    stands_in: Mapping[str, str] | None = None,
    caveats: Mapping[str, str] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """One comparison as JSON values.

    peers: name to how much longer it takes than ours. axes: one entry a workload. missing: further
    sides that could not be tried, and why. failing: sides that fail one workload. stands_in,
    caveats: of sides, by name. changes: replace top-level keys.
    """
    slowness = {OURS: 1.0, **({CONTROL: 1.0} if control else {})}
    slowness |= {"flashinfer": 2.0} if peers is None else dict(peers)
    failing = failing or {}
    sides = [_side(name, failing.get(name), None) for name in slowness]
    sides += [_side(name, None, reason) for name, reason in (missing or {}).items()]
    for side in sides:
        side["stands_in"] = (stands_in or {}).get(side["name"])
        side["caveat"] = (caveats or {}).get(side["name"])
    values = {
        "room": "gdn_decode",
        "definition": DEFINITION,
        "device": "nvidia-h200",
        "hardware": "NVIDIA H200",
        "driver": "580.65.06",
        "libraries": {"torch": "2.11.0"},
        "clocks": {"samples": 9, "throttled": 0},
        "timer": "cupti",
        "commit": "c" * 40,
        "judge_sha256": "b" * 64,
        "dataset": {"name": "generated", "sha256": "d" * 64},
        "seed": 0,
        "protocol": {
            "correctness_trials": 3,
            "atol": 0.01,
            "rtol": 0.01,
            "required_matched_ratio": 1.0,
            "rounds": rounds,
            "warmup": 3,
            "iterations": 10,
        },
        "sides": sides,
        "workloads": _workloads(slowness, axes, rounds, failing),
        "measured_at": "2026-02-01T12:00:00Z",
    }
    return {**values, **changes}


def _workloads(
    slowness: Mapping[str, float],
    axes: Sequence[Mapping[str, int]],
    rounds: int,
    failing: Mapping[str, Failure],
) -> list[dict[str, Any]]:
    """Ours takes 2 µs and the sum of the workload's sizes; the rounds' noise is seeded."""
    draw = random.Random(0)
    workloads = []
    for index, sizes in enumerate(axes):
        ours_us = 2.0 + sum(sizes.values())
        sides = {
            name: _result(
                [ours_us * factor * draw.gauss(1.0, NOISE) for _ in range(rounds)],
                failing.get(name),
                index,
            )
            for name, factor in slowness.items()
        }
        workloads.append(
            {"uuid": f"u-{index}", "axes": dict(sizes), "floor_us": 1.0 + index, "sides": sides}
        )
    return workloads


def side_sha256(name: str) -> str:
    """Content hash of a side; the control is ours again."""
    is_ours = name in (OURS, CONTROL)
    return OURS_SHA256 if is_ours else hashlib.sha256(name.encode()).hexdigest()


def _result(rounds_us: list[float], failure: Failure | None, index: int) -> dict[str, Any]:
    if failure is not None and failure[0] == index:
        return {"status": failure[1], "detail": failure[2], "rounds_us": []}
    return {"status": "PASSED", "detail": "", "rounds_us": rounds_us}


def _side(name: str, failure: Failure | None, missing: str | None) -> dict[str, Any]:
    kind = {OURS: "room", CONTROL: "control"}.get(name, "peer")
    sha256, package = side_sha256(name), PACKAGES.get(name, name) if kind == "peer" else None
    solution = "gdn_decode" if kind != "peer" else f"gdn_decode-{name}"
    state = "missing" if missing else "failed" if failure else "measured"
    return {
        "name": name,
        "kind": kind,
        "solution_name": f"{solution}-{sha256[:8]}",
        "solution_sha256": sha256,
        "package": package,
        "pinned": "1.2.3" if package else None,
        "installed": "1.2.3" if package and not missing else None,
        "prepared": "nothing" if package else None,
        "stands_in": None,
        "caveat": None,
        "state": state,
        "reason": missing or (failure[2] if failure else None),
    }
