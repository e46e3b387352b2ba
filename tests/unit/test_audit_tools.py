"""Other people's tools: compute-sanitizer's logs, NCU's tables, CUPTI's records."""

import io
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from harness.audit import counted_calls, counting, device, sanitizers, timers
from harness.audit.case import Caught
from harness.audit.counting import split_calls
from harness.audit.recording import (
    ApiCall,
    Window,
    describe_escapes,
    names_of,
    waits_of,
    work_of,
)
from harness.audit.sanitizers import (
    FINISHED,
    TOOLS,
    find_program,
    read_log,
    run_process,
    run_sanitizers,
    sanitizer_command,
    sanitizer_environment,
)
from harness.audit.timer_record import PENDING, TimerRecord, load_timers, make_row, record_path
from harness.audit.timers import TimersRequest, run_timers
from harness.cli import main
from harness.cli import timers as command
from harness.config import load_workspace
from harness.dataset import read_workloads
from harness.devices import DeviceFacts
from harness.errors import (
    EnvironmentUnfit,
    ExitCode,
    InfrastructureFailure,
    RecordError,
    ToolMissing,
    UsageError,
)
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.timing import Activity

CPU = DeviceFacts("cpu", "a processor")
GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test")

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at store_beyond+0x70 in kernel.py:9
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7f0000001000 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x2f9a31]
=========
========= Program hit invalid argument (error 1) on CUDA API call
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 2 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at reduce+0x100 in kernel.cu:40
=========     and Read access at reduce+0x150 in kernel.cu:44 [16 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


def test_a_clean_log_has_no_errors():
    assert read_log(CLEAN) == sanitizers.Finding(0, ())
    assert read_log(NO_RACE) == sanitizers.Finding(0, ())


def test_errors_are_counted_by_the_summary_and_named_by_their_first_lines():
    finding = read_log(OUT_OF_BOUNDS)
    assert finding.errors == 2
    assert finding.reports == (
        "Invalid __global__ write of size 4 bytes",
        "Program hit invalid argument (error 1) on CUDA API call",
    )


def test_a_warning_of_a_race_is_an_error():
    finding = read_log(RACE)
    assert finding.errors == 1
    assert finding.reports[0].startswith("Warning: Race reported between Write access")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "========= COMPUTE-SANITIZER\n",
        "========= Error: No attachable process found",
        "0 errors",
    ],
)
def test_a_log_without_a_summary_says_nothing(text):
    assert read_log(text) is None


def test_the_allocator_that_hides_neighbours_is_off():
    environment = {"PATH": "/bin", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert sanitizer_environment(environment) == {
        "PATH": "/bin",
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    }


def test_a_missing_sanitizer_is_named_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sanitizers.Path, "is_file", lambda path: False)
    with pytest.raises(ToolMissing, match=r"compute-sanitizer \(memcheck, racecheck") as caught:
        find_program({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path)})
    assert caught.value.exit_code == 4


def test_a_sanitizer_beside_the_toolkit_is_found(tmp_path):
    program = tmp_path / "compute-sanitizer" / "compute-sanitizer"
    program.parent.mkdir()
    program.touch()
    assert find_program({"PATH": "", "CUDA_HOME": str(tmp_path)}) == str(program)


# Runs with a fake tool


class FakePool:
    """The worker that prepares a call, and the one that measures."""

    verdict = "PASSED"

    def __init__(self, device, root, command):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, job):
        answer = {
            "verdict": self.verdict,
            "detail": "",
            "values": {"cupti_us": 10.0, "graph_us": 11.0},
        }
        return Outcome(Status.PASSED, evaluation=answer)


