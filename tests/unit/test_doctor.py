"""`harness doctor` on stand-ins for the GPU, torch and the judge's package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import doctor as command
from harness.cli import main
from harness.config import load_workspace
from harness.devices import ClockSample, DeviceFacts, GpuProcess
from harness.doctor import Check, State, exit_code, judge, machine, run_checks
from harness.doctor.probe import TorchFacts, ask_torch
from harness.errors import DeviceBusy, ExitCode
from harness.evaluate.plan import Request, plan_room
from harness.files import KEEPS_RESULTS
from harness.packing import Packed
from harness.records import all_latest
from tests.nvcc import make_toolkit
from tests.small_checkout import small_checkout

ROOT = Path(__file__).resolve().parents[2]
CPU = DeviceFacts("cpu", "a processor")
GPU = DeviceFacts(
    "nvidia-h200", "NVIDIA H200", "GPU-1", "580.1", "13.0", (9, 0), 132, 60 << 20, 141 << 30
)
TORCH = TorchFacts("2.13.0", "13.0", ("sm_90",), True, 2.187)
PINS = judge.read_pins(ROOT)


class FakeNvml:
    def __init__(self, sample=None, pids=()):
        self._sample = sample or ClockSample(1980, 3201, 0, 300.0, 44)
        self._pids = pids

    def driver_version(self):
        return "580.1"

    def sample(self, uuid):
        return self._sample

    def processes(self, uuid):
        return tuple(GpuProcess(pid, None) for pid in self._pids)


# The whole


def test_without_a_gpu_it_says_so_and_ends_with_3(capsys, monkeypatch):
    monkeypatch.setattr(judge, "native_rooms", lambda _: [])
    monkeypatch.setattr(command, "read_facts", lambda: CPU)
    monkeypatch.setattr(command, "ask_torch", lambda root: TorchFacts("2.13.0+cpu"))
    assert main(["doctor"]) == ExitCode.UNFIT
    lines = capsys.readouterr().out.splitlines()
    names = [line[6:].split()[0] for line in lines]
    checks = command.all_checks(load_workspace(), CPU, TORCH)
    assert names == [name for name, _ in checks], "one line a check"
    assert [line for line in lines if line.startswith("FAIL")] == lines[:1]
    assert "measure on a machine with an NVIDIA GPU" in lines[0]
    assert sum(machine.NO_GPU in line for line in lines) == 6


def test_on_a_sound_machine_nothing_fails(monkeypatch):
    monkeypatch.setattr(judge, "native_rooms", lambda _: [])
    monkeypatch.setattr(machine, "require_timer", lambda name: None)
    monkeypatch.setattr("harness.devices.clocks.load_nvml", FakeNvml)
    monkeypatch.setattr("harness.devices.sharing.load_nvml", FakeNvml)
    monkeypatch.setattr(judge, "GPU_ONLY", ())
    monkeypatch.setattr(judge, "LIBRARIES", ("torch", "flashinfer-bench"))
    seen = list(run_checks(command.all_checks(load_workspace(), GPU, TORCH)))
    assert [check.line for check in seen if check.state is State.FAIL] == []
    assert exit_code(seen) is ExitCode.OK


def test_every_failure_has_its_remedy_on_its_line():
    check = Check("cupti", State.FAIL, "none", "install it")
    assert check.line == "FAIL  cupti       none; install it"
    assert Check("gpu", State.OK, "here").line == "ok    gpu         here"


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ((), ExitCode.OK),
        ((ExitCode.TOOL_MISSING,), ExitCode.TOOL_MISSING),
        ((ExitCode.BUSY,), ExitCode.BUSY),
        ((ExitCode.BUSY, ExitCode.UNFIT), ExitCode.UNFIT),
        ((ExitCode.BUSY, ExitCode.TOOL_MISSING), ExitCode.UNFIT),
    ],
)
def test_the_exit_code_is_that_of_what_fails(codes, code):
    checks = [Check("x", State.FAIL, "", code=each) for each in codes]
    assert exit_code([*checks, Check("y", State.NOTE, "")]) is code


def test_a_check_that_cannot_look_fails_and_the_next_goes_on():
    def busy():
        raise DeviceBusy("in use")

    def refused():
        raise PermissionError(13, "Permission denied")

    after = Check("c", State.OK, "")
    seen = list(run_checks([("a", busy), ("b", refused), ("c", lambda: after)]))
    assert [check.state for check in seen] == [State.FAIL, State.FAIL, State.OK]
    assert seen[0].code is ExitCode.BUSY and "Permission denied" in seen[1].found


@pytest.mark.slow
def test_the_probe_answers_whatever_torch_finds():
    facts = ask_torch(ROOT)
    assert facts.version is not None and facts.problems.keys() <= {"gpu", "cupti"}
    assert facts.sees_gpu == (facts.cuda is not None and not facts.problems)


@pytest.mark.parametrize("body", ["print('no JSON')", "raise SystemExit('no torch here')", ""])
def test_a_probe_that_breaks_is_a_problem_and_no_error(tmp_path, body):
    (tmp_path / "harness" / "doctor").mkdir(parents=True)
    (tmp_path / "harness" / "doctor" / "probe.py").write_text(body + "\n")
    facts = ask_torch(tmp_path)
    assert not facts.sees_gpu and "it ended with" in facts.problems["torch"]


# The machine


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (replace(TORCH, cuda=None), "built for CUDA"),
        (replace(TORCH, cuda="13.1"), "update the driver"),
        (replace(TORCH, sees_gpu=False, problems={"gpu": "no kernel image"}), "no kernel image"),
    ],
)
def test_a_torch_that_does_not_fit_the_driver_fails(torch, words):
    check = machine.check_driver(GPU, torch)
    assert check.state is State.FAIL and words in check.line


def test_an_older_cuda_of_torch_fits_a_newer_driver():
    assert machine.check_driver(GPU, replace(TORCH, cuda="12.9")).state is State.OK


def test_cupti_must_be_installed_and_see_a_kernel(monkeypatch):
    monkeypatch.setattr(
        "harness.timing.importlib.metadata.version", lambda name: {"cupti-python": "12.8"}[name]
    )
    old = machine.check_cupti(GPU, TORCH)
    assert old.state is State.FAIL and "got 12.8; install cupti-python>=13" in old.line
    monkeypatch.setattr(machine, "require_timer", lambda name: None)
    blind = replace(TORCH, cupti_us=None, problems={"cupti": "NoGpuWork: none seen"})
    assert "NoGpuWork" in machine.check_cupti(GPU, blind).line
    assert machine.check_cupti(GPU, TORCH).found.endswith("2.187 us")


def test_strangers_and_throttling_are_named():
    busy = machine.check_sharing(GPU, FakeNvml(pids=(7, 8)))
    assert busy.code is ExitCode.BUSY and "pid 7, 8" in busy.found
    hot = FakeNvml(ClockSample(1200, 3201, 0x40, 690.0, 90))
    slow = machine.check_clocks(GPU, hot)
    assert slow.state is State.FAIL and "hardware thermal slowdown" in slow.line
    assert machine.check_clocks(GPU, FakeNvml()).state is State.OK
    idle = FakeNvml(ClockSample(345, 3201, 0x01, 80.0, 40))
    assert machine.check_clocks(GPU, idle).state is State.OK


@pytest.mark.parametrize(
    ("text", "is_root", "state"),
    [
        ("Other: 3\nRmProfilingAdminOnly: 1\n", False, State.NOTE),
        ("RmProfilingAdminOnly: 1\n", True, State.OK),
        ("RmProfilingAdminOnly: 0\n", False, State.OK),
    ],
)
def test_counters_for_administrators_only_are_announced(tmp_path, text, is_root, state):
    params = tmp_path / "params"
    params.write_text(text)
    check = machine.check_counters(GPU, params, is_root)
    assert check.state is state
    assert ("ERR_NVGPUCTRPERM" in check.line) == (state is State.NOTE)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """All tools of a build but the CUDA toolkit. Returns the folder of the programs."""
    for name in (*machine.ARCHITECTURE_VARIABLES, "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("harness.devices.toolkit.USUAL_TOOLKIT", "")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("c++", "ninja"):
        (folder / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_compiler_is_needed_where_a_room_is_native(tools, tmp_path, monkeypatch):
    assert machine.check_compiler(GPU, []).state is State.NOTE
    missing = machine.check_compiler(GPU, ["moe"])
    assert missing.code is ExitCode.TOOL_MISSING and "moe" in missing.found
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    assert machine.check_compiler(GPU, ["moe"]).found.endswith("flags for this GPU: sm_90a")


@pytest.mark.parametrize(("program", "fix"), [("ninja", "ninja"), ("c++", "host compiler")])
def test_a_build_needs_more_than_nvcc(program, fix, tools, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    (tools / program).unlink()
    check = machine.check_compiler(GPU, ["moe"])
    assert check.code is ExitCode.TOOL_MISSING
    assert f"no {program};" in check.found and fix in check.fix


def test_a_compiler_must_know_the_gpu(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit", "12.1"))
    assert machine.check_compiler(GPU, ["moe"]).state is State.OK
    blackwell = replace(GPU, capability=(10, 0))
    assert "release 12.8" in machine.check_compiler(blackwell, ["moe"]).found


def test_capabilities_of_native_routes_are_read_from_the_shelf(tmp_path):
    workspace = small_checkout(tmp_path / "checkout")
    room = next(iter(workspace.rooms))
    assert judge.native_capabilities(workspace, room) == set()
    shelf = workspace.root / judge.NATIVE_SHELF
    shelf.parent.mkdir(parents=True)
    shelf.write_text(
        'X = 1\nARCHITECTURES = {\n    (9, 0): A("9.0a", (12, 1)),\n'
        '    (10, 3): A("10.3a", (12, 9)),\n}\n'
    )
    assert judge.native_capabilities(workspace, room) == {(9, 0), (10, 3)}


def test_a_room_may_name_the_one_capability_of_its_native_route():
    workspace = load_workspace()
    assert judge.native_capabilities(workspace, "dsa_indexer") == {(9, 0)}
    assert (10, 0) in judge.native_capabilities(workspace, "dsa_attention")


@pytest.mark.parametrize(
    ("listed", "state"),
    [("9.0a 10.0a", State.OK), ("9.0+PTX", State.OK), ("10.0a", State.FAIL), ("8.9", State.FAIL)],
)
def test_architecture_flags_must_name_this_gpu(tools, tmp_path, monkeypatch, listed, state):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    monkeypatch.setenv("TVM_FFI_CUDA_ARCH_LIST", listed)
    check = machine.check_compiler(GPU, [])
    assert check.state is state and listed in check.found


# The judge


def package(folder, is_main):
    (folder / "bench" / "evaluators").mkdir(parents=True)
    text = f"    {judge.MAIN_MARK}(self, definition):\n" if is_main else "class BenchmarkConfig:\n"
    (folder / "bench" / "config.py").write_text(text)
    (folder / "bench" / "utils.py").write_text("rules")
    (folder / "bench" / "evaluators" / "default.py").write_text("rules")
    return folder


def test_the_generation_of_the_evaluator_is_told_and_its_drift_shows(tmp_path):
    pin = PINS[judge.JUDGE_PACKAGE]
    released = judge.check_evaluator(package(tmp_path / "a", is_main=False), pin)
    assert released.state is State.OK and "added here" in released.found
    main_branch = judge.check_evaluator(package(tmp_path / "b", is_main=True), pin)
    assert main_branch.state is State.NOTE and main_branch.found.startswith("main: ")
    other = judge.check_evaluator(tmp_path / "a", "0.1.3")
    assert other.state is State.FAIL and "0.1.3" in other.fix
    (tmp_path / "a" / "bench" / "evaluators" / "default.py").write_text("other rules")
    assert judge.check_evaluator(tmp_path / "a", pin).found != released.found
    assert judge.check_evaluator(None, pin).code is ExitCode.TOOL_MISSING


def test_the_installed_package_is_one_of_the_two():
    folder = judge.package_folder()
    assert folder is not None
    assert judge.check_evaluator(folder, PINS[judge.JUDGE_PACKAGE]).state is not State.FAIL


@pytest.mark.parametrize(
    ("path", "word"),
    [("harness/evaluators.py", "added rules"), ("harness/timing.py", "timer")],
)
def test_a_changed_rule_timer_or_setting_changes_its_hash(tmp_path, path, word):
    def parts(workspace):
        return dict(
            each.rsplit(" ", 1) for each in judge.check_identity(workspace).found.split(", ")
        )

    for name in ("harness/evaluators.py", "harness/timing.py", "config.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = parts(load_workspace(tmp_path))
    (tmp_path / path).write_text("other")
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace("trials = 3", "trials = 4", 1))
    after = parts(load_workspace(tmp_path))
    assert {name for name in before if before[name] != after[name]} == {word, "settings"}


def test_evidence_of_another_judge_is_named():
    workspace = load_workspace()
    records = all_latest(workspace.root)
    check = judge.check_evidence(workspace, CPU)
    assert records and check.state in (State.OK, State.NOTE)
    for record in records:
        plan = plan_as_recorded(workspace, record)
        drifted = plan.judge_sha256 != record.judge_sha256
        assert (f"{record.room} {plan.judge_sha256[:8]}" in check.found) == drifted


def plan_as_recorded(workspace, record):
    packed = Packed(record.solution_name, record.solution_sha256, "", workspace.root)
    root = workspace.root
    return plan_room(workspace, record.room, packed, (), Request(), root, GPU)


def test_settings_that_were_changed_are_drift():
    workspace = load_workspace()
    before = judge.check_evidence(workspace, CPU).found
    rooms = {
        name: replace(room, evaluation=replace(room.evaluation, trials=7))
        for name, room in workspace.rooms.items()
    }
    changed = judge.check_evidence(replace(workspace, rooms=rooms), CPU)
    assert changed.state is State.NOTE and changed.found != before
    assert all(f"{record.room} " in changed.found for record in all_latest(workspace.root))


def test_a_bare_checkout_has_no_evidence_and_makes_its_blobs(tmp_path):
    workspace = small_checkout(tmp_path / "checkout")
    assert judge.check_evidence(workspace, CPU).found == "none in results/latest"
    data = judge.check_dataset(workspace)
    assert data.state is State.NOTE and "11 workloads, 0 of 11 blobs" in data.found


def test_an_incomplete_foreign_data_set_fails(tmp_path, monkeypatch):
    workspace = small_checkout(tmp_path / "checkout")
    (tmp_path / "set").mkdir()
    for folder in ("definitions", "workloads"):
        shutil.copytree(workspace.root / folder, tmp_path / "set" / folder)
    monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path / "set"))
    check = judge.check_dataset(workspace)
    assert check.state is State.FAIL and "dataset fetch" in check.fix


def test_a_cache_that_cannot_be_written_or_is_full_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("FIB_CACHE_PATH", "/proc/nobody-can-write-here")
    assert "set FIB_CACHE_PATH" in judge.check_cache().line
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    assert judge.check_cache().state is State.OK
    monkeypatch.setattr(judge, "LOW_DISK_BYTES", 1 << 60)
    assert judge.check_cache().state is State.FAIL


def test_a_folder_of_traces_that_cannot_be_written_is_not_moved_by_a_caches_variable(tmp_path):
    (tmp_path / "traces").write_text("in the way")
    check = judge.check_ledgers(replace(load_workspace(), root=tmp_path))
    assert check.state is State.FAIL and check.line.endswith(f"; {KEEPS_RESULTS}")
    assert "CACHE" not in check.line


def test_versions_beside_their_pins(monkeypatch):
    monkeypatch.setattr(judge, "libraries", lambda: dict.fromkeys(judge.LIBRARIES, "1.0"))
    fitting = judge.check_versions(CPU, {"torch": "1.0"})
    assert fitting.state is State.OK
    differing = judge.check_versions(CPU, {"torch": "2.0"})
    assert differing.state is State.NOTE and "torch 1.0 (pinned 2.0)" in differing.found
    monkeypatch.setattr(judge, "libraries", lambda: {"torch": "1.0+cu130"})
    missing = judge.check_versions(GPU, {"torch": "1.0"})
    assert missing.code is ExitCode.TOOL_MISSING and "cupti-python" in missing.found
    assert "cupti-python" not in judge.check_versions(CPU, {"torch": "1.0"}).found


def test_it_runs_where_only_its_command_line_is_installed():
    """Everything else that is missing is what it is asked for."""
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('rich', 'numpy', 'pydantic', 'scipy', 'torch'):\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from harness.cli import main\n"
        "sys.exit(main(['doctor']))\n"
    )
    child = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    lines = child.stdout.splitlines()
    names = [name for name, _ in command.all_checks(load_workspace(), CPU, TORCH)]
    assert [line[6:].split()[0] for line in lines] == names, child.stderr


def test_dependencies_are_read_as_toml_however_it_is_laid_out(tmp_path):
    page = tmp_path / "pyproject.toml"
    text = '"rich>=13.7", "ray[default]>=2", "old; python_version < \'3.11\'", "numpy"'
    page.write_text(f"[project]\nname = 'x'\ndependencies = [{text}]  # one line\n")
    older = ["old"] if sys.version_info < (3, 11) else []
    assert judge.read_dependencies(tmp_path) == ["rich", "ray", *older, "numpy"]


def test_what_is_not_installed_is_named(monkeypatch):
    names = judge.read_dependencies(ROOT)
    assert {"rich", "click", "numpy", "torch", "apache-tvm-ffi"} <= set(names)
    assert judge.check_packages(names).state is State.OK
    check = judge.check_packages([*names, "no-such-package", "nor-this"])
    assert check.state is State.FAIL and check.code is ExitCode.TOOL_MISSING
    assert check.found == "not installed: no-such-package, nor-this" and "make test" in check.fix


def test_the_route_of_each_room_is_said(monkeypatch):
    workspace = load_workspace()
    monkeypatch.setattr(judge, "native_rooms", lambda _: ["moe"])
    monkeypatch.setattr(judge, "native_capabilities", lambda *_: {(9, 0), (10, 0)})
    monkeypatch.setattr(judge, "missing_tools", lambda capability: [])
    found = judge.check_routes(workspace, GPU).found
    assert "moe native (CUDA)" in found and "gdn_decode portable (Triton)" in found
    other = judge.check_routes(workspace, replace(GPU, capability=(8, 0)))
    assert "moe portable (Triton)" in other.found and "compute capability" in other.found
    monkeypatch.setattr(judge, "missing_tools", lambda capability: ["nvcc", "ninja"])
    bare = judge.check_routes(workspace, GPU)
    assert "moe portable (Triton)" in bare.found and bare.found.endswith("no nvcc, ninja")
    assert "interpreter" in judge.check_routes(workspace, CPU).found
