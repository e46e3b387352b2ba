"""Kernels outside the contest on a CUDA device: functions, torch.compile, CUDA graphs, apply."""

from __future__ import annotations

import math
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

import harness
from harness import serving
from harness.config import load_workspace
from harness.serving import write_apply_set
from tests import sample_records
from tests.gpu.references import reference
from tests.oracles import dsa_attention, dsa_indexer, gdn_decode, gdn_prefill, moe
from tests.packed import call as call_packed
from tests.submission_checkout import sweep

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
ROOM, DEFINITION = "gdn_decode", "gdn_decode_qk4_v8_d128_k_last"
OTHER_SEED = 1000


def attention_inputs(seed):
    inputs = dsa_attention.random_inputs(6, 40, seed, "cuda")
    inputs["sparse_indices"][:, :200] = torch.arange(200, dtype=torch.int32, device="cuda")
    return inputs


@cache
def moe_weights():
    weights = moe.zero_weights("cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    for expert in range(moe.LOCAL_EXPERTS):
        moe.fill_expert(weights, expert, generator)
    return weights


def moe_inputs(seed):
    logits = torch.randn(20, moe.EXPERTS, generator=torch.Generator().manual_seed(seed))
    return moe.random_inputs(logits, moe_weights(), 32, seed=seed, device="cuda")


# Inputs of the same shapes for every seed, two launches or more where a room has them.
INPUTS = {
    "moe": moe_inputs,
    "dsa_indexer": lambda seed: dsa_indexer.random_inputs([5000, 70, 2500], seed, "cuda"),
    "dsa_attention": attention_inputs,
    "gdn_decode": lambda seed: gdn_decode.random_inputs(16, seed, "cuda"),
    "gdn_prefill": lambda seed: gdn_prefill.batch_of([100, 7, 260], seed, "cuda"),
}
every_room = pytest.mark.parametrize("room", list(INPUTS))
# Inductor warns of matters of its own, such as TF32 that a caller left off.
compiles = pytest.mark.filterwarnings("ignore")


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def packed_outputs(room, inputs, like):
    """What the packed solution writes in destination-passing style, as the judge calls it."""
    made = tuple(torch.empty_like(one) for one in as_tuple(like))
    return call_packed(room, list(inputs.values()), made)


def assert_same_bytes(left, right):
    for one, other in zip(as_tuple(left), as_tuple(right), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.flatten().view(torch.uint8), other.flatten().view(torch.uint8))


def move_into(inputs, source):
    """Copy the tensors of `source` into those of `inputs`, where a captured graph reads them."""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            value.view(torch.uint8).copy_(source[name].view(torch.uint8))


@every_room
def test_the_function_gives_what_the_judged_solution_gives(room):
    inputs = INPUTS[room](1)
    outputs = harness.load(room)(**inputs)
    assert {one.device.type for one in as_tuple(outputs)} == {"cuda"}
    assert_same_bytes(outputs, packed_outputs(room, inputs, outputs))


@every_room
def test_opcheck(room):
    function = harness.load(room)
    op = getattr(torch.ops.contest_kernels, function.__name__).default
    inputs = INPUTS[room](2)
    checks = ["test_autograd_registration", "test_faketensor"]
    if not any(getattr(one, "dtype", None) == torch.float8_e4m3fn for one in inputs.values()):
        checks.append("test_schema")  # which cannot compare FP8
    results = torch.library.opcheck(op, tuple(inputs.values()), test_utils=checks)
    assert set(results.values()) == {"SUCCESS"}


@every_room
def test_a_cuda_graph_replays_it_on_new_inputs(room):
    function, inputs = harness.load(room), INPUTS[room](3)
    function(**inputs)  # compiles outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = function(**inputs)
    for seed in (3, OTHER_SEED):
        move_into(inputs, INPUTS[room](seed))
        for one in as_tuple(outputs):
            one.view(torch.uint8).fill_(0x7F)
        graph.replay()
        torch.cuda.synchronize()
        assert_same_bytes(outputs, function(**inputs))


@compiles
@every_room
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_torch_compile_takes_it_in_one_graph(room, mode):
    """reduce-overhead records CUDA graphs in the second call and replays them from the third."""
    function = harness.load(room)

    def step(inputs):
        return tuple(one.float() + 1.0 for one in as_tuple(function(**inputs)))

    torch.compiler.reset()  # each case is a first compilation of this code
    compiled = torch.compile(step, fullgraph=True, mode=mode)
    inputs = INPUTS[room](4)
    for seed in (4, 4, OTHER_SEED):
        move_into(inputs, INPUTS[room](seed))
        torch.compiler.cudagraph_mark_step_begin()
        outputs = tuple(one.clone() for one in compiled(inputs))
        assert_same_bytes(outputs, step(inputs))


def test_apply_serves_judged_and_other_sizes(tmp_path, monkeypatch):
    """Real tensors, flashinfer-bench's own dispatch, the definition's reference as the measure."""
    from flashinfer_bench import ApplyConfig, apply, enable_apply

    workspace = load_workspace()
    judged = tuple(sample_records.row(f"u-{n}", axes={"batch_size": n}) for n in (1, 16))
    record = sweep(workspace, ROOM, workloads=judged)
    monkeypatch.setattr(serving, "all_latest", lambda root: [record])
    write_apply_set(workspace, ROOM, tmp_path)

    @apply(DEFINITION)
    def decode(*arguments):
        raise RuntimeError("nobody came instead")

    config = ApplyConfig(max_atol=math.inf, max_rtol=math.inf, on_miss_policy="use_def_best")
    with enable_apply(str(tmp_path), config):
        for batch_size in (1, 16, 23):  # 23 was never judged
            inputs = gdn_decode.random_inputs(batch_size, seed=5, device="cuda")
            output, new_state = decode(*inputs.values())
            assert_same_bytes((output, new_state), harness.load(ROOM)(**inputs))
            want, want_state = reference(ROOM)(*inputs.values())
            torch.testing.assert_close(output.float(), want.float(), rtol=2.0**-7, atol=1e-6)
            torch.testing.assert_close(new_state, want_state, rtol=1e-4, atol=1e-6)
        made = tuple(torch.empty_like(one) for one in (output, new_state))
        assert decode(*inputs.values(), *made) is None  # destination-passing
        assert_same_bytes(made, (output, new_state))


def test_the_example_runs(monkeypatch, capsys):
    workspace = load_workspace()
    row = sample_records.row("u-16", axes={"batch_size": 16})
    record = sweep(workspace, ROOM, workloads=(row,))
    monkeypatch.setattr(serving, "all_latest", lambda root: [record])
    monkeypatch.setattr(sys, "argv", ["serve_gdn_decode.py"])
    runpy.run_path(str(ROOT / "examples" / "serve_gdn_decode.py"), run_name="__main__")
    assert "output [16, 1, 8, 128]" in capsys.readouterr().out
