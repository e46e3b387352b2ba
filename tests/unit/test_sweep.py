"""Sweeps end to end without torch: real packing, data set and ledger, a fake worker."""

import ast
import io
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config import load_workspace
from harness.devices import DeviceFacts
from harness.errors import ConfigError, DeviceBusy, ExitCode, UsageError
from harness.evaluate import plan as planning
from harness.evaluate.engine import LocalEngine
from harness.evaluate.plan import Request, make_plans, resolve_settings
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.evaluate.sweep import run_sweep, sweep_on
from harness.evaluate.verdicts import Judged
from harness.packing import Packed
from harness.records import STATUSES, TraceLedger, sole_writer
from harness.rules import SOURCES
from tests.small_checkout import add_room, small_checkout, workload_file

CPU = DeviceFacts("cpu", "a processor")
GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test")
REQUEST = Request(rooms=("gdn_decode",), workloads=("all",))
PASSED = Outcome(Status.PASSED, latency_us=2.5, max_abs_error=0.0, max_rel_error=0.0)


class FakePool:
    """Answers from a list and remembers what was asked."""

    def __init__(self, outcomes):
        self.outcomes, self.jobs = list(outcomes), []

    def __call__(self, device, root):
        self.device, self.calls = device, []
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def stand_by(self):
        self.calls.append("stand by")

    def renew(self):
        self.calls.append("renew")

    def close(self):
        self.calls.append("close")

    def run(self, job, on_stage):
        self.calls.append(job.room)
        self.jobs.append(job)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    return make_workspace(tmp_path, monkeypatch)


def make_workspace(tmp_path, monkeypatch):
    """A small checkout whose room packs to chosen bytes; blobs are never made."""
    workspace = small_checkout(tmp_path / "checkout")
    for source in (*planning.JUDGE_SOURCES, *itertools.chain(*SOURCES.values())):
        path = workspace.root / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rules")
    content = {"sha": "a" * 64}

    def pack(_, room, route=None):
        return Packed(f"{room}-x", content["sha"], "{}", workspace.root / "solution.json")

    monkeypatch.setattr("harness.evaluate.engine.require_timer", lambda name: None)
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))

    monkeypatch.setattr(planning, "pack", pack)
    monkeypatch.setattr("harness.evaluate.engine.dataset.ensure_blobs", lambda *_: None)
    monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda *_: None)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    workspace.__dict__["content"] = content
    return workspace


def sweep(workspace, outcomes, request=REQUEST, facts=CPU):
    pool, text = FakePool(outcomes), io.StringIO()
    code = run_sweep(workspace, request, SweepProgress(text), pool, facts)
    return code, pool, text.getvalue()


def test_statuses_are_the_recorded_ones():
    assert tuple(status.value for status in Status) == STATUSES


def test_every_workload_has_one_line_one_trace_and_one_verdict(workspace):
    bad = Outcome(Status.RUNTIME_ERROR, detail="went wrong", log="trace\nback")
    code, pool, text = sweep(workspace, [PASSED, bad])
    assert code is ExitCode.FAILED and len(pool.jobs) == 2 and pool.device == "cpu"
    assert "1/2" in text and "2/2" in text and "went wrong" in text and "| back" in text
    entries = TraceLedger.of(workspace.root, "cpu", "gdn_decode").entries()
    assert [entry.status for entry in entries] == ["PASSED", "RUNTIME_ERROR"]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([PASSED, PASSED], ExitCode.OK),
        ([PASSED, Outcome(Status.TIMEOUT)], ExitCode.FAILED),
        ([PASSED, Outcome(Status.INVALID_REFERENCE)], ExitCode.FAILED),
        ([Outcome(Status.TIMEOUT), Outcome(Status.INFRASTRUCTURE)], ExitCode.INCOMPLETE),
    ],
)
def test_exit_codes(workspace, outcomes, code):
    assert sweep(workspace, outcomes)[0] is code


