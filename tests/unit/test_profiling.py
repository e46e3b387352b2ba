"""Profiles end to end with scripted workers and NCU's part, in a script or as a fake program."""

import io
import json
import stat
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import pytest

from harness import ncu
from harness.audit import engine as audit_engine
from harness.cli import main
from harness.cli import profile as command
from harness.dataset import read_workloads
from harness.devices import DeviceFacts
from harness.errors import (
    EnvironmentUnfit,
    ExitCode,
    InfrastructureFailure,
    ToolMissing,
    UsageError,
)
from harness.evaluate import plan as planning
from harness.evaluate.pool import MeasurementFailed
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.packing import Packed
from harness.profiling import collecting, engine
from harness.profiling.engine import ProfileRequest, run_profile
from harness.profiling.record import all_profiles, find_profile
from harness.profiling.shares import Activity
from tests.small_checkout import small_checkout
from tests.unit.ncu_tables import DENIED, ncu_table

ROOM = "gdn_decode"
GPU = DeviceFacts("nvidia-h200", "NVIDIA H200", uuid="GPU-test", driver="1.0", sm_count=132)
CPU = DeviceFacts("cpu", "a processor")
STEP = ("_step", {})
CALL = [Activity("_step", 9.0, 512, 256, 64, 0), Activity("_step", 0.5), Activity("_tail", 0.5)]


class ScriptedPools:
    """Stands in for both workers. judged, traced: outcome by UUID where not a pass."""

    def __init__(self):
        self.judged, self.traced, self.calls = {}, {}, [CALL] * 3
        self.latencies_us = (11.0, 10.0, 30.0)

    @contextmanager
    def __call__(self, device, root, worker):
        is_tracing = "harness.profiling.worker" in worker.argv
        yield _Tracing(self, worker.argv[-1]) if is_tracing else _Judging(self)


class _Judging:
    def __init__(self, script):
        self.script = script

    def run(self, job):
        assert job.keep
        return self.script.judged.get(job.uuid, Outcome(Status.PASSED))

    def measure(self, warmup_runs, iterations, timeout_s):
        assert (warmup_runs, iterations) == (10, 50)
        if isinstance(self.script.latencies_us, Outcome):
            raise MeasurementFailed(self.script.latencies_us)
        return self.script.latencies_us


class _Tracing:
    def __init__(self, script, call_file):
        self.script, self.call_file = script, engine.Path(call_file)

    def run(self, job):
        found = self.script.traced.get(job.uuid)
        if found is None or found.detail == "after the first call":
            self.call_file.write_text(job.uuid)
        calls = [[asdict(one) for one in call] for call in self.script.calls]
        return found or Outcome(Status.PASSED, evaluation=json.loads(json.dumps({"calls": calls})))


