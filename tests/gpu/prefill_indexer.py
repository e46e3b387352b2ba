"""What the device tests of dsa_indexer_prefill share: workloads, calls, scores, tolerances."""

import sys

import numpy as np
import torch

from harness.config import load_workspace
from harness.dataset import read_workloads
from harness.ranges import OUTLIERS, SCORES
from harness.rules.prefill_inputs import draw_inputs
from tests.oracles.dsa_indexer_prefill import TOPK, cut, empty_output
from tests.packed import build, call

ROOM = "dsa_indexer_prefill"
NAMES = ("q_index_fp8", "k_index_fp8", "k_scale", "weights", "row_starts", "row_ends")
# FP8 sums of Hopper keep 14 bits: of the deviation of a row's scores.
SCORE_ERROR = 0.01
ROWS_CHECKED = 32  # of large cases, first and last among them, against fp64
BLOCK_ROWS = 64  # whose own scores are in memory at once
NO_FAILURE = {"segment_overflow": 0, "row_overflow": 0, "underflow": 0}
WORKSPACE = load_workspace()
WORKLOADS = read_workloads(WORKSPACE.root, WORKSPACE.room(ROOM))
HOSTILE_WORKLOADS = [row for row in WORKLOADS if set(row.axes) & set(SCORES) - {OUTLIERS}]


def label(row):
    return "-".join(f"{name}={size}" for name, size in row.axes.items())


def workload_inputs(row, seed=1):
    torch.manual_seed(seed)
    return dict(zip(NAMES, draw_inputs(row.axes, "cuda"), strict=True))


def select_by(route, inputs):
    outputs = [empty_output(len(inputs["row_starts"]), "cuda")]
    return call(ROOM, list(inputs.values()), outputs, route)[0]


def own_scores(inputs, first, stop):
    """Scores of queries [first, stop) as the portable route's score_kernel computes them, fp32
    [stop - first, num_keys]; any number where no long range has a key."""
    module = sys.modules[build(ROOM, "portable")._callable.__module__]
    num_keys, count = inputs["k_index_fp8"].shape[0], stop - first
    score = dict(module.choose(count, num_keys)[1]["score"])
    bits = torch.zeros(count, num_keys, dtype=torch.int32, device="cuda")
    grid = (-(-num_keys // score["BLOCK_KEYS"]), -(-count // score["GROUP"]))
    rows = slice(first, stop)
    module.score_kernel[grid](
        inputs["q_index_fp8"][rows],
        inputs["k_index_fp8"].view(torch.uint8),
        inputs["k_scale"],
        inputs["weights"][rows],
        inputs["row_starts"][rows],
        inputs["row_ends"][rows],
        bits,
        count,
        num_keys,
        H=64,
        D=128,
        K=TOPK,
        **score,
    )
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).view(torch.float32)


def deviation(scores):
    """Of normal scores, from their middle half: outliers do not reach it."""
    quarters = torch.tensor([0.25, 0.75], dtype=scores.dtype, device=scores.device)
    return float(scores.quantile(quarters).diff()) / 1.349


def some_rows(inputs):
    """ROWS_CHECKED queries at most, of those with long ranges."""
    ranges = cut(inputs)
    rows = sorted({*np.linspace(0, len(ranges) - 1, ROWS_CHECKED).astype(int).tolist()})
    return [row for row in rows if ranges[row][1] - ranges[row][0] > TOPK]
