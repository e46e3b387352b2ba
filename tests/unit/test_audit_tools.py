"""Other people's tools: compute-sanitizer's logs, NCU's tables, CUPTI's records."""

import contextlib
import io
import itertools
import re
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from harness.audit import device, sanitizers
from harness.audit.case import Caught
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
    TookTooLong,
    build_environment,
    build_for,
    find_program,
    read_log,
    read_version,
    run_process,
    run_sanitizers,
    sanitizer_command,
    sanitizer_environment,
)
from harness.cli import main
from harness.config import load_workspace
from harness.devices import DeviceFacts
from harness.errors import (
    EnvironmentUnfit,
    ExitCode,
    ToolMissing,
    UsageError,
)
from harness.evaluate.progress import SweepProgress
from harness.packing import pack
from harness.timing import Activity
from tests.unit.fake_pool import FakePool

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
    program.touch(mode=0o644)
    with contextlib.suppress(ToolMissing):  # the machine may have one elsewhere
        assert find_program({"PATH": "", "CUDA_HOME": str(tmp_path)}) != str(program)
    program.chmod(0o755)
    assert find_program({"PATH": "", "CUDA_HOME": str(tmp_path)}) == str(program)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 36400806)", "2025.3.1.0"),
        ("no such thing", None),
    ],
)
def test_the_version_is_what_the_program_says(tmp_path, said, version):
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    program.chmod(0o755)
    assert read_version(str(program)) == version
    assert read_version(str(tmp_path / "absent")) is None


# Runs with a fake tool


class FailingPool(FakePool):
    answer: ClassVar = {"verdict": "FAILED", "detail": ""}


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """One workload, no GPU that is held, and a sanitizer that exists."""
    macros = " ".join(itertools.chain(*sanitizers.BUILT_WITH.values()))
    job = SimpleNamespace(uuid="0123456789", room="rows", device="cuda:0", solution=macros)
    plan = SimpleNamespace(
        room=SimpleNamespace(name="rows"), packed=SimpleNamespace(name="rows-x"), rows=()
    )
    monkeypatch.setattr(sanitizers, "plan_target", lambda *_: plan)
    monkeypatch.setattr(sanitizers, "jobs_of", lambda *_: [job])
    monkeypatch.setattr(sanitizers, "hold_device", lambda facts: io.StringIO())
    monkeypatch.setattr(sanitizers, "find_program", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitizers, "read_version", lambda _: "2025.3.1.0")
    monkeypatch.setattr(sanitizers, "make_ready", lambda _: None)
    return SimpleNamespace(root=tmp_path)


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


@pytest.mark.parametrize("limit", ["0", "0.5", "-1", "nan", "inf", "1e7"])
def test_a_limit_that_is_no_time_is_refused_first(limit, monkeypatch, capsys):
    monkeypatch.setattr(sanitizers, "find_program", None)
    assert main(["sanitize", "moe", "--limit", limit]) == ExitCode.USAGE
    assert "--limit: expected 1 to 86400 seconds, got" in capsys.readouterr().err


def test_a_room_that_is_none_is_refused_where_no_sanitizer_is(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sanitizers, "find_program", None)
    assert main(["sanitize", "nosuch"]) == ExitCode.USAGE
    assert "nosuch" in capsys.readouterr().err


def test_what_a_tool_cannot_follow_is_built_for_it_apart(monkeypatch):
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", "/builds")
    environment = {"NVCC_APPEND_FLAGS": "-lineinfo", "TVM_FFI_CACHE_DIR": "/builds"}
    for tool in ("", "memcheck", "synccheck"):
        assert build_environment(tool, environment) == environment
    assert build_environment("racecheck", environment) == {
        "NVCC_APPEND_FLAGS": "-lineinfo -DEVERY_LANE_ARRIVES -DTEAMS_MEET -DALL_AWAIT_CLUSTER",
        "TVM_FFI_CACHE_DIR": "/builds/for-racecheck",
    }
    assert build_environment("initcheck", {})["NVCC_APPEND_FLAGS"] == "-DTOLD_IS_CLEARED"


def test_sources_without_a_macro_of_the_tool_are_run_as_judged():
    workspace = load_workspace()
    decode, attention, moe = (
        pack(workspace, room).text for room in ("gdn_decode", "dsa_attention", "moe")
    )
    assert [build_for(tool, decode) for tool in TOOLS] == ["", "", "", ""]
    assert [build_for(tool, attention) for tool in TOOLS] == ["", "racecheck", "", ""]
    assert [build_for(tool, moe) for tool in TOOLS] == ["", "racecheck", "initcheck", ""]


def test_macros_for_the_tools_are_those_of_the_sources():
    sources = [
        path.read_text()
        for path in (load_workspace().root / "solutions").rglob("*.cu*")
        if path.suffix in (".cu", ".cuh")
    ]
    for macro in itertools.chain(*sanitizers.BUILT_WITH.values()):
        assert any(f"#ifdef {macro}" in source for source in sources), macro