class FailingPool(FakePool):
    verdict = "FAILED"


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """One workload, no GPU that is held, and programs that exist. rows, packed: of the plan."""
    packed = SimpleNamespace(name="rows-x", sha256="ab" * 32)
    plan = SimpleNamespace(
        room=SimpleNamespace(name="rows", definition="rows_d"), packed=packed, dataset_root=tmp_path
    )
    plan.rows = (SimpleNamespace(uuid="0123456789", axes={"n": 1}),)

    def jobs(*_):
        return [SimpleNamespace(uuid=row.uuid, room="rows", device="cuda:0") for row in plan.rows]

    for module in (sanitizers, timers):
        monkeypatch.setattr(module, "plan_target", lambda *_: plan)
        monkeypatch.setattr(module, "jobs_of", jobs)
        monkeypatch.setattr(module, "hold_device", lambda facts: io.StringIO())
    monkeypatch.setattr(sanitizers, "find_program", lambda: "compute-sanitizer")
    monkeypatch.setattr(counting, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(timers, "require_timer", lambda name: None)
    monkeypatch.setattr(timers.dataset, "read_workloads", lambda *_: plan.rows)
    monkeypatch.setattr(timers, "read_environment", lambda facts: {"driver": "1", "torch": "2"})
    return SimpleNamespace(root=tmp_path, rooms={"rows": None}, plan=plan)


def sanitize(workspace, logs, code=0, output=FINISHED, pool=FakePool, chosen=TOOLS):
    """Exit code, what was printed, and the tools that ran. logs: a tool's log, by its name."""
    seen = []

    def run(command, environment, folder):
        tool = command[command.index("--tool") + 1]
        seen.append(tool)
        assert environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
        text = logs.get(tool, CLEAN)
        if text is not None:
            sanitizers.Path(command[command.index("--log-file") + 1]).write_text(text)
        return code, output

    stream = io.StringIO()
    with SweepProgress(stream) as progress:
        result = run_sanitizers(
            workspace, "rows", chosen, (), progress, facts=GPU, make_pool=pool, run=run
        )
    return result, stream.getvalue(), seen


def test_every_tool_runs_and_a_clean_call_is_well(tools):
    code, text, seen = sanitize(tools, {"racecheck": NO_RACE})
    assert code == ExitCode.OK and tuple(seen) == TOOLS
    assert [f"{tool}: 0 errors" in text for tool in TOOLS] == [True] * 4


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_summary_decides_and_not_the_exit_code(tools, exit_code):
    code, text, _ = sanitize(tools, {"memcheck": OUT_OF_BOUNDS}, exit_code)
    assert code == ExitCode.FAILED
    assert "memcheck: 2 errors: Invalid __global__ write of size 4 bytes" in text


def test_a_tool_without_a_summary_is_incomplete_and_says_its_last_words(tools):
    words = "========= Error: Target GPU is not supported"
    code, text, _ = sanitize(tools, {"initcheck": words}, 255, output="")
    assert code == ExitCode.INCOMPLETE
    assert "initcheck: no summary, exit code 255" in text and "not supported" in text


def test_a_call_that_did_not_end_is_no_clean_call(tools):
    code, text, _ = sanitize(tools, {}, 1, output="ImportError: no torch", chosen=("memcheck",))
    assert code == ExitCode.INCOMPLETE
    assert "0 errors, but the call did not end: ImportError" in text


def test_a_solution_that_fails_by_itself_meets_no_sanitizer(tools):
    code, text, seen = sanitize(tools, {}, pool=FailingPool)
    assert code == ExitCode.FAILED and seen == []
    assert "fails without a sanitizer" in text


def test_a_sanitizer_needs_a_gpu_and_a_tool_that_exists(tools):
    with SweepProgress(io.StringIO()) as progress:
        with pytest.raises(EnvironmentUnfit, match="expected a GPU"):
            run_sanitizers(tools, "rows", TOOLS, (), progress, facts=CPU)
        with pytest.raises(UsageError, match="leakcheck"):
            run_sanitizers(tools, "rows", ("leakcheck",), (), progress, facts=GPU)


def test_a_command_ends_with_its_children_when_it_takes_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(sanitizers, "TIME_LIMIT_S", 0.5)
    script = "sleep 60 & echo $! > child; wait"
    with pytest.raises(InfrastructureFailure, match=r"within 0\.5 s"):
        run_process(("/bin/sh", "-c", script), {"PATH": "/bin:/usr/bin"}, tmp_path)
    child = sanitizers.Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    deadline = time.monotonic() + 5.0
    while child.exists() and " Z " not in child.read_text():
        assert time.monotonic() < deadline


def test_a_command_gives_its_exit_code_and_output(tmp_path):
    assert run_process(("/bin/sh", "-c", "echo a; exit 3"), {}, tmp_path) == (3, "a\n")


def test_the_command_line_names_tool_log_and_job(tmp_path):
    command = sanitizer_command("sanitizer", "initcheck", tmp_path / "log", tmp_path / "job.pt")
    assert command[:3] == ["sanitizer", "--tool", "initcheck"]
    assert command[-2:] == ["harness.audit.single_call", str(tmp_path / "job.pt")]


# Timers

TABLE = """\
==PROF== Connected to process 41
==PROF== Profiling "scale" - 0: 0%....100% - 1 pass
the call under the sanitizer has ended
==PROF== Disconnected from process 41
"ID","Process ID","Kernel Name","gpu__time_duration.sum"
"","","","ns"
"0","41","spin_kernel","1024"
"1","41","scale","3,264"
"2","41","sum","2016"
==PROF== Report written
"""


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("==WARNING== No kernels were profiled.", "no kernel was profiled: ==WARNING=="),
        (TABLE.partition('"0","41"')[0], "no kernel was profiled"),
        (TABLE.replace('"ns"', '"cycles"'), "'cycles'"),
    ],
)
def test_a_table_without_durations_leaves_two_timers_and_says_why(tools, output, words):
    code, text = measure(tools, output)
    assert code == ExitCode.TOOL_MISSING
    assert "NCU absent" in text and words in text


