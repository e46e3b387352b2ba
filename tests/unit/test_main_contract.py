"""Packed rooms, traces, exports and evaluators under the contract of flashinfer-bench's main."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from flashinfer_bench.bench.config import BenchmarkConfig
from flashinfer_bench.bench.evaluators import registry
from flashinfer_bench.data import Solution, Trace

from harness import dataset
from harness.config import load_workspace
from harness.evaluators import DsaSparseAttentionEvaluator, DsaTopkIndexerEvaluator, register
from harness.packing import pack
from harness.records import STATUSES, UNJUDGED_STATUSES
from tests.official_rooms import official_workspace
from tests.sample_records import entry
from tests.unit import main_contract as contract

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = load_workspace()
IS_MAIN = hasattr(BenchmarkConfig, "resolve_eval_config")
only_main = pytest.mark.skipif(not IS_MAIN, reason="the pinned release is installed, not main")


def packed(room):
    return json.loads(pack(WORKSPACE, room).text)


# Solutions


@pytest.mark.parametrize("room", list(WORKSPACE.rooms))
def test_a_packed_room_is_a_solution_to_main(room):
    assert contract.solution_objections(packed(room)) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda v: v.update(name=""),
        lambda v: v["spec"].update(language="cute"),
        lambda v: v["spec"].update(target_hardware=[]),
        lambda v: v["spec"].update(entry_point="kernel.py"),
        lambda v: v["spec"].update(entry_point="other.py::run"),
        lambda v: v["spec"].update(binding="tvm_ffi"),
        lambda v: v["sources"].append({"path": "../x.py", "content": "x"}),
        lambda v: v["sources"].append({"path": "x.py", "content": ""}),
        lambda v: v["sources"].clear(),
    ],
)
def test_the_contract_and_the_schema_refuse_the_same(spoil):
    values = json.loads(SAMPLE)
    assert contract.solution_objections(values) == []
    assert Solution.model_validate(values)
    spoil(values)
    assert contract.solution_objections(values)
    with pytest.raises(ValueError):
        Solution.model_validate(values)


SAMPLE = json.dumps(
    {
        "name": "room-01234567",
        "definition": "definition",
        "author": "someone",
        "spec": {
            "language": "triton",
            "target_hardware": ["cuda"],
            "entry_point": "kernel.py::run",
            "destination_passing_style": True,
        },
        "sources": [{"path": "kernel.py", "content": "def run(x, y): ..."}],
    }
)


@pytest.mark.parametrize("room", list(WORKSPACE.rooms))
def test_an_entry_takes_one_positional_argument_for_each_tensor(room):
    """Under main as under 0.1.2, whose count is stricter: no default and no keyword."""
    values = packed(room)
    file, _, symbol = values["spec"]["entry_point"].partition("::")
    source = next(one["content"] for one in values["sources"] if one["path"] == file)
    function = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == symbol
    )
    names = [argument.arg for argument in function.args.args]
    stand_in = eval(f"lambda {', '.join(names)}: None")
    definition = dataset.read_definition(ROOT, WORKSPACE.room(room))
    counts = len(definition["inputs"]), len(definition["outputs"])
    is_dps = values["spec"]["destination_passing_style"]
    assert contract.binds(stand_in, *counts, is_dps)
    assert not contract.binds(stand_in, *counts, not is_dps)
    assert function.returns is None and not function.args.defaults


# Traces and folders


@pytest.mark.parametrize("status", [s for s in STATUSES if s not in UNJUDGED_STATUSES])
def test_a_ledgers_line_is_a_trace_to_main(status):
    line = entry(status=status, latency_us=2.5 if status == "PASSED" else None).to_json()
    assert contract.trace_objections(line, [line["solution"]]) == []
    assert not Trace.model_validate(line).is_workload_trace()
    assert contract.trace_objections(line, ["another"]), "main knows its solutions"
    expected = "RUNTIME_ERROR" if status == "NO_GPU_WORK" else status
    assert line["evaluation"]["status"] == expected


def test_the_contract_refuses_traces_that_contradict_themselves():
    line = entry().to_json()
    name = line["solution"]
    for key, value in (("performance", None), ("status", "NO_GPU_WORK"), ("timestamp", "")):
        spoiled = {**line, "evaluation": {**line["evaluation"], key: value}}
        assert contract.trace_objections(spoiled, [name]), key
    assert contract.trace_objections({**line, "evaluation": None}, [name])


def test_an_export_lies_where_main_looks(tmp_path):
    uuids = [WORKSPACE.room(room).smoke_cpu[0] for room in ("gdn_decode", "gdn_prefill")]
    dataset.export(official_workspace(), ROOT, tmp_path / "set", uuids)
    assert contract.layout_objections(tmp_path / "set") == []
    assert len(list((tmp_path / "set").rglob("*.json"))) == 4
    (tmp_path / "set" / "solutions" / "stray.json").write_text("{}")
    assert contract.layout_objections(tmp_path / "set") == ["solutions/stray.json"]


# Settings


@pytest.mark.parametrize("room", WORKSPACE.rooms.values(), ids=lambda room: room.name)
def test_our_settings_outrank_what_main_packages(room):
    asked = asdict(room.evaluation)
    resolved = contract.resolve(room.op_type, {**asked, "num_trials": asked["trials"]})
    for ours, theirs in (("trials", "num_trials"), *((n, n) for n in asked)):
        if theirs in {one.name for one in fields(resolved)}:
            assert getattr(resolved, theirs) == asked[ours], theirs


def test_without_being_asked_main_lowers_the_ratio_of_moe():
    assert contract.resolve("moe", {}).required_matched_ratio == 0.95
    assert contract.resolve("gdn", {"atol": None}) == contract.Resolved()


def used_keywords(path, name):
    return {
        keyword.arg
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name
        for keyword in node.keywords
    }


def test_what_we_configure_exists_under_main():
    found = set()
    for path in (ROOT / "harness").rglob("*.py"):
        found |= used_keywords(path, "BenchmarkConfig")
    assert {"atol", "num_trials", "timeout_seconds"} <= found <= contract.CONFIG_FIELDS


def test_what_we_import_exists_under_main():
    wanted = {}
    for path in (ROOT / "harness").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "flashinfer_bench"
            ):
                wanted.setdefault(node.module, set()).update(alias.name for alias in node.names)
    assert len(wanted) > 8
    missing = {
        module: names - contract.PROVIDES.get(module, set()) for module, names in wanted.items()
    }
    assert {module: names for module, names in missing.items() if names} == {}


# Evaluators


@pytest.mark.parametrize("evaluator", [DsaSparseAttentionEvaluator, DsaTopkIndexerEvaluator])
def test_our_evaluators_take_what_mains_runners_give(evaluator):
    for name, parameters in contract.EVALUATOR.items():
        signature = inspect.signature(getattr(evaluator, name))
        signature.bind(**dict.fromkeys(parameters))


def test_ours_stand_down_where_main_has_its_own(monkeypatch):
    """Two that claim one definition end main's look-up with an error."""
    theirs = [type("DsaSparseAttentionEvaluator", (), {}), type("DsaTopkIndexerEvaluator", (), {})]
    monkeypatch.setattr(registry, "_EVALUATORS", list(theirs))
    assert register() == []
    assert theirs == registry._EVALUATORS


