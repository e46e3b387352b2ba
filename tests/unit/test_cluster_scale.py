"""What two GPUs gain: from ledger lines to a file, and from the file to docs/scale.md."""

from __future__ import annotations

import contextlib
import os
import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cluster.measure import (
    COMPARED,
    WARM_ROOM,
    _wanted,
    _warm_up,
    _write_memory,
    measure_phase,
)
from harness.cluster.scale import (
    NOT_MEASURED,
    Scale,
    agreement,
    describe_scale,
    phase_of,
    read_scale,
    render_page,
    rooms_of,
    scale_path,
    speedup,
    write_scale,
)
from harness.config import load_workspace
from harness.devices import DeviceFacts
from harness.errors import ConfigError, EnvironmentUnfit, ExitCode, RecordError, UsageError
from harness.records import TraceEntry
from tests.small_checkout import small_checkout

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def entry(uuid: str, gpu: str, latencies_us, status="PASSED", **stages_s: float) -> TraceEntry:
    return TraceEntry(
        room="moe",
        definition="moe_definition",
        workload={"uuid": uuid, "axes": {}, "inputs": {}},
        solution_name="moe-x",
        solution_sha256="a" * 64,
        judge_sha256="b" * 64,
        dataset_sha256="c" * 64,
        settings_sha256="d" * 64,
        device="nvidia-test",
        hardware="NVIDIA Test",
        status=status,
        seed=0,
        started_at="2026-01-31T01:00:00.000000Z",
        ended_at="2026-01-31T01:00:01.000000Z",
        measurement={
            "trial_latencies_us": latencies_us,
            "stages_s": stages_s,
            "worker": {"gpu": gpu, "host": "host"},
        },
    )


def phase(name: str, gpus: list[str], wall_s: float, factor: float = 1.0):
    """Twelve workloads, given to the GPUs in turn."""
    entries = [
        entry(
            f"w{n}",
            gpus[n % len(gpus)],
            [factor * (20 + n) * (1 + 0.002 * ((7 * n + 3 * trial) % 5 - 2)) for trial in range(3)],
            reference=0.2, timing=0.3, total=0.75 if n < len(gpus) else 0.5,
        )
        for n in range(12)
    ]  # fmt: skip
    judging_s = wall_s - 2
    return phase_of(name, len(gpus), 12, entries, wall_s, judging_s, 0)


ONE_GPU, TWO_GPUS = ["GPU-11111111-x"], ["GPU-11111111-x", "GPU-22222222-x"]


def whole() -> Scale:
    phases = {
        "one": phase("one", ONE_GPU, 10.0),
        "two": phase("two", TWO_GPUS, 5.5, 1.01),
        "again": phase("again", ONE_GPU, 10.0, 1.002),
        "kill": replace(phase("kill", TWO_GPUS, 6.0), lost_workers=1),
    }
    return Scale("nvidia-test", "NVIDIA Test", "e" * 40, phases)


def test_each_gpus_seconds_add_up_to_the_run():
    two = phase("two", TWO_GPUS, 7.0)
    assert set(two.stages_s) == {"GPU-11111111", "GPU-22222222"}
    for stages in two.stages_s.values():
        assert sum(stages.values()) == pytest.approx(two.judging_s)
        assert stages["start"] == pytest.approx(0.25), "what the first job took beyond its stages"
        assert stages["timing"] == pytest.approx(1.8) and stages["reference"] == pytest.approx(1.2)
    assert two.waiting_share == pytest.approx(1 - 12 * 0.5 / (2 * 7.0))


def test_a_workload_with_two_verdicts_is_no_measurement():
    twice = [entry("w1", "GPU-1", [1.0] * 3), entry("w1", "GPU-2", [1.0] * 3)]
    with pytest.raises(RecordError, match="2 verdicts on 1 workloads"):
        phase_of("kill", 2, 1, twice, 1.0, 1.0, 1)


def test_what_failed_counts_as_a_verdict_and_has_no_latency():
    lines = [entry("w1", "GPU-1", [1.0] * 3), entry("w2", "GPU-1", [], status="TIMEOUT")]
    made = phase_of("one", 1, 2, lines, 1.0, 1.0, 0)
    assert (made.verdicts, made.passed, list(made.measured)) == (2, 1, ["w1"])


def test_only_the_same_gpu_is_compared_with_itself():
    found = agreement(whole())
    assert found is not None and found.workloads == 6
    assert found.busy_alone.mean == pytest.approx(1.01)
    assert found.again_alone.mean == pytest.approx(1.002)
    assert found.busy_again.mean == pytest.approx(1.01 / 1.002)