def test_ncu_is_asked_for_durations_alone(tools):
    seen = []
    measure(tools, TABLE, seen=seen)
    (command,) = seen
    assert command[command.index("--metrics") + 1] == "gpu__time_duration.sum"
    assert "--section" not in command and "harness.audit.counted_calls" in command


def reading(cupti_us, graph_us, ncu_us=None):
    row = make_row("u", {"n": 1}, "n 1", cupti_us, graph_us, "2026-01-31T23:59:59Z")
    return row if ncu_us is None else row.with_ncu(ncu_us)


def test_timers_within_their_bounds_agree():
    assert reading(10.0, 11.9, (8.0, 5.0)).disagreements() == []
    assert reading(100.0, 114.0, (70.0,)).disagreements() == []
    assert reading(10.0, 10.0).disagreements() == []


def test_a_timer_outside_its_bound_is_named_with_the_numbers():
    row = reading(10.0, 12.1, (16.0,))
    first, second = row.disagreements()
    assert first == "graph 12.10 us is farther from CUPTI's 10.00 us than 2.000 us"
    assert second.startswith("NCU 16.00 us") and second.endswith("than 3.500 us")
    assert row.disagreeing == ("graph", "NCU")


def measure(workspace, output, pool=FakePool, seen=None, **asked):
    stream = io.StringIO()

    def run(command, *_):
        if seen is not None:
            seen.append(command)
        return 0, output

    with SweepProgress(stream) as progress:
        request = TimersRequest("rows", commit="c" * 40, **asked)
        code = run_timers(workspace, request, progress, facts=GPU, make_pool=pool, run=run)
    return code, stream.getvalue()


def test_three_timers_stand_in_one_line(tools):
    code, text = measure(tools, TABLE.replace("3,264", "6264"))
    assert code == ExitCode.OK
    line = "rows 01234567 CUPTI 10.00 us, graph 11.00 us, NCU 8.280 us in 2 kernels"
    assert line in text


