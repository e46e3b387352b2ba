"""Kernels that break the CUDA context, each followed by a good one in a new worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.evaluate.pool import Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Status
from tests.unit.fault_registry import GPU_FAULTS
from tests.unit.judge_room import RIGHT, make_job, module

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "cuda:0"
HANG_S, GRACE_S = 5, 5.0
ENDLESS_CYCLES = 1 << 55  # months at 2 GHz

WILD_STORE = """
import triton
import triton.language as tl


@triton.jit
def store_far_away(y_ptr):
    tl.store(y_ptr + (tl.program_id(0).to(tl.int64) + (1 << 42)), 1.0)
"""
# behaviour -> (head, body) of a solution
KERNELS = {
    "illegal_address": (WILD_STORE, "store_far_away[(64,)](y)"),
    "infinite_loop": ("", f"torch.cuda._sleep({ENDLESS_CYCLES})"),
    "device_assert": ("", "y.copy_(x[torch.full((3,), 1 << 20, device=x.device)])"),
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    cache = tmp_path_factory.mktemp("builds")
    environment = {**worker_environment(DEVICE, ROOT), "FIB_CACHE_PATH": str(cache)}
    with Pool(DEVICE, ROOT, WorkerCommand(environment=environment)) as pool:
        yield pool


def job(folder, body, head="", timeout_s=60):
    made = make_job(folder, module(body, head=head), timeout_s=timeout_s)
    return replace(made, device=DEVICE, settings=replace(made.settings, timer="cupti"))


def good(pool, folder):
    outcome = pool.run(job(folder, RIGHT))
    assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
    assert outcome.latency_us > 0.0


@pytest.mark.parametrize("fault", GPU_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_a_verdict_and_a_good_kernel_passes_next(fault, pool, tmp_path, record_property):
    good(pool, tmp_path)
    replacements = pool.replacements
    head, body = KERNELS[fault.behaviour]
    timeout_s = HANG_S if fault.status == "TIMEOUT" else 60
    outcome = pool.run(job(tmp_path, body, head, timeout_s))
    record_property("verdict", outcome.status.value)
    assert outcome.status.value == fault.status, (outcome.detail, outcome.log)
    assert fault.words in (outcome.detail + outcome.log).lower()
    assert outcome.stages_s["total"] < timeout_s + GRACE_S
    assert pool.replacements == replacements + 1, "a CUDA fault is sticky"
    good(pool, tmp_path)


def test_every_fault_has_its_kernel():
    assert set(KERNELS) == {fault.behaviour for fault in GPU_FAULTS}
