"""Comparisons end to end with scripted workers: turns, failures, resuming, control, records."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compare.analysis import analyse
from harness.compare.display import describe_room
from harness.compare.lanes import open_lanes
from harness.compare.ledger import CompareEntry, CompareLedger
from harness.compare.plan import record_objection
from harness.compare.record import load_compare
from harness.compare.rounds import Visits, judge_sides, measure_sides
from harness.compare.statistics import DEFAULT_ROUNDS
from harness.devices import ClockSample
from harness.devices.sources import GpuProcess
from harness.errors import EnvironmentUnfit, ExitCode, RecordError, UsageError
from harness.evaluate.pool import Pool
from harness.evaluate.protocol import Outcome, Status
from harness.records import LedgerWarning
from tests import sample_compare
from tests.unit.compare_room import CPU, CRASH, GPU, ROOM, CompareRoom, steady
from tests.unit.judge_room import RIGHT, make_job, module

LOST = Outcome(Status.INFRASTRUCTURE, detail="no worker")
WRONG = Outcome(Status.INCORRECT_NUMERICAL, detail="y: 3 wrong; repeat: python -m harness evaluate")


@pytest.fixture
def room(tmp_path, monkeypatch):
    return CompareRoom(tmp_path, monkeypatch)


def entries(room):
    return CompareLedger.of(room.workspace.root, GPU.slug, ROOM).entries()


def record_of(room):
    return load_compare(room.workspace.root / "results" / "compare" / f"{ROOM}.json")


# Turns


def test_each_side_stands_at_each_place_equally_often(room):
    _, gpu, _ = room.compare(steady(ours=10.0, lib=20.0), rounds=6)
    for uuid in room.uuids:
        turns = gpu.turns(uuid)
        assert turns[:3] == ["ours", "lib", "control"], "one discarded turn each"
        rounds = [tuple(turns[start : start + 3]) for start in range(3, len(turns), 3)]
        assert len(rounds) == 6 and all(len(set(order)) == 3 for order in rounds)
        places = Counter((side, place) for order in rounds for place, side in enumerate(order))
        assert set(places.values()) == {2}


def test_the_default_number_of_rounds_puts_each_side_at_each_place_equally_often(room):
    room.peers["other"] = ("c", "2.0", "2.0")
    for b, processes in {"lib": 3, "peers": 4}.items():
        _, gpu, _ = room.compare(steady(ours=10.0, lib=20.0), b=b, rounds=None)
        rounds = gpu.turns(room.uuids[0]).count("ours") - 1
        assert DEFAULT_ROUNDS <= rounds < DEFAULT_ROUNDS + processes
        assert rounds % processes == 0


def test_the_first_turn_is_discarded(room):
    def script(side, uuid, turn):
        return 999.0 if turn == 0 else 10.0

    room.compare(script)
    rounds = [us for entry in entries(room) for r in entry.results.values() for us in r.rounds_us]
    assert set(rounds) == {10.0} and len(rounds) == 2 * 3 * 12


def test_drift_of_the_machine_does_not_pass_for_a_difference(room):
    """Everything slows down by 10 % while the workload is measured; B is as fast as A."""
    clock = Counter()

    def script(side, uuid, turn):
        clock["turns"] += 1
        return 10.0 * (1.0 + 0.1 * (clock["turns"] % 40) / 40)

    code, _, text = room.compare(script, margin=0.03)
    assert code is ExitCode.OK
    assert "2 SAME" in text and "FAST" not in text and "SLOW" not in text


def test_not_even_a_strong_drift_passes_for_a_difference(room):
    """By 60 %: too much for SAME within the margin, and still neither FAST nor SLOW."""
    clock = Counter()

    def script(side, uuid, turn):
        clock["turns"] += 1
        return 10.0 * (1.0 + 0.6 * (clock["turns"] % 40) / 40)

    code, _, text = room.compare(script, margin=0.03)
    assert code is ExitCode.OK
    assert "FAST" not in text and "SLOW" not in text


def test_a_side_of_long_calls_gets_fewer_rounds(room):
    _, gpu, _ = room.compare(steady(ours=10.0, lib=20_001.0))
    first = room.uuids[0]
    counts = Counter(gpu.turns(first))
    assert counts == {"ours": 13, "control": 13, "lib": 2 + 3}
    calls = {side: call for side, uuid, *call in gpu.order if uuid == first}
    assert calls == {"ours": [2, 10], "control": [2, 10], "lib": [0, 1]}
    assert len(entries(room)[0].results["lib"].rounds_us) == 3


def test_one_hiccup_costs_a_side_no_rounds(room):
    def script(side, uuid, turn):
        return 20_001.0 if (side, turn) == ("lib", 0) else 10.0

    _, gpu, _ = room.compare(script)
    assert Counter(gpu.turns(room.uuids[0])) == {"ours": 13, "control": 13, "lib": 2 + 12}
    assert entries(room)[0].results["lib"].rounds_us == (10.0,) * 12


def test_twins_build_one_after_the_other_the_first_time(room):
    _, gpu, _ = room.compare(steady(ours=10.0, lib=20.0))
    first = room.uuids[0]
    assert gpu.events.index(f"ours ends {first}") < gpu.events.index(f"control begins {first}")


def test_every_worker_ends_with_its_room(room):
    _, gpu, _ = room.compare(steady(ours=10.0, lib=20.0))
    assert sorted(gpu.events[-3:]) == ["control closed", "lib closed", "ours closed"]


# Words and exit codes


def slower_once(uuid):
    """A is 20 % slower than lib in one workload, faster elsewhere."""

    def script(side, workload, turn):
        lib = 10.0 if workload == uuid else 20.0
        return lib if side == "lib" else 12.0

    return script


def test_one_slower_workload_is_a_regression(room):
    code, _, text = room.compare(slower_once(room.uuids[1]))
    assert code is ExitCode.FAILED
    assert "1 FAST 1 SLOW" in text
    assert f"ours is SLOW against lib in 1 workload, the first {room.uuids[1][:8]}" in text
    assert room.compare(slower_once(room.uuids[1]), exit_zero=True)[0] is ExitCode.OK


def test_a_faster_room_is_well(room):
    code, _, text = room.compare(steady(ours=10.0, lib=20.0))
    assert code is ExitCode.OK
    assert "2 FAST" in text and "2/0/0" in text and "S [95 %]" in text
    assert "lib 20.00 us (x2.000)" in text, "one plain line per finished workload"
    assert "\x1b" not in text


def test_the_margin_decides_what_makes_no_difference(room):
    script = steady(ours=10.0, lib=10.4)
    assert "2 FAST" in room.compare(script)[2]
    assert "2 SAME" in room.compare(script, margin=0.05)[2]


def test_a_difference_that_two_equal_processes_also_show_is_no_verdict(room):
    def script(side, uuid, turn):
        return {"ours": 12.0, "lib": 10.0, "control": 13.0}[side]

    code, _, text = room.compare(script)
    assert code is ExitCode.OK
    assert "2 UNSURE" in text and "SLOW" not in text
    assert "control: two processes of ours differ by 8 % a workload" in text
    assert "(2 of 2 would be called different)" in text


def test_strangers_who_came_during_the_room_withhold_every_verdict(room, monkeypatch):
    monkeypatch.setattr("harness.compare.engine.SETTLE_S", 0.0)
    room.others = (GpuProcess(77, None),)
    code, _, text = room.compare(steady(ours=10.0, lib=20.0), record=True)
    assert code is ExitCode.INCOMPLETE
    assert "another process computed on the GPU" in text and "not recorded" in text


def test_what_was_measured_beside_strangers_is_measured_again(room, monkeypatch):
    script = steady(ours=10.0, lib=20.0)
    monkeypatch.setattr("harness.compare.engine.SETTLE_S", 0.0)
    first, second = room.uuids
    room.compare(script, workloads=(first,))
    room.others = (GpuProcess(77, None),)
    code, _, text = room.compare(script, resume=True)
    assert code is ExitCode.INCOMPLETE and "run again with --resume" in text
    assert [entry.key.uuid for entry in entries(room)] == [first], "an earlier run's line counts"
    room.others = ()
    code, gpu, text = room.compare(script, resume=True, record=True)
    assert code is ExitCode.OK and {uuid for _, uuid in gpu.judged} == {second}
    assert [row.uuid for row in record_of(room).workloads] == [first, second]


def test_throttling_is_noted(room, monkeypatch):
    sample = ClockSample(sm_mhz=1500, reasons=0x08)
    monkeypatch.setattr("harness.compare.engine.sample_clocks", lambda facts: sample)
    text = room.compare(steady(ours=10.0, lib=20.0))[2]
    assert "4 of 4 samples throttled (hardware slowdown)" in text


# Failures


def test_a_side_that_dies_in_the_middle_is_a_row_and_the_others_go_on(room):
    first, second = room.uuids

    def script(side, uuid, turn):
        if (side, uuid, turn) == ("lib", first, 5):
            return CRASH
        return {"lib": 20.0}.get(side, 10.0)

    code, gpu, text = room.compare(script)
    assert code is ExitCode.OK, "B's failure is B's"
    results = entries(room)[0].results
    assert (results["lib"].status, results["lib"].rounds_us) == ("RUNTIME_ERROR", ())
    assert "SIGSEGV" in results["lib"].detail and "SIGSEGV" in text
    assert len(results["ours"].rounds_us) == len(results["control"].rounds_us) == 12
    assert gpu.turns(first).count("lib") == 6 and gpu.turns(second).count("lib") == 13
    assert f"open: lib failed 1 of 2 workloads, the first {first[:8]}" in text


def test_a_room_whose_every_b_fails_everywhere_compared_nothing(room):
    script = steady(ours=10.0, lib=20.0, other=20.0)
    verdicts = {("lib", uuid): WRONG for uuid in room.uuids}
    for exit_zero in (False, True):
        code, _, text = room.compare(script, verdicts=verdicts, exit_zero=exit_zero)
        assert code is ExitCode.TOOL_MISSING
        assert "gdn_decode: nothing was compared, no B passed a workload" in text
    room.peers["other"] = ("c", "2.0", "2.0")
    assert room.compare(script, b="peers", verdicts=verdicts)[0] is ExitCode.OK
    ours = {(side, uuid): WRONG for side in ("ours", "control") for uuid in room.uuids}
    assert room.compare(script, verdicts={**verdicts, **ours})[0] is ExitCode.FAILED
    assert room.compare(script, verdicts=ours, exit_zero=True)[0] is ExitCode.OK


def test_what_a_failed_side_printed_is_kept_until_it_passes(room):
    first, second = room.uuids
    crash = replace(CRASH, log="CUDA error: an illegal memory access")
    verdicts = {("lib", second): replace(WRONG, log="printed by lib")}

    def script(side, uuid, turn):
        return crash if (side, uuid, turn) == ("lib", first, 5) else 10.0

    room.compare(script, verdicts=verdicts)
    ledger = CompareLedger.of(room.workspace.root, GPU.slug, ROOM)
    content = "b" * 64
    assert ledger.final_logs() == {
        (first, "lib", content): crash.log,
        (second, "lib", content): "printed by lib",
    }
    room.compare(steady(ours=10.0), workloads=(first,), seed=1)
    assert list(ledger.final_logs()) == [(second, "lib", content)]


def test_a_side_a_that_is_wrong_fails_the_comparison(room):
    first = room.uuids[0]
    code, gpu, text = room.compare(
        steady(ours=10.0, lib=20.0), verdicts={("ours", first): WRONG, ("control", first): WRONG}
    )
    assert code is ExitCode.FAILED
    assert set(gpu.turns(first)) == {"lib"}, "the others go on"
    assert "ours failed: y: 3 wrong; repeat: python -m harness evaluate" in text


def test_a_control_that_fails_is_a_failure_of_a(room):
    code, _, text = room.compare(
        steady(ours=10.0, lib=20.0), verdicts={("control", room.uuids[0]): WRONG}
    )
    assert code is ExitCode.FAILED and "control failed" in text


def test_the_command_that_repeats_a_failure_is_left_out_where_it_would_judge_another(room):
    room.compare(steady(ours=10.0, lib=20.0), verdicts={("lib", room.uuids[0]): WRONG})
    assert entries(room)[0].results["lib"].detail == "y: 3 wrong"


def test_what_failed_for_want_of_memory_is_asked_again_alone(room):
    short = Outcome(Status.REFERENCE_ERROR, detail="out of memory")
    first = room.uuids[0]
    code, gpu, _ = room.compare(
        steady(ours=10.0, lib=20.0), verdicts={("lib", first): [short, Outcome(Status.PASSED)]}
    )
    assert code is ExitCode.OK
    again = len(gpu.events) - 1 - gpu.events[::-1].index(f"lib begins {first}")
    ended = [gpu.events.index(f"{side} ends {first}") for side in ("ours", "control")]
    assert gpu.judged.count(("lib", first)) == 2 and again > max(ended)


def test_a_broken_machine_is_no_verdict_and_is_asked_again(room):
    script = steady(ours=10.0, lib=20.0)
    code, _, text = room.compare(script, record=True, verdicts={("lib", room.uuids[1]): LOST})
    assert code is ExitCode.INCOMPLETE and "not recorded, incomplete" in text
    assert "gdn_decode: incomplete; run again with --resume" in text
    code, gpu, text = room.compare(script, resume=True)
    assert code is ExitCode.OK and "(reused)" in text
    assert {uuid for _, uuid in gpu.judged} == {room.uuids[1]}


# Libraries


def test_a_library_that_is_not_installed_is_named_and_the_rest_is_measured(room):
    room.peers["other"] = ("c", "2.0", None)
    code, _, text = room.compare(steady(ours=10.0, lib=20.0), b="peers", record=True)
    assert code is ExitCode.OK and "open: 1 missing" in text
    hint = "pip install --no-deps 'other==2.0' (docs/peers.md)"
    reason = f"other: installed none, pinned 2.0; {hint}"
    assert f"open: other is missing: {reason}" in text
    states = {side.name: (side.state, side.reason) for side in record_of(room).sides}
    assert states["other"] == ("missing", reason) and states["lib"] == ("measured", None)
    assert all("other" not in row.sides for row in record_of(room).workloads)


def test_rooms_that_are_passed_over_for_want_of_peers_say_what_to_do(room):
    script = steady(ours=10.0, lib=20.0)
    code, _, text = room.compare(script, b="peers", rooms=())
    assert code is ExitCode.OK
    assert "moe has no peers: write peers/moe/<library>.py" in text
    assert "python -m harness compare ours HEAD moe" in text
    assert f"{ROOM} has no peers" not in text
    assert "has no peers" not in room.compare(script, b="peers")[2]


def test_a_library_of_another_version_is_missing(room):
    room.peers["lib"] = ("b", "1.2", "1.3+cu130")
    code, gpu, text = room.compare(steady(ours=10.0, lib=20.0))
    assert "lib: installed 1.3+cu130, pinned 1.2" in text
    assert code is ExitCode.TOOL_MISSING and gpu.judged == [], "nobody to compare with"


def test_a_build_label_is_no_other_version(room):
    room.peers["lib"] = ("b", "1.2", "1.2+cu130")
    assert room.compare(steady(ours=10.0, lib=20.0))[0] is ExitCode.OK


def test_what_a_library_needs_besides_itself_counts_as_pinned_too(room):
    room.notes = {"requires": (("dsl", "4.1"),)}
    for installed in ({}, {"dsl": "4.0"}):
        room.packages = installed
        code, gpu, text = room.compare(steady(ours=10.0, lib=20.0))
        found = installed.get("dsl", "none")
        assert f"dsl: installed {found}, pinned 4.1; pip install --no-deps 'dsl==4.1'" in text
        assert code is ExitCode.TOOL_MISSING and gpu.judged == []
    room.packages = {"dsl": "4.1+cu130"}
    code, _, text = room.compare(steady(ours=10.0, lib=20.0), record=True)
    assert code is ExitCode.OK and "lib 1.2, dsl 4.1+cu130, prepared" in text
    assert record_of(room).libraries["dsl"] == "4.1+cu130"
    assert ("dsl", "4.1+cu130") in entries(room)[0].key.environment


def test_what_there_is_to_know_about_a_library_is_said_and_recorded(room):
    for notes, expected in (
        ({"stands_in": "BatchMLA", "caveat": "It copies first."}, ("BatchMLA", "It copies first.")),
        ({}, (None, None)),
    ):
        room.notes = notes
        text = room.compare(steady(ours=10.0, lib=20.0), record=True)[2]
        lib = record_of(room).side("lib")
        assert (lib.stands_in, lib.caveat) == expected
        assert ("in place of the official baseline: BatchMLA, It copies first." in text) is bool(
            notes
        )


def test_two_sides_of_the_same_content_say_so(room):
    code, _, text = room.compare(lambda *_: 10.0, b="ours")
    assert code is ExitCode.OK and "2 SAME" in text
    assert "ours again: gdn_decode-aaaaaaaa, the same content as ours" in text


# The ledger


def test_an_interrupted_comparison_keeps_what_is_finished(room):
    def script(side, uuid, turn):
        return KeyboardInterrupt() if (uuid, turn) == (room.uuids[1], 4) else 10.0

    with pytest.raises(KeyboardInterrupt):
        room.compare(script)
    assert [entry.key.uuid for entry in entries(room)] == [room.uuids[0]]
    assert len([event for event in room.gpu.events if "closed" in event]) == 3
    code, gpu, _ = room.compare(lambda *_: 10.0, resume=True)
    assert code is ExitCode.OK and {uuid for _, uuid in gpu.judged} == {room.uuids[1]}


def test_resume_is_keyed_on_all_that_decides_a_number(room, monkeypatch):
    script = steady(ours=10.0, lib=20.0)

    def judged(facts=GPU, **request):
        return len(room.compare(script, facts, resume=True, **request)[1].judged)

    assert judged() == 6 and judged() == 0
    assert judged(seed=1) == judged(trials=1) == judged(rounds=6) == judged(iterations=5) == 6
    assert judged(replace(GPU, driver="2.0")) == 6
    room.peers["lib"] = ("c", "1.2", "1.2")
    assert judged() == 6, "another B"
    room.peers["lib"] = ("c", "1.3", "1.3")
    assert judged() == 6, "another library under the same wrapper"
    room.content = "d"
    assert judged() == 6 and judged() == 0 and judged(margin=0.5) == 0


def test_without_resume_everything_is_measured_again(room):
    script = steady(ours=10.0, lib=20.0)
    assert len(room.compare(script)[1].judged) == len(room.compare(script)[1].judged) == 6


def test_a_torn_line_costs_only_itself_and_is_reported(room):
    script = steady(ours=10.0, lib=20.0)
    room.compare(script)
    path = CompareLedger.of(room.workspace.root, GPU.slug, ROOM).path
    assert path.name == "gdn_decode.compare.ndjson"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(LedgerWarning, match=r"compare\.ndjson:2|torn") as caught:
        code, gpu, _ = room.compare(script, resume=True)
    assert len(caught) == 2, "left out when read, moved aside when written"
    assert code is ExitCode.OK and {uuid for _, uuid in gpu.judged} == {room.uuids[1]}
    assert len(entries(room)) == 2


def test_a_line_without_one_of_its_sides_is_refused(room):
    room.compare(steady(ours=10.0, lib=20.0))
    path = CompareLedger.of(room.workspace.root, GPU.slug, ROOM).path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[0]["results"]["lib"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.warns(LedgerWarning, match="results: expected the sides ours, lib, control"):
        assert len(entries(room)) == 1


# Records


def test_a_record_holds_every_round_of_every_side(room):
    code, _, text = room.compare(steady(ours=10.0, lib=20.0), record=True, commit="abcdef0")
    assert code is ExitCode.OK and "recorded in results/compare/gdn_decode.json" in text
    record = record_of(room)
    assert [(side.name, side.kind) for side in record.sides] == [
        ("ours", "room"), ("lib", "peer"), ("control", "control"),
    ]  # fmt: skip
    lib = record.sides[1]
    assert (lib.package, lib.pinned, lib.installed, lib.prepared) == (
        "lib",
        "1.2",
        "1.2",
        "nothing",
    )
    assert [row.uuid for row in record.workloads] == room.uuids
    assert record.workloads[0].sides["lib"].rounds_us == (20.0,) * 12
    assert (record.timer, record.commit, record.driver) == ("cupti", "abcdef0", "1.0")
    assert record.libraries["lib"] == "1.2" and record.protocol.correctness_trials == 3
    again = room.compare(lambda *_: 99.0, record=True, resume=True)[1]
    assert again.judged == [] and record_of(room).workloads == record.workloads


@pytest.mark.parametrize(
    ("facts", "request_"),
    [
        (GPU, {"a": "lib", "b": "ours"}),
        (GPU, {"workloads": ("901e5104",)}),
        (GPU, {"trials": 1}),
        (GPU, {"rounds": 5}),
        (GPU, {"iterations": 9}),
        (CPU, {}),
    ],
)
def test_a_record_needs_ours_all_workloads_enough_rounds_and_a_gpu(room, facts, request_):
    with pytest.raises(UsageError, match="--record"):
        room.compare(steady(ours=10.0, lib=20.0), facts, record=True, **request_)


def test_a_record_that_could_not_be_made_now_is_no_evidence(room):
    room.compare(steady(ours=10.0, lib=20.0), record=True, rounds=6)
    record = record_of(room)
    assert record_objection(record) is None
    for change, words in (
        ({"protocol": replace(record.protocol, rounds=5)}, "at least 6 rounds, got 5"),
        ({"protocol": replace(record.protocol, iterations=1)}, "at least 10 iterations, got 1"),
        ({"sides": record.sides[:2]}, "the first side again as control"),
        ({"sides": record.sides[1:]}, "expected ours as the first side, got lib"),
        ({"timer": "host"}, "CUPTI"),
    ):
        assert words in record_objection(replace(record, **change))


def test_a_comparison_without_a_gpu_needs_workers_of_its_own(room, monkeypatch):
    monkeypatch.setattr("tests.unit.compare_room.FakeGpu", lambda *_: None)
    with pytest.raises(EnvironmentUnfit, match=r"compare: .* latencies: expected a GPU"):
        room.compare(steady(ours=10.0), CPU)


def test_a_bad_request_is_refused(room):
    for wrong in ({"rounds": 2}, {"iterations": 0}, {"margin": 1.0}):
        with pytest.raises(UsageError, match="at least 3 rounds"):
            room.compare(steady(ours=10.0), **wrong)


def test_a_line_comes_back_as_it_was_written_and_a_wrong_one_does_not(room):
    room.compare(steady(ours=10.0, lib=20.0))
    path = CompareLedger.of(room.workspace.root, GPU.slug, ROOM).path
    line = json.loads(path.read_text().splitlines()[0])
    assert json.loads(json.dumps(CompareEntry.from_json(line).to_json())) == line
    without_logs = {key: value for key, value in line.items() if key != "logs"}
    assert CompareEntry.from_json(without_logs).logs == {}, "a line from before they were kept"
    lib = line["results"]["lib"]
    for wrong in (
        {"status": "FINE"},
        {"rounds_us": [20.0] * 2},
        {"rounds_us": [20.0, 20.0, 0.0]},
        {"rounds_us": [20.0, 20.0, "NaN"]},
        {"status": "TIMEOUT"},
    ):
        line["results"]["lib"] = {**lib, **wrong}
        with pytest.raises(RecordError, match=r"status|rounds_us"):
            CompareEntry.from_json(line)


# What is shown at the end


def test_of_many_workloads_the_five_at_each_end_are_shown_and_each_regime_of_an_axis_that_varies():
    axes = [{"batch_size": size, "heads": 8} for size in range(1, 13)]
    shown = describe_room([analyse(sample_compare.compare_record(axes=axes), "ours", "flashinfer")])
    rows = [line.split() for line in shown if " u-" in line]
    assert [row[0] for row in rows] == ["best"] * 5 + ["worst"] * 5
    ratios = [float(row[row.index("us") + 3].removeprefix("x")) for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    (regimes,) = [line for line in shown if line.startswith("  batch_size: ")]
    assert regimes.count("FAST)") == 5, "1, 2, 3-4, 5-8 and 9-16"
    assert not any(line.startswith("  heads:") for line in shown)
    assert any("control: two processes of ours differ" in line for line in shown)


# Real workers, on the CPU


@pytest.mark.slow
def test_real_workers_stay_warm_from_workload_to_workload_and_one_crash_is_one_sides(tmp_path):
    dies = f"{RIGHT}CALLS.append(1)\nif len(CALLS) > 8:\n    os._exit(3)\n"
    bodies = {"ours": module(RIGHT), "lib": module(dies, head="import os\n\nCALLS = []")}
    bodies["control"] = bodies["ours"]
    jobs = {side: make_job(tmp_path / side, text, keep=True) for side, text in bodies.items()}
    pools = []

    def make_pool(device, root):
        pools.append(Pool(device, root))
        return pools[-1]

    root = Path(__file__).parents[2]
    results, contents = [], {"ours": "a", "lib": "b", "control": "a"}
    with open_lanes(contents, "cpu", root, make_pool) as lanes:
        for _ in range(2):
            outcomes = judge_sides(lanes, jobs, lambda stage: None)
            assert {outcome.status for outcome in outcomes.values()} == {Status.PASSED}
            results.append(measure_sides(lanes, outcomes, Visits(3, 0, 2), 60.0)[0])
    for result in results:
        assert len(result["ours"].rounds_us) == len(result["control"].rounds_us) == 3
        assert result["lib"].status == "RUNTIME_ERROR" and "code 3" in result["lib"].detail
    assert [pool.replacements for pool in pools] == [0, 2, 0]
