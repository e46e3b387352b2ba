"""An audit end to end with a fake pool: what runs, what is printed, what is kept."""

import io
import json
from dataclasses import replace

import pytest

from harness.audit import engine
from harness.audit.catalogue import PROBES, WARNING, Probe
from harness.audit.engine import AuditRequest, run_audit
from harness.audit.record import AuditRecord, ProbeResult, load_audit, record_path, write_audit
from harness.cli import main
from harness.devices import DeviceFacts
from harness.errors import ConfigError, ExitCode, RecordError, UsageError
from harness.evaluate import plan as planning
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.packing import Packed
from tests.small_checkout import small_checkout

CPU = DeviceFacts("cpu", "a processor")
GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test", driver="580.1")
ROOM = "gdn_decode"
REQUEST = AuditRequest(ROOM, ("all",), seed=7)
SHA = "a" * 64


def found(verdict="PASSED", detail=""):
    """A probe's answer as its worker gives it."""
    answer = {"verdict": verdict, "detail": detail, "values": None}
    return Outcome(Status.PASSED, evaluation=answer)


class FakePools:
    """A pool a probe. answers: outcomes by the probe's function, found() where none is given."""

    def __init__(self, answers=()):
        self.answers = {name: list(outcomes) for name, outcomes in dict(answers).items()}
        self.started, self.jobs = [], []

    def __call__(self, device, root, command):
        function, seed = command.argv[-2:]
        self.started.append((function, seed, device))
        return FakePool(self, function)


