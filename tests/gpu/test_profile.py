"""A profile of a real room on a GPU: shares that add up, and counters or why there are none."""

import io
from dataclasses import replace

import pytest

from harness.config import load_workspace
from harness.devices import read_facts
from harness.errors import ExitCode
from harness.evaluate.progress import SweepProgress
from harness.ncu import find_ncu
from harness.profiling import engine
from harness.profiling.engine import ProfileRequest, run_profile
from harness.profiling.record import ProfileRecord

pytestmark = pytest.mark.gpu

ROOM = "gdn_decode"


@pytest.fixture(autouse=True)
def own_context(monkeypatch):
    """Inside a container NVML cannot tell this process's context from a stranger's."""
    monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda *_: None)


@pytest.fixture
def profile(monkeypatch):
    """Exit code, printed text and rows of the smoke workloads; results/ stays as it is."""
    kept: dict[str, ProfileRecord] = {}

    def keep(record, root):
        kept["record"] = ProfileRecord.from_json(record.to_json())
        return root / "results" / "profiles" / "kept.json"

    monkeypatch.setattr(engine, "write_profile", keep)
    monkeypatch.setattr(engine, "find_profile", lambda *_: kept.get("record"))

    def run(tool):
        stream = io.StringIO()
        request = ProfileRequest(ROOM, ("smoke",), tool=tool, record=True)
        with SweepProgress(stream) as progress:
            code = run_profile(load_workspace(), request, progress)
        return code, stream.getvalue(), kept["record"].workloads if kept else ()

    return run


def test_torch_profiler_sees_every_kernel_of_a_call_and_how_it_was_launched(profile):
    code, text, rows = profile("torch")
    assert code is ExitCode.OK, text
    assert len(rows) == len(load_workspace().room(ROOM).smoke)
    for row in rows:
        assert sum(one.share for one in row.shares) == pytest.approx(1.0)
        busy_us = sum(one.time_us for one in row.shares)
        assert 0.3 * row.latency_us < busy_us < 2.0 * row.latency_us
        assert row.kernel.grid_blocks and row.kernel.block_threads
        assert row.kernel.registers_per_thread
    assert rows[0].latency_us < rows[-1].latency_us


def test_ncu_counts_the_dominant_kernel_or_says_what_is_missing(profile):
    code, text, rows = profile("both")
    assert code in (ExitCode.OK, ExitCode.TOOL_MISSING), text
    assert all(row.shares for row in rows)
    if code is ExitCode.TOOL_MISSING:
        assert find_ncu() is None or "ERR_NVGPUCTRPERM" in text
        assert all(row.no_launches for row in rows)
        return
    for row in rows:
        assert row.kernel in row.launches, "the dominant kernel goes by one name in both tools"
        assert None not in replace(row.kernel, tensor_share=0.0, limit_barriers=0).__dict__.values()
        assert row.kernel.grid_blocks == row.shares[0].grid_blocks
        assert row.kind is not None and row.limiters is not None
    if read_facts().slug == "nvidia-h200":
        assert all(row.headroom > 1.0 for row in rows)