def test_a_disagreement_is_printed_and_an_exit_code(tools):
    code, text = measure(tools, TABLE.replace("3,264", "33264"))
    assert code == ExitCode.FAILED
    assert "NCU 35.28 us is farther from CUPTI's 10.00 us than 4.000 us" in text


def test_counters_that_are_denied_leave_two_timers_and_a_hint(tools):
    code, text = measure(tools, "==ERROR== ERR_NVGPUCTRPERM")
    assert code == ExitCode.TOOL_MISSING
    assert "NCU absent" in text and "RestrictProfilingToAdminUsers" in text


def test_an_absent_ncu_leaves_two_timers(tools, monkeypatch):
    monkeypatch.setattr(counting, "find_ncu", lambda: None)
    code, text = measure(tools, "")
    assert code == ExitCode.TOOL_MISSING
    assert "graph 11.00 us, NCU absent" in text and "Nsight Compute" in text


class NumberedPool(FakePool):
    """Notes what it measured, and is interrupted where `ends` says."""

    seen: ClassVar = []
    ends = None

    def run(self, job):
        if job.uuid == self.ends:
            raise KeyboardInterrupt
        self.seen.append(job.uuid)
        return super().run(job)


@pytest.fixture
def three(tools, monkeypatch):
    """Three workloads, in a regime each."""
    names = ("cc", "aa", "bb")
    tools.plan.rows = tuple(
        SimpleNamespace(uuid=uuid, axes={"n": 8 ** (index + 1)}) for index, uuid in enumerate(names)
    )
    monkeypatch.setattr(NumberedPool, "seen", [])
    return tools


def table(*calls):
    """NCU's, of calls with kernels of these durations in µs."""
    lines = ['"ID","Process ID","Kernel Name","gpu__time_duration.sum"', '"","","","ns"']
    for call in calls:
        lines.append('"0","41","spin_kernel","1024"')
        lines += [f'"0","41","scale","{1000 * duration_us:g}"' for duration_us in call]
    return "\n".join(lines) + "\n"


def test_a_record_holds_what_every_timer_said_of_each_workload(three):
    # NCU sees the calls in the order of their files.
    code, text = measure(three, table((9,), (2, 8), (30,)), pool=NumberedPool, record=True)
    assert code == ExitCode.FAILED and "recorded in results/timers/rows.json" in text
    record = load_timers(three.root, "rows")
    rows = record.workloads
    assert [(row.uuid, row.regime, row.disagreeing) for row in rows] == [
        ("cc", "n 8", ("NCU",)),
        ("aa", "n 64", ()),
        ("bb", "n 512", ()),
    ]
    assert [[round(one) for one in row.ncu_us] for row in rows] == [[30], [9], [2, 8]]
    assert record.solution_sha256 == "ab" * 32 and record.device == "nvidia-test"
    assert record.commit == "c" * 40 and record.command == "python -m harness timers ROOM --record"
    assert record.libraries == {"torch": "2"} and record.workloads[0].ncu_bound_us == 3.5


def test_an_interrupted_run_keeps_what_it_has_and_is_resumed(three, monkeypatch):
    monkeypatch.setattr(NumberedPool, "ends", "bb")
    with pytest.raises(KeyboardInterrupt):
        measure(three, "", pool=NumberedPool, record=True)
    rows = load_timers(three.root, "rows").workloads
    assert [(row.uuid, row.no_ncu) for row in rows] == [("cc", PENDING), ("aa", PENDING)]

    monkeypatch.setattr(NumberedPool, "ends", None)
    monkeypatch.setattr(NumberedPool, "seen", [])
    calls = table((9,), (9,), (9,))
    assert measure(three, calls, pool=NumberedPool, record=True, resume=True)[0] == ExitCode.OK
    assert NumberedPool.seen == ["cc", "aa", "bb"]  # NCU had said nothing of any
    three.plan.rows = (*three.plan.rows, SimpleNamespace(uuid="dd", axes={"n": 4096}))
    monkeypatch.setattr(NumberedPool, "seen", [])
    code, text = measure(three, table((9,)), pool=NumberedPool, record=True, resume=True)
    assert code == ExitCode.OK and NumberedPool.seen == ["dd"] and "NCU 9.000 us" in text
    assert len(load_timers(three.root, "rows").workloads) == 4


