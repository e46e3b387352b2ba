"""Kernels outside the contest, on a CPU in the Triton interpreter: functions and apply."""

from __future__ import annotations

import inspect
import json
import math
import os
import pickle
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harness
from harness import serving
from harness.config import load_workspace
from harness.errors import ConfigError, EnvironmentUnfit, RecordError, UsageError
from harness.packing import pack
from harness.serving import write_apply_set
from tests import sample_records
from tests.oracles.gdn_decode import oracle, random_inputs
from tests.packed import call as call_packed
from tests.packed import device
from tests.submission_checkout import sweep

ROOT = Path(__file__).resolve().parents[2]
ROOM, DEFINITION = "gdn_decode", "gdn_decode_qk4_v8_d128_k_last"


@pytest.fixture(scope="module")
def decode():
    return harness.load(ROOM)


@pytest.fixture(scope="module")
def inputs():
    return random_inputs(2, seed=5, device=device())


def registered(function):
    return getattr(torch.ops.contest_kernels, function.__name__).default


# The function


def test_it_gives_what_the_judged_solution_gives(decode, inputs):
    outputs = decode(*inputs.values())
    wanted = (torch.empty_like(outputs[0]), torch.empty_like(outputs[1]))
    call_packed(ROOM, list(inputs.values()), wanted)
    for got, want in zip(outputs, wanted, strict=True):
        assert torch.equal(got, want)


def test_it_agrees_with_the_oracle(decode, inputs):
    new_state = decode(**inputs)[1]
    wanted = oracle(**inputs)[1]
    torch.testing.assert_close(new_state.double().cpu(), wanted, rtol=1e-5, atol=1e-6)


def test_inputs_go_by_position_or_name_as_the_definition_has_them(decode, inputs):
    names = tuple(inspect.signature(decode).parameters)
    assert names == tuple(inputs)
    assert "state: float32 [batch_size, num_v_heads, head_size, head_size]" in decode.__doc__
    backwards = dict(reversed(inputs.items()))
    for left, right in zip(decode(**backwards), decode(*inputs.values()), strict=True):
        assert torch.equal(left, right)


def test_outputs_are_new_in_every_call(decode, inputs):
    first, second = decode(**inputs)[1], decode(**inputs)[1]
    assert first.data_ptr() != second.data_ptr()
    kept = first.clone()
    second.zero_()
    assert torch.equal(first, kept)


def test_the_kernels_own_checks_speak(decode, inputs):
    with pytest.raises(TypeError, match="k: expected"):
        decode(**inputs | {"k": inputs["k"].float()})


def test_it_is_named_after_its_content_and_registered_once(decode):
    assert decode.__name__ == f"gdn_decode_{pack(load_workspace(), ROOM).sha256[:8]}"
    assert harness.load(ROOM) is decode
    assert str(registered(decode)._schema) == (
        f"contest_kernels::{decode.__name__}(Tensor q, Tensor k, Tensor v, Tensor? state, "
        "Tensor A_log, Tensor a, Tensor dt_bias, Tensor b, float scale) -> (Tensor, Tensor)"
    )


def test_a_packed_file_gives_the_same_function(decode, inputs, tmp_path):
    path = tmp_path / "5 my-kernel.json"
    path.write_text(pack(load_workspace(), ROOM).text)
    other = harness.load(path)
    assert other.__name__.startswith("_5_my_kernel_")
    assert torch.equal(other(**inputs)[1], decode(**inputs)[1])


@pytest.mark.parametrize("room", list(load_workspace().rooms))
def test_every_room_has_a_schema_and_fake_outputs_of_the_right_shapes(room):
    """The definition's own shapes and dtypes, without running the kernel."""
    from flashinfer_bench.data import Definition
    from flashinfer_bench.utils import dtype_str_to_torch_dtype
    from torch._subclasses.fake_tensor import FakeTensorMode

    workspace = load_workspace()
    definition = Definition.model_validate_json(
        serving._definition_text(workspace, workspace.room(room))
    )
    sizes = {
        name: getattr(axis, "value", 3 + position)
        for position, (name, axis) in enumerate(definition.axes.items())
    }

    def shape(spec):
        return [sizes[axis] for axis in spec.shape]

    with FakeTensorMode():
        arguments = [
            1
            if spec.shape is None
            else torch.empty(shape(spec), dtype=dtype_str_to_torch_dtype(spec.dtype.value))
            for spec in definition.inputs.values()
        ]
        made = registered(harness.load(room))(*arguments)
    made = made if isinstance(made, tuple) else (made,)
    assert [(list(one.shape), one.dtype) for one in made] == [
        (shape(spec), dtype_str_to_torch_dtype(spec.dtype.value))
        for spec in definition.outputs.values()
    ]


