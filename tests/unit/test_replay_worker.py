"""Trials judged for real: in this process, and in the worker that a solution may crash."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from harness.config import load_workspace
from harness.dataset import find_file
from harness.evaluate.judge import judge
from harness.evaluate.protocol import Job, Settings, Stage, Status, trial_seed
from harness.evaluators import register
from harness.replay.batch import BatchResult, batch_job, drawn_inputs
from harness.replay.engine import replay_pool
from harness.replay.trials import Replayer
from tests.unit.judge_room import RIGHT, UUID, make_job, module, solution

ROOT = Path(__file__).resolve().parents[2]
TAIL = "x[0, 0] < -1.6449"  # 5 % of standard normal draws
WRONG_IN_5_PERCENT = RIGHT + f"if {TAIL}:\n    y[1, 2] += 1"


@pytest.fixture(autouse=True)
def no_device(monkeypatch):
    """The official evaluators synchronise unconditionally; the worker does the same on a CPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


def run(job, first, count, replayer=None):
    stages = []
    outcome = (replayer or Replayer()).answer(batch_job(job, first, count), stages.append)
    assert outcome.status is Status.PASSED, outcome.detail
    return BatchResult.from_json(outcome.evaluation), stages


def tail_trials(count):
    """The trials whose inputs the solution gets wrong, by drawing the inputs here."""
    found = []
    for trial in range(count):
        torch.manual_seed(trial_seed(0, UUID, trial))
        if torch.randn(3, 4)[0, 0] < -1.6449:
            found.append(trial)
    return found


def test_a_solution_wrong_in_5_percent_of_seeds_is_caught_on_exactly_those(tmp_path):
    job = make_job(tmp_path, module(WRONG_IN_5_PERCENT))
    result, stages = run(job, 0, 400)
    assert [found.trial for found in result.mismatches] == tail_trials(400)
    assert 8 <= len(result.mismatches) <= 34, "within 3 standard deviations of 20"
    assert stages.count(Stage.REFERENCE) == 400
    first = result.mismatches[0]
    assert first.status == "INCORRECT_NUMERICAL" and "worst at [1, 2]" in first.detail
    assert first.max_abs_error == pytest.approx(1.0, rel=1e-6)
    assert result.max_abs_error == 0.0 and result.boundary is None


def test_a_trial_alone_is_the_trial_of_the_batch_and_of_evaluate(tmp_path):
    job = make_job(tmp_path, module(WRONG_IN_5_PERCENT))
    trials = tail_trials(60)
    in_batch = run(job, 0, 60)[0].mismatches
    for trial, found in zip(trials, in_batch, strict=True):
        assert run(job, trial, 1)[0].mismatches == (found,)
        verdict = judge(replace(job, only_trial=trial), lambda stage: None)
        assert verdict.status.value == found.status
        assert verdict.max_abs_error == found.max_abs_error


@pytest.mark.parametrize("is_dps", [True, False])
def test_an_exception_ends_a_batch_behind_its_trial(tmp_path, is_dps):
    tail = RIGHT if is_dps else "return scale * x, torch.logsumexp(x, dim=1) / 0.6931471805599453"
    body = f"if {TAIL}:\n    raise ValueError('no such tile')\n{tail}"
    job = make_job(tmp_path, module(body, is_dps), is_dps=is_dps)
    first, second = tail_trials(200)[:2]
    replayer = Replayer()
    result, _ = run(job, 0, 200, replayer)
    assert result.done == first + 1
    (found,) = result.mismatches
    assert (found.status, found.detail) == ("RUNTIME_ERROR", "ValueError: no such tile")
    result, stages = run(job, first + 1, 200, replayer)
    assert result.done == second - first
    assert Stage.BUILD not in stages, "the batch after it finds the solution built"


def test_a_solution_that_keeps_the_last_answer_is_caught(tmp_path):
    body = f"kept.append(scale * x)\n{RIGHT}y.copy_(kept[0])"
    result, _ = run(make_job(tmp_path, module(body, head="kept = []")), 0, 5)
    assert [found.trial for found in result.mismatches] == [1, 2, 3, 4]


def test_a_reference_that_is_not_finite_tests_nothing(tmp_path):
    reference = (
        "import torch\n\n\ndef run(x, scale):\n    y = scale * x\n"
        "    return torch.where(x[0, 0] < 0, torch.nan, 1.0) * y, torch.logsumexp(x, 1)\n"
    )
    body = "y.copy_(scale * x)\nlse.copy_(torch.logsumexp(x, 1))"
    result, _ = run(make_job(tmp_path, module(body), reference=reference), 0, 50)
    assert not result.mismatches and result.done == 50
    assert 10 < len(result.untested) < 40


def test_inputs_that_no_trial_draws_are_made_once(tmp_path):
    job = make_job(tmp_path, module(RIGHT))
    save_file({"x": torch.randn(3, 4)}, tmp_path / "x.safetensors")
    spec = {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}
    fixed = {**job.workload, "inputs": {**job.workload["inputs"], "x": spec}}
    definition = json.loads(job.definition)
    assert drawn_inputs(definition, job.workload) == ("x",)
    assert drawn_inputs(definition, fixed) == ()
    body = f"kept.append(scale * x)\n{RIGHT}y.copy_(kept[0])"
    stale = replace(job, workload=fixed, solution=solution(module(body, head="kept: list = []")))
    assert run(stale, 0, 5)[0].mismatches == ()