class ProfileRoom:
    """A checkout of two small workloads whose room packs to content "a"."""

    def __init__(self, root, monkeypatch):
        self.workspace = small_checkout(root / "checkout")
        self.root = self.workspace.root
        self.pools, self.table, self.asked = ScriptedPools(), ncu_table(STEP), []
        for source in planning.JUDGE_SOURCES:
            path = self.root / source
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("rules")
        monkeypatch.setenv("FIB_CACHE_PATH", str(root / "cache"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
        monkeypatch.setattr(audit_engine, "pack", self.pack)
        monkeypatch.setattr(engine.dataset, "ensure_blobs", lambda *_: None)
        monkeypatch.setattr(engine, "require_timer", lambda name: None)
        monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda facts: None)
        monkeypatch.setattr(collecting, "find_ncu", lambda: "ncu")
        self.content = "a"

    def pack(self, workspace, room, route=None):
        name = f"{room}-{self.content * 8}"
        return Packed(name, self.content * 64, "{}", self.root / "solution.json")

    @property
    def uuids(self):
        return [row.uuid for row in read_workloads(self.root, self.workspace.room(ROOM))]

    def run_ncu(self, argv, environment, folder):
        log = engine.Path(argv[argv.index("--log-file") + 1])
        uuid = engine.Path(argv[-1]).read_text()
        self.asked.append(uuid)
        found = self.table(uuid) if callable(self.table) else self.table
        if found is not None:
            log.write_text(found)
        return (0 if found else 9), "ncu is too old for this driver\n"

    def profile(self, facts=GPU, **request):
        """The exit code and what was printed."""
        text = io.StringIO()
        values = {"room": ROOM, "workloads": ("all",), "commit": "abcdef0", **request}
        with SweepProgress(text) as progress:
            code = run_profile(self.workspace, ProfileRequest(**values), progress, facts,
                               self.pools, self.run_ncu)  # fmt: skip
        return code, text.getvalue()

    def record(self):
        return find_profile(self.root, GPU.slug, ROOM)


@pytest.fixture
def room(tmp_path, monkeypatch):
    return ProfileRoom(tmp_path, monkeypatch)


def test_every_workload_is_profiled_and_kept(room):
    code, text = room.profile(record=True)
    assert code is ExitCode.OK
    record = room.record()
    assert [row.uuid for row in record.workloads] == room.uuids == room.asked
    row = record.workloads[0]
    assert (row.latency_us, row.regime_workloads) == (11.0, 2)
    assert row.regime == "all"
    assert [(one.name, one.launches, one.share) for one in row.shares] == [
        ("_step", 2, 0.95), ("_tail", 1, 0.05),
    ]  # fmt: skip
    assert row.kernel.waves_per_sm == 1.73 and row.kind == "latency"
    assert row.limiters == ("registers", "shared memory")
    assert row.headroom == pytest.approx(11.0 / row.floor_us) and row.roof == "launch"
    assert (record.commit, record.driver, record.hardware) == ("abcdef0", "1.0", "NVIDIA H200")
    assert f"{ROOM} {row.uuid[:8]} {row.regime}: 11.00 us" in text


def test_by_default_the_median_workload_of_each_regime_is_profiled(room, monkeypatch):
    first, second = room.uuids
    for slower, faster in ((first, second), (second, first)):
        measured = [
            SimpleNamespace(uuid=slower, latency_us=3.0),
            SimpleNamespace(uuid=faster, latency_us=2.0),
        ]
        sweep = SimpleNamespace(workloads=measured, solution_sha256="other")
        monkeypatch.setattr(engine, "latest", lambda *_, sweep=sweep: sweep)
        room.asked.clear()
        room.profile(workloads=())
        assert room.asked == [slower]
    room.asked.clear()
    room.profile(workloads=("regime", first[:8]))
    assert room.asked == [first, second]


def test_the_table_of_a_workload_stays_beside_the_traces_under_its_own_name(room):
    room.table = lambda uuid: ncu_table(("_step", {"launch__grid_size": str(len(room.asked))}))
    room.profile()
    paths = sorted((room.root / "traces" / GPU.slug / "profiles").iterdir())
    assert [path.name for path in paths] == sorted(
        f"{ROOM}-{uuid}-aaaaaaaa.ncu.csv" for uuid in room.uuids
    )
    assert len({path.read_text() for path in paths}) == 2


def test_without_record_nothing_is_kept(room):
    assert room.profile()[0] is ExitCode.OK
    assert room.record() is None


def test_denied_counters_are_said_once_and_the_shares_are_kept(room):
    room.table = DENIED
    code, text = room.profile(record=True)
    assert code is ExitCode.TOOL_MISSING
    assert "NVreg_RestrictProfilingToAdminUsers" in text and len(room.asked) == 1
    for row in room.record().workloads:
        assert row.shares and row.launches is None
        assert "ERR_NVGPUCTRPERM" in row.no_launches
        assert row.kernel.dram_share is None and row.kind is None
    assert not (room.root / "traces" / GPU.slug / "profiles").exists()


def test_an_absent_ncu_is_said_and_the_shares_are_kept(room, monkeypatch):
    monkeypatch.setattr(collecting, "find_ncu", lambda: None)
    code, text = room.profile(record=True)
    assert code is ExitCode.TOOL_MISSING
    assert "Nsight Compute" in text and room.asked == []
    assert room.record().workloads[0].shares


@pytest.mark.parametrize("table", ["==WARNING== No kernels were profiled.\n", None])
def test_a_table_without_kernels_is_no_profile_and_no_zeros(room, table):
    room.table = table
    code, text = room.profile(record=True)
    assert code is ExitCode.INCOMPLETE
    assert "no kernel was profiled: " + (table or "ncu is too old").strip()[:12] in text
    assert room.record().workloads[0].launches is None


def test_metrics_that_the_gpu_lacks_are_asked_for_once(room):
    lacking = "smsp__inst_executed_op_local_ld.sum"
    found = []

    def answer(argv, environment, folder):
        found.append(lacking in argv[argv.index("--metrics") + 1].split(","))
        if found[-1]:
            room.table = f"==ERROR== Failed to access the following 1 metrics: {lacking}\n"
        else:
            room.table = ncu_table(STEP)
        return ProfileRoom.run_ncu(room, argv, environment, folder)

    room.run_ncu = answer
    code, _ = room.profile(record=True)
    assert code is ExitCode.OK and found == [True, False, False]
    assert all(row.launches for row in room.record().workloads)


def test_an_ncu_that_hangs_leaves_the_shares(room):
    def hang(argv, environment, folder):
        raise InfrastructureFailure("ncu: no end within 1800 s")

    room.run_ncu = hang
    code, text = room.profile(record=True)
    assert code is ExitCode.INCOMPLETE and "no end within 1800 s" in text
    assert all(row.shares for row in room.record().workloads)


def test_one_tool_alone_leaves_the_others_part_to_another_run(room):
    code, _ = room.profile(tool="torch", record=True)
    assert code is ExitCode.OK and room.asked == []
    assert {row.no_launches for row in room.record().workloads} == {"not asked for"}
    code, _ = room.profile(tool="ncu", record=True)
    assert code is ExitCode.OK
    for row in room.record().workloads:
        assert row.shares and row.launches


def test_ncu_alone_stops_where_it_is_denied(room, monkeypatch):
    room.table = DENIED
    code, _ = room.profile(tool="ncu", record=True)
    assert code is ExitCode.TOOL_MISSING
    assert room.record() is None and len(room.asked) == 1
    monkeypatch.setattr(collecting, "find_ncu", lambda: None)
    with pytest.raises(ToolMissing, match="Nsight Compute"):
        room.profile(tool="ncu")


def test_a_workload_that_fails_its_judge_is_not_profiled_and_the_next_one_is(room):
    first, second = room.uuids
    room.pools.judged[first] = Outcome(Status.INCORRECT_NUMERICAL, detail="element 3")
    code, text = room.profile(record=True)
    assert code is ExitCode.FAILED
    assert f"{first[:8]} INCORRECT_NUMERICAL: element 3" in text
    assert [row.uuid for row in room.record().workloads] == [second] == room.asked


def test_a_broken_machine_is_incomplete_and_graver_than_a_failure(room):
    first, second = room.uuids
    room.pools.judged[first] = Outcome(Status.INFRASTRUCTURE, detail="no disk")
    room.pools.judged[second] = Outcome(Status.COMPILE_ERROR)
    assert room.profile()[0] is ExitCode.INCOMPLETE
    room.pools.judged[first] = Outcome(Status.COMPILE_ERROR)
    assert room.profile()[0] is ExitCode.FAILED


def test_a_latency_that_cannot_be_measured_is_the_solutions_failure(room):
    room.pools.latencies_us = Outcome(Status.TIMEOUT, detail="too long")
    code, text = room.profile()
    assert code is ExitCode.FAILED and "TIMEOUT: too long" in text


def test_a_torch_profiler_that_fails_leaves_ncus_part(room):
    for uuid in room.uuids:
        room.pools.traced[uuid] = Outcome(Status.INFRASTRUCTURE, detail="after the first call")
    code, _ = room.profile(record=True)
    assert code is ExitCode.INCOMPLETE
    row = room.record().workloads[0]
    assert row.shares is None and "after the first call" in row.no_shares
    assert row.dominant == "_step" and row.dominant_share is None and row.launches


def test_a_worker_that_leaves_no_call_gives_nothing(room):
    room.pools.traced[room.uuids[0]] = Outcome(Status.RUNTIME_ERROR, detail="it does not build")
    code, text = room.profile()
    assert code is ExitCode.FAILED and "it does not build" in text
    assert room.asked == room.uuids[1:]


def test_calls_without_gpu_work_are_said(room):
    room.pools.calls = [[], []]
    room.table = DENIED
    code, text = room.profile(record=True)
    assert code is ExitCode.INCOMPLETE
    assert "no profile: Torch Profiler saw no GPU work" in text and room.record() is None


def test_new_content_begins_a_new_record(room):
    room.profile(record=True)
    room.content = "b"
    room.profile(record=True, workloads=(room.uuids[1],))
    record = room.record()
    assert record.solution_sha256 == "b" * 64
    assert [row.uuid for row in record.workloads] == room.uuids[1:]


def test_a_profile_needs_a_gpu_unless_a_table_is_imported(room):
    with pytest.raises(EnvironmentUnfit, match=r"expected a GPU.*--import"):
        room.profile(facts=CPU)
    with pytest.raises(UsageError, match="--device"):
        room.profile(device="nvidia-h200")


# Tables made elsewhere


@pytest.fixture
def table(room, tmp_path):
    path = tmp_path / "elsewhere.csv"
    path.write_text(ncu_table(("_step", {}), ("_tail", {"gpu__time_duration.sum": "900"})))
    return path


def take(room, path, facts=CPU, **request):
    values = {"imported": path, "device": GPU.slug, "workloads": (room.uuids[0],), "record": True}
    return room.profile(facts=facts, **{**values, **request})


def test_a_table_made_elsewhere_becomes_a_row_without_a_gpu(room, table):
    code, text = take(room, table)
    assert code is ExitCode.OK and room.asked == []
    record = room.record()
    (row,) = record.workloads
    assert [launch.name for launch in row.launches] == ["_step", "_tail"]
    assert row.shares is None and row.latency_us is None and row.headroom is None
    assert row.kind == "latency" and row.floor_us is not None
    assert (record.device, record.driver, record.libraries) == (GPU.slug, None, {})
    assert "recorded in results/profiles/nvidia-h200/gdn_decode.json" in text


def test_a_table_joins_the_shares_where_the_counters_were_denied(room, table):
    room.table = DENIED
    room.profile(record=True)
    take(room, table)
    first, second = room.record().workloads
    assert first.shares and first.launches and first.latency_us == 11.0
    assert second.launches is None
    assert room.record().driver == "1.0"


def test_a_table_that_was_kept_can_be_imported(room):
    room.profile(record=True)
    before = room.record().workloads[0].launches
    path = next((room.root / "traces" / GPU.slug / "profiles").glob(f"*{room.uuids[0]}*"))
    room.content = "b"
    take(room, path)
    assert room.record().workloads[0].launches == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": None}, "expected --device SLUG"),
        ({"workloads": ("all",)}, "expected --workloads UUID, got 2"),
    ],
)
def test_an_import_names_its_device_and_one_workload(room, table, changes, words):
    with pytest.raises(UsageError, match=words):
        take(room, table, **changes)


