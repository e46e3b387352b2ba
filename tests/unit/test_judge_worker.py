"""The judge in a real worker process: what a solution does there harms only itself."""

import time
from pathlib import Path

import filelock
import pytest
from flashinfer_bench.data import Solution

from harness.evaluate import pool as pool_module
from harness.evaluate.pool import Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Stage, Status
from tests.unit.judge_room import RIGHT, RIGHT_VALUES, make_job, module

ROOT = Path(__file__).resolve().parents[2]
LOCK_TIMEOUT_S = 2


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="module")
def pool(cache):
    """One worker for the whole file: starting one takes seconds."""
    environment = {**worker_environment("cpu", ROOT), "FIB_CACHE_PATH": str(cache)}
    with Pool("cpu", ROOT, WorkerCommand(environment=environment)) as pool:
        yield pool


@pytest.fixture
def verdict(pool, tmp_path):
    def run(body, head="", is_dps=True, **fields):
        return pool.run(make_job(tmp_path, module(body, is_dps, head), is_dps=is_dps, **fields))

    return run


def test_both_styles_pass_and_the_worker_says_how_long_each_stage_took(verdict):
    for body, is_dps in ((RIGHT, True), (RIGHT_VALUES, False)):
        outcome = verdict(body, is_dps=is_dps, trials=3)
        assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
        stages = {stage.value for stage in Stage} - {"start"}
        assert set(outcome.stages_s) == stages | {"total"}


def test_wrong_values_are_explained_through_the_pipe(verdict):
    outcome = verdict(RIGHT + "y[1, 2] = float('nan')")
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "first at [1, 2]" in outcome.detail and "got nan" in outcome.detail
    assert "--only-trial 0" in outcome.detail


def test_a_log_holds_what_its_own_job_printed(verdict):
    loud = "print('loud' * 50_000)\nraise ValueError('first failure')"
    quiet = "print('quiet')\nraise ValueError('second failure')"
    outcome = verdict(loud)
    assert outcome.status is Status.RUNTIME_ERROR
    assert "loudloud" in outcome.log and "first failure" in outcome.log
    for _ in range(2):
        outcome = verdict(quiet)
        assert outcome.status is Status.RUNTIME_ERROR
        assert "quiet" in outcome.log and "second failure" in outcome.log
        assert "loud" not in outcome.log and "first failure" not in outcome.log
        assert "\0" not in outcome.log


def test_leaving_at_import_or_in_run_is_a_verdict_and_the_next_job_is_fine(verdict):
    at_import = verdict(RIGHT, head="import sys\nsys.exit(0)")
    assert at_import.status in (Status.COMPILE_ERROR, Status.RUNTIME_ERROR)
    in_run = verdict("import sys\nsys.exit(0)")
    assert in_run.status is Status.RUNTIME_ERROR
    assert at_import.detail and in_run.detail
    assert verdict(RIGHT).status is Status.PASSED


def test_a_build_lock_that_another_process_holds_ends_in_a_timeout(pool, cache, tmp_path):
    """A build that was stopped half-way may leave its lock to a process that never ends."""
    job = make_job(tmp_path, module(RIGHT + "# locked"), timeout_s=LOCK_TIMEOUT_S)
    assert pool.run(make_job(tmp_path, module(RIGHT))).status is Status.PASSED, "warm"
    digest = Solution.model_validate_json(job.solution).hash()
    with filelock.FileLock(cache / "build_locks" / f"{digest}.lock"):
        outcome = pool.run(job)
    assert outcome.status is Status.TIMEOUT
    assert f"{LOCK_TIMEOUT_S} s in stage build" in outcome.detail
    assert LOCK_TIMEOUT_S <= outcome.stages_s["total"] < LOCK_TIMEOUT_S + 5


def test_a_worker_that_is_slow_to_start_is_started_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(pool_module, "START_LIMIT_S", 0.5)
    began = time.monotonic()
    command = WorkerCommand(argv=("/bin/sh", "-c", "echo started >> starts; exec sleep 40", "sh"))
    with Pool("cpu", tmp_path, command) as slow:
        outcome = slow.run(make_job(tmp_path / "set", module(RIGHT)))
    assert outcome.status is Status.INFRASTRUCTURE
    assert "0.5 s" in outcome.detail
    assert (tmp_path / "starts").read_text() == "started\n" * 2
    assert time.monotonic() - began < 10.0
