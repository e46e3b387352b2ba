"""The judge in this process: what each kind of solution and reference gets for a verdict."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from flashinfer_bench.compile import BuilderRegistry
from safetensors import safe_open
from safetensors.torch import save_file

from harness.evaluate.judge import PoisoningRunnable, judge
from harness.evaluate.protocol import Stage, Status
from harness.evaluate.timed_call import HostTimer
from harness.records.strict_json import dump
from tests.unit.judge_room import (
    COLUMNS,
    REFERENCE,
    RIGHT,
    RIGHT_VALUES,
    ROWS,
    UUID,
    make_job,
    module,
)

REPEAT = f"repeat: python -m harness evaluate scale_rows --workloads {UUID} --seed 0 --only-trial "

# Ways to give back y and lse, by whether the solution writes into its outputs.
STYLES = pytest.mark.parametrize("is_dps", [True, False], ids=["destination", "value"])
RIGHT_IN = {True: RIGHT, False: RIGHT_VALUES}
WRONG_IN = {
    True: RIGHT + "y[1, 2] += 0.5\ny[2, 3] -= 7.0",
    False: RIGHT_VALUES.replace("return", "y, lse =")
    + "\ny[1, 2] += 0.5\ny[2, 3] -= 7.0\nreturn y, lse",
}


@pytest.fixture(autouse=True)
def own_builds(tmp_path, monkeypatch):
    """No build of another test; a build cache below tmp_path; nothing left on sys.path."""
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "builds"))
    monkeypatch.setattr(BuilderRegistry, "_instance", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


@pytest.fixture
def verdict(tmp_path):
    """Judge a body of run. Keywords as for make_job."""

    def run(body, head="", is_dps=True, **fields):
        job = make_job(tmp_path / "set", module(body, is_dps, head), is_dps=is_dps, **fields)
        return judge(job, lambda stage: None)

    return run


@STYLES
def test_a_right_solution_passes(verdict, is_dps):
    outcome = verdict(RIGHT_IN[is_dps], is_dps=is_dps, trials=3)
    assert outcome.status is Status.PASSED, outcome.detail
    assert outcome.max_abs_error <= 1e-6
    assert outcome.latency_us is None, "the host's clock is no latency"
    assert outcome.evaluation["status"] == "PASSED"
    assert outcome.detail == outcome.log == ""


@STYLES
def test_wrong_elements_are_named_with_a_command_that_repeats_the_trial(verdict, is_dps):
    outcome = verdict(WRONG_IN[is_dps], is_dps=is_dps, trials=3)
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "y: 2 of 12 elements wrong (allowed 0)" in outcome.detail
    assert "first at [1, 2]" in outcome.detail
    assert "worst at [2, 3]" in outcome.detail
    assert outcome.detail.startswith("trial 0; ")
    assert outcome.detail.endswith(REPEAT + "0")
    assert outcome.max_abs_error == pytest.approx(7.0, rel=1e-6)
    assert outcome.evaluation["status"] == "INCORRECT_NUMERICAL"


def test_a_command_that_repeats_keeps_the_options_that_matter(verdict):
    outcome = verdict("y.zero_()", repeat_options=" --route portable")
    assert outcome.detail.endswith(REPEAT + "0 --route portable")


def test_the_second_output_counts_as_much_as_the_first(verdict):
    outcome = verdict(RIGHT + "lse[1] += 0.5")
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "lse: 1 of 3 elements wrong" in outcome.detail
    assert "y:" not in outcome.detail


def test_an_error_in_the_last_trial_is_found(verdict, tmp_path):
    count = f"calls = open({str(tmp_path / 'calls')!r}, 'a+')\ncalls.write('.')\ncalls.flush()\n"
    third = "calls.seek(0)\nif len(calls.read()) >= 3:\n    y.zero_()\n"
    outcome = verdict(RIGHT + count + third + "calls.close()", trials=3)
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert outcome.detail.startswith("trial 2; ")
    assert outcome.detail.endswith(REPEAT + "2")


# Outputs are poisoned


def test_an_output_that_was_never_written_fails(verdict):
    outcome = verdict("pass")
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "y: 12 of 12 elements wrong" in outcome.detail
    assert "lse: 3 of 3 elements wrong" in outcome.detail


def test_a_partly_written_output_names_its_first_gap(verdict):
    outcome = verdict(RIGHT.replace("y.copy_(scale * x)", "y[:2] = scale * x[:2]"))
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert f"y: {COLUMNS} of 12 elements wrong" in outcome.detail
    assert "first at [2, 0]" in outcome.detail
    assert "got nan" in outcome.detail


def test_adding_to_an_output_fails_whatever_its_memory_held(verdict):
    outcome = verdict(RIGHT.replace("y.copy_(", "y.add_("))
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "got nan" in outcome.detail


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.int32, torch.int64],
    ids=str,
)
def test_every_call_finds_poison_in_every_output(dtype):
    seen = []

    def inner(x, first, second):
        seen.append((first.float().clone(), second.float().clone()))
        first.zero_(), second.zero_()

    inner.metadata = SimpleNamespace(destination_passing_style=True)
    x = torch.ones(2, 3).to(dtype)
    outputs = [torch.zeros(2, 3).to(dtype), torch.zeros(4).to(dtype)]
    for _ in range(2):
        PoisoningRunnable(inner, 2)(x, *outputs)
    assert torch.equal(x.float(), torch.ones(2, 3)), "an input was poisoned"
    limit = torch.iinfo(dtype).max // 2 if not dtype.is_floating_point else None
    for output in (output for call in seen for output in call):
        assert output.isnan().all() if limit is None else (output > limit - 1).all()


def test_nothing_is_poisoned_for_a_solution_that_returns_its_outputs():
    def inner(*inputs):
        return inputs

    inner.metadata = SimpleNamespace(destination_passing_style=False)
    x, last = torch.ones(2), torch.ones(3)
    PoisoningRunnable(inner, 1)(x, last)
    assert torch.equal(last, torch.ones(3))


# Other verdicts on a solution


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return (scale * x)[:2], torch.zeros(3)", Status.INCORRECT_SHAPE),
        ("return (scale * x).flatten(), torch.zeros(3)", Status.INCORRECT_SHAPE),
        ("return (scale * x).double(), torch.zeros(3)", Status.INCORRECT_DTYPE),
        ("return scale * x, torch.zeros(3, 1)", Status.INCORRECT_SHAPE),
        ("return scale * x, torch.zeros(3).double()", Status.INCORRECT_DTYPE),
        ("return scale * x", Status.RUNTIME_ERROR),
        ("return scale * x, scale * x, scale * x", Status.RUNTIME_ERROR),
        ("return None", Status.RUNTIME_ERROR),
    ],
    ids=["rows", "rank", "dtype", "second-shape", "second-dtype", "one", "three", "none"],
)
def test_returned_values_of_the_wrong_kind(verdict, body, status):
    outcome = verdict(body, is_dps=False)
    assert outcome.status is status, outcome.detail
    assert outcome.evaluation["status"] == status.value
    assert outcome.detail.endswith(REPEAT + "0")


@STYLES
def test_raising_in_run_is_a_runtime_error(verdict, is_dps, capsys):
    outcome = verdict("raise ValueError('the seventh seal')", is_dps=is_dps)
    assert outcome.status is Status.RUNTIME_ERROR
    assert "trial 0" in outcome.detail
    assert "the seventh seal" in capsys.readouterr().err, "what the worker keeps as the log"


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("import module_that_does_not_exist", "module_that_does_not_exist"),
        ("1 / 0", "division by zero"),
        ("def f(:", "invalid syntax"),
    ],
    ids=["import", "raises", "syntax"],
)
def test_a_module_that_cannot_be_imported_is_a_compile_error(verdict, head, words):
    outcome = verdict(RIGHT, head=head)
    assert outcome.status is Status.COMPILE_ERROR
    assert words in outcome.detail
    assert "Traceback" in outcome.log
    assert outcome.evaluation["status"] == "COMPILE_ERROR"


def test_the_wrong_number_of_parameters_is_a_compile_error(tmp_path):
    job = make_job(tmp_path / "set", module(RIGHT_VALUES, is_dps=False), is_dps=True)
    outcome = judge(job, lambda stage: None)
    assert outcome.status is Status.COMPILE_ERROR
    assert re.search(r"4 (positional )?parameters.*(2|\(x, scale\))", outcome.detail)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_one_element_that_is_not_finite_fails(verdict, value):
    outcome = verdict(RIGHT + f"y[1, 3] = float('{value}')")
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "y: 1 of 12 elements wrong" in outcome.detail
    assert "first at [1, 3]" in outcome.detail
    assert f"got {value}" in outcome.detail


@pytest.mark.parametrize(
    ("factor", "words"),
    [("0.6931471805599453", "1.442695"), ("1.4426950408889634", "0.693147")],
    ids=["natural", "twice"],
)
def test_the_wrong_base_of_lse_is_named(verdict, factor, words):
    outcome = verdict(RIGHT + f"lse.mul_({factor})")
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert f"every value is off by {words}" in outcome.detail
    assert "base" in outcome.detail


# References


def returning(y):
    return f"import torch\n\n\ndef run(x, scale):\n    y = {y}\n    return y, torch.zeros(3)\n"


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "body", [RIGHT, "y.fill_(float('nan'))\nlse.zero_()"], ids=["right", "nan"]
)
def test_a_reference_that_is_not_finite_tests_nothing(verdict, body, value):
    reference = returning(f"(scale * x).index_fill(1, torch.tensor([2]), float('{value}'))")
    outcome = verdict(body, reference=reference, trials=2)
    assert outcome.status is Status.INVALID_REFERENCE
    assert "trial 0: reference y: 3 elements (25 %)" in outcome.detail
    assert outcome.evaluation is None, "no official status exists for it"


@pytest.mark.parametrize(
    "y",
    ["undefined_name", "scale * x.view(7)", "(scale * x)[0][99]"],
    ids=["name", "view", "index"],
)
def test_a_reference_that_raises_is_not_the_solutions_fault(verdict, y):
    outcome = verdict(RIGHT, reference=returning(y))
    assert outcome.status is Status.REFERENCE_ERROR
    assert "Traceback" in outcome.log
    assert outcome.detail and outcome.evaluation is None


@pytest.fixture
def timed_verdict(tmp_path, monkeypatch):
    """Judge the right solution, timed as on a GPU by the host's clock, and time the reference."""
    monkeypatch.setattr("harness.evaluate.judge.find_timer", lambda name, device: HostTimer())

    def run(reference):
        job = make_job(tmp_path / "set", module(RIGHT), reference=reference, time_reference=True)
        job = replace(job, settings=replace(job.settings, timer="cupti"))
        stages = []
        return judge(job, stages.append), stages

    return run


