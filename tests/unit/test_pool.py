"""Replacing workers: one bad solution never changes another one's verdict. No torch here."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.evaluate.pool import MeasurementFailed, Pool, WorkerCommand
from harness.evaluate.protocol import Job, Settings, Stage, Status, trial_seed

SCRIPT = str(Path(__file__).with_name("fake_worker.py"))
FAKE = WorkerCommand(argv=(sys.executable, SCRIPT))
WAITING = WorkerCommand(argv=(sys.executable, SCRIPT, "wait"), waits=True)


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
    [
        ("hangs", Status.TIMEOUT),
        ("slowreference", Status.REFERENCE_ERROR),
        ("slowreferencetiming", Status.REFERENCE_ERROR),
    ],
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


def is_running(pid):
    """Dead processes that nobody has waited for do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_left_the_workers_session_ends_with_the_worker(pool):
    """The worker is dead already when its stray is looked for."""
    outcome = pool.run(job("escapes-1"))
    (line,) = [line for line in outcome.log.splitlines() if line.startswith("escaped")]
    assert outcome.status is Status.RUNTIME_ERROR and "code 3" in outcome.detail
    assert not is_running(int(line.split()[1]))


def test_strays_of_another_worker_are_left_alone(tmp_path):
    with Pool("cpu", tmp_path, FAKE) as first, Pool("cpu", tmp_path, FAKE) as second:
        pid = int(first.run(job("good-1")).log)
        second.run(job("good-1"))
        second.close()
        assert is_running(pid)
        assert int(first.run(job("good-2")).log) == pid


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


# On standby


@pytest.fixture
def waiting_pool(tmp_path):
    with Pool("cpu", tmp_path, WAITING) as pool:
        yield pool


def standby_of(pool):
    return pool._standby._process.pid


def test_a_process_on_standby_begins_only_when_the_worker_has_ended(waiting_pool, tmp_path):
    pool = waiting_pool
    first = int(pool.run(job("good-1")).log)
    pool.stand_by()
    waiting = standby_of(pool)
    pool.stand_by()
    assert standby_of(pool) == waiting, "one is enough"
    assert int(pool.run(job("good-2")).log) == first
    assert (tmp_path / "begun").read_text() == f"{first}\n"
    pool.renew()
    assert not is_running(first)
    assert int(pool.run(job("good-3")).log) == waiting
    assert (tmp_path / "begun").read_text() == f"{first}\n{waiting}\n"
    assert pool.replacements == 0, "it broke nothing"


def test_a_process_on_standby_takes_the_place_of_a_worker_that_died(waiting_pool):
    pool = waiting_pool
    assert pool.run(job("good-1")).status is Status.PASSED
    pool.stand_by()
    waiting = standby_of(pool)
    outcome = pool.run(job("escapes-2"))
    assert outcome.status is Status.RUNTIME_ERROR
    (line,) = [line for line in outcome.log.splitlines() if line.startswith("escaped")]
    assert not is_running(int(line.split()[1])), "strays are ended"
    assert is_running(waiting), "it is no stray"
    with Pool("cpu", pool._root, FAKE):  # looks for what killed sweeps left
        assert is_running(waiting)
    assert int(pool.run(job("good-3")).log) == waiting


def test_a_process_that_died_on_standby_costs_no_verdict(waiting_pool):
    waiting_pool.stand_by()
    os.kill(standby_of(waiting_pool), 9)
    assert waiting_pool.run(job("good-1")).status is Status.PASSED


def test_a_process_on_standby_that_is_not_needed_is_ended(tmp_path):
    with Pool("cpu", tmp_path, WAITING) as pool:
        pool.stand_by()
        waiting = standby_of(pool)
        assert is_running(waiting)
    assert not is_running(waiting)
    assert not (tmp_path / "begun").exists()


def test_a_worker_that_cannot_wait_is_started_when_it_is_needed(pool):
    first = int(pool.run(job("good-1")).log)
    pool.stand_by()
    assert pool._standby is None
    pool.renew()
    assert int(pool.run(job("good-2")).log) != first


# Measuring what a job kept


def keep(pool, behaviour):
    return pool.run(replace(job(f"{behaviour}-1"), keep=True))


def test_what_is_kept_is_measured_again_and_again(pool):
    assert keep(pool, "good").status is Status.PASSED
    for iterations in (3, 1):
        assert pool.measure(1, iterations, 20.0) == (2.5,) * iterations
    assert pool.replacements == 0


@pytest.mark.parametrize(
    ("behaviour", "status", "words"),
    [
        ("dieslater", Status.RUNTIME_ERROR, "SIGSEGV in stage timing"),
        ("failslater", Status.RUNTIME_ERROR, "no more memory"),
        ("garbleslater", Status.RUNTIME_ERROR, "no judge wrote"),
        ("nanlater", Status.RUNTIME_ERROR, "expected latencies above 0 from the judge, got nan"),
        ("zerolater", Status.RUNTIME_ERROR, "expected latencies above 0 from the judge, got 0"),
        ("shorter", Status.RUNTIME_ERROR, "expected 3 latencies from the judge, got 2"),
    ],
)
def test_a_failing_measurement_is_a_verdict_and_costs_the_worker(pool, behaviour, status, words):
    assert keep(pool, behaviour).status is Status.PASSED
    with pytest.raises(MeasurementFailed, match=words) as caught:
        pool.measure(1, 3, 20.0)
    assert caught.value.outcome.status is status
    assert pool.replacements == 1
    with pytest.raises(MeasurementFailed, match="nothing is kept"):
        pool.measure(1, 3, 20.0)
    assert keep(pool, "good").status is Status.PASSED
    assert pool.measure(1, 1, 20.0) == (2.5,)


def test_the_log_of_a_death_while_measuring_is_kept(pool):
    keep(pool, "dieslater")
    with pytest.raises(MeasurementFailed) as caught:
        pool.measure(1, 1, 20.0)
    assert "died while it was measured" in caught.value.outcome.log


def test_a_hang_while_measuring_ends_at_the_measurements_own_limit(pool):
    keep(pool, "hangslater")
    began = time.monotonic()
    with pytest.raises(MeasurementFailed, match=r"no answer within 0\.5 s") as caught:
        pool.measure(1, 1, 0.5)
    assert time.monotonic() - began < 5
    assert caught.value.outcome.status is Status.TIMEOUT
    assert keep(pool, "good").status is Status.PASSED


def test_a_worker_that_died_between_measurements_is_noticed(pool):
    os.kill(int(keep(pool, "good").log), 9)
    with pytest.raises(MeasurementFailed, match="SIGKILL"):
        pool.measure(1, 1, 20.0)


def test_nothing_is_kept_unless_the_last_job_asked_for_it_and_passed(pool):
    def fails():
        with pytest.raises(MeasurementFailed, match="nothing is kept") as caught:
            pool.measure(1, 1, 20.0)
        assert caught.value.outcome.status is Status.INFRASTRUCTURE

    fails()
    keep(pool, "good")
    assert pool.run(job("good-2")).status is Status.PASSED
    fails()
    keep(pool, "good")
    assert keep(pool, "faults").status is Status.RUNTIME_ERROR
    fails()