def test_what_does_not_build_or_has_no_reference_is_no_batch(tmp_path):
    for fields, source, status in (
        ({}, module(RIGHT, head="import no_such_module"), Status.COMPILE_ERROR),
        ({"reference": "def run(x, scale):\n    raise ValueError('no')\n"}, module(RIGHT),
         Status.REFERENCE_ERROR),
    ):  # fmt: skip
        job = batch_job(make_job(tmp_path, source, **fields), 0, 2)
        outcome = Replayer().answer(job, lambda stage: None)
        assert outcome.status is status and outcome.evaluation is None


def test_the_worker_that_crashes_names_the_trial(tmp_path):
    head = "import os, signal"
    body = f"if {TAIL}:\n    os.kill(os.getpid(), signal.SIGSEGV)\n{RIGHT}"
    job = make_job(tmp_path / "set", module(body, head=head))
    begun = []
    with replay_pool("cpu", ROOT) as pool:
        outcome = pool.run(batch_job(job, 0, 200), begun.append)
        assert outcome.status is Status.RUNTIME_ERROR and "SIGSEGV" in outcome.detail
        assert begun.count(Stage.REFERENCE) - 1 == tail_trials(200)[0]
        outcome = pool.run(batch_job(make_job(tmp_path / "set", module(RIGHT)), 0, 3))
        assert BatchResult.from_json(outcome.evaluation).done == 3


# Top-k

SEQ_LENS = (2100, 700)
SELECTION = """
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    chosen = reference(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table)[0]
    {change}
    topk_indices.copy_(chosen)
"""


def indexer_job(folder, change="pass", repeated=False):
    """Two sequences, of which one is longer than 2048. change: of the reference's choice."""
    register()
    workspace = load_workspace()
    definition = find_file(workspace.root, "definitions", workspace.room("dsa_indexer"))
    text = definition.read_text()
    table = torch.zeros(2, 33, dtype=torch.int32)
    table[0] = torch.arange(1, 34)
    table[1, :11] = torch.arange(34, 45)
    if repeated:
        table[0, 5] = table[0, 4]
    lengths = torch.tensor(SEQ_LENS, dtype=torch.int32)
    folder.mkdir(exist_ok=True)
    save_file({"seq_lens": lengths, "block_table": table}, folder / "pages.safetensors")
    source = json.loads(text)["reference"].replace("def run(", "def reference(")
    packed = json.loads(solution(source + SELECTION.format(change=change)))
    files = {
        name: {"type": "safetensors", "path": "pages.safetensors", "tensor_key": name}
        for name in ("seq_lens", "block_table")
    }
    random = {key: {"type": "random"} for key in ("q_index_fp8", "k_index_cache_fp8", "weights")}
    return Job(
        room="dsa_indexer",
        definition=text,
        solution=json.dumps({**packed, "definition": json.loads(text)["name"]}),
        dataset_root=str(folder),
        workload={
            "axes": {"batch_size": 2, "max_num_pages": 33, "num_pages": 45},
            "inputs": {**random, **files},
            "uuid": UUID,
        },
        device="cpu",
        settings=Settings(1, 1, 3, 0.01, 0.01, 1.0, 60, "host", 0),
    )


@pytest.mark.parametrize("change", ["pass", "chosen = chosen.flip(1)"])
def test_the_same_tokens_in_any_order_pass_with_their_margins(tmp_path, change):
    result, _ = run(indexer_job(tmp_path, change), 0, 3)
    assert result.mismatches == () and result.max_abs_error == 0.0
    boundary = result.boundary
    assert len(boundary.margins) == 3 and len(set(boundary.margins)) == 3
    assert 0.0 < boundary.epsilon < 1e-3
    assert (boundary.exchanged, boundary.exchange_gap) == (0, 0.0)


def test_a_token_lost_is_a_mismatch_in_every_trial(tmp_path):
    result, _ = run(indexer_job(tmp_path, "chosen[0, 0] = chosen[0, 2047]"), 0, 2)
    assert [found.trial for found in result.mismatches] == [0, 1]
    assert "duplicate index" in result.mismatches[0].detail


LAST_FOR_NEXT = """taken = set(chosen[0].tolist())
    everything = [p * 64 + s for p in block_table[0].tolist() for s in range(64)][:2100]
    rest = torch.tensor([token for token in everything if token not in taken])
    keys = dequantise_pages(k_index_cache_fp8).view(-1, HEAD_DIM)[rest]
    products = torch.relu(q_index_fp8[0].float() @ keys.t()) * weights[0].unsqueeze(1)
    chosen[0, 2047] = rest[products.sum(dim=0).argmax()]"""


def test_an_exchange_within_the_rule_shows_the_error_that_it_takes(tmp_path):
    """The last token selected is exchanged for the first left out, which the rule accepts where
    their scores are near."""
    result, _ = run(indexer_job(tmp_path, LAST_FOR_NEXT), 0, 4)
    accepted = 4 - len(result.mismatches)
    assert accepted > 0 and result.boundary.exchanged == accepted
    wrong = {found.trial for found in result.mismatches}
    kept = [margin for trial, margin in enumerate(result.boundary.margins) if trial not in wrong]
    assert result.boundary.exchange_gap == pytest.approx(max(kept) / 2, rel=1e-3)


def test_a_page_listed_twice_is_left_to_the_official_rule(tmp_path):
    """There the reference may name a token twice, and the rule refuses that of anybody."""
    result, _ = run(indexer_job(tmp_path, repeated=True), 0, 2)
    assert len(result.mismatches) == 2
    assert "duplicate" in result.mismatches[0].detail