def test_rows_of_other_content_do_not_stay(three):
    calls = table((9,), (9,), (9,))
    measure(three, calls, record=True)
    three.plan.packed.sha256 = "cd" * 32
    three.plan.rows = three.plan.rows[:1]
    measure(three, table((9,)), record=True, resume=True)
    record = load_timers(three.root, "rows")
    assert record.solution_sha256 == "cd" * 32 and len(record.workloads) == 1


def test_the_record_says_why_ncu_gave_nothing(three):
    code, _ = measure(three, "==ERROR== ERR_NVGPUCTRPERM", record=True)
    assert code == ExitCode.TOOL_MISSING
    for row in load_timers(three.root, "rows").workloads:
        assert row.ncu_us is None and "RestrictProfilingToAdminUsers" in row.no_ncu


def test_calls_that_ncu_did_not_see_whole_have_no_number(three):
    code, text = measure(three, table((9,), (4,)), record=True)
    assert code == ExitCode.TOOL_MISSING and "NCU saw 1 of 3 calls" in text
    rows = {row.uuid: row.ncu_us for row in load_timers(three.root, "rows").workloads}
    assert rows == {"aa": (9.0,), "bb": None, "cc": None}


def test_a_table_is_cut_at_the_markers_alone():
    launch, marker = SimpleNamespace(name="scale"), SimpleNamespace(name="spin_kernel(long)")
    assert split_calls([marker, launch, launch, marker, launch], 2) == [[launch] * 2, [launch]]
    for launches, words in (
        ([launch, marker], "marker spin_kernel first"),
        ([marker, marker, launch], "no kernel was profiled"),
        ([marker, launch] * 3, "2 markers at most"),
    ):
        with pytest.raises(InfrastructureFailure, match=words):
            split_calls(launches, 2)


def test_many_bytes_of_calls_are_counted_before_more_are_made(three, monkeypatch):
    monkeypatch.setattr(counting, "MOST_GATHERED_BYTES", 0)
    seen = []
    assert measure(three, table((9,)), seen=seen)[0] == ExitCode.OK
    assert len(seen) == 3


