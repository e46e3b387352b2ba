"""Profile records for tests, complete and valid."""

from __future__ import annotations

from typing import Any

from harness.ncu import LaunchMetrics
from harness.profiling.record import DeviceLimits, ProfileRecord, ProfileRow, complete
from harness.profiling.shares import KernelShare
from harness.records import DatasetIdentity

LIMITS = DeviceLimits(0.8, 132)
SPLIT = KernelShare("void split<64>(float*)", 1, 8.0, 0.8, 64, 256, 126, 181_000)
MERGE = KernelShare("merge", 2, 2.0, 0.2, 8, 128, 32, 0)
COUNTED = LaunchMetrics(
    name="void split<(int)64>(float *)", duration_us=8.4, grid_blocks=64, block_threads=256,
    registers_per_thread=126, shared_bytes_per_block=181_000, limit_registers=2,
    limit_shared_memory=1, limit_blocks=32, limit_warps=8, limit_barriers=16, waves_per_sm=0.86,
    theoretical_occupancy=0.125, achieved_occupancy=0.12, sm_share=0.19, memory_share=0.31,
    dram_share=0.2, tensor_share=0.1, spills=976,
)  # fmt: skip
DENIED = "ncu: ERR_NVGPUCTRPERM: not for you"


def profile_row(uuid: str = "2207f0fd-one", **changes: Any) -> ProfileRow:
    """A row of two kernels, the first of which NCU counted; its bottleneck follows from that."""
    values: dict[str, Any] = {
        "uuid": uuid,
        "axes": {"num_tokens": 8},
        "regime": "num_tokens 8",
        "regime_workloads": 8,
        "latency_us": 10.5,
        "floor_us": 2.1,
        "roof": "memory (read)",
        "shares": (SPLIT, MERGE),
        "no_shares": None,
        "launches": (COUNTED,),
        "no_launches": None,
        "dominant": "",
        "dominant_share": None,
        "kind": None,
        "limiters": None,
        "reason": "",
        "measured_at": "2026-01-31T23:59:59Z",
    }
    return complete(ProfileRow(**{**values, **changes}), LIMITS)


def profile_record(*rows: ProfileRow, **changes: Any) -> ProfileRecord:
    values: dict[str, Any] = {
        "room": "moe",
        "definition": "moe_definition",
        "device": "nvidia-h200",
        "hardware": "NVIDIA H200",
        "driver": "580.1",
        "libraries": {"torch": "2.11.0"},
        "commit": "unknown",
        "solution_name": "moe-aaaaaaaa",
        "solution_sha256": "a" * 64,
        "dataset": DatasetIdentity("workloads", "c" * 64),
        "workloads": rows or (profile_row(),),
    }
    return ProfileRecord(**{**values, **changes})
