"""Evaluation in a container elsewhere, without one: its script, what it sends and what is kept."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import container
from harness.config import load_workspace
from harness.errors import ConfigError, InfrastructureFailure, RecordError
from harness.records import TraceLedger, latest, to_text, write_run
from harness.records.strict_json import dump
from tests.sample_records import DEFINITION, entry, record, row, write_checkout

ROOT = Path(__file__).resolve().parents[2]
ROOM, DEVICE = "gdn_decode", "nvidia-b200"
LEDGER = f"traces/{DEVICE}/{ROOM}.jsonl"


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "here"
    root.mkdir()
    write_checkout(root, ["u-0", "u-1"])
    return load_workspace(root)


def verdict(uuid="u-0", status="PASSED", **changes):
    return entry(uuid, status, device=DEVICE, hardware="NVIDIA B200", **changes)


def line(one):
    name = LEDGER if one.is_judged else LEDGER.replace(".jsonl", ".unjudged.ndjson")
    return container.LINE, name, dump(one.to_json())


def official(uuids=("u-0", "u-1"), **changes):
    """A record that may become the latest of gdn_decode on a B200."""
    return record(tuple(row(uuid) for uuid in uuids), device=DEVICE, **changes)


def sent(one):
    name = f"results/runs/{one.device}/{one.room}/any.json"
    return container.RECORD, name, to_text(one)


END = (container.END, "", "0")


def kept(workspace):
    ledger = TraceLedger.of(workspace.root, DEVICE, ROOM)
    return [(one.uuid, one.status) for one in ledger.entries()]


# Taking in


def test_verdicts_and_records_land_where_a_run_here_would_put_them(workspace):
    bad = verdict("u-1", "REFERENCE_ERROR", latency_us=None)
    pieces = [line(verdict()), line(bad), sent(official()), END]
    assert container.take_in(workspace, pieces) == 0
    assert kept(workspace) == [("u-0", "PASSED"), ("u-1", "REFERENCE_ERROR")]
    assert latest(workspace.root, DEVICE, ROOM) == official()
    assert len(list((workspace.root / "results" / "runs" / DEVICE / ROOM).iterdir())) == 1


def test_what_is_here_already_is_not_written_twice(workspace):
    pieces = [line(verdict()), line(verdict()), sent(official()), END]
    container.take_in(workspace, pieces)
    container.take_in(workspace, pieces)
    assert kept(workspace) == [("u-0", "PASSED")]


def test_verdicts_survive_a_container_that_is_taken_away(workspace):
    def taken_away():
        yield line(verdict())
        raise ConnectionError("preempted")

    with pytest.raises(ConnectionError):
        container.take_in(workspace, taken_away())
    assert kept(workspace) == [("u-0", "PASSED")]
    with pytest.raises(InfrastructureFailure, match="run the command again"):
        container.take_in(workspace, [line(verdict("u-1"))])
    assert [uuid for uuid, _ in kept(workspace)] == ["u-0", "u-1"]
    assert list(container.read_ledgers(workspace)) == [LEDGER]


def test_an_older_or_partial_record_does_not_become_the_latest(workspace):
    newest = official(measured_at="2026-03-01T00:00:00Z")
    older = official(measured_at="2026-02-01T00:00:00Z")
    partial = official(uuids=("u-0",), measured_at="2026-04-01T00:00:00Z")
    container.take_in(workspace, [sent(newest), sent(older), sent(partial), END])
    assert latest(workspace.root, DEVICE, ROOM) == newest
    assert len(list((workspace.root / "results" / "runs" / DEVICE / ROOM).iterdir())) == 3


def test_the_exit_code_comes_back(workspace):
    assert container.take_in(workspace, [(container.END, "", "5")]) == 5


@pytest.mark.parametrize(
    "piece",
    [
        (container.LINE, "../outside.jsonl", dump(verdict().to_json())),
        (container.LINE, f"traces/{DEVICE}/nowhere.jsonl", dump(verdict().to_json())),
        (container.LINE, f"traces/nvidia-h200/{ROOM}.jsonl", dump(verdict().to_json())),
        (container.LINE, LEDGER, "{"),
        (container.LINE, LEDGER, json.dumps({"definition": DEFINITION})),
        (container.RECORD, "x", "{}"),
    ],
    ids=["path", "room", "device", "json", "trace", "record"],
)
def test_what_no_run_here_would_write_is_refused(workspace, piece):
    with pytest.raises(RecordError):
        container.take_in(workspace, [piece, END])
    assert kept(workspace) == []


# In the container


FAKE_EVALUATE = """\
    import pathlib, sys, time
    assert sys.argv[1:] == ["gdn_decode", "--resume"], sys.argv
    ledger = pathlib.Path({ledger!r})
    assert ledger.read_text() == "first\\n"
    with ledger.open("a") as file:
        file.write("second\\nthi")
        file.flush()
        time.sleep(0.3)
        file.write("rd\\nhalf")
    runs = pathlib.Path("results/runs/nvidia-b200/gdn_decode")
    runs.mkdir(parents=True)
    (runs / "new.json").write_text("made")
    pathlib.Path("made-here").touch()
    sys.exit(1)