def test_ncu_sees_a_marker_and_one_warm_call_of_each_file(monkeypatch, tmp_path):
    seen = []

    def load(path):
        name = sanitizers.Path(path).stem
        case = SimpleNamespace(
            allocate=lambda inputs: ["out"],
            call=lambda inputs, outputs: None,
            launch=lambda inputs, outputs: seen.append(name),
        )
        return case, ["in"]

    for name in ("b", "a"):
        (tmp_path / f"{name}.pt").touch()
    monkeypatch.setattr(counted_calls, "load", load)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: seen.append("marker"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: seen.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: seen.append("stop"))
    counted_calls.main(str(tmp_path))
    assert seen == ["start", "marker", "a", "stop", "start", "marker", "b", "stop"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("disagreeing", ["graph"]),
        ("no_ncu", "because"),
        ("ncu_us", []),
        ("ncu_bound_us", None),
        ("axes", {"n": -1}),
        ("more", 1),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(tools, key, value):
    measure(tools, table((9,)), record=True)
    values = load_timers(tools.root, "rows").to_json()
    assert TimerRecord.from_json(values) == load_timers(tools.root, "rows")
    values["workloads"][0][key] = value
    with pytest.raises(RecordError, match=key):
        TimerRecord.from_json(values)


def test_only_a_room_is_recorded_and_only_a_record_resumed(tools):
    with SweepProgress(io.StringIO()) as progress:
        for request, words in (
            (TimersRequest("x.json", record=True), "room as packed now"),
            (TimersRequest("rows", resume=True), "expected --record"),
            (TimersRequest("rows", commit="?"), "--commit"),
        ):
            with pytest.raises(UsageError, match=words):
                run_timers(tools, request, progress, facts=GPU)
    assert not record_path(tools.root, "rows").exists()


def test_one_workload_of_each_regime_is_timed_unless_others_are_named(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "run_timers", lambda *given: asked.append(given[1]) or 0)
    assert [main(["timers", room]) for room in ("gdn_decode", "moe")] == [0, 0]
    assert main(["timers", "moe", "--workloads", "e05c6c03,smoke"]) == 0
    decode, moe, named = (request.workloads for request in asked)
    assert (len(decode), len(set(decode)), len(moe)) == (7, 7, 8)
    workspace = load_workspace()
    sizes = {row.uuid: row.axes for row in read_workloads(workspace.root, workspace.room("moe"))}
    regimes = [max(1, sizes[uuid]["seq_len"] - 1).bit_length() for uuid in moe]
    assert regimes == sorted(set(regimes)), "each in another power of two"
    assert named == ("e05c6c03", "smoke")
    assert asked[1].command == "python -m harness timers moe --record"
    assert asked[2].command.endswith("--workloads e05c6c03,smoke --record")


# CUPTI's records

CALLS = [ApiCall("cuLaunchKernel", 1, 10), ApiCall("cudaMemcpyAsync_v3020", 2, 20)]
WORK = [Activity(2, 300, 400, "memcpy", (1, 16)), Activity(1, 100, 200, "scale")]


def test_work_belongs_to_the_window_of_its_launch():
    assert [a.name for a in work_of(Window(5, 25), CALLS, WORK)] == ["scale", "memcpy"]
    assert [a.name for a in work_of(Window(15, 25), CALLS, WORK)] == ["memcpy"]
    assert names_of(WORK) == [("memcpy", (1, 16)), ("scale", ())]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize_v3020", True),
        ("cuStreamSynchronize", True),
        ("cudaEventSynchronize_v3020", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaMemcpy_v3020", True),
        ("cudaFree_v3020", True),
        ("cudaMemcpyAsync_v3020", False),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cudaFreeAsync_v11020", False),
        ("cuLaunchKernelEx", False),
        ("cudaEventQuery_v3020", False),
        ("cudaStreamWaitEvent_v3020", False),
    ],
)
def test_calls_that_wait_for_the_gpu_are_known_by_name(name, waits):
    assert bool(waits_of(Window(0, 9), [ApiCall(name, 1, 5)])) is waits
    assert waits_of(Window(6, 9), [ApiCall(name, 1, 5)]) == []


def test_work_between_fence_and_marker_has_not_escaped():
    fence, marker = [Activity(1, 0, 100, "spin")], [Activity(9, 300, 301, "memset")]
    assert describe_escapes(fence, marker, [Activity(2, 100, 300, "scale")]) is None
    early = describe_escapes(fence, marker, [Activity(2, 50, 60, "scale")])
    assert early == "began before earlier work of its stream had ended: scale"
    late = describe_escapes(fence, marker, [Activity(2, 250, 350, "scale")])
    assert late == "still ran when later work of its stream began: scale"


def test_calls_on_the_same_values_must_run_the_same_work():
    scale, copy = Activity(1, 0, 1, "scale"), Activity(2, 1, 2, "memcpy", (1, 16))
    device._require_alike("the second call", [scale, copy], "the first", [copy, scale])
    with pytest.raises(Caught, match=r"the second call ran 1 .* the first 2; missing \['memcpy'\]"):
        device._require_alike("the second call", [scale], "the first", [scale, copy])
    with pytest.raises(Caught, match="ran 2 activities on the same values, the first 1"):
        device._require_alike("the second call", [scale, scale], "the first", [scale])
    assert device._kernels([scale, copy]) == [scale]
