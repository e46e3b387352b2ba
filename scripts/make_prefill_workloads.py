"""Writes workloads/dsa_prefill/<definition>.jsonl: sizes, ranges and score patterns, no tensor.

    python scripts/make_prefill_workloads.py

What the axes beyond the definition's mean is in harness/ranges.py. A UUID names its axes for good.
"""

import argparse
import json
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.config import DSA_PREFILL  # noqa: E402
from harness.files import write_atomically  # noqa: E402

PATH = ROOT / "workloads" / "dsa_prefill" / f"{DSA_PREFILL}.jsonl"
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


def render() -> str:
    """The file's text: one workload a line in the official form."""
    plain = [(queries, keys, {}) for queries in QUERIES for keys in KEYS]
    plain += [(*sizes, {"ragged_ranges": 1}) for sizes in RAGGED]
    plain += [(*sizes, pattern) for pattern in HOSTILE for sizes in HOSTILE_SIZES]
    text = ""
    for queries, keys, more in plain:
        axes = {"num_queries": queries, "num_keys": keys, **more}
        name = uuid.uuid5(uuid.NAMESPACE_URL, f"{DSA_PREFILL} {json.dumps(axes)}")
        inputs = {key: {"type": "random"} for key in INPUTS}
        workload = {"axes": axes, "inputs": inputs, "uuid": str(name)}
        text += json.dumps({"definition": DSA_PREFILL, "workload": workload}) + "\n"
    return text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=f"Write {PATH.relative_to(ROOT)}.")
    parser.parse_args(arguments)  # takes none: whatever is given is refused, and nothing written
    write_atomically(PATH, render())


if __name__ == "__main__":
    main()
