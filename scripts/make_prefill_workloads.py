"""Writes workloads/dsa_prefill/<definition>.jsonl: sizes, ranges and score patterns, and no tensor.

    python scripts/make_prefill_workloads.py [--check]    --check writes nothing, 1 on drift

What the axes beyond the definition's mean is in harness/ranges.py. A UUID names its axes for good.
"""

import json
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.config import load_workspace
from harness.files import write_atomically
from harness.rules import DSA_PREFILL

ROOM = "dsa_indexer_prefill"
INPUTS = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")
KIB = 1024
QUERIES = (8, 64, 512, 4096, 8192)
KEYS = tuple(KIB * size for size in (8, 16, 32, 64, 128, 160))
RAGGED = ((64, 128 * KIB), (512, 32 * KIB), (4096, 64 * KIB), (8192, 16 * KIB))
HOSTILE = (
    {"score_levels": 1},
    {"score_levels": 16},
    {"keys_above_tie": 1000},
    {"ascending_scores": 1},
    {"descending_scores": 1},
    {"outlier_keys": 5},
    {"candidate_run": 4096},
    {"candidate_stride": 128},
)
HOSTILE_SIZES = ((64, 128 * KIB), (4096, 64 * KIB))


def all_axes() -> list[dict[str, int]]:
    """Of every workload, in order."""
    plain = [(queries, keys, {}) for queries in QUERIES for keys in KEYS]
    plain += [(queries, keys, {"ragged_ranges": 1}) for queries, keys in RAGGED]
    plain += [(*sizes, pattern) for pattern in HOSTILE for sizes in HOSTILE_SIZES]
    return [{"num_queries": queries, "num_keys": keys, **more} for queries, keys, more in plain]


def line(axes: dict[str, int]) -> str:
    """One workload in the official form."""
    name = f"{DSA_PREFILL} {json.dumps(axes)}"
    inputs = {key: {"type": "random"} for key in INPUTS}
    identity = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    workload = {"axes": axes, "inputs": inputs, "uuid": identity}
    return json.dumps({"definition": DSA_PREFILL, "workload": workload}) + "\n"


if __name__ == "__main__":
    root = load_workspace().root
    path = root / "workloads" / "dsa_prefill" / f"{DSA_PREFILL}.jsonl"
    text = "".join(line(axes) for axes in all_axes())
    if sys.argv[1:] == ["--check"]:
        sys.exit(path.read_text(encoding="utf-8") != text)
    write_atomically(path, text)