def scattered(busy: list[float], again: list[float]) -> Scale:
    """Latencies of each workload over 10 µs alone; the middle trial of three counts."""

    def made(name: str, factors: list[float]):
        lines = [
            entry(f"w{n}", ONE_GPU[0], [5.0, 10.0 * factor, 90.0])
            for n, factor in enumerate(factors)
        ]
        return phase_of(name, 1, len(lines), lines, 2.0, 1.0, 0)

    alone = [1.0] * len(busy)
    phases = {"one": made("one", alone), "two": made("two", busy), "again": made("again", again)}
    return Scale("nvidia-test", "NVIDIA Test", "e" * 40, phases)


def test_a_mean_is_judged_by_how_much_workloads_differ():
    spread = [0.95, 0.99, 1.0, 1.01, 1.05, 1.0] * 10
    found = agreement(scattered(spread, [1.0] * 60))
    assert found is not None
    busy = found.busy_again
    assert busy == found.busy_alone
    assert (busy.mean, busy.near, busy.far) == (pytest.approx(1.0), 40, 60)
    half = 1.96 * statistics.pstdev(spread) / 60**0.5
    assert busy.low == pytest.approx(1 - half, abs=half / 10)
    assert busy.high == pytest.approx(1 + half, abs=half / 10)
    assert found == agreement(scattered(spread, [1.0] * 60)), "the same draws each time"


def test_what_is_concluded_rests_on_the_repetition_alone():
    spread = [0.99, 1.0, 1.01] * 20
    shifted = [1.05 * factor for factor in spread]
    same = describe_scale(scattered(shifted, shifted), {})
    assert "by the last row: +0.0% on average (+0.0% to +0.0%), not told apart from none" in same
    assert "Two runs alone differ by +5.0% (+4.8% to +5.2%); less than that these runs" in same
    slower = describe_scale(scattered(shifted, spread), {})
    assert "by the last row: +5.0% on average (+5.0% to +5.0%). Two" in slower


def test_without_the_yardstick_nothing_is_said_about_agreement():
    scale = whole()
    phases = {name: of for name, of in scale.phases.items() if name != "again"}
    assert agreement(replace(scale, phases=phases)) is None
    text = describe_scale(replace(scale, phases=phases), {"w1": "moe"})
    assert "beside a busy GPU: not measured" in text and "Room by room" not in text


def test_rooms_are_compared_each_by_itself():
    busy = [1.0, 1.0, 1.1, 1.1, 1.3]
    rooms = {"w0": "moe", "w1": "moe", "w2": "decode", "w3": "decode", "w4": "alone"}
    text = describe_scale(scattered(busy, [1.0] * 5), rooms)
    table = text[text.index("Room by room") :]
    assert "| decode | 2 | 1.100 (1.100 to 1.100) |" in table
    assert "| moe | 2 | 1.000 (1.000 to 1.000) |" in table
    assert "alone |" not in table, "one workload gives no interval"


def test_the_speed_up_is_of_the_same_workloads():
    scale = whole()
    assert speedup(scale) == pytest.approx(10.0 / 5.5)
    part = replace(scale.phases["one"], workloads=3)
    assert speedup(replace(scale, phases={**scale.phases, "one": part})) is None


def test_a_phase_needs_its_gpus_and_its_forerunner(tmp_path, monkeypatch):
    workspace = small_checkout(tmp_path / "checkout")
    facts = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-11111111-x")
    monkeypatch.setattr("harness.cluster.measure.read_facts", lambda: facts)
    monkeypatch.setattr("harness.cluster.measure.load_cuda", lambda: None)
    with pytest.raises(EnvironmentUnfit, match="expected 2 visible GPUs of this host, got 0"):
        measure_phase(workspace, "two")
    monkeypatch.setattr(
        "harness.cluster.measure.load_cuda", lambda: SimpleNamespace(count=lambda: 1)
    )
    with pytest.raises(UsageError, match="phase again: expected phase two before it"):
        measure_phase(workspace, "again")
    monkeypatch.setattr("harness.cluster.measure.read_facts", None)
    with pytest.raises(ConfigError, match="nosuch"):
        measure_phase(workspace, "two", ["nosuch"])