"""


def test_the_container_yields_new_lines_and_records_and_its_code(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    (checkout / "results" / "runs").mkdir(parents=True)
    (checkout / "results" / "runs" / "old.json").write_text("old")
    script = checkout / "evaluate.py"
    script.write_text(textwrap.dedent(FAKE_EVALUATE).format(ledger=LEDGER))
    monkeypatch.setattr(container, "EVALUATE", (sys.executable, "evaluate.py"))
    monkeypatch.setattr(container, "POLL_S", 0.02)
    pieces = list(container.judge(checkout, ["gdn_decode", "--resume"], {LEDGER: "first\n"}))
    assert pieces == [
        (container.LINE, LEDGER, "second"),
        (container.LINE, LEDGER, "third"),
        (container.RECORD, "results/runs/nvidia-b200/gdn_decode/new.json", "made"),
        (container.END, "", "1"),
    ]
    assert not (checkout / "made-here").exists()  # it may be read-only there


FAKE_APPEND = """\
    import pathlib, sys
    sys.path.insert(0, {root!r})
    from harness.records import append_line
    append_line(pathlib.Path({ledger!r}), {{"log": "a\\u2028b\\x85c"}})
"""


@pytest.mark.parametrize("torn", ["", '{"log": "ha', '{"log": "half of a long line that'])
def test_whatever_a_ledger_holds_lines_come_back_whole(tmp_path, monkeypatch, torn):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    script = textwrap.dedent(FAKE_APPEND).format(root=str(ROOT), ledger=LEDGER)
    (checkout / "evaluate.py").write_text(script)
    monkeypatch.setattr(container, "EVALUATE", (sys.executable, "-W", "ignore", "evaluate.py"))
    first, *_ = container.judge(checkout, [], {LEDGER: "{}\n" + torn})
    assert first == (container.LINE, LEDGER, dump({"log": "a\u2028b\x85c"}))


def test_a_reader_that_leaves_stops_the_evaluation(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    script = f"""
import os, pathlib, time
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
with open({LEDGER!r}, "a") as file:
    file.write("one\\n")
time.sleep(600)
"""
    monkeypatch.setattr(container, "EVALUATE", (sys.executable, "-c", script))
    monkeypatch.setattr(container, "POLL_S", 0.02)
    pieces = container.judge(checkout, [], {LEDGER: ""})
    assert next(pieces) == (container.LINE, LEDGER, "one")
    pieces.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.slow
def test_a_real_evaluation_on_a_cpu_comes_back_whole(tmp_path, monkeypatch):
    """The copy that a container gets can evaluate, and its verdicts pass the checks here."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("FIB_DATASET_PATH", raising=False)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("harness", "definitions", "workloads", "solutions"):
        shutil.copytree(ROOT / name, checkout / name)
    shutil.copy(ROOT / "config.toml", checkout)
    here = tmp_path / "here"
    here.mkdir()
    workspace = replace(load_workspace(), root=here)
    arguments = [ROOM, "--workloads", load_workspace().room(ROOM).smoke_cpu[0]]
    assert container.take_in(workspace, container.judge(checkout, arguments, {})) == 0
    entries = TraceLedger.of(here, "cpu", ROOM).entries()
    assert [one.status for one in entries] == ["PASSED"]
    again = [*arguments, "--resume"]
    ledgers = container.read_ledgers(workspace, "cpu")
    assert container.take_in(workspace, container.judge(checkout, again, ledgers)) == 0
    assert len(TraceLedger.of(here, "cpu", ROOM).entries()) == 1