def test_each_room_has_a_new_worker_and_nothing_is_imported_beside_a_timed_call(workspace):
    request = replace(REQUEST, rooms=("gdn_decode", "moe"))
    _, pool, _ = sweep(workspace, [PASSED] * 4, request)
    rooms = [["renew", room, room] for room in ("gdn_decode", "moe")]
    assert pool.calls == ["stand by", *rooms[0], *rooms[1], "close", "close"]


class Backwards(LocalEngine):
    """Hands verdicts back in another order than that of the jobs, rooms mixed."""

    def judge(self, jobs):
        for job in jobs[::-2] + jobs[-2::-2]:
            yield Judged(job, PASSED, f"2026-01-31T01:00:0{jobs.index(job)}.000000Z")


def test_verdicts_may_come_in_any_order(workspace):
    request, text = replace(REQUEST, rooms=("gdn_decode", "moe")), io.StringIO()
    progress = SweepProgress(text)
    engine = Backwards(workspace.root, CPU, progress)
    assert sweep_on(engine, workspace, request, progress) is ExitCode.OK
    heads = [line.split()[:2] for line in text.getvalue().splitlines() if "PASSED" in line]
    assert heads == [["moe", "1/2"], ["gdn_decode", "1/2"], ["moe", "2/2"], ["gdn_decode", "2/2"]]
    table = text.getvalue().rpartition("passed")[2]
    assert table.index("gdn_decode") < table.index("moe"), "the summary keeps the plan's order"
    for room in request.rooms:
        assert len(TraceLedger.of(workspace.root, "cpu", room).entries()) == 2


def test_resume_keeps_verdicts_and_retries_what_was_none(workspace):
    lost = Outcome(Status.INFRASTRUCTURE, detail="no worker")
    assert sweep(workspace, [Outcome(Status.TIMEOUT), lost])[0] is ExitCode.INCOMPLETE
    again = replace(REQUEST, resume=True)
    code, pool, text = sweep(workspace, [PASSED], again)
    assert len(pool.jobs) == 1, "a time-out is a verdict; a lost worker is none"
    assert code is ExitCode.FAILED and "(reused)" in text


def test_an_interrupted_sweep_loses_nothing(workspace):
    with pytest.raises(KeyboardInterrupt):
        sweep(workspace, [PASSED, KeyboardInterrupt()])
    code, pool, _ = sweep(workspace, [PASSED], replace(REQUEST, resume=True))
    assert code is ExitCode.OK and len(pool.jobs) == 1


def test_resume_is_keyed_on_content_settings_judge_and_data(workspace):
    resume = replace(REQUEST, resume=True)
    sweep(workspace, [PASSED, PASSED])
    assert len(sweep(workspace, [], resume)[1].jobs) == 0
    for changed in (replace(resume, seed=1), replace(resume, trials=2)):
        assert len(sweep(workspace, [PASSED, PASSED], changed)[1].jobs) == 2
    (workspace.root / planning.JUDGE_SOURCES[0]).write_text("other rules")
    assert len(sweep(workspace, [PASSED, PASSED], resume)[1].jobs) == 2
    workspace.content["sha"] = "b" * 64
    assert len(sweep(workspace, [PASSED, PASSED], resume)[1].jobs) == 2
    assert len(sweep(workspace, [], resume)[1].jobs) == 0


def test_resume_is_keyed_on_driver_and_libraries(workspace, monkeypatch):
    resume = replace(REQUEST, resume=True)
    sweep(workspace, [PASSED, PASSED], resume)
    assert len(sweep(workspace, [], resume)[1].jobs) == 0
    newer = replace(CPU, driver="999.1")
    assert len(sweep(workspace, [PASSED, PASSED], resume, newer)[1].jobs) == 2
    monkeypatch.setattr("harness.evaluate.verdicts.libraries", lambda: {"torch": "99.0"})
    assert len(sweep(workspace, [PASSED, PASSED], resume)[1].jobs) == 2