@pytest.mark.parametrize(("name", "sweeps"), [("one", 2), ("two", 2), ("kill", 1)])
def test_compared_phases_begin_on_a_warm_host_without_compiled_code(
    name, sweeps, tmp_path, monkeypatch
):
    workspace = small_checkout(tmp_path / "checkout")
    seen, folders = [], []

    def sweep_on(engine, workspace, request, progress):
        assert not any(folder.exists() for folder in folders), "what was compiled is gone"
        if name in COMPARED:
            folders.append(Path(os.environ["FIB_CACHE_PATH"]))
            folders[-1].mkdir()
        seen.append(request)
        return ExitCode.OK

    def write_memory():
        seen.append("memory")

    engine = SimpleNamespace(facts=None, lost_workers=0)
    facts = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-11111111-x")
    lines = [replace(entry("w1", "GPU-1", [1.0] * 3), started_at="2099-01-31T01:00:00.000000Z")]
    for target, value in {
        "read_facts": lambda: facts,
        "load_cuda": lambda: SimpleNamespace(count=lambda: 2),
        "dataset.ensure_blobs": lambda *_: None,
        "load_ray": lambda: None,
        "RayEngine": lambda *_: engine,
        "_own_cluster": lambda gpus: contextlib.nullcontext(),
        "sweep_on": sweep_on,
        "_write_memory": write_memory,
        "_entries_since": lambda *_: lines,
    }.items():
        monkeypatch.setattr(f"harness.cluster.measure.{target}", value)
    phase = read_scale(measure_phase(workspace, name, commit="e" * 40)).phases[name]
    assert phase.starting_s is not None and phase.starting_s > 0
    requests = [each for each in seen if each != "memory"]
    assert len(requests) == sweeps and requests[-1].workloads == ("all",)
    if sweeps == 2:
        assert "memory" in seen
        assert requests[0].rooms == (WARM_ROOM,) and len(requests[0].workloads) == 1
        assert len(set(folders)) == 2


def no_memory():
    raise MemoryError


@pytest.mark.parametrize(
    ("code", "write_memory", "error"),
    [(ExitCode.FAILED, lambda: None, EnvironmentUnfit), (ExitCode.OK, no_memory, MemoryError)],
    ids=["a workload that fails", "no memory"],
)
def test_a_host_that_was_not_warmed_up_is_not_measured(
    code, write_memory, error, tmp_path, monkeypatch
):
    workspace = small_checkout(tmp_path / "checkout")
    for target, value in {
        "RayEngine": lambda *_: None,
        "_own_cluster": lambda gpus: contextlib.nullcontext(),
        "sweep_on": lambda *_: code,
        "_write_memory": write_memory,
    }.items():
        monkeypatch.setattr(f"harness.cluster.measure.{target}", value)
    with pytest.raises(error):
        _warm_up(workspace, "two", {WARM_ROOM: [SimpleNamespace(uuid="w1")]})


@pytest.mark.parametrize(("free_mib", "written_mib"), [(100, 8), (6, 3)])
def test_memory_is_written_within_half_of_what_is_free(free_mib, written_mib, monkeypatch):
    kept = []

    def allocate(_, size_bytes):
        kept.append(bytearray(size_bytes))
        return kept[-1]

    monkeypatch.setattr("harness.cluster.measure.mmap.mmap", allocate)
    pages = {"SC_AVPHYS_PAGES": free_mib << 8, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr("harness.cluster.measure.os.sysconf", pages.__getitem__)
    monkeypatch.setattr("harness.cluster.measure.WRITTEN_BYTES", 8 << 20)
    assert _write_memory() == written_mib << 20
    assert kept == [bytearray(b"\1" * (written_mib << 20))]


def test_the_repetition_is_of_what_this_gpu_judged_beside_the_other():
    facts = DeviceFacts("nvidia-test", "NVIDIA Test", uuid=ONE_GPU[0])
    assert _wanted("again", whole(), facts) == tuple(f"w{n}" for n in range(0, 12, 2))
    assert _wanted("one", whole(), facts) == ("all",)


def test_what_is_written_is_read_back(tmp_path):
    path = scale_path(tmp_path, "nvidia-test")
    write_scale(path, whole())
    assert read_scale(path) == whole()
    lines = path.read_text().splitlines()
    assert max(map(len, lines)) < 600, "a phase or a workload a line"


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"phases": []}')
    with pytest.raises(RecordError, match=r"measure_scale\.py writes"):
        read_scale(path)


def test_the_page_shows_what_the_files_hold(tmp_path):
    bare = render_page(PAGE, tmp_path, {})
    assert f"\n{NOT_MEASURED}\n" in bare
    write_scale(scale_path(tmp_path, "nvidia-test"), whole())
    page = render_page(bare, tmp_path, {})
    assert "| two | 2 | 12 of 12 | 12 | 0 | 6 | 4 |" in page
    assert "| kill | 2 | 12 of 12 | 12 | 1 |" in page
    assert "Speed-up of two GPUs, by wall time: 1.82." in page
    assert render_page(page, tmp_path, {}) == page


def test_the_page_in_the_repository_agrees_with_results_and_simulation():
    rooms = rooms_of(load_workspace(ROOT))
    assert len(rooms) == 324
    assert render_page(PAGE, ROOT, rooms) == PAGE, "run scripts/measure_scale.py --write"