def test_an_import_that_is_no_table_names_the_file(room, tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text("kernel,time\nstep,3\n")
    with pytest.raises(UsageError, match=r"notes\.csv: .*no kernel was profiled"):
        take(room, path)
    path.write_text(DENIED)
    with pytest.raises(ToolMissing, match="ERR_NVGPUCTRPERM"):
        take(room, path)


# The command line, with a program called ncu on PATH

FAKE = """#!/bin/sh
echo "$@" > "$FAKE_NCU_ARGUMENTS"
while [ "$1" != --log-file ]; do shift; done
cat "$FAKE_NCU_TABLE" > "$2"
exit "$FAKE_NCU_CODE"
"""


@pytest.fixture
def shell(room, tmp_path, monkeypatch):
    """Runs the command with a fake ncu that answers with a table and an exit code."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(FAKE)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(collecting, "find_ncu", ncu.find_ncu)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("FAKE_NCU_ARGUMENTS", str(tmp_path / "arguments"))
    monkeypatch.setattr(command, "load_workspace", lambda: room.workspace)
    monkeypatch.setattr(command, "packed_hashes", lambda *_: {ROOM: "a" * 64})
    found = partial(run_profile, facts=GPU, make_pool=room.pools)
    monkeypatch.setattr(command, "run_profile", found)

    def run(*arguments, table=None, code=0):
        path = tmp_path / "table"
        path.write_text(ncu_table(STEP) if table is None else table)
        monkeypatch.setenv("FAKE_NCU_TABLE", str(path))
        monkeypatch.setenv("FAKE_NCU_CODE", str(code))
        return main(["profile", *arguments])

    run.arguments = tmp_path / "arguments"
    return run


def test_the_program_on_the_path_is_run_and_its_table_recorded(shell, room, capsys):
    assert shell(ROOM, "--workloads", "all", "--record", "--commit", "abcdef0") == 0
    assert "bound by latency" in capsys.readouterr().out
    assert len(room.record().workloads[0].launches) == 1
    text = shell.arguments.read_text()
    assert "--page raw" in text and "harness.profiling.single_call" in text
    assert shell("--table") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith(f"| {ROOM} |")]
    assert len(rows) == 1, "both workloads are of one regime"
    assert "latency" in rows[0] and "registers, shared memory" in rows[0] and "1.73" in rows[0]


def test_a_program_without_permission_ends_with_4_and_the_shares(shell, room, capsys):
    assert (
        shell(ROOM, "--workloads", "all", "--record", "--commit", "abcdef0", table=DENIED, code=1)
        == 4
    )
    assert "administrators" in capsys.readouterr().out
    assert all(row.shares and row.launches is None for row in room.record().workloads)


def test_a_program_that_profiles_nothing_ends_with_6(shell, room, capsys):
    text = "==WARNING== No kernels were profiled.\n"
    assert shell(ROOM, "--workloads", room.uuids[0], table=text) == 6
    assert "no kernel was profiled" in capsys.readouterr().out


def test_a_table_is_printed_where_nothing_is_recorded(shell, room, capsys):
    assert all_profiles(room.root) == []
    assert shell("--table") == 0
    assert "nothing is recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no_such_room",),
        ("--table", "--record"),
        (ROOM, "moe", "--import", "x.csv"),
        (ROOM, "--tool", "nsys"),
        (ROOM, "--workloads", "ffffffff"),
    ],
)
def test_a_wrong_command_line_is_2(shell, arguments):
    assert shell(*arguments) == ExitCode.USAGE