def test_the_reference_is_timed_in_a_stage_of_its_own(timed_verdict):
    outcome, stages = timed_verdict(REFERENCE)
    assert outcome.status is Status.PASSED and outcome.detail == ""
    assert outcome.latency_us > 0.0 and outcome.reference_latency_us > 0.0
    assert stages[-2:] == [Stage.TIMING, Stage.REFERENCE_TIMING]


def test_a_reference_that_fails_while_timed_leaves_the_solutions_verdict(timed_verdict, tmp_path):
    """It ran once for the answer; the second call is the first of its timing."""
    mark = tmp_path / "called"
    once = (
        f"import pathlib\nmark = pathlib.Path({str(mark)!r})\n"
        "if mark.exists():\n    raise MemoryError('the second call')\nmark.touch()\n"
    )
    outcome, _ = timed_verdict(module(once + RIGHT_VALUES, is_dps=False))
    assert outcome.status is Status.PASSED and outcome.latency_us > 0.0
    assert outcome.reference_latency_us is None
    assert outcome.detail == "the reference could not be timed: MemoryError: the second call"
    assert outcome.evaluation["status"] == "PASSED"


# Damaged data


def truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def reshape(path):
    save_file({"rows": torch.zeros(COLUMNS, ROWS)}, path)


def retype(path):
    save_file({"rows": torch.zeros(ROWS, COLUMNS).double()}, path)


