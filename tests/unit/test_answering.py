"""Replays, audits and profiles: their loop answers and their rule decides as the judge's do."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.evaluate.judge import _Judge
from harness.evaluate.official_rule import rule_config
from harness.evaluate.pool import Pool, WorkerCommand, worker_environment
from harness.evaluate.protocol import Settings, Stage, Status
from tests.unit.judge_room import RIGHT, make_job, module

ROOT = Path(__file__).resolve().parents[2]
JUDGING = """
import sys
from harness.evaluate.answering import answer_jobs
from harness.evaluate.judge import judge

answer_jobs(judge, *sys.argv[1:])
"""
JOBS = {
    "a right one": (RIGHT, ""),
    "one that raises and prints": ("print('loud')\nraise ValueError('no such tile')", ""),
    "one that does not build": (RIGHT, "import no_such_module"),
    "one that closes its streams": ("import os\nos.close(1)\nos.close(2)\n" + RIGHT, ""),
    "one that ends its process": ("import os\nos._exit(3)", ""),
    "one after that": (RIGHT + "y[1, 2] = float('nan')\nprint('quiet')", ""),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What either loop answers to the same jobs, and the stages that it reports."""
    folder = tmp_path_factory.mktemp("set")
    jobs = [make_job(folder, module(body, head=head)) for body, head in JOBS.values()]
    argvs = (
        (sys.executable, "-m", "harness.evaluate.worker"),
        (sys.executable, "-c", JUDGING),
    )
    cache = tmp_path_factory.mktemp("builds")  # one: tracebacks name it
    return [ask(argv, jobs, cache) for argv in argvs]


def ask(argv, jobs, cache):
    environment = {**worker_environment("cpu", ROOT), "FIB_CACHE_PATH": str(cache)}
    found = []
    with Pool("cpu", ROOT, WorkerCommand(argv, environment)) as pool:
        for job in jobs:
            stages = []
            outcome = pool.run(job, stages.append)
            found.append((outcome, stages))
    return found


@pytest.mark.parametrize("index", range(len(JOBS)), ids=list(JOBS))
def test_both_loops_give_the_same_outcome_log_and_stages(answers, index):
    (judged, stages), (answered, reported) = (found[index] for found in answers)
    assert stages == reported and Stage.REFERENCE in stages
    assert set(judged.stages_s) == set(answered.stages_s)
    assert comparable(judged) == comparable(answered)


def test_the_jobs_are_told_apart(answers):
    statuses = [outcome.status for outcome, _ in answers[1]]
    assert statuses == [
        *(Status.PASSED, Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.PASSED),
        *(Status.RUNTIME_ERROR, Status.INCORRECT_NUMERICAL),
    ]
    assert "loud" in answers[1][1][0].log and "quiet" in answers[1][5][0].log


def comparable(outcome):
    """Without what a clock says: times, and the official evaluation's own stamp."""
    return replace(outcome, stages_s={}, trial_latencies_us=(), evaluation=None)


def test_nobody_replaces_a_function_of_the_judge():
    """`judge_untouched` compares the judge with what it was, so nothing else may change it, but for
    the one function that start.py replaces in a worker before any solution is there."""
    replaced = re.compile(r"^\s*(judge\.\w+) = ", re.MULTILINE)
    sources = list((ROOT / "harness").rglob("*.py"))
    assert len(sources) > 100
    found = [(path.name, *replaced.findall(path.read_text())) for path in sources]
    assert [one for one in found if len(one) > 1] == [("start.py", "judge.describe_mismatch")]
    assert replaced.search("def main():\n    judge.judge_and_keep = answer\n")


def test_trials_are_judged_by_the_settings_that_the_judge_judges_by(tmp_path):
    """Each value is another one's: whichever is left out or exchanged shows."""
    settings = Settings(7, 11, 5, 0.125, 0.25, 0.75, 77, "host", 0)
    job = replace(make_job(tmp_path, module(RIGHT)), settings=settings)
    assert rule_config(settings) == _Judge(job, lambda stage: None).config
    tenth = rule_config(settings, 0.1)
    assert (tenth.atol, tenth.rtol) == pytest.approx((0.0125, 0.025))
    assert tenth == replace(rule_config(settings), atol=tenth.atol, rtol=tenth.rtol)