class FakePool:
    def __init__(self, pools, function):
        self.pools, self.function = pools, function

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, job):
        self.pools.jobs.append((self.function, job))
        outcomes = self.pools.answers.get(self.function)
        return outcomes.pop(0) if outcomes else found()


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A small checkout whose room packs to chosen bytes; blobs are never made."""
    workspace = small_checkout(tmp_path / "checkout")
    for source in planning.JUDGE_SOURCES:
        path = workspace.root / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rules")
    packed = Packed(f"{ROOM}-x", SHA, "{}", workspace.root / "solution.json")
    monkeypatch.setattr(engine, "pack", lambda *_: packed)
    monkeypatch.setattr(engine.dataset, "ensure_blobs", lambda *_: None)
    monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda *_: None)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    return workspace


def audit(workspace, pools, facts=GPU, request=REQUEST):
    """Exit code and what was printed."""
    stream = io.StringIO()
    with SweepProgress(stream) as progress:
        code = run_audit(workspace, request, progress, facts, pools)
    return code, stream.getvalue()


def test_every_probe_has_a_worker_of_its_own_that_sees_every_workload(workspace):
    pools = FakePools()
    code, text = audit(workspace, pools)
    assert code == ExitCode.OK
    assert pools.started == [(probe.function, "7", "cuda:0") for probe in PROBES]
    assert len(pools.jobs) == 2 * len(PROBES)
    assert {job.settings.trials for _, job in pools.jobs} == {1}
    assert f"{len(PROBES)} PASSED" in text and WARNING in text


def test_without_a_gpu_the_probes_that_need_one_do_not_run_and_the_audit_is_incomplete(workspace):
    pools = FakePools()
    code, text = audit(workspace, pools, CPU)
    assert code == ExitCode.INCOMPLETE
    assert [name for name, _, _ in pools.started] == [p.function for p in PROBES if not p.needs_gpu]
    assert text.count("NOT_RUN\n    needs a GPU") == 5
    assert text.endswith("the audit is incomplete\n")


@pytest.mark.parametrize("target", ["nosuch.json", "folder/nosuch", "~/nosuch.json"])
def test_a_file_that_is_not_there_is_said(tmp_path, monkeypatch, target):
    monkeypatch.setenv("HOME", str(tmp_path))
    workspace = small_checkout(tmp_path)
    path = target.replace("~", str(tmp_path))
    with pytest.raises(UsageError, match=rf"^{path}: no such file; expected a packed JSON.* moe, "):
        engine.find_target(workspace, target)
    with pytest.raises(ConfigError, match=r"room: expected one of moe.*; got 'nosuch'"):
        engine.find_target(workspace, "nosuch")


def test_without_a_gpu_a_record_is_refused_before_any_probe_runs(workspace):
    pools = FakePools()
    with pytest.raises(UsageError, match="--record keeps evidence: expected a GPU"):
        audit(workspace, pools, CPU, replace(REQUEST, record=True))
    assert pools.started == []


def test_a_finding_names_its_workload_and_ends_that_probe_alone(workspace):
    pools = FakePools({"values:guard_bands": [found("FAILED", "4 bytes behind y were written")]})
    code, text = audit(workspace, pools)
    assert code == ExitCode.FAILED
    uuid = pools.jobs[0][1].uuid[:8]
    assert f"guard_bands FAILED\n    {uuid}: 4 bytes behind y were written" in text
    assert len(pools.jobs) == 2 * len(PROBES) - 1
    assert f"{len(PROBES) - 1} PASSED, 1 FAILED" in text


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.TIMEOUT, Status.COMPILE_ERROR])
def test_a_solution_that_ends_the_probes_process_has_failed(workspace, status):
    ended = Outcome(status, detail="the worker was killed by SIGABRT")
    code, text = audit(workspace, FakePools({"values:fresh_values": [ended]}))
    assert code == ExitCode.FAILED
    assert "killed by SIGABRT" in text


@pytest.mark.parametrize("status", [Status.INFRASTRUCTURE, Status.REFERENCE_ERROR])
def test_a_machine_that_fails_is_no_finding(workspace, status):
    broken = Outcome(status, detail="no memory")
    pools = FakePools({"values:fresh_values": [broken, broken]})
    code, text = audit(workspace, pools, GPU, replace(REQUEST, record=True))
    assert code == ExitCode.INCOMPLETE
    assert "fresh_values NOT_RUN" in text and "no memory" in text
    assert "incomplete, not recorded" in text
    assert not record_path(workspace.root, ROOM).exists()


def test_one_workload_that_shows_nothing_is_enough_where_another_does(workspace):
    answers = {"values:fresh_values": [found("NOT_RUN", "every trial is the same"), found()]}
    code, text = audit(workspace, FakePools(answers))
    assert code == ExitCode.OK
    assert "fresh_values PASSED\n" in text


def test_an_answer_without_a_known_verdict_is_no_pass(workspace):
    code, _ = audit(workspace, FakePools({"values:runs_alike": [found("FINE")]}))
    assert code == ExitCode.FAILED


@pytest.mark.parametrize("verdict", ["PASSED", "FAILED"])
def test_a_whole_audit_is_kept_and_read_again(workspace, verdict):
    pools = FakePools({"values:runs_alike": [found(verdict, "why")]})
    request = replace(REQUEST, record=True, commit="abcdef0")
    code, _ = audit(workspace, pools, GPU, request)
    record = load_audit(workspace.root, ROOM)
    assert record.passed is (verdict == "PASSED") is (code == ExitCode.OK)
    assert (record.solution_sha256, record.device, record.driver) == (SHA, "nvidia-test", "580.1")
    assert [probe.name for probe in record.probes] == [probe.name for probe in PROBES]
    assert record.seed == 7 and record.commit == "abcdef0" and len(record.workloads) == 2
    values = json.loads(record_path(workspace.root, ROOM).read_text())
    assert set(values["probes"][0]) == {"name", "claim", "verdict", "detail"}
    assert values["passed"] is record.passed


def test_a_seed_that_is_not_named_is_drawn_anew_and_printed(workspace):
    seeds = set()
    for _ in range(2):
        pools = FakePools()
        _, text = audit(workspace, pools, GPU, replace(REQUEST, seed=None))
        seed = pools.started[0][1]
        assert f"seed {seed}" in text
        seeds.add(seed)
    assert len(seeds) == 2


def test_only_a_rooms_own_audit_is_kept(workspace, tmp_path):
    other = tmp_path / "solution.json"
    other.write_text("{}")
    with pytest.raises(UsageError, match="--record keeps the evidence of a room"):
        audit(workspace, FakePools(), GPU, replace(REQUEST, target=str(other), record=True))


def test_a_packed_file_is_audited_in_its_definitions_room(workspace, tmp_path, monkeypatch):
    path = tmp_path / "other.json"
    path.write_text("{}")
    definition = workspace.room("dsa_indexer").definition
    packed = Packed("other", "b" * 64, "{}", path)
    monkeypatch.setattr(engine, "read_packed", lambda _: (packed, definition))
    code, text = audit(workspace, FakePools(), GPU, replace(REQUEST, target=str(path)))
    assert code == ExitCode.OK and text.count("dsa_indexer") > len(PROBES)
    monkeypatch.setattr(engine, "read_packed", lambda _: (packed, "something_else"))
    with pytest.raises(UsageError, match="solves something_else"):
        audit(workspace, FakePools(), GPU, replace(REQUEST, target=str(path)))


def test_a_room_that_is_not_there_is_a_usage_error(capsys):
    assert main(["audit", "gdn_decod"]) == ExitCode.USAGE
    assert "gdn_decode" in capsys.readouterr().err


# The record


def sample():
    probes = (ProbeResult("runs_alike", "a claim", "PASSED", ""),)
    return AuditRecord(
        ROOM, "definition", "name", SHA, "unknown", "cpu", None, {"torch": "2"}, 0, ("u",), probes,
        "2026-01-31T23:59:59Z",
    )  # fmt: skip


def test_a_record_survives_its_file(tmp_path):
    write_audit(sample(), tmp_path)
    assert load_audit(tmp_path, ROOM) == sample()
    assert load_audit(tmp_path, "moe") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"passed": False}, "passed: expected True"),
        ({"passed": "yes"}, "passed: expected bool"),
        ({"probes": []}, "at least one"),
        ({"workloads": []}, "at least one UUID"),
        ({"solution_sha256": "a" * 63}, "solution_sha256"),
        ({"surplus": 1}, "no such key"),
        ({"measured_at": "yesterday"}, "measured_at"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change, words):
    with pytest.raises(RecordError, match=words):
        AuditRecord.from_json({**sample().to_json(), **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": "FINE"}, "verdict: expected one of"),
        ({"name": "Runs alike"}, "name"),
        ({"more": 1}, "no such key"),
    ],
)
def test_a_probe_that_no_audit_writes_is_refused(change, words):
    values = sample().to_json()
    values["probes"][0] |= change
    with pytest.raises(RecordError, match=words):
        AuditRecord.from_json(values)


def test_a_record_under_another_rooms_name_is_refused(tmp_path):
    write_audit(sample(), tmp_path)
    record_path(tmp_path, ROOM).rename(record_path(tmp_path, "moe"))
    with pytest.raises(RecordError, match="holds gdn_decode"):
        load_audit(tmp_path, "moe")


def test_a_probe_that_did_not_run_is_no_pass():
    assert not replace(sample(), probes=(ProbeResult("a", "b", "NOT_RUN", "c"),)).passed


def test_probes_have_names_of_their_own_and_one_claim_each():
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    assert all(isinstance(probe, Probe) and probe.claim for probe in PROBES)
