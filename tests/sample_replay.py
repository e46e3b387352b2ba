"""Replay records for tests, complete and valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.records import DatasetIdentity
from harness.replay.batch import BatchResult, Boundary, Mismatch
from harness.replay.record import ReplayRecord, summarise_row

SHA256 = "a" * 64


def mismatch(trial: int, status: str = "INCORRECT_NUMERICAL") -> Mismatch:
    return Mismatch(trial, 1000 + trial, status, 6.0, 0.16, "3 of 2048 sorted scores wrong")


def replay_record(
    wrong: Mapping[str, tuple[int, ...]] | None = None,
    *,
    trials: int = 200,
    boundary: Boundary | None = None,
    stopped: Mapping[str, tuple[int, str]] | None = None,
    drawn: tuple[str, ...] = ("q", "k"),
    **changes: Any,
) -> ReplayRecord:
    """wrong: workload -> its trials that mismatch; by default one workload without any.
    boundary: of every workload. stopped: workload -> (trials that it had, why no more)."""
    rows = []
    for index, (uuid, wrong_trials) in enumerate((wrong or {"03fc111f-one": ()}).items()):
        done, reason = (stopped or {}).get(uuid, (trials, None))
        result = BatchResult(
            done, tuple(mismatch(trial) for trial in wrong_trials), (), 0.25, 0.008, boundary
        )
        axes = {"batch_size": 4 + index}
        rows.append(summarise_row(uuid, axes, drawn, trials, [result], reason))
    values: dict[str, Any] = {
        "room": "moe",
        "definition": "moe_definition",
        "device": "nvidia-h200",
        "hardware": "NVIDIA H200",
        "driver": "580.1",
        "libraries": {"torch": "2.11.0"},
        "commit": "unknown",
        "solution_name": "moe-aaaaaaaa",
        "solution_sha256": SHA256,
        "judge_sha256": "b" * 64,
        "dataset": DatasetIdentity("workloads", "c" * 64),
        "seed": 0,
        "official_trials": 3,
        "atol": 0.01,
        "rtol": 0.01,
        "required_matched_ratio": 1.0,
        "total": 128,
        "workloads": tuple(rows),
        "measured_at": "2026-01-31T23:59:59Z",
    }
    return ReplayRecord(**{**values, **changes})