def rename(path):
    save_file({"columns": torch.zeros(ROWS, COLUMNS)}, path)


def point(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


@pytest.mark.parametrize("damage", [Path.unlink, truncate, reshape, retype, rename, point])
def test_a_damaged_file_is_the_data_sets_fault_and_named(tmp_path, damage):
    root = tmp_path / "set"
    job = make_job(root, module(RIGHT))
    job.workload["inputs"]["x"] = {
        "type": "safetensors", "path": "./blob/x.safetensors", "tensor_key": "rows",
    }  # fmt: skip
    path = root / "blob" / "x.safetensors"
    path.parent.mkdir()
    save_file({"rows": torch.zeros(ROWS, COLUMNS)}, path)
    assert judge(job, lambda stage: None).status is Status.PASSED
    damage(path)
    outcome = judge(job, lambda stage: None)
    assert outcome.status is Status.INFRASTRUCTURE, outcome.detail
    assert outcome.detail.startswith(f"{path}: ")
    assert f"`python -m harness dataset verify scale_rows --dataset {root}`" in outcome.detail


# Seeds


@pytest.fixture
def inputs_seen(verdict, tmp_path):
    """The bytes of x in each call of a judged solution."""

    def run(**fields):
        path = tmp_path / "seen"
        path.unlink(missing_ok=True)
        record = f"with open({str(path)!r}, 'ab') as seen:\n    seen.write(x.numpy().tobytes())\n"
        assert verdict(RIGHT + record, **fields).status is Status.PASSED
        data, size = path.read_bytes(), ROWS * COLUMNS * 4
        return [data[start : start + size] for start in range(0, len(data), size)]

    return run


def test_one_trial_alone_has_the_inputs_it_has_among_others(inputs_seen):
    three = inputs_seen(trials=3)
    assert len(three) == len(set(three)) == 3
    assert [inputs_seen(trials=3, only_trial=trial) for trial in range(3)] == [[x] for x in three]


def test_seeds_repeat_and_differ(inputs_seen):
    assert inputs_seen(seed=0) == inputs_seen(seed=0)
    assert inputs_seen(seed=0) != inputs_seen(seed=1)


def test_a_repeated_trial_reports_its_own_number(verdict):
    outcome = verdict("y.zero_()", trials=3, only_trial=2, seed=0)
    assert outcome.detail.startswith("trial 2; ")
    assert outcome.detail.endswith(REPEAT + "2")


# Kept inputs


def test_inputs_of_a_failing_trial_are_kept(verdict, inputs_seen, tmp_path):
    folder = tmp_path / "new" / "kept"
    outcome = verdict(RIGHT + "y.zero_()", trials=3, only_trial=1, dump_folder=str(folder))
    path = folder / f"scale_rows-{UUID}-trial1.safetensors"
    assert list(folder.iterdir()) == [path]
    assert f"inputs kept in {path}" in outcome.detail
    with safe_open(path, framework="pt") as kept:
        assert kept.metadata() == {"scale": "2.0"}
        (expected,) = inputs_seen(trials=3, only_trial=1)
        assert kept.get_tensor("x").numpy().tobytes() == expected


def test_a_folder_that_cannot_be_written_only_adds_a_note(verdict, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = verdict(WRONG_IN[True], dump_folder=str(tmp_path / "file" / "kept"))
    assert outcome.status is Status.INCORRECT_NUMERICAL
    assert "could not be kept" in outcome.detail
    assert "worst at [2, 3]" in outcome.detail
    assert outcome.detail.endswith(REPEAT + "0")


def test_nothing_is_kept_of_a_pass(verdict, tmp_path):
    assert verdict(RIGHT, dump_folder=str(tmp_path / "kept")).status is Status.PASSED
    assert not (tmp_path / "kept").exists()


# Stages


def test_stages_come_in_order(tmp_path):
    stages = []
    judge(make_job(tmp_path / "set", module(RIGHT)), stages.append)
    assert stages == [
        *(Stage.INPUTS, Stage.REFERENCE, Stage.BUILD),
        *(Stage.CORRECTNESS, Stage.TIMING),
    ]


@pytest.mark.parametrize(("kind", "calls"), [("random", 3), ("safetensors", 1)])
def test_equal_inputs_are_given_to_the_reference_once(tmp_path, kind, calls):
    count = f"with open({str(tmp_path / 'calls')!r}, 'a') as calls:\n    calls.write('.')\n"
    reference = module(count + RIGHT_VALUES, is_dps=False)
    job = make_job(tmp_path / "set", module(RIGHT), reference=reference, trials=3)
    save_file({"rows": torch.arange(12.0).view(ROWS, COLUMNS)}, tmp_path / "set" / "x.safetensors")
    if kind == "safetensors":
        stored = {"type": kind, "path": "x.safetensors", "tensor_key": "rows"}
        job.workload["inputs"]["x"] = stored
    assert judge(job, lambda stage: None).status is Status.PASSED
    assert (tmp_path / "calls").read_text() == "." * calls


def test_a_solution_gets_copies_of_the_inputs():
    """The acceptance rule of the indexer, and later trials, read the inputs after the call."""

    class Spoiler:
        metadata = SimpleNamespace(destination_passing_style=True)

        def __call__(self, x, y):
            y.copy_(x)
            x.zero_()

    x, y = torch.ones(3), torch.zeros(3)
    PoisoningRunnable(Spoiler(), 1)(x, y)
    assert torch.equal(x, torch.ones(3)) and torch.equal(y, torch.ones(3))


def test_text_that_is_none_can_be_recorded():
    assert dump({"log": "\udcff"}) == '{"log": "\\\\udcff"}'
