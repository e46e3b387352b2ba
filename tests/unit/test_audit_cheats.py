"""Each trick of tests/cheats is caught by its probe; an honest solution passes all of them."""

import io
import sys
from pathlib import Path

import pytest
import torch
from flashinfer_bench.compile import BuilderRegistry

from harness.audit import catalogue
from harness.audit.catalogue import BY_NAME, PROBES
from harness.audit.engine import AuditRequest, read_answer, run_audit, worker_command
from harness.audit.worker import answer
from harness.config import load_workspace
from harness.devices import read_facts
from harness.errors import ExitCode
from harness.evaluate.judge import judge
from harness.evaluate.pool import Pool, worker_environment
from harness.evaluate.progress import SweepProgress
from tests import cheat_table
from tests.cheat_table import CHEATS
from tests.unit.judge_room import RIGHT, RIGHT_VALUES, make_job, module

ROOT = Path(__file__).resolve().parents[2]
SECRET_SEED = 20_261_129
HERE = [trick for trick, cheat in CHEATS.items() if not (cheat.needs_gpu or cheat.patches)]
APART = [trick for trick, cheat in CHEATS.items() if cheat.patches]
# moe takes a quarter of an hour in Triton's interpreter; tests/gpu probes it on the device.
INTERPRETED = [room for room in load_workspace().rooms if room != "moe"]
PROBES_ON_CPU = tuple(probe for probe in PROBES if not probe.needs_gpu)
ON_CPU = [probe.name for probe in PROBES_ON_CPU]


