"""What runs in processes of its own: traces of calls, the call's file, and the one call."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch.profiler import ProfilerActivity

from harness.audit.case import Case
from harness.evaluate.protocol import Stage, Status
from harness.profiling import single_call, traced_call, worker
from harness.profiling.shares import Activity
from harness.profiling.traced_call import TRACED_CALLS, WARMUP_CALLS
from tests.unit.judge_room import RIGHT, make_job, module


@pytest.fixture
def job(tmp_path):
    return make_job(tmp_path, module(RIGHT))


@pytest.fixture
def no_device(monkeypatch):
    """What a CPU has in the place of a GPU's synchronisation, L2 and profiler."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(traced_call, "flush_buffer", lambda device: torch.empty(8))
    monkeypatch.setattr(traced_call, "ProfilerActivity", SimpleNamespace(CUDA=ProfilerActivity.CPU))


def answer(path, job):
    stages = []
    return worker.answer(str(path), job, stages.append), stages


def test_a_job_is_answered_with_its_calls_and_leaves_its_inputs(
    job, tmp_path, monkeypatch, no_device
):
    monkeypatch.setattr(traced_call, "trace_calls", lambda case: [[Activity("step", 2.0, 64)]])
    path = tmp_path / "call.pt"
    outcome, stages = answer(path, job)
    assert outcome.status is Status.PASSED, outcome
    (call,) = json.loads(json.dumps(outcome.evaluation))["calls"]
    assert [Activity(**one) for one in call] == [Activity("step", 2.0, 64)]
    assert stages[0] is Stage.INPUTS and Stage.BUILD in stages
    saved = torch.load(path, weights_only=True)
    assert saved["job"] == job.to_json()
    assert [type(value) for value in saved["inputs"]] == [torch.Tensor, float]


def test_traced_calls_are_those_after_the_warm_up(job, no_device, monkeypatch):
    case = Case(job, 0)
    case.trial(0)
    case.build()
    count, call = [], case.call
    monkeypatch.setattr(case, "call", lambda *arguments: count.append(1) or call(*arguments))
    assert traced_call.trace_calls(case) == [[]] * TRACED_CALLS  # a CPU's events are no GPU's
    assert len(count) == WARMUP_CALLS + 1 + TRACED_CALLS


def test_a_solution_that_fails_is_named_and_not_the_machine(tmp_path, no_device):
    outcome, _ = answer(tmp_path / "call.pt", make_job(tmp_path, module("raise ValueError('x')")))
    assert outcome.status is Status.RUNTIME_ERROR and "ValueError: x" in outcome.detail
    assert (tmp_path / "call.pt").exists()


def test_a_solution_that_does_not_build_leaves_no_call(tmp_path, no_device):
    outcome, _ = answer(tmp_path / "call.pt", make_job(tmp_path, "import no_such_module\n"))
    assert outcome.status is Status.RUNTIME_ERROR and "does not build" in outcome.detail
    assert not (tmp_path / "call.pt").exists()


def test_a_profiler_that_fails_is_the_machines_fault(job, tmp_path, no_device, monkeypatch):
    @contextmanager
    def refuse(**_):
        raise RuntimeError("no profiler")
        yield

    monkeypatch.setattr(traced_call, "profile", refuse)
    outcome, _ = answer(tmp_path / "call.pt", job)
    assert outcome.status is Status.INFRASTRUCTURE and "no profiler" in outcome.detail


def test_ncu_sees_one_call_that_is_warm_and_whose_l2_is_cold(monkeypatch):
    seen = []
    case = SimpleNamespace(
        device="cuda:0",
        allocate=lambda inputs: ["out"],
        call=lambda inputs, outputs: seen.append("call"),
        launch=lambda inputs, outputs: seen.append("launch"),
    )
    flush = SimpleNamespace(zero_=lambda: seen.append("flush"))
    monkeypatch.setattr(single_call, "load", lambda path: (case, ["in"]))
    monkeypatch.setattr(single_call, "flush_buffer", lambda device: flush)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: seen.append("wait"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: seen.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: seen.append("stop"))
    single_call.main("call.pt")
    assert seen == ["call"] * WARMUP_CALLS + ["flush", "wait", "start", "launch", "wait", "stop"]