def test_each_build_is_prepared_once_and_its_tools_run_on_it(tools):
    prepared = []

    class Preparing(FakePool):
        def __init__(self, device, root, command):
            prepared.append(command.environment.get("NVCC_APPEND_FLAGS", ""))
            super().__init__(device, root, command)

    code, _, seen = sanitize(tools, {"racecheck": NO_RACE}, pool=Preparing)
    assert code == ExitCode.OK and seen == list(TOOLS)
    assert prepared == [
        "",
        "-DEVERY_LANE_ARRIVES -DTEAMS_MEET -DALL_AWAIT_CLUSTER",
        "-DTOLD_IS_CLEARED",
    ]


def test_every_tool_runs_and_a_clean_call_is_well(tools):
    code, text, seen = sanitize(tools, {"racecheck": NO_RACE})
    assert code == ExitCode.OK and tuple(seen) == TOOLS
    assert [f"{tool}: 0 errors" in text for tool in TOOLS] == [True] * 4
    assert "compute-sanitizer 2025.3.1.0" in text.splitlines()[0]


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


def test_each_step_is_said_when_it_has_ended(tools):
    _, text, _ = sanitize(tools, {}, chosen=("memcheck", "racecheck"))
    steps = (
        r"^rows 01234567 is right without a sanitizer \[0 s\]$",
        r"^rows 01234567 memcheck: 0 errors \[0 s\]$",
        r"^rows 01234567, built for racecheck, is right without a sanitizer \[0 s\]$",
        r"^rows 01234567 racecheck: 0 errors \[0 s\]$",
    )
    assert [re.search(step, text, re.MULTILINE) is not None for step in steps] == [True] * 4


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (OUT_OF_BOUNDS[: OUT_OF_BOUNDS.index("========= ERROR SUMMARY")], "2 reports so far: Inva"),
        ("", "0 reports so far: it printed nothing"),
    ],
)
def test_a_tool_without_an_end_says_what_it_has_reported_and_the_next_runs(tools, log, said):
    seen = []

    def run(command, environment, folder, limit_s):
        seen.append((command[command.index("--tool") + 1], limit_s))
        sanitizers.Path(command[command.index("--log-file") + 1]).write_text(log)
        if len(seen) == 1:
            raise TookTooLong(f"no end within {limit_s:g} s")
        return 0, FINISHED

    stream = io.StringIO()
    with SweepProgress(stream) as progress:
        code = run_sanitizers(
            tools, "rows", ("memcheck", "synccheck"), (), progress,
            facts=GPU, make_pool=FakePool, run=run, limit_s=9,
        )  # fmt: skip
    assert code == ExitCode.INCOMPLETE and seen == [("memcheck", 9), ("synccheck", 9)]
    assert f"memcheck: no end within 9 s; {said}" in stream.getvalue()


def test_a_sanitizer_needs_a_gpu_and_a_tool_that_exists(tools, monkeypatch):
    """Names first, then the GPU, then the tool."""
    monkeypatch.setattr(sanitizers, "find_program", pytest.fail)
    with SweepProgress(io.StringIO()) as progress:
        with pytest.raises(EnvironmentUnfit, match=r"sanitize: expected a GPU, .* evaluate"):
            run_sanitizers(tools, "rows", TOOLS, (), progress, facts=CPU)
        with pytest.raises(UsageError, match="leakcheck"):
            run_sanitizers(tools, "rows", ("leakcheck",), (), progress, facts=GPU)


def test_a_command_ends_with_its_children_when_it_takes_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(sanitizers, "TIME_LIMIT_S", 0.5)
    script = "sleep 60 & echo $! > child; wait"
    with pytest.raises(TookTooLong, match=r"within 0\.5 s"):
        run_process(("/bin/sh", "-c", script), {"PATH": "/bin:/usr/bin"}, tmp_path)
    child = sanitizers.Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    deadline = time.monotonic() + 5.0
    while child.exists() and " Z " not in child.read_text():
        assert time.monotonic() < deadline


def test_a_child_that_outlives_a_command_ends_with_it_and_is_not_waited_for(tmp_path):
    script, began = "sleep 60 & echo $! > child; echo done", time.monotonic()
    got = run_process(("/bin/sh", "-c", script), {"PATH": "/bin:/usr/bin"}, tmp_path, 30.0)
    assert got == (0, "done\n") and time.monotonic() - began < 20.0
    child = sanitizers.Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    while child.exists() and " Z " not in child.read_text():
        assert time.monotonic() - began < 25.0


def test_a_command_gives_its_exit_code_and_output(tmp_path):
    assert run_process(("/bin/sh", "-c", "echo a; exit 3"), {}, tmp_path) == (3, "a\n")


def test_the_command_line_names_tool_log_and_job(tmp_path):
    command = sanitizer_command("sanitizer", "initcheck", tmp_path / "log", tmp_path / "job.pt")
    assert command[:3] == ["sanitizer", "--tool", "initcheck"]
    assert command[-2:] == ["harness.audit.single_call", str(tmp_path / "job.pt")]


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