def test_a_second_sweep_of_a_room_is_refused_while_one_writes_its_ledger(workspace, monkeypatch):
    monkeypatch.setattr("harness.evaluate.sweep.LOCK_WAIT_S", 0.0)
    ledger = TraceLedger.of(workspace.root, "cpu", "gdn_decode")
    with sole_writer(ledger.path):
        pool = FakePool([PASSED, PASSED])
        with pytest.raises(DeviceBusy, match=str(os.getpid())):
            run_sweep(workspace, REQUEST, SweepProgress(io.StringIO()), pool, CPU)
    assert pool.jobs == [] and ledger.entries() == []
    assert sweep(workspace, [PASSED, PASSED])[0] is ExitCode.OK
    assert sweep(workspace, [PASSED, PASSED])[0] is ExitCode.OK, "the first one let go"


def test_the_judge_hash_covers_every_module_that_a_worker_loads_from_this_package():
    root = Path(planning.__file__).parents[2]
    found, waiting = set(), ["harness/evaluate/worker.py"]
    while waiting:
        name = waiting.pop()
        found.add(name)
        for node in ast.walk(ast.parse((root / name).read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            parts = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            paths = {part.replace(".", "/") + ".py" for part in parts}
            inside = {path for path in paths if path.startswith("harness/evaluate/")}
            waiting += [path for path in inside - found if (root / path).is_file()]
    assert "harness/evaluate/judge.py" in found and len(found) > 4
    assert found | {"harness/timing.py", "harness/evaluators.py"} == set(planning.JUDGE_SOURCES)


def test_a_seed_does_not_change_the_judge(workspace):
    first, second = (
        make_plans(workspace, replace(REQUEST, seed=seed), CPU)[0].judge_sha256 for seed in (0, 7)
    )
    assert first == second


def test_settings_come_from_the_command_line_over_the_protocol_over_the_file(workspace):
    room = workspace.room("gdn_prefill")
    official = resolve_settings(room, REQUEST, on_cpu=False)
    assert (official.warmup_runs, official.iterations, official.trials) == (1, 5, 3)
    assert official.timer == "cupti"
    fast = resolve_settings(room, replace(REQUEST, protocol="fast"), on_cpu=False)
    assert (fast.warmup_runs, fast.iterations, fast.trials) == (3, 10, 1)
    chosen = resolve_settings(room, replace(REQUEST, protocol="fast", trials=9), on_cpu=False)
    assert chosen.trials == 9 and chosen.atol == official.atol
    on_cpu = resolve_settings(room, REQUEST, on_cpu=True)
    assert (on_cpu.timer, on_cpu.trials) == ("host", 1)
    moe = resolve_settings(workspace.room("moe"), REQUEST, on_cpu=False)
    assert (moe.atol, moe.rtol, moe.required_matched_ratio) == (1.0, 0.3, 0.9)


def test_recording_needs_the_full_official_sweep_on_a_gpu(workspace):
    record = replace(REQUEST, record=True)
    refused = [
        (record, CPU),
        (replace(record, protocol="fast"), GPU),
        (replace(record, trials=1), GPU),
        (replace(record, timer="events"), GPU),
        (replace(record, only_trial=0), GPU),
        (replace(record, route="portable"), GPU),
        (replace(record, workloads=("901e5104",)), GPU),
    ]
    for request, facts in refused:
        with pytest.raises(UsageError, match="--record"):
            sweep(workspace, [], request, facts)


def test_a_recorded_sweep_lies_in_results(workspace, monkeypatch):
    monkeypatch.setattr("harness.evaluate.sweep.read_data", lambda *_: {})
    code, _, text = sweep(workspace, [PASSED, PASSED], replace(REQUEST, record=True), GPU)
    assert code is ExitCode.OK and "recorded in results/runs/nvidia-test/gdn_decode/" in text
    latest = json.loads((workspace.root / "results/latest/nvidia-test/gdn_decode.json").read_text())
    assert latest["passed"] == latest["total"] == 2 and latest["mean_latency_us"] == 2.5
    assert latest["timer"] == "cupti" and latest["solution_sha256"] == "a" * 64


def test_a_second_room_of_a_definition_is_recorded_with_the_same_floors(workspace):
    second = add_room(workspace.root, "my_decode", "gdn_decode")
    h200 = replace(GPU, slug="nvidia-h200")
    floors_us = []
    for room in ("gdn_decode", "my_decode"):
        request = replace(REQUEST, rooms=(room,), record=True)
        assert sweep(second, [PASSED, PASSED], request, h200)[0] is ExitCode.OK
        path = workspace.root / "results/latest/nvidia-h200" / f"{room}.json"
        floors_us.append([row["floor_us"] for row in json.loads(path.read_text())["workloads"]])
    assert floors_us[0] == floors_us[1] and min(floors_us[0]) > 0.8


def recorded(workspace, outcomes, **changes):
    """Sweep with --record on a GPU; the latest record, and how many runs are kept."""
    request = replace(REQUEST, record=True, commit="c" * 40, **changes)
    code, _, text = sweep(workspace, outcomes, request, GPU)
    assert code is ExitCode.OK and "recorded in" in text
    results = workspace.root / "results"
    latest = json.loads((results / "latest/nvidia-test/gdn_decode.json").read_text())
    return latest, len(list(results.glob("runs/nvidia-test/gdn_decode/*.json")))


def test_a_resumed_record_is_as_old_as_its_oldest_verdict(workspace, monkeypatch):
    """Its libraries are the same by the resume key; its date must not be made younger."""
    monkeypatch.setattr("harness.evaluate.sweep.read_data", lambda *_: {})
    clock = "harness.evaluate.engine.utc_now"
    monkeypatch.setattr(clock, lambda **_: "2026-01-31T01:00:00.000000Z")
    with pytest.raises(KeyboardInterrupt):
        sweep(workspace, [PASSED, KeyboardInterrupt()], replace(REQUEST, record=True), GPU)
    monkeypatch.setattr(clock, lambda **_: "2026-02-28T02:00:00.000000Z")
    latest, runs = recorded(workspace, [PASSED], resume=True)
    assert latest["measured_at"] == "2026-01-31T01:00:00Z" and runs == 1
    again, runs = recorded(workspace, [PASSED, PASSED])
    assert again["measured_at"] == "2026-02-28T02:00:00Z" and runs == 2


def test_recording_again_what_is_only_reused_changes_nothing(workspace, monkeypatch):
    monkeypatch.setattr("harness.evaluate.sweep.read_data", lambda *_: {})
    first = recorded(workspace, [PASSED, PASSED])
    clocks = "harness.evaluate.sweep.summarise_clocks"
    monkeypatch.setattr(clocks, lambda samples: {"samples": 99})
    assert recorded(workspace, [], resume=True) == first


def test_a_subset_is_refused_before_it_runs(workspace, tmp_path, monkeypatch):
    """An export of fewer workloads is whole by itself, and no evidence."""
    part = small_checkout(tmp_path / "part")
    path = workload_file(part, "gdn_decode")
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    request = replace(REQUEST, record=True, dataset=str(part.root))
    pool = FakePool([PASSED])
    with pytest.raises(UsageError, match=r"official workloads of gdn_decode .* got 1 of"):
        run_sweep(workspace, request, SweepProgress(io.StringIO()), pool, GPU)
    assert pool.jobs == []


def test_names_that_others_chose_cannot_steer_a_terminal():
    text = io.StringIO()
    with SweepProgress(text) as progress:
        progress.room_started("moe", 2, 0, "name\x1b[2J\x07\nmoe: 0 FAILED\x9b1m")
        progress.note("    [bold]kept[/bold]")
    assert text.getvalue() == (
        "moe: 2 workloads, solution name\ufffd moe: 0 FAILED\ufffd1m\n    [bold]kept[/bold]\n"
    )


@pytest.mark.parametrize("commit", ["main", "abc123", "g" * 40, "a" * 41, "unknown", "A" * 40, ""])
def test_a_commit_that_is_none_is_refused_before_anything_runs(workspace, commit):
    with pytest.raises(UsageError, match="--commit: expected 7 to 40 hexadecimal digits"):
        sweep(workspace, [], replace(REQUEST, commit=commit))


@pytest.mark.parametrize("commit", ["a" * 7, "0" * 40, "0123abcd-dirty"])
def test_a_commit_may_be_short_or_dirty(workspace, commit):
    assert sweep(workspace, [PASSED, PASSED], replace(REQUEST, commit=commit))[0] is ExitCode.OK


def test_one_workload_is_not_several(workspace):
    text = sweep(workspace, [PASSED], replace(REQUEST, workloads=("901e5104",)))[2]
    assert "gdn_decode: 1 workload, solution" in text
    assert "gdn_decode: 2 workloads, solution" in sweep(workspace, [PASSED, PASSED])[2]


def test_a_note_on_a_pass_is_shown(workspace):
    noted = replace(PASSED, detail="the reference could not be timed: OSError")
    assert "    the reference could not be timed" in sweep(workspace, [noted, PASSED])[2]


CLOSED_OUTPUT = """
import sys, time
from pathlib import Path
import pytest
from harness.errors import run_program
from tests.unit.test_sweep import CPU, PASSED, REQUEST, FakePool, SweepProgress
from tests.unit.test_sweep import make_workspace, run_sweep

class SlowPool(FakePool):
    def run(self, job, on_stage):
        time.sleep(0.5)  # the reader has left
        return super().run(job, on_stage)

def body():
    with pytest.MonkeyPatch.context() as patch, SweepProgress() as progress:
        workspace = make_workspace(Path(sys.argv[1]), patch)
        return run_sweep(workspace, REQUEST, progress, SlowPool([PASSED, PASSED]), CPU)

sys.exit(run_program(body))
"""


def test_a_reader_that_leaves_costs_no_verdict_that_was_made(tmp_path):
    """`harness evaluate … | head -3`: device, room and settings, then the first verdict's line."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", CLOSED_OUTPUT, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        lines = [child.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("device: ") and "settings" in lines[2]
        child.stdout.close()
        errors = child.stderr.read()
    assert child.returncode == ExitCode.UNFIT, "1 would be a verdict"
    assert "its reader left" in errors and "Traceback" not in errors
    assert len(errors.splitlines()) == 1
    ledger = TraceLedger.of(tmp_path / "checkout", "cpu", "gdn_decode")
    assert [entry.status for entry in ledger.entries()] == ["PASSED"]


def test_a_log_holds_no_control_codes_whatever_the_environment_says(tmp_path):
    script = (
        "from harness.evaluate.progress import SweepProgress as P\n"
        "from harness.evaluate.protocol import Outcome, Status\n"
        "with P() as p:\n"
        "    p.room_started('room', 2, 0, 'room-1')\n"
        "    outcome = Outcome(Status.PASSED, latency_us=2.187)\n"
        "    p.workload_finished('0123456789', 'x=1', outcome, False)\n"
        "    p.summary([('room', '1/1', '1', '1', '1', 'room-1')], 'end')\n"
    )
    environment = {**os.environ, "FORCE_COLOR": "1", "CI": "true"}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, check=True
    )
    assert b"2.187 us" in done.stdout
    assert b"\x1b" not in done.stdout and b"\r" not in done.stdout


def test_a_room_named_twice_is_judged_once(workspace):
    twice = replace(REQUEST, rooms=("gdn_decode", "gdn_decode"))
    code, pool, _ = sweep(workspace, [PASSED, PASSED], twice)
    assert code is ExitCode.OK and len(pool.jobs) == 2


def test_a_room_without_smoke_workloads_does_not_vanish(workspace):
    rooms = dict(workspace.rooms)
    rooms["gdn_decode"] = replace(rooms["gdn_decode"], smoke_cpu=())
    with pytest.raises(UsageError, match="no smoke workloads"):
        sweep(replace(workspace, rooms=rooms), [], replace(REQUEST, workloads=()))


def test_a_nan_tolerance_is_refused(workspace):
    path = workspace.root / "config.toml"
    path.write_text(path.read_text().replace("atol = 0.01", "atol = nan", 1))
    with pytest.raises(ConfigError, match="atol"):
        load_workspace(workspace.root)
