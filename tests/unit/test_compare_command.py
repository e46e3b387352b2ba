"""`python -m harness compare` as a user calls it: options, messages and exit codes."""

import pytest

from harness.cli import main
from harness.compare.plan import CompareRequest
from harness.errors import ExitCode
from tests.unit.compare_room import CPU, GPU, ROOM, CompareRoom, FakeGpu, steady


@pytest.fixture
def room(tmp_path, monkeypatch):
    room = CompareRoom(tmp_path, monkeypatch)
    monkeypatch.setattr("harness.cli.compare.load_workspace", lambda: room.workspace)
    monkeypatch.setattr("harness.compare.engine.read_facts", lambda: GPU)
    return room


def run(monkeypatch, script, *arguments):
    """The command line with scripted workers. Returns the exit code."""
    gpu = FakeGpu(("ours", "lib", "control"), script)
    monkeypatch.setattr("harness.compare.engine.Pool", gpu)
    return main(["compare", *arguments])


def once_slower(room):
    return lambda side, uuid, turn: (
        12.0 if side != "lib" else 10.0 if uuid == room.uuids[0] else 20.0
    )


def test_one_slower_workload_exits_with_1_and_with_0_where_that_is_asked(room, monkeypatch, capsys):
    assert run(monkeypatch, once_slower(room), "ours", "lib", ROOM) == ExitCode.FAILED
    assert "ours is SLOW against lib in 1 workload" in capsys.readouterr().out
    code = run(monkeypatch, once_slower(room), "ours", "lib", ROOM, "--exit-zero")
    assert code == ExitCode.OK
    assert "ours is SLOW against lib in 1 workload" in capsys.readouterr().out


def test_a_room_that_is_nowhere_slower_exits_with_0(room, monkeypatch):
    assert run(monkeypatch, steady(ours=10.0, lib=20.0), ROOM, "lib") == ExitCode.OK


def test_without_a_gpu_it_says_so_and_exits_with_3(room, monkeypatch, capsys):
    monkeypatch.setattr("harness.compare.engine.read_facts", lambda: CPU)
    assert main(["compare", "ours", "lib"]) == ExitCode.UNFIT
    message = capsys.readouterr().err
    assert "expected a GPU, but" in message and "harness evaluate" in message
    assert main(["compare", "ours", "nosuch"]) == ExitCode.USAGE
    assert "got 'nosuch', which is none of them" in capsys.readouterr().err


def test_an_interruption_exits_with_130_and_resume_goes_on(room, monkeypatch, capsys):
    def script(side, uuid, turn):
        return KeyboardInterrupt() if uuid == room.uuids[1] else 10.0

    assert run(monkeypatch, script, "ours", "lib", ROOM) == ExitCode.INTERRUPTED
    capsys.readouterr()
    assert run(monkeypatch, lambda *_: 10.0, "ours", "lib", ROOM, "--resume") == ExitCode.OK
    printed = capsys.readouterr().out
    assert "1 already judged" in printed and printed.count("(reused)") == 1


def test_an_unknown_word_exits_with_2(room, monkeypatch, capsys):
    assert run(monkeypatch, steady(ours=10.0), "ours", "nobody") == ExitCode.USAGE
    assert "got 'nobody', which is none of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["ours"], [], ["ours", "lib", "--rounds", "2"], ["ours", "lib", "--margin", "1"]],
)
def test_a_wrong_command_line_exits_with_2(room, monkeypatch, arguments):
    assert run(monkeypatch, steady(ours=10.0), *arguments) == ExitCode.USAGE


def test_every_option_reaches_the_request(room, monkeypatch):
    asked = []

    def run_compare(workspace, request, progress):
        asked.append(request)
        return ExitCode.OK

    monkeypatch.setattr("harness.cli.compare.run_compare", run_compare)
    assert main(["compare", "ours", "peers"]) == ExitCode.OK
    assert asked.pop() == CompareRequest("ours", "peers")
    options = (
        "--workloads smoke,ec9d --rounds 6 --iterations 5 --trials 2 --seed 7 --margin 0.02 "
        "--resume --record --commit abc --exit-zero --dataset data"
    )
    assert main(["compare", "HEAD~1", "ours", "moe", ROOM, *options.split()]) == ExitCode.OK
    assert asked.pop() == CompareRequest(
        a="HEAD~1",
        b="ours",
        rooms=("moe", ROOM),
        workloads=("smoke,ec9d",),
        rounds=6,
        iterations=5,
        trials=2,
        seed=7,
        margin=0.02,
        resume=True,
        record=True,
        commit="abc",
        exit_zero=True,
        dataset="data",
    )


def test_it_is_one_of_the_commands_and_says_what_its_exit_codes_mean(capsys):
    assert main(["--help"]) == ExitCode.OK
    assert "\n  compare " in capsys.readouterr().out
    assert main(["compare", "--help"]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "Exit code 1" in printed and "[ROOM]..." in printed
