"""The unmodified official CLI, its spawned workers included, on a CPU and with our DSA rules."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness import dataset
from harness.cli import fib, main
from harness.config import load_workspace
from harness.errors import ExitCode

ROOT = Path(__file__).parents[2]

# What flashinfer-bench 0.1.2 asks of CUDA without need. Children inherit it through PYTHONPATH.
CUDA_STAND_IN = """
import contextlib, torch

class Event:
    def __init__(self, **_): pass
    def record(self, *_): pass
    def elapsed_time(self, other): return 1.0

torch.cuda.synchronize = torch.cuda.set_device = torch.cuda.empty_cache = lambda *_: None
torch.cuda.Event = Event
torch.cuda.device = lambda *_: contextlib.nullcontext()

import flashinfer_bench.utils
import flashinfer_bench.bench.runner.isolated_runner as runner
flashinfer_bench.utils.list_cuda_devices = lambda: ["cpu:0"]

import harness.cli.fib
harness.cli.fib.load_cuda = object
"""


@pytest.fixture
def started(monkeypatch):
    """The arguments of the official program, which is not started. There is no GPU."""
    calls = []
    monkeypatch.setattr(fib, "load_cuda", lambda: None)
    monkeypatch.setattr(fib.os, "execv", lambda path, arguments: calls.append(arguments[3:]))
    return calls


@pytest.mark.parametrize("options", [[], ["--local", "."]])
def test_a_run_without_a_gpu_is_refused_in_one_line(started, capsys, options):
    assert main(["fib", "run", *options]) == ExitCode.UNFIT
    err = capsys.readouterr().err
    assert err.startswith("error: fib run: expected a GPU, but ")
    assert err.count("\n") == 1
    assert started == []


@pytest.mark.parametrize(
    "arguments", [["run", "--help"], ["report", "best", "--local", "."], ["--help"], []]
)
def test_what_needs_no_gpu_is_passed_on(started, arguments):
    assert main(["fib", *arguments]) == ExitCode.OK
    assert started == [arguments]


@pytest.mark.slow
def test_spawned_workers_know_the_rules(tmp_path):
    """The room's order of indices is not the reference's: only the order-free rule accepts it."""
    workspace = load_workspace()
    out = tmp_path / "set"
    dataset.export(workspace, workspace.root, out, "30cecff1 d8a73470")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CUDA_STAND_IN)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)]),
        "TRITON_INTERPRET": "1",
        "FIB_CACHE_PATH": str(tmp_path / "cache"),
    }
    options = ["--use-isolated-runner", "--warmup-runs", "0", "--iterations", "1"]
    command = [sys.executable, "-m", "harness", "fib", "run", "--local", str(out), *options]
    done = subprocess.run(
        [*command, "--num-trials", "1"], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [x for path in out.glob("traces/**/*.jsonl") for x in path.read_text().splitlines()]
    statuses = [json.loads(line)["evaluation"]["status"] for line in lines]
    assert statuses == ["PASSED", "PASSED"], done.stderr[-2000:]


def test_the_front_page_runs_each_definition_with_the_tolerances_of_its_room():
    """The program's own are 0.01, 0.01 and all elements; what differs is a run of its own."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    runs = [
        shlex.split(line)
        for line in re.findall(r"^    python -m harness (fib run .*)$", text, re.M)
    ]
    given = {}
    for words in runs:
        options = dict(itertools.pairwise(words))
        given[options.get("--definitions")] = [
            float(options.get(f"--{name}", usual))
            for name, usual in (("atol", 0.01), ("rtol", 0.01), ("required-matched-ratio", 1.0))
        ]
    for room in load_workspace().rooms.values():
        rule = room.evaluation
        asked = [rule.atol, rule.rtol, rule.required_matched_ratio]
        assert given.get(room.definition, given[None]) == asked, room.name
