"""Replays of real rooms on a GPU: trials repeat, margins come out, a fault is one trial's."""

from pathlib import Path

import pytest
import torch

from harness import dataset
from harness.config import load_workspace
from harness.devices import read_facts
from harness.evaluate.plan import Request, make_plans
from harness.evaluate.protocol import Status, trial_seed
from harness.replay.batch import BatchResult, batch_job
from harness.replay.engine import replay_pool
from tests.unit.judge_room import RIGHT, UUID, make_job, module

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
SHORT, LONG = "30cecff1", "03fc111f"  # of the indexer: at most 64 tokens, and 2817
TRIALS = 20


@pytest.fixture(scope="module")
def pool():
    with replay_pool("cuda:0", ROOT) as pool:
        yield pool


def job_of(room, workload):
    workspace = load_workspace()
    request = Request(rooms=(room,), workloads=(workload,))
    (plan,) = make_plans(workspace, request, read_facts())
    dataset.ensure_blobs(plan.dataset_root, plan.room, list(plan.rows))
    return plan.job(plan.rows[0], "cuda:0", request)


def run(pool, job, first, count):
    outcome = pool.run(batch_job(job, first, count))
    assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
    return BatchResult.from_json(outcome.evaluation)


def test_the_indexer_passes_and_its_margins_repeat(pool):
    job = job_of("dsa_indexer", LONG)
    whole = run(pool, job, 0, TRIALS)
    assert (whole.done, whole.mismatches, whole.untested) == (TRIALS, (), ())
    boundary = whole.boundary
    assert len(set(boundary.margins)) == TRIALS
    assert 0.0 < boundary.epsilon < 1e-2
    alone = run(pool, job, TRIALS - 1, 1)
    assert alone.boundary.margins == boundary.margins[-1:]


def test_a_sequence_shorter_than_k_has_no_boundary(pool):
    result = run(pool, job_of("dsa_indexer", SHORT), 0, 3)
    assert result.mismatches == () and result.boundary.margins == ()


@pytest.mark.parametrize(
    ("room", "workload"),
    [("moe", "e05c6c03"), ("dsa_attention", "0c23b10c"), ("gdn_decode", "901e5104")],
)
def test_other_rooms_pass_on_fresh_trials(pool, room, workload):
    result = run(pool, job_of(room, workload), 0, 5)
    assert (result.done, result.mismatches) == (5, ())
    assert result.max_abs_error is not None and result.boundary is None


def test_a_fault_of_the_device_is_one_trials_and_the_next_is_judged(pool, tmp_path):
    body = (
        "if x[0, 0] < -1.6449:\n"
        "    index = torch.full((1,), 1 << 40, device=x.device, dtype=torch.int64)\n"
        "    y.view(-1)[index].sum().item()\n" + RIGHT
    )
    job = make_job(tmp_path, module(body))
    job = type(job).from_json({**job.to_json(), "device": "cuda:0"})
    faults = []
    for trial in range(200):
        torch.manual_seed(trial_seed(0, UUID, trial))
        if torch.randn(3, 4, device="cuda")[0, 0] < -1.6449:
            faults.append(trial)
    result = run(pool, job, 0, 200)
    assert result.done == faults[0] + 1
    assert [found.trial for found in result.mismatches] == faults[:1]
    assert result.mismatches[0].status == "RUNTIME_ERROR"
    again = run(pool, job, faults[0] + 1, faults[1] - faults[0] - 1)
    assert again.mismatches == (), "a fresh worker has a device again"
