"""Run records and traces for tests, complete and valid; each argument replaces one field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.config import load_workspace
from harness.records import DatasetIdentity, Protocol, RunRecord, TraceEntry, WorkloadRow

DEFINITION = "gdn_decode_qk4_v8_d128_k_last"


def row(uuid: str, latency_us: float | None = 2.187, **changes: Any) -> WorkloadRow:
    values: dict[str, Any] = {
        "axes": {"batch_size": 1},
        "status": "PASSED" if latency_us is not None else "RUNTIME_ERROR",
        "floor_us": 1.0464,
        "max_abs_error": 1e-3,
        "max_rel_error": 2e-3,
    }
    return WorkloadRow(uuid, latency_us=latency_us, **{**values, **changes})


def record(workloads: tuple[WorkloadRow, ...] | None = None, **changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "room": "gdn_decode",
        "definition": DEFINITION,
        "solution_name": "gdn_decode-aaaaaaaa",
        "solution_sha256": "a" * 64,
        "judge_sha256": "b" * 64,
        "commit": "c" * 40,
        "device": "nvidia-h200",
        "driver": "580.65.06",
        "libraries": {"torch": "2.11.0"},
        "clocks": {"samples": 2, "throttled": 0},
        "timer": "cupti",
        "protocol": Protocol(10, 50, 3, 0.01, 0.01, 1.0),
        "dataset": DatasetIdentity("generated", "d" * 64),
        "seed": 0,
        "workloads": (row("u-0"), row("u-1", 2.401)) if workloads is None else workloads,
        "measured_at": "2026-01-31T23:59:59Z",
    }
    return RunRecord(**{**values, **changes})


def entry(uuid: str = "u-0", status: str = "PASSED", **changes: Any) -> TraceEntry:
    values: dict[str, Any] = {
        "room": "gdn_decode",
        "definition": DEFINITION,
        "workload": {
            "uuid": uuid,
            "axes": {"batch_size": 1},
            "inputs": {"scale": {"type": "scalar", "value": 0.08838834764831843}},
        },
        "solution_name": "gdn_decode-aaaaaaaa",
        "solution_sha256": "a" * 64,
        "judge_sha256": "b" * 64,
        "dataset_sha256": "d" * 64,
        "settings_sha256": "e" * 64,
        "device": "nvidia-h200",
        "hardware": "NVIDIA H200",
        "status": status,
        "seed": 7,
        "started_at": "2026-01-31T23:59:58.000000+00:00",
        "ended_at": "2026-01-31T23:59:59.000000+00:00",
        "environment": {"driver": "580.65.06", "torch": "2.11.0"},
        "latency_us": 2.187 if status == "PASSED" else None,
        "max_abs_error": 1e-3,
        "max_rel_error": 2e-3,
    }
    return TraceEntry(**{**values, **changes})


def write_checkout(root: Path, uuids: list[str]) -> None:
    """What records need of a checkout: config.toml, and gdn_decode's workloads with these UUIDs."""
    (root / "config.toml").write_bytes((load_workspace().root / "config.toml").read_bytes())
    path = root / "workloads" / "gdn" / f"{DEFINITION}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"definition": DEFINITION, "workload": {**entry(uuid).workload}})
        for uuid in uuids
    ]
    path.write_text("\n".join(lines) + "\n")
