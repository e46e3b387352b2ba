"""Replacing workers: one bad solution never changes another one's verdict. No torch here."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.evaluate.pool import Pool, WorkerCommand
from harness.evaluate.protocol import Job, Settings, Stage, Status, trial_seed

FAKE = WorkerCommand(argv=(sys.executable, str(Path(__file__).with_name("fake_worker.py"))))


def job(uuid: str, timeout_s: int = 20) -> Job:
    settings = Settings(1, 1, 1, 0.01, 0.01, 1.0, timeout_s, "host", 0)
    return Job("room", "{}", "{}", ".", {"uuid": uuid}, "cpu", settings)


@pytest.fixture
def pool(tmp_path):
    with Pool("cpu", tmp_path, FAKE) as pool:
        yield pool


def test_the_worker_stays_warm(pool):
    first, second = pool.run(job("good-1")), pool.run(job("good-2"))
    assert first.status is second.status is Status.PASSED
    assert first.log == second.log, "both ran in the same process"
    assert pool.replacements == 0


@pytest.mark.parametrize(
    ("behaviour", "status", "words"),
    [
        ("segfault", Status.RUNTIME_ERROR, "SIGSEGV"),
        ("exits", Status.RUNTIME_ERROR, "code 3"),
        ("badreference", Status.REFERENCE_ERROR, "SIGSEGV"),
        ("faults", Status.RUNTIME_ERROR, ""),
        ("garbles", Status.RUNTIME_ERROR, "no judge wrote"),
        ("misspells", Status.RUNTIME_ERROR, "no judge wrote"),
        ("floods", Status.RUNTIME_ERROR, "no judge wrote"),
        ("forges", Status.RUNTIME_ERROR, "an answer to another job"),
        ("orphans", Status.RUNTIME_ERROR, "code 3"),
    ],
)
def test_a_dying_worker_is_blamed_on_its_stage_and_replaced(pool, behaviour, status, words):
    bad = pool.run(job(f"{behaviour}-1"))
    assert bad.status is status and words in bad.detail
    assert pool.run(job("good-2")).status is Status.PASSED
    assert pool.run(job("good-3")).status is Status.PASSED
    assert pool.replacements == 1


def test_the_log_of_a_crash_is_kept(pool):
    assert "about to crash" in pool.run(job("segfault-1")).log


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [("hangs", Status.TIMEOUT), ("slowreference", Status.REFERENCE_ERROR)],
)
def test_a_hang_ends_at_the_deadline_whatever_it_ignores(pool, behaviour, status):
    began = time.monotonic()
    outcome = pool.run(job(f"{behaviour}-1", timeout_s=1))
    assert outcome.status is status and "1 s" in outcome.detail
    assert time.monotonic() - began < 6
    assert pool.run(job("good-2")).status is Status.PASSED


def test_a_worker_that_never_starts_is_an_infrastructure_failure(tmp_path):
    with Pool("never-starts", tmp_path, FAKE) as pool:
        outcome = pool.run(job("good-1"))
    assert outcome.status is Status.INFRASTRUCTURE
    assert "2 workers ended" in outcome.detail


def test_a_worker_that_died_between_jobs_is_replaced_silently(pool):
    pid = int(pool.run(job("good-1")).log)
    os.kill(pid, 9)
    time.sleep(0.2)
    assert pool.run(job("good-2")).status is Status.PASSED


def test_what_a_solution_prints_does_not_disturb_the_protocol(pool):
    assert pool.run(job("chatty-1")).status is Status.PASSED


def test_stages_are_reported_in_order(pool):
    stages: list[Stage] = []
    pool.run(job("good-1"), stages.append)
    assert stages == [Stage.REFERENCE, Stage.BUILD]


def test_closing_leaves_no_process(tmp_path):
    with Pool("cpu", tmp_path, FAKE) as pool:
        pid = int(pool.run(job("good-1")).log)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_trial_seeds_do_not_depend_on_which_trials_run():
    assert trial_seed(0, "uuid", 2) == trial_seed(0, "uuid", 2)
    seeds = {trial_seed(s, u, t) for s in (0, 1) for u in ("a", "b") for t in range(3)}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_jobs_and_outcomes_survive_the_pipe(pool):
    original = job("good-1")
    assert Job.from_json(original.to_json()) == original
    assert original.trials() == [0]


def test_a_worker_that_does_not_read_is_given_up_at_the_deadline(tmp_path):
    big = replace(job("good-1", timeout_s=1), solution="x" * 400_000)  # more than a pipe holds
    began = time.monotonic()
    with Pool("never-reads", tmp_path, FAKE) as pool:
        assert pool.run(big).status is Status.INFRASTRUCTURE
    assert time.monotonic() - began < 10


def test_what_an_earlier_job_left_behind_is_not_blamed_on_the_next_reference(pool):
    assert pool.run(job("good-1")).status is Status.PASSED
    assert pool.run(job("spoiled-2")).status is Status.PASSED, "asked again in a fresh worker"
    assert pool.replacements == 1


def test_a_real_time_signal_has_a_name_too(pool):
    assert "signal 40" in pool.run(job("signal40-1")).detail