# The image


def test_the_container_gets_what_pyproject_asks_for(tmp_path):
    listed = container.requirements(ROOT)
    assert "pydantic>=2.7" in listed
    assert any(one.startswith("cupti-python") for one in listed)
    assert not any(one.startswith(("pytest", "flashinfer")) for one in listed)
    assert container.pinned(ROOT, "flashinfer-bench") == "flashinfer-bench==0.1.2"
    (tmp_path / "constraints.txt").write_text("torch==1\n")
    with pytest.raises(ConfigError, match="expected a line flashinfer-bench==VERSION"):
        container.pinned(tmp_path, "flashinfer-bench")


class FakeImage:
    """Records the image's steps in order."""

    def __init__(self, steps):
        self.steps = steps

    def __getattr__(self, step):
        def add(*arguments, **named):
            self.steps.append((step, arguments, named))
            return self

        return add


@pytest.fixture
def script(monkeypatch):
    """scripts/run_modal.py with a stand-in for the package modal; its globals and what it asked."""
    asked = SimpleNamespace(steps=[], function={}, pieces=[], calls=[])

    class App:
        def __init__(self, name):
            asked.app = name

        def function(self, **options):
            asked.function = options

            def bind(function):
                def remote_gen(*arguments):
                    asked.calls.append(arguments)
                    return iter(asked.pieces)

                function.remote_gen = remote_gen
                return function

            return bind

        def local_entrypoint(self):
            return lambda function: function

    fake = SimpleNamespace(
        App=App,
        Image=FakeImage(asked.steps),
        Volume=SimpleNamespace(from_name=lambda name, create_if_missing: name),
    )
    monkeypatch.setitem(sys.modules, "modal", fake)
    monkeypatch.setattr(sys, "path", list(sys.path))
    asked.globals = runpy.run_path(str(ROOT / "scripts" / "run_modal.py"))
    return asked


def test_the_script_asks_for_the_official_image_and_a_b200(script):
    assert script.steps[0] == ("from_registry", ("flashinfer/flashinfer-ci-cu132:latest",), {})
    assert script.steps[-1][0] == "add_local_dir"  # Modal allows no build step after it
    assert script.steps[-1][1] == (ROOT, "/checkout")
    assert {".*", "blob", "traces"} <= set(script.steps[-1][2]["ignore"])
    assert script.function["gpu"] == "B200"
    assert script.function["volumes"] == {"/data": "flashinfer-trace"}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", ["--workloads", "all", "--resume", "--record"]),
        ("gdn_decode --workloads smoke", ["gdn_decode", "--workloads", "smoke"]),
        ("--commit=ccccccc", []),
    ],
)
def test_the_script_sends_ledgers_and_keeps_what_comes_back(
    script, workspace, monkeypatch, arguments, wanted
):
    write_run(official(), workspace.root)
    TraceLedger.of(workspace.root, DEVICE, ROOM).append(verdict())
    namespace = script.globals["main"].__globals__
    monkeypatch.setitem(namespace, "load_workspace", lambda root: workspace)
    monkeypatch.setitem(namespace, "read_commit", lambda root: "c" * 40)
    script.pieces = [line(verdict("u-1")), (container.END, "", "1")]
    with pytest.raises(SystemExit) as ended:
        script.globals["main"](arguments)
    assert ended.value.code == 1
    ((asked, ledgers),) = script.calls
    assert asked == ([*wanted, "--commit", "c" * 40] if wanted else [arguments])
    assert list(ledgers) == [LEDGER]
    assert [uuid for uuid, _ in kept(workspace)] == ["u-0", "u-1"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--workloads 'smoke", 2, "--arguments: No closing quotation"),
        ("", 6, "run the command again"),
    ],
)
def test_the_script_ends_with_a_message_and_the_code_of_its_kind(
    script, workspace, monkeypatch, capsys, arguments, code, words
):
    namespace = script.globals["main"].__globals__
    monkeypatch.setitem(namespace, "load_workspace", lambda root: workspace)
    script.pieces = []  # the container was taken away
    with pytest.raises(SystemExit) as ended:
        script.globals["main"](arguments)
    assert ended.value.code == code
    assert words in capsys.readouterr().err
