"""How programs end when something fails: one message, and never with 1, a verdict, by accident."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import harness.__main__ as program
from harness import cli
from harness.cli import main
from harness.errors import DeviceBusy, ExitCode, UsageError, run_program
from harness.records.strict_json import MAX_SEED, dump, parse
from tests import conftest

ROOT = Path(__file__).resolve().parents[2]


def raising(error):
    def body():
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("room: no"), 2, "error: room: no\n"),
        (DeviceBusy("gpu: in use"), 5, "error: gpu: in use\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (SystemExit(2), 2, ""),
        (SystemExit(), 0, ""),
        (ModuleNotFoundError("No module named 'rich'", name="rich"), 4, "error: rich is not"),
        (OSError("the line went dead"), 3, "error: the line went dead; "),
        (BrokenPipeError(32, "Broken pipe"), 3, "error: standard output: its reader left"),
        (UnicodeDecodeError("utf-8", b"abc\xff", 3, 4, "no"), 3, "not UTF-8, near b'abc\\xff'"),
        (UnicodeEncodeError("ascii", "a \u00b5", 2, 3, "no"), 3, "'\\xb5'; set PYTHONIOENCODING"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_foreseen_errors_are_one_line_and_the_code_of_their_kind(capsys, error, code, message):
    assert run_program(raising(error)) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == (1 if message else 0)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        RuntimeError("odd"),
        ModuleNotFoundError("odd"),
        ModuleNotFoundError("odd", name="harness.absent"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_unforeseen_error_keeps_its_traceback_and_is_no_verdict(capsys, error):
    assert run_program(raising(error)) == ExitCode.INCOMPLETE
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "no verdict on a kernel" in err.splitlines()[-1]


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_returned_code_is_kept(code):
    assert run_program(lambda: code) == code


def test_what_the_system_refuses_names_the_path(capsys, tmp_path):
    assert run_program(lambda: len(tmp_path.read_bytes())) == ExitCode.UNFIT  # a folder
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: Is a directory; ")


def test_a_path_of_thousands_of_characters_is_cut(capsys):
    assert main(["dataset", "verify", "--dataset", "x" * 5000]) == ExitCode.UNFIT
    err = capsys.readouterr().err
    assert "File name too long" in err
    assert err.count("\n") == 1 and len(err) < 400


def test_the_command_line_maps_errors_too(capsys, monkeypatch):
    monkeypatch.setattr(cli.cli, "invoke", lambda context: 1 // 0)
    assert main(["clean"]) == ExitCode.INCOMPLETE
    assert "ZeroDivisionError was not foreseen" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["dataset", "--help"]])
def test_help_ends_well(capsys, arguments):
    assert main(arguments) == ExitCode.OK
    assert "Usage: python -m harness" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nonsense"], ["dataset", "nonsense"], ["new"]])
def test_usage_errors_say_how(capsys, arguments):
    assert main(arguments) == ExitCode.USAGE
    assert "Usage: python -m harness" in capsys.readouterr().err


def test_gpu_tests_alone_without_a_gpu_are_unfit(monkeypatch):
    config = SimpleNamespace(option=SimpleNamespace(markexpr="gpu"))
    monkeypatch.setattr(conftest, "_has_cuda", lambda: True)
    conftest.pytest_configure(config)
    monkeypatch.setattr(conftest, "_has_cuda", lambda: False)
    with pytest.raises(pytest.exit.Exception, match="no GPU") as caught:
        conftest.pytest_configure(config)
    assert caught.value.returncode == ExitCode.UNFIT
    config.option.markexpr = "not slow and not gpu"
    conftest.pytest_configure(config)


def test_make_gpu_asks_for_gpu_tests_alone():
    recipe = (ROOT / "Makefile").read_text().split("\ngpu: $(READY)")[1].split("\n")[1]
    assert recipe.split(" -m ")[1:] == ["pytest tests/gpu", "gpu $(PYTEST)"]


# Real streams


def shell(command, **environment):
    """Run a bash line in the checkout; {harness} and {pack} are the two programs."""
    programs = {
        "harness": f"'{sys.executable}' -m harness",
        "pack": f"'{sys.executable}' pack.py",
        "python": f"'{sys.executable}'",
    }
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + command.format(**programs)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )


AS_ANOTHER_PYTHON = (
    "import runpy, sys; sys.argv = ['harness', '--help']; found = '{version}'; "
    "sys.version_info = (*map(int, found.split('.')), 'final', 0); sys.version = found + ' (x)'; "
    "runpy.run_module('harness', run_name='__main__')"
)


@pytest.mark.parametrize("version", ["3.9.18", "3.13.1", "3.12.9"])
def test_another_python_is_one_line(version):
    child = shell(f'{{python}} -c "{AS_ANOTHER_PYTHON.format(version=version)}"')
    if version == "3.12.9":
        assert (child.returncode, child.stderr) == (0, "")
        return
    assert child.returncode == ExitCode.UNFIT
    assert child.stderr.startswith(f"error: expected Python 3.10 to 3.12, got {version}; make ")
    assert child.stderr.count("\n") == 1


def test_what_runs_before_the_version_is_told_is_older_syntax():
    """Annotations are text in these files, so none of a newer Python is evaluated."""
    for name in ("pack.py", "harness/__init__.py", "harness/__main__.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        ast.parse(text, feature_version=(3, 8))
        assert "from __future__ import annotations" in text
    wanted = re.search(
        r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    oldest, above = map(int, wanted.groups())
    assert ((3, oldest), (3, above - 1)) == (program.OLDEST, program.NEWEST)


def test_an_environment_without_the_libraries_is_one_line():
    """-S hides installed packages."""
    child = shell("{python} -S -m harness --help")
    assert child.returncode == ExitCode.TOOL_MISSING
    assert " is not installed; run `make test` once" in child.stderr
    assert child.stderr.count("\n") == 1


@pytest.mark.parametrize("program", ["{harness} --help", "{pack} --help", "{pack} --hash"])
def test_a_closed_standard_output_is_refused(program):
    child = shell(f"{program} >&-")
    assert child.returncode == ExitCode.UNFIT
    assert child.stderr.startswith("error: standard output or error is closed")
    assert child.stderr.count("\n") == 1


@pytest.mark.parametrize("program", ["{harness} --help", "{pack} --help", "{pack} --hash"])
def test_a_closed_standard_error_is_no_success(program):
    assert shell(f"{program} 2>&-").returncode == ExitCode.UNFIT


@pytest.mark.parametrize("program", ["{harness} --help", "{pack} --hash"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_one_line(program, unbuffered):
    child = shell(f"{program} | true", PYTHONUNBUFFERED=unbuffered)
    assert child.returncode == ExitCode.UNFIT
    assert child.stderr == "error: standard output: its reader left before the end\n"


def test_a_reader_of_both_streams_that_leaves_is_no_verdict():
    assert shell("{harness} --help 2>&1 | true").returncode == ExitCode.UNFIT


def test_a_full_disk_is_one_line():
    child = shell("{pack} gdn_decode --hash > /dev/full")
    assert child.returncode == ExitCode.UNFIT
    assert "No space left on device" in child.stderr
    assert child.stderr.count("\n") == 1


def test_an_encoding_without_the_letter_is_one_line():
    body = "import sys; from harness.errors import run_program as run; "
    body += "sys.exit(run(lambda: print(chr(0xb5)) or 0))"
    child = shell(f'{{python}} -c "{body}"', PYTHONIOENCODING="ascii")
    assert child.returncode == ExitCode.UNFIT
    assert child.stderr.startswith(r"error: standard output: its encoding, ascii, has no '\xb5'")
    assert child.stderr.count("\n") == 1
    named = child.stderr.split("set ")[1].strip().split("=")[1]
    assert shell(f'{{python}} -c "{body}"', PYTHONIOENCODING=named).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "gdn_decode"],
        ["compare", "ours", "peers"],
        ["replay", "gdn_decode"],
        ["audit", "gdn_decode"],
        ["tune", "gdn_decode"],
        ["gate", "gdn_decode", "x"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_seed_that_no_record_could_be_read_back_with_is_usage(capsys, arguments):
    parse(dump(MAX_SEED))
    assert main([*arguments, "--seed", str(10**19)]) == ExitCode.USAGE
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["evaluate", "gdn_decode"], ["compare", "ours", "peers"]])
def test_a_number_of_trials_that_would_never_end_is_usage(capsys, command):
    assert main([*command, "--trials", str(10**23)]) == ExitCode.USAGE
    assert "--trials" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "environment", "code", "words"),
    [
        ("scripts/run_modal.py --help", {}, 2, "expected Modal's own program, got python; install"),
        ("examples/serve_gdn_decode.py", {}, 4, "error: harness: .*export PYTHONPATH=.PWD"),
        ("-S examples/serve_gdn_decode.py", {}, 4, "error: torch: .* use .venv/bin/python"),
        ("examples/serve_gdn_decode.py 1", {"PYTHONPATH": "."}, 3, "start Python with TRITON_INT"),
        ("-m tests.gpu.attention_errors", {}, 3, "device: expected cuda:0, but CUDA_VIS"),
        ("-m tests.gpu.attention_errors --help", {}, 0, "^usage: .*fp64"),
        (
            "scripts/measure_scale.py --help",
            {},
            0,
            r"kill\}\s+measure and .*--write +render the page",
        ),
    ],
)
def test_programs_beside_the_harness_end_in_one_line_too(command, environment, code, words):
    child = shell(f"{{python}} {command}", CUDA_VISIBLE_DEVICES="", **environment)
    assert child.returncode == code, child.stderr
    assert re.search(words, child.stderr or child.stdout, re.DOTALL)
    assert child.stderr.count("\n") == bool(code)


NEED_A_GPU = {
    "timers": ["timers", "gdn_decode"],
    "tune": ["tune", "gdn_decode"],
    "compare": ["compare", "ours", "flashinfer", "gdn_decode"],
    "profile": ["profile", "gdn_decode"],
    "sanitize": ["sanitize", "gdn_decode"],
    "evaluate": ["evaluate", "gdn_decode", "--timer", "cupti"],
}


@pytest.fixture
def no_gpu(monkeypatch):
    """And no tool either, so that what comes first is seen."""
    monkeypatch.setattr("harness.devices.facts.load_cuda", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", "")


@pytest.mark.parametrize("name", NEED_A_GPU)
def test_a_command_without_its_gpu_says_what_to_do(no_gpu, capsys, name):
    assert main(NEED_A_GPU[name]) == ExitCode.UNFIT
    message = capsys.readouterr().err.splitlines()[-1]
    assert ": expected a GPU, " in message
    assert re.search(
        r"; (`python -m harness evaluate` judges|--import reads|leave it out: )", message
    )


@pytest.mark.parametrize("name", [name for name in NEED_A_GPU if name != "tune"])
def test_a_name_is_told_before_the_gpu(no_gpu, capsys, name):
    assert main([*NEED_A_GPU[name], "--workloads", "nosuch"]) == ExitCode.USAGE
    assert "nosuch" in capsys.readouterr().err
    assert main([word.replace("gdn_decode", "no_room") for word in NEED_A_GPU[name]]) == 2
    assert "no_room" in capsys.readouterr().err