def test_a_definition_with_one_output_returns_a_tensor():
    assert str(registered(harness.load("dsa_indexer"))._schema).endswith("-> Tensor")


def test_none_stands_for_a_state_of_zeros_where_the_definition_says_so(decode, inputs):
    zeros = decode(**inputs | {"state": torch.zeros_like(inputs["state"])})
    for left, right in zip(decode(**inputs | {"state": None}), zeros, strict=True):
        assert torch.equal(left, right)


def test_without_a_state_the_sequences_are_counted_in_the_other_inputs():
    def meta(*shape, dtype=torch.bfloat16):
        return torch.empty(shape, dtype=dtype, device="meta")

    q, v, a = meta(9, 4, 128), meta(9, 8, 128), meta(9, 8)
    ends, head = meta(4, dtype=torch.int64), meta(8, dtype=torch.float32)
    output, new_state = harness.load("gdn_prefill")(q, q, v, None, head, a, head, a, ends, 0.0)
    assert (output.shape, new_state.shape) == ((9, 8, 128), (3, 8, 128, 128))


# Other processes


@pytest.mark.parametrize("packed", [False, True], ids=["room", "packed file"])
def test_it_is_pickled_and_runs_in_another_process(decode, inputs, packed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kernel.json").write_text(pack(load_workspace(), ROOM).text)
    function = harness.load("kernel.json") if packed else decode
    program = (
        "import pickle, sys; function, inputs = pickle.load(sys.stdin.buffer); "
        "pickle.dump((function.__name__, function(**inputs)), sys.stdout.buffer)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((function, inputs)),
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd="/",
        check=True,
    )
    name, outputs = pickle.loads(done.stdout)
    assert name == function.__name__
    for left, right in zip(outputs, decode(**inputs), strict=True):
        assert torch.equal(left, right)


def test_a_pickle_of_other_content_is_refused(decode, monkeypatch):
    text = pickle.dumps(decode)
    assert pickle.loads(text) is decode
    with pytest.raises(UsageError, match="gdn_decode: expected gdn_decode_00000000, which was"):
        pickle.loads(text.replace(decode.__name__.encode(), b"gdn_decode_00000000"))


# torch


def test_opcheck(decode, inputs):
    results = torch.library.opcheck(registered(decode), tuple(inputs.values()))
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_takes_it_in_one_graph(decode, inputs, backend, dynamic):
    def step(**inputs):
        output, new_state = decode(**inputs)
        return output.float() * 2.0, new_state + 1.0

    torch.compiler.reset()
    compiled = torch.compile(step, backend=backend, fullgraph=True, dynamic=dynamic)
    for left, right in zip(compiled(**inputs), step(**inputs), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("state", [True, False], ids=["state", "no state"])
def test_torch_compile_takes_the_function_itself(decode, inputs, state):
    inputs = inputs if state else inputs | {"state": None}
    torch.compiler.reset()
    compiled = torch.compile(decode, backend="aot_eager", fullgraph=True)
    for left, right in zip(compiled(**inputs), decode(**inputs), strict=True):
        assert torch.equal(left, right)


# What is refused


@pytest.mark.parametrize("name", ["q", "k", "A_log", "b"])
def test_none_for_a_required_tensor_is_refused_by_name(decode, inputs, name):
    with pytest.raises(TypeError, match=f"^{name}: expected a tensor, got None$"):
        decode(**inputs | {name: None})


@pytest.mark.parametrize(
    "elsewhere, message",
    [
        (["k"], "k: expected a tensor on {here}, where q is; got one on meta"),
        (["b"], "b: expected a tensor on {here}, where q is; got one on meta"),
        (["q"], "k: expected a tensor on meta, where q is; got one on {here}"),
    ],
)
def test_tensors_on_two_devices_are_refused_by_name(decode, inputs, elsewhere, message):
    moved = {name: inputs[name].to("meta") for name in elsewhere}
    with pytest.raises(ValueError, match=message.format(here=inputs["q"].device)):
        decode(**inputs | moved)


@pytest.mark.parametrize("solution", [None, 5, b"gdn_decode"])
def test_what_is_neither_room_nor_path_is_refused(solution):
    with pytest.raises(UsageError, match="load: expected a room or a path, got"):
        harness.load(solution)


def test_without_a_gpu_and_interpreter_the_message_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(serving, "_loaded", {})
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(EnvironmentUnfit, match="start Python with TRITON_INTERPRET=1"):
        harness.load(ROOM)


def test_what_is_no_solution_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="expected one of moe"):
        harness.load("gdn_decod")
    path = tmp_path / "solution.json"
    with pytest.raises(UsageError, match="expected a packed solution"):
        harness.load(path)
    path.write_text(json.dumps({"definition": "nobody_knows_it"}))
    with pytest.raises(UsageError, match="expected a definition of definitions/"):
        harness.load(path)
    path.write_text(json.dumps({"definition": DEFINITION, "spec": {}}))
    with pytest.raises(UsageError, match="flashinfer-bench refuses the packed JSON"):
        harness.load(path)
    with pytest.raises(UsageError, match="expected a room, which has routes"):
        harness.load(path, route="portable")


# apply


@pytest.fixture
def evidence(monkeypatch):
    """A record of what gdn_decode packs to now: batches of 1 and 2 passed, one of 4 failed."""
    workspace = load_workspace()
    rows = [sample_records.row(f"u-{size}", axes={"batch_size": size}) for size in (1, 2)]
    rows.append(sample_records.row("u-4", None, axes={"batch_size": 4}))
    record = sweep(workspace, ROOM, workloads=tuple(rows))
    other = replace(record, solution_sha256="0" * 64, solution_name="gdn_decode-00000000")
    monkeypatch.setattr(serving, "all_latest", lambda root: [other, record])
    return record


def test_the_apply_set_holds_the_judged_sizes_of_these_bytes(evidence, tmp_path):
    from flashinfer_bench.data import TraceSet

    packed = write_apply_set(load_workspace(), ROOM, tmp_path)
    found = TraceSet.from_path(str(tmp_path))
    assert list(found.definitions) == [DEFINITION]
    traces = found.traces[DEFINITION]
    assert [trace.workload.axes for trace in traces] == [{"batch_size": 1}, {"batch_size": 2}]
    assert {trace.solution for trace in traces} == {packed.name} == {evidence.solution_name}
    assert traces[0].evaluation.performance.latency_ms == pytest.approx(2.187e-3)


def test_apply_calls_the_packed_solution_also_for_sizes_never_judged(decode, evidence, tmp_path):
    from flashinfer_bench import ApplyConfig, apply, enable_apply

    @apply(DEFINITION)
    def own(*arguments):
        raise RuntimeError("nobody came instead")

    write_apply_set(load_workspace(), ROOM, tmp_path)
    bounds = {"max_atol": math.inf, "max_rtol": math.inf}
    judged, never_judged = (random_inputs(size, seed=size, device=device()) for size in (1, 3))
    with enable_apply(str(tmp_path), ApplyConfig(**bounds, on_miss_policy="use_def_best")):
        for inputs in (judged, never_judged):
            for left, right in zip(own(*inputs.values()), decode(**inputs), strict=True):
                assert torch.equal(left, right)
    with enable_apply(str(tmp_path), ApplyConfig(**bounds)):
        assert torch.equal(own(*judged.values())[1], decode(**judged)[1])
        with pytest.raises(RuntimeError, match="nobody came"):
            own(*never_judged.values())


def test_without_evidence_of_these_bytes_there_is_no_apply_set(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "all_latest", lambda root: [])
    with pytest.raises(RecordError, match="expected a record of gdn_decode-"):
        write_apply_set(load_workspace(), ROOM, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_example_runs(evidence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["serve_gdn_decode.py", "1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / "serve_gdn_decode.py"), run_name="__main__")
    assert ended.value.code == 0
    assert (
        "output [1, 1, 8, 128], new_state [1, 8, 128, 128], both alike" in capsys.readouterr().out
    )
