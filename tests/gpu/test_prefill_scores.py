"""The native route of dsa_indexer_prefill, proved from every score that it computes.

tests/cuda/prefill_scores.cu stores the scores. Each row of each workload has to have chosen the
best of them. And they have to be right themselves: close to fp64 in some rows, to the portable
kernel's in all; what the filter stores are the same to the last bit.
"""

import sys

import pytest
import torch

from harness.rules.prefill_inputs import draw_inputs
from tests.gpu.prefill_indexer import (
    BLOCK_ROWS,
    HOSTILE_WORKLOADS,
    NAMES,
    NO_FAILURE,
    ROOM,
    SCORE_ERROR,
    WORKLOADS,
    deviation,
    label,
    own_scores,
    select_by,
    some_rows,
    workload_inputs,
)
from tests.oracles.dsa_indexer_prefill import TOPK, check_best, cut, oracle
from tests.packed import build
from tests.prefill_scores import build_scores, candidates_of, native_scores
from tests.prefill_study.native import CAPABILITY, NativeCall

pytestmark = pytest.mark.gpu

ROUNDING = 2.0**-20  # of a score itself: what fp32 operations make of outliers
# A query's scores by its weights' length: 128 products, 0.58 of them behind the ReLU.
DEVIATION = 0.58 * 128**0.5


@pytest.fixture(scope="module")
def kernel():
    """kernel.py of the packed room, where it takes the native route."""
    if torch.cuda.get_device_capability() != CAPABILITY:
        pytest.skip("the native route is for Hopper alone")
    module = sys.modules[build(ROOM)._callable.__module__]
    if not module.can_build(CAPABILITY):
        pytest.skip("needs a CUDA toolkit")
    return module


@pytest.fixture(scope="module")
def scores_module(kernel):
    return build_scores()


@pytest.fixture
def select_natively(kernel, monkeypatch):
    """inputs by name -> topk_indices of the room as it is, which has taken the native route."""
    run, calls = kernel.run_native, []

    def count(*tensors, **options):
        calls.append(options)
        run(*tensors, **options)

    def select(inputs):
        chosen = select_by(None, inputs)
        assert len(calls) == 1
        return chosen

    monkeypatch.setattr(kernel, "run_native", count)
    return select


def assert_scores_close_to_fp64(scores, first, rows, inputs, error):
    """Of some rows, whole ranges. scores: of queries from `first` on. error: of their deviation."""
    ranges = cut(inputs)
    for row, wanted in zip(rows, oracle(inputs, rows), strict=True):
        own = scores[row - first, slice(*ranges[row])].double()
        bound = error * deviation(wanted) + (ROUNDING * wanted.abs() if error > 0 else 0.0)
        assert ((own - wanted).abs() <= bound).all(), f"row {row}: a score is wrong"


def assert_scores_close_to_portable(scores, rows, inputs, starts, ends, error):
    """Every one: a key's score that lies at another's place, say, is seen in any row."""
    portable = own_scores(inputs, rows.start, rows.stop)
    key = torch.arange(scores.shape[1], device="cuda")
    is_scored = (key >= starts.unsqueeze(1)) & (key < ends.unsqueeze(1))
    is_scored &= (ends - starts > TOPK).unsqueeze(1)
    bound = 2 * error * DEVIATION * inputs["weights"][rows].norm(dim=1, keepdim=True)
    if error > 0:
        bound = bound + ROUNDING * portable.abs()
    wrong = (is_scored & ~((scores - portable).abs() <= bound)).any(dim=1).nonzero().flatten()
    assert not len(wrong), f"row {rows.start + int(wrong[0])}: a score is wrong"


@pytest.mark.parametrize("row", WORKLOADS, ids=lambda row: f"{row.uuid}-{label(row)}")
def test_every_row_of_every_workload_is_exact_for_the_native_scores(
    row, select_natively, scores_module
):
    """The selection by the scores; these by the portable kernel's, and some rows' by fp64."""
    inputs = workload_inputs(row)
    error = 0.0 if row in HOSTILE_WORKLOADS else SCORE_ERROR
    num_queries, num_keys = row.axes["num_queries"], row.axes["num_keys"]
    starts, ends = (inputs[name].clamp(0, num_keys) for name in ("row_starts", "row_ends"))
    chosen, checked, proved = select_natively(inputs), some_rows(inputs), 0
    for turn, scores in native_scores(scores_module, inputs):
        own = [at for at in checked if turn.start <= at < turn.stop]
        assert_scores_close_to_fp64(scores, turn.start, own, inputs, error)
        for first in range(turn.start, turn.stop, BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, turn.stop))
            some = scores[first - turn.start : rows.stop - turn.start]
            check_best(chosen[rows], some, starts[rows], ends[rows])
            assert_scores_close_to_portable(some, rows, inputs, starts[rows], ends[rows], error)
            proved += len(some)
    assert proved == num_queries


@pytest.mark.parametrize(
    "axes",
    [
        {"num_queries": 8, "num_keys": 8192},
        {"num_queries": 66, "num_keys": 40_000},
        {"num_queries": 66, "num_keys": 131_072},
        {"num_queries": 64, "num_keys": 131_072, "outlier_keys": 5},
        {"num_queries": 512, "num_keys": 32_768, "ragged_ranges": 1},
        {"num_queries": 64, "num_keys": 131_072, "ragged_ranges": 1},
    ],
    ids=str,
)
def test_the_filters_candidates_have_the_stored_scores_to_the_last_bit(axes, kernel, scores_module):
    torch.manual_seed(20)
    inputs = dict(zip(NAMES, draw_inputs(axes, "cuda"), strict=True))
    inputs["k_scale"][::3].neg_()
    native = NativeCall(kernel, list(inputs.values()))
    native()
    assert native.failures(kernel) == NO_FAILURE  # the memory of the candidates is still theirs
    ranges = cut(inputs)
    ((_, scores),) = native_scores(scores_module, inputs)
    for row, (start, end) in enumerate(ranges):
        if end - start <= TOPK:
            continue
        candidates, keys = candidates_of(native, kernel, row)
        assert TOPK <= len(keys) == len(keys.unique())
        own = scores[row].cpu()[keys.long()]
        assert torch.equal(own.view(torch.int32), candidates.view(torch.int32)), f"row {row}"
