"""Probes that need a GPU: tricks are caught on the device, honest kernels pass."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from harness.audit.catalogue import BY_NAME, PROBES
from harness.audit.engine import AuditRequest, read_answer, run_audit, worker_command
from harness.config import load_workspace
from harness.errors import ExitCode
from harness.evaluate.pool import Pool, worker_environment
from harness.evaluate.progress import SweepProgress
from tests import cheat_table
from tests.cheat_table import CHEATS
from tests.unit.judge_room import RIGHT, RIGHT_VALUES, make_job, module

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "cuda:0"
SECRET_SEED = 20_261_129
TRICKS = [trick for trick, cheat in CHEATS.items() if cheat.needs_gpu]
ON_GPU = tuple(probe for probe in PROBES if probe.needs_gpu)


def find(folder, probe, source, is_dps=True):
    """Verdict and detail of a probe in a worker of its own on the device."""
    job = make_job(folder, source, is_dps=is_dps)
    job = replace(job, device=DEVICE, settings=replace(job.settings, timer="cupti"))
    environment = worker_environment(DEVICE, ROOT)
    with Pool(DEVICE, ROOT, worker_command(probe.function, SECRET_SEED, environment)) as pool:
        return read_answer(pool.run(job))


@pytest.mark.parametrize("trick", TRICKS)
def test_its_probe_catches_a_trick(tmp_path, trick, record_property):
    verdict, detail = find(tmp_path, BY_NAME[CHEATS[trick].probe], cheat_table.source(trick))
    record_property("verdict", verdict)
    assert verdict == "FAILED", detail
    assert detail


@pytest.mark.parametrize("is_dps", [True, False], ids=["destination", "value"])
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_an_honest_solution_passes(tmp_path, probe, is_dps):
    source = module(RIGHT if is_dps else RIGHT_VALUES, is_dps)
    verdict, detail = find(tmp_path, probe, source, is_dps)
    assert verdict == "PASSED", detail


@pytest.fixture
def own_context(monkeypatch):
    """Inside a container NVML cannot tell this process's context from a stranger's."""
    monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda *_: None)


@pytest.mark.usefixtures("own_context")
@pytest.mark.parametrize("room", list(load_workspace().rooms))
def test_rooms_pass_what_only_a_gpu_can_probe(room):
    workspace = load_workspace()
    request = AuditRequest(room, workspace.room(room).smoke[:1])
    stream = io.StringIO()
    with SweepProgress(stream) as progress:
        code = run_audit(workspace, request, progress, probes=ON_GPU)
    assert code == ExitCode.OK, stream.getvalue()