ATTENTION = SimpleNamespace(
    name="dsa_sparse_attention_test",
    inputs={"q": None},
    outputs={"output": None, "lse": None},
)


@pytest.mark.parametrize(
    ("offset", "status"), [(0.0, None), (1e-3, None), (1.0, "INCORRECT_NUMERICAL")]
)
def test_our_attention_rule_judges_by_mains_settings(monkeypatch, offset, status):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    want = [torch.ones(2, 3), torch.zeros(2)]
    runnable = Returning([want[0] + offset, want[1]])
    settings = contract.resolve("dsa_paged", {"profile_baseline": False})
    correctness, evaluation = DsaSparseAttentionEvaluator.check_correctness(
        definition=ATTENTION,
        sol_runnable=runnable,
        inputs=[[torch.zeros(1)]],
        ref_outputs=[want],
        cfg=settings,
        log_path=None,
        device="cpu",
    )
    assert (None if evaluation is None else evaluation.status.value) == status
    assert correctness.max_absolute_error == pytest.approx(offset, abs=1e-6)


class Returning:
    """A solution that returns these outputs whatever it gets."""

    metadata = SimpleNamespace(destination_passing_style=False)

    def __init__(self, outputs):
        self.outputs = outputs

    def __call__(self, *_):
        return self.outputs


# The stand-in beside the real one


@only_main
def test_the_stand_in_resolves_settings_as_main_does():
    for room in WORKSPACE.rooms.values():
        asked = {"atol": room.evaluation.atol, "num_trials": room.evaluation.trials}
        definition = SimpleNamespace(op_type=room.op_type, name=room.definition)
        theirs = BenchmarkConfig.default(**asked).resolve_eval_config(definition)
        assert asdict(contract.resolve(room.op_type, asked)) == theirs.model_dump()


@only_main
def test_the_stand_in_names_what_main_has():
    assert set(BenchmarkConfig.model_fields) == contract.CONFIG_FIELDS
    for module, names in contract.PROVIDES.items():
        there = importlib.import_module(module)
        assert [name for name in names if not hasattr(there, name)] == [], module
    default = importlib.import_module("flashinfer_bench.bench.evaluators.default")
    for name, parameters in contract.EVALUATOR.items():
        signature = inspect.signature(getattr(default.DefaultEvaluator, name))
        assert tuple(signature.parameters) == parameters, name