@pytest.fixture(autouse=True)
def own_builds(tmp_path, monkeypatch):
    """No build of another test; a build cache below tmp_path; nothing left on sys.path."""
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "builds"))
    monkeypatch.setattr(BuilderRegistry, "_instance", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


@pytest.fixture
def find(tmp_path):
    """Verdict and detail of a probe on the text of a solution, in this process."""

    def run(probe, source, is_dps=True):
        job = make_job(tmp_path / "set", source, is_dps=is_dps)
        return read_answer(answer(BY_NAME[probe].function, SECRET_SEED, job, lambda stage: None))

    return run


def find_apart(job, probe):
    """Verdict and detail of a probe in a worker of its own."""
    command = worker_command(BY_NAME[probe].function, SECRET_SEED, worker_environment("cpu", ROOT))
    with Pool("cpu", ROOT, command) as pool:
        return read_answer(pool.run(job))


def text_of(trick, tmp_path):
    """A trick's source, of a content of its own: what one test's module kept is no other's."""
    return f"{cheat_table.source(trick)}# {tmp_path}\n"


@pytest.mark.parametrize("trick", HERE)
def test_its_probe_catches_a_trick(find, tmp_path, trick, record_property):
    cheat = CHEATS[trick]
    verdict, detail = find(cheat.probe, text_of(trick, tmp_path), cheat.is_dps)
    record_property("verdict", verdict)
    assert verdict == "FAILED", detail
    assert detail


@pytest.mark.slow
@pytest.mark.parametrize("trick", APART)
def test_its_probe_catches_a_trick_that_changes_its_process(tmp_path, trick, record_property):
    job = make_job(tmp_path, cheat_table.source(trick))
    verdict, detail = find_apart(job, CHEATS[trick].probe)
    record_property("verdict", verdict)
    assert verdict == "FAILED", detail
    assert detail


@pytest.mark.parametrize("trick", HERE)
def test_the_judge_alone_says_what_the_table_says(tmp_path, trick, record_property):
    cheat = CHEATS[trick]
    job = make_job(tmp_path / "set", text_of(trick, tmp_path), is_dps=cheat.is_dps)
    outcome = judge(job, lambda stage: None)
    record_property("verdict", outcome.status.value)
    assert outcome.status.value == cheat.judged, outcome.detail


@pytest.mark.slow
@pytest.mark.parametrize("trick", APART)
def test_the_judge_alone_says_so_of_one_that_changes_its_process(tmp_path, trick, record_property):
    with Pool("cpu", ROOT) as pool:
        outcome = pool.run(make_job(tmp_path, cheat_table.source(trick)))
    record_property("verdict", outcome.status.value)
    assert outcome.status.value == CHEATS[trick].judged, outcome.detail


@pytest.mark.slow
@pytest.mark.parametrize("room", INTERPRETED)
def test_rooms_pass_what_a_cpu_can_probe(room):
    request = AuditRequest(room, load_workspace().room(room).smoke_cpu[:1])
    stream = io.StringIO()
    with SweepProgress(stream) as progress:
        code = run_audit(
            load_workspace(), request, progress, read_facts("cpu"), probes=PROBES_ON_CPU
        )
    assert code == ExitCode.OK, stream.getvalue()


@pytest.mark.parametrize("is_dps", [True, False], ids=["destination", "value"])
@pytest.mark.parametrize("probe", ON_CPU)
def test_an_honest_solution_passes(find, probe, is_dps):
    verdict, detail = find(probe, module(RIGHT if is_dps else RIGHT_VALUES, is_dps), is_dps)
    assert verdict == "PASSED", detail


def test_every_trick_has_a_file_and_every_file_a_trick():
    assert {path.stem for path in cheat_table.FOLDER.glob("*.py")} == set(CHEATS)
    assert {cheat.probe for cheat in CHEATS.values()} == set(catalogue.BY_NAME)


def test_a_trick_runs_on_a_gpu_where_its_probe_does():
    for trick, cheat in CHEATS.items():
        assert cheat.needs_gpu == BY_NAME[cheat.probe].needs_gpu, trick


def test_the_document_states_each_probes_claim():
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    rows = [f"| {p.name} | {p.claim} | {'GPU' if p.needs_gpu else 'CPU'} |" for p in PROBES]
    assert "\n".join(rows) + "\n" in text


# What a probe must not take for a trick


def test_scratch_that_each_call_rewrites_is_no_cache(find):
    body = "ROOM.append(torch.empty_like(x)) if not ROOM else None\n"
    body += "torch.mul(x, scale, out=ROOM[0])\n" + RIGHT.replace("scale * x", "ROOM[0]")
    verdict, detail = find("nothing_kept", module(body, head="ROOM = []"))
    assert verdict == "PASSED", detail
    assert "1 tensors kept, all of them scratch" in detail


def test_a_cache_that_hands_out_its_own_tensors_is_caught(find):
    body = "RESULTS[:] = RESULTS or [" + RIGHT_VALUES.removeprefix("return ") + "]\n"
    source = module(body + "return tuple(RESULTS)", is_dps=False, head="RESULTS = []")
    verdict, detail = find("nothing_kept", source, is_dps=False)
    assert verdict == "FAILED" and "INCORRECT_NUMERICAL" in detail


def test_a_table_made_at_import_is_no_cache(find):
    body = RIGHT.replace("scale * x", "scale * x * ONE")
    verdict, detail = find("nothing_kept", module(body, head="import torch\nONE = torch.ones(1)"))
    assert verdict == "PASSED", detail


def test_runs_that_differ_in_the_last_bits_pass_with_a_note(find):
    body = RIGHT.replace("scale * x", "scale * x * (1 + torch.rand_like(x) * 1e-6)")
    verdict, detail = find("runs_alike", module(body))
    assert verdict == "PASSED", detail
    assert "differ in bits" in detail


def test_a_solution_that_raises_fails_and_the_probe_says_why(find):
    verdict, detail = find("fresh_values", module("raise ValueError('no such shape')"))
    assert verdict == "FAILED"
    assert "ValueError: no such shape" in detail


def test_a_damaged_reference_is_no_verdict_on_the_solution(tmp_path):
    job = make_job(
        tmp_path / "set", module(RIGHT), reference="def run(x, scale):\n    raise OSError"
    )
    outcome = answer(BY_NAME["fresh_values"].function, SECRET_SEED, job, lambda stage: None)
    assert read_answer(outcome)[0] == "NOT_RUN"


def test_elements_that_were_never_written_are_counted(find):
    body = "CALLS.append(1)\n" + RIGHT.replace(
        "y.copy_", "(y if len(CALLS) < 2 else y.clone()).copy_"
    )
    verdict, detail = find("outputs_written", module(body, head="CALLS = []"))
    assert (verdict, detail) == ("FAILED", "y: 12 of 12 elements are not written")
