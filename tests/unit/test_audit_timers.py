"""One call by three timers, and what is kept of it."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from harness.audit import counted_calls, counting, engine, timers
from harness.audit.counting import split_calls
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
    HarnessError,
    InfrastructureFailure,
    RecordError,
    UsageError,
)
from harness.evaluate.progress import SweepProgress
from tests.unit import fake_pool

GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test")


class FakePool(fake_pool.FakePool):
    """The worker that measures."""

    answer: ClassVar = {
        "verdict": "PASSED",
        "detail": "",
        "values": {"cupti_us": 10.0, "graph_us": 11.0},
    }


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """One workload, no GPU that is held, and an NCU that exists."""
    packed = SimpleNamespace(name="rows-x", sha256="ab" * 32)
    plan = SimpleNamespace(
        room=SimpleNamespace(name="rows", definition="rows_d"), packed=packed, dataset_root=tmp_path
    )
    plan.rows = (SimpleNamespace(uuid="0123456789", axes={"n": 1}),)

    def jobs(*_):
        return [SimpleNamespace(uuid=row.uuid, room="rows", device="cuda:0") for row in plan.rows]

    monkeypatch.setattr(timers, "plan_target", lambda *_: plan)
    monkeypatch.setattr(timers, "make_ready", lambda _: None)
    monkeypatch.setattr(timers, "jobs_of", jobs)
    monkeypatch.setattr(timers, "hold_device", lambda facts: io.StringIO())
    monkeypatch.setattr(counting, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(timers, "require_timer", lambda name: None)
    monkeypatch.setattr(timers.dataset, "read_workloads", lambda *_: plan.rows)
    monkeypatch.setattr(engine, "read_environment", lambda facts: {"driver": "1", "torch": "2"})
    return SimpleNamespace(root=tmp_path, rooms={"rows": None}, plan=plan)


TABLE = """\
==PROF== Connected to process 41
==PROF== Profiling "scale" - 0: 0%....100% - 1 pass
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
        regimes = {row.uuid: f"n {row.axes['n']}" for row in workspace.plan.rows}
        request = TimersRequest("rows", commit="c" * 40, regimes=regimes, **asked)
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


UNREADABLE, DENIED_COUNTERS = "no table", "==ERROR== ERR_NVGPUCTRPERM"


@pytest.mark.parametrize(
    ("output", "again"),
    [
        (UNREADABLE, ["cc", "aa", "bb"]),
        (table((9,), (9,)), ["cc", "bb"]),  # NCU saw aa whole
        (DENIED_COUNTERS, []),
    ],
)
def test_what_ncu_may_yet_say_is_asked_again_on_resume(three, output, again):
    measure(three, output, record=True)
    code, text = measure(
        three, table(*[(9,)] * len(again)), pool=NumberedPool, record=True, resume=True
    )
    assert NumberedPool.seen == again
    assert code == (ExitCode.OK if again else ExitCode.TOOL_MISSING)
    assert text.count(", kept") == 3 - len(again)


def test_an_ncu_that_was_absent_is_asked_once_it_is_there(three, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(counting, "find_ncu", lambda: None)
        assert measure(three, "", record=True)[0] == ExitCode.TOOL_MISSING
    calls = table((9,), (9,), (9,))
    assert measure(three, calls, pool=NumberedPool, record=True, resume=True)[0] == ExitCode.OK
    assert NumberedPool.seen == ["cc", "aa", "bb"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"verdict": "FAILED", "detail": "raises ValueError"}, HarnessError),
        ({"verdict": "NOT_RUN", "detail": "no inputs"}, InfrastructureFailure),
    ],
)
def test_a_solution_that_fails_is_a_failure_and_no_broken_machine(three, answer, kind):
    class FailingPool(FakePool):
        pass

    FailingPool.answer = answer
    with pytest.raises(kind, match=rf"cc: not measured: {answer['detail']}") as raised:
        measure(three, "", pool=FailingPool)
    assert type(raised.value) is kind


def test_a_record_that_cannot_be_written_is_refused_before_anything_is_measured(three):
    (three.root / "results").write_text("a file")
    with pytest.raises(EnvironmentUnfit, match="leave out --record"):
        measure(three, "", pool=None, record=True)


def test_a_damaged_record_is_said_and_replaced(three):
    path = record_path(three.root, "rows")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    code, text = measure(three, table((9,), (9,), (9,)), record=True, resume=True)
    assert code == ExitCode.OK and f"{path}: " in text and "nothing of it is kept" in text
    assert len(load_timers(three.root, "rows").workloads) == 3


def test_a_record_that_grew_is_no_other_commit(tools):
    measure(tools, table((9,)), record=True)
    record = load_timers(tools.root, "rows")
    assert replace(record, commit=f"{record.commit}-dirty").identity == record.identity
    assert replace(record, commit="d" * 40).identity != record.identity
    assert replace(record, driver="2").identity != record.identity


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
        name = Path(path).stem
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
    assert main(["timers", "moe", "--dataset", str(load_workspace().root)]) == 0
    decode, moe, named, elsewhere = (request.workloads for request in asked)
    assert (len(decode), len(set(decode)), len(moe)) == (7, 7, 8)
    workspace = load_workspace()
    sizes = {row.uuid: row.axes for row in read_workloads(workspace.root, workspace.room("moe"))}
    regimes = [max(1, sizes[uuid]["seq_len"] - 1).bit_length() for uuid in moe]
    assert regimes == sorted(set(regimes)), "each in another power of two"
    assert named == ("e05c6c03", "smoke")
    assert asked[1].regimes["e05c6c03-5603-4a1c-b34c-dcce0ecaeea4"] == "seq_len 1"
    assert asked[1].command == "python -m harness timers moe --record"
    assert asked[2].command.endswith("--workloads e05c6c03,smoke --record")
    assert elsewhere == moe and asked[3].command.endswith(
        f"timers moe --dataset {load_workspace().root} --record"
    )


def test_rows_of_other_libraries_do_not_stand_beside_new_ones(tools):
    measure(tools, "", record=True)
    record = load_timers(tools.root, "rows")
    assert record.identity != replace(record, libraries={"torch": "3"}).identity
    assert record.identity == replace(record, commit=f"{record.commit}-dirty").identity
