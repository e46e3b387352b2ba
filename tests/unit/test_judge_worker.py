"""The judge in a real worker process: what a solution does there harms only itself."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest
from flashinfer_bench.data import Solution

from harness.evaluate import pool as pool_module
from harness.evaluate.pool import MeasurementFailed, Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Stage, Status
from tests.unit.judge_room import RIGHT, RIGHT_VALUES, make_job, module
from tests.unit.test_pool import is_running

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
        stages = {stage.value for stage in Stage} - {"start", "timing of the reference"}
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


def test_streams_that_cannot_be_flushed_cost_no_verdict(verdict, pool):
    before = pool.replacements
    head = "import sys\nclass Closed:\n    def flush(self): raise RuntimeError('no flush')"
    outcome = verdict("sys.stdout = Closed()\nraise ValueError('first failure')", head=head)
    assert outcome.status is Status.RUNTIME_ERROR and outcome.detail.startswith("trial 0; ")
    assert "first failure" in outcome.log
    assert verdict("print('seen')\n" + RIGHT).status is Status.PASSED
    assert pool.replacements == before


@pytest.mark.parametrize("spoil", ["sys.stdout = None", "sys.stdout.close()", "os.close(1)"])
def test_a_later_job_prints_whatever_an_earlier_one_did_to_the_streams(verdict, pool, spoil):
    before = pool.replacements
    assert verdict(RIGHT + spoil, head="import os, sys").status is Status.PASSED
    outcome = verdict("print('seen')\nraise ValueError('own failure')")
    assert "own failure" in outcome.log and "seen" in outcome.log
    assert pool.replacements == before


def test_a_worker_dies_with_its_sweep_however_that_dies(tmp_path):
    pid_file = tmp_path / "pid"
    body = f"import os, time\nopen({str(pid_file)!r}, 'w').write(f'{{os.getpid()}}\\n')\n"
    job = make_job(tmp_path / "set", module(body + "time.sleep(120)"), timeout_s=120)
    (tmp_path / "job").write_text(json.dumps(job.to_json()))
    script = (
        "import json, sys\nfrom pathlib import Path\n"
        "from harness.evaluate.pool import Pool\nfrom harness.evaluate.protocol import Job\n"
        "job = Job.from_json(json.loads(Path(sys.argv[1]).read_text()))\n"
        "Pool('cpu', Path.cwd()).run(job)\n"
    )
    environment = {**os.environ, "FIB_CACHE_PATH": str(tmp_path / "builds")}
    command = [sys.executable, "-c", script, str(tmp_path / "job")]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as sweep:
        try:
            wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), 60.0)
        finally:
            sweep.kill()
    worker = Path("/proc") / pid_file.read_text().strip()
    wait_until(lambda: not worker.exists(), 5.0)


@pytest.mark.parametrize("library", ["libtorch", "libtriton"], ids=["importing", "waiting"])
def test_a_process_on_standby_dies_with_its_sweep_however_that_dies(library):
    script = (
        "import time\nfrom pathlib import Path\nfrom harness.evaluate.pool import Pool\n"
        "pool = Pool('cpu', Path.cwd())\npool.stand_by()\n"
        "print(pool._standby._process.pid, flush=True)\ntime.sleep(120)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as sweep:
        try:
            waiting = Path("/proc") / sweep.stdout.readline().strip()
            wait_until(lambda: library in (waiting / "maps").read_text(), 120.0)
        finally:
            sweep.kill()
    wait_until(lambda: not is_running(int(waiting.name)), 1.0)


def test_what_waited_on_standby_judges_like_any_worker(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("FIB_CACHE_PATH", str(cache))
    with Pool("cpu", ROOT) as pool:
        pool.stand_by()
        waiting = pool._standby._process.pid
        maps = Path("/proc") / str(waiting) / "maps"
        wait_until(lambda: "libtriton" in maps.read_text(), 120.0)
        outcome = pool.run(make_job(tmp_path, module(RIGHT)))
        assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
        assert pool._worker._process.pid == waiting


def wait_until(is_so, limit_s):
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {limit_s} s"
        time.sleep(0.05)


# Keeping a solution and measuring it


def appending(path):
    """Statements that write one byte a call."""
    return f"with open({str(path)!r}, 'a') as calls:\n    calls.write('.')\n"


def test_a_kept_solution_is_judged_but_not_timed(verdict):
    outcome = verdict(RIGHT, keep=True, trials=3)
    assert outcome.status is Status.PASSED, (outcome.detail, outcome.log)
    assert outcome.latency_us is None and outcome.trial_latencies_us == ()
    assert outcome.evaluation is None, "the official schema wants a latency beside PASSED"
    assert outcome.max_abs_error <= 1e-6
    assert "timing" not in outcome.stages_s


@pytest.mark.parametrize("is_dps", [True, False], ids=["destination", "value"])
def test_a_measurement_is_one_call_the_warm_up_and_the_iterations(verdict, pool, tmp_path, is_dps):
    calls = tmp_path / "calls"
    body = RIGHT if is_dps else RIGHT_VALUES
    assert verdict(appending(calls) + body, keep=True, is_dps=is_dps).status is Status.PASSED
    for warmup_runs, iterations in ((2, 3), (0, 1)):
        calls.write_text("")
        latencies_us = pool.measure(warmup_runs, iterations, 60.0)
        assert len(latencies_us) == iterations and min(latencies_us) > 0.0
        assert calls.read_text() == "." * (1 + warmup_runs + iterations)


def test_measurements_give_the_first_trials_inputs_and_the_same_tensors(verdict, pool, tmp_path):
    seen = tmp_path / "seen"
    record = (
        f"with open({str(seen)!r}, 'a') as file:\n"
        "    file.write(f'{id(x)} {id(y)} {x.sum().item()}\\n')\n"
    )
    assert verdict(record + RIGHT, keep=True, trials=2).status is Status.PASSED
    first = seen.read_text().splitlines()[0].split()[2]
    seen.write_text("")
    for _ in range(2):
        pool.measure(0, 2, 60.0)
    lines = [line.split() for line in seen.read_text().splitlines()]
    assert len(lines) == 6
    assert {tuple(line) for line in lines} == {(lines[0][0], lines[0][1], first)}


def test_the_next_job_finds_released_what_was_kept(verdict, pool, tmp_path):
    gone = tmp_path / "gone"
    head = f"import pathlib, weakref\nGONE = pathlib.Path({str(gone)!r})\nCALLS = []"
    watch = (
        "if len(CALLS) == 1:\n"  # after the judge's call comes the first of a measurement
        "    weakref.finalize(x, GONE.write_text, 'gone')\n"
        "CALLS.append(1)\n"
    )
    assert verdict(watch + RIGHT, head=head, keep=True).status is Status.PASSED
    pool.measure(0, 1, 60.0)
    assert not gone.exists()
    look = f"if not pathlib.Path({str(gone)!r}).exists(): raise MemoryError\n"
    assert verdict(look + RIGHT, head="import pathlib").status is Status.PASSED
    with pytest.raises(MeasurementFailed, match="nothing is kept"):
        pool.measure(0, 1, 60.0)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("raise ValueError('the third call')", "ValueError: the third call"),
        ("import sys; sys.exit(0)", "sys.exit"),
    ],
    ids=["raises", "leaves"],
)
def test_a_solution_that_fails_while_measured_gets_a_verdict(verdict, pool, failure, words):
    body = f"CALLS.append(1)\nif len(CALLS) == 3:\n    print('third'); {failure}\n" + RIGHT
    assert verdict(body, head="CALLS = []", keep=True).status is Status.PASSED
    with pytest.raises(MeasurementFailed) as caught:
        pool.measure(1, 1, 60.0)
    outcome = caught.value.outcome
    assert outcome.status is Status.RUNTIME_ERROR and words in outcome.detail
    assert "third" in outcome.log and "Traceback" in outcome.log
    assert verdict(RIGHT).status is Status.PASSED


def test_a_wrong_solution_is_not_kept(verdict, pool):
    assert verdict(RIGHT + "y.zero_()", keep=True).status is Status.INCORRECT_NUMERICAL
    with pytest.raises(MeasurementFailed, match="nothing is kept"):
        pool.measure(0, 1, 60.0)
