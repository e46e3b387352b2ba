"""Replays end to end with scripted workers: rates, ledger, resuming, limits, records."""

import io
import json
import re
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import pytest

from harness.cli import main
from harness.dataset import read_workloads
from harness.devices import DeviceFacts
from harness.errors import ExitCode, RecordError, UsageError
from harness.evaluate import plan as planning
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Stage, Status, trial_seed
from harness.packing import Packed
from harness.records import LedgerWarning
from harness.replay import engine, suspicion
from harness.replay.batch import BatchResult, Boundary, Mismatch, batch_range, split
from harness.replay.display import describe_record, describe_row
from harness.replay.engine import MAX_CRASHES, ReplayRequest, run_replay
from harness.replay.ledger import ReplayLedger
from harness.replay.record import MAX_LISTED, ReplayRecord, load_replay, write_replay
from harness.replay.statistics import clopper_pearson
from tests.sample_replay import mismatch, replay_record
from tests.small_checkout import small_checkout

ROOM = "dsa_indexer"
GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test", driver="1.0")
CPU = DeviceFacts("cpu", "a processor")


def sound(uuid, trial, seed):
    return None


def wrong_in_one_of_twenty(uuid, trial, seed):
    return "INCORRECT_NUMERICAL" if seed % 20 == 7 else None


@dataclass
class ScriptedPool:
    """Stands in for worker and solution. `solution` gives a trial's failing status, "crash",
    "hang", "untested", an Outcome that ends the batch, an exception to raise, or None.

    asked: batches as (uuid, range). margins: whether trials have one. false_starts: stages of
    REFERENCE reported by a first attempt at each batch, whose worker is replaced.
    """

    solution: object
    margins: bool = True
    asked: list = field(default_factory=list)
    false_starts: int = 0

    def __call__(self, device, root):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, job, on_stage):
        for stage in [Stage.INPUTS] + [Stage.REFERENCE] * self.false_starts + [Stage.INPUTS]:
            on_stage(stage)
        result = BatchResult(0, boundary=Boundary() if self.margins else None)
        self.asked.append((job.uuid, batch_range(job)))
        for trial in batch_range(job):
            on_stage(Stage.REFERENCE)
            on_stage(Stage.CORRECTNESS)
            seed = trial_seed(job.settings.seed, job.uuid, trial)
            said = self.solution(job.uuid, trial, seed)
            if isinstance(said, BaseException):
                raise said
            if isinstance(said, Outcome):
                return said
            if said in ("crash", "hang"):
                status = Status.RUNTIME_ERROR if said == "crash" else Status.TIMEOUT
                return Outcome(status, detail="in stage correctness", faulted=True)
            result = self.add(result, trial, seed, said)
        return Outcome(Status.PASSED, evaluation=json.loads(json.dumps(result.to_json())))

    def add(self, result, trial, seed, said):
        result = replace(result, done=result.done + 1)
        if said == "untested":
            return replace(result, untested=(*result.untested, trial))
        if self.margins:
            margin = Boundary(((seed % 1000) / 1000,), 1e-6)
            result = replace(result, boundary=result.boundary + margin)
        if said is None:
            return replace(result, max_abs_error=0.25, max_rel_error=0.008)
        found = Mismatch(trial, seed, said, 6.0, 0.2, "scores wrong")
        return replace(result, mismatches=(*result.mismatches, found))


class ReplayRoom:
    """A checkout of three small workloads whose room packs to content "a"."""

    def __init__(self, root, monkeypatch):
        self.workspace = small_checkout(root / "checkout")
        self.root = self.workspace.root
        self.content = "a"
        for source in planning.JUDGE_SOURCES:
            path = self.root / source
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("rules")
        monkeypatch.setenv("FIB_CACHE_PATH", str(root / "cache"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
        monkeypatch.setattr(planning, "pack", self.pack)
        monkeypatch.setattr(suspicion, "pack", self.pack)
        monkeypatch.setattr(engine.dataset, "ensure_blobs", lambda *_: None)
        monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda facts: None)

    def pack(self, workspace, room, route=None):
        name = f"{room}-{self.content * 8}"
        return Packed(name, self.content * 64, "{}", self.root / "solution.json")

    @property
    def uuids(self):
        return [row.uuid for row in read_workloads(self.root, self.workspace.room(ROOM))]

    def replay(self, solution, facts=GPU, margins=True, false_starts=0, **request):
        """Returns the exit code, the pool and what was printed."""
        pool = ScriptedPool(solution, margins, false_starts=false_starts)
        text = io.StringIO()
        values = {"room": ROOM, "trials": 100, **request}
        with SweepProgress(text) as progress:
            code = run_replay(self.workspace, ReplayRequest(**values), progress, pool, facts)
        return code, pool, text.getvalue()

    def record(self):
        return load_replay(self.root / "results" / "replay" / f"{ROOM}.json")

    def entries(self):
        found = ReplayLedger.of(self.root, GPU.slug, ROOM).entries()
        return [entry for batch in found.values() for entry in batch]


@pytest.fixture
def room(tmp_path, monkeypatch):
    return ReplayRoom(tmp_path, monkeypatch)


# Rates and mismatches


def test_a_solution_wrong_in_5_percent_of_seeds_is_found_at_that_rate(room):
    code, _, text = room.replay(wrong_in_one_of_twenty, trials=2000, record=True)
    assert code is ExitCode.FAILED
    record = room.record()
    for row in record.workloads:
        assert row.trials == 2000 and row.low < 0.05 < row.high
        assert (row.low, row.high) == clopper_pearson(row.mismatches, 2000)
        for found in row.listed:
            assert found.seed == trial_seed(0, row.uuid, found.trial) and found.seed % 20 == 7
    assert record.mismatches == sum(
        trial_seed(0, uuid, trial) % 20 == 7 for uuid in room.uuids for trial in range(2000)
    )
    said = r"2000 trials, \d+ wrong: \d\.\d\d % \(95 % interval \d\.\d\d % to \d\.\d\d %\); "
    assert len(re.findall(said, text)) == 3
    shown = r"3 official trials would show it 1\d\.\d % of the time, \d\d trials 95 %"
    assert len(re.findall(shown, text)) == 3
    assert "a sweep of 3 official trials on each of 3 workloads would pass all the same 64" in text
    assert text.count("more wrong trials follow; they are counted, not shown") == 3


def test_a_sound_solution_is_nothing_suspicious(room):
    code, pool, text = room.replay(sound, trials=250, record=True)
    assert code is ExitCode.OK
    assert "suspicious" not in text and "250 trials, 0 wrong: 0 % (95 % int" in text
    assert "a fault in 0.491 % of trials, the interval's upper end, would pass a sweep of 3" in text
    assert [asked for asked in pool.asked if asked[0] == room.uuids[0]] == [
        (room.uuids[0], range(100)),
        (room.uuids[0], range(100, 200)),
        (room.uuids[0], range(200, 250)),
    ]
    assert suspicion.suspicion(room.record()) is None


def test_a_mismatch_names_the_command_that_repeats_it_and_that_finds_it(room):
    _, _, text = room.replay(wrong_in_one_of_twenty, seed=5)
    command = re.search(r"python -m harness replay (.*)", text)[1].split()
    asked = dict(zip(command[1::2], command[2::2], strict=True))
    code, pool, alone = room.replay(
        wrong_in_one_of_twenty,
        workloads=(asked["--workloads"],),
        seed=int(asked["--seed"]),
        only_trial=int(asked["--trial"]),
    )
    assert code is ExitCode.FAILED and len(pool.asked) == 1
    trial = int(asked["--trial"])
    line = next(line for line in text.splitlines() if f"trial {trial} " in line)
    assert line.strip() in alone


def test_a_slow_batch_shows_how_far_it_is(room, monkeypatch):
    monkeypatch.setattr(engine, "PROGRESS_S", 0.0)
    _, _, text = room.replay(sound, workloads=(room.uuids[0],), trials=101)
    shown = re.findall(r"^  \w{8} (\d+)/101 trials(.*), [\d.e+]+ trials/s$", text, re.MULTILINE)
    assert shown == [*((str(done), "") for done in range(1, 100)), ("100", ", 0 wrong")]


def test_one_trial_alone_leaves_no_trace(room):
    code, _, text = room.replay(sound, workloads=(room.uuids[0],), only_trial=7)
    assert code is ExitCode.OK and "trial 7" in text and "PASSED" in text
    assert "last score selected less first left out" in text
    assert room.entries() == []


def test_other_seeds_are_other_trials(room):
    found = []
    for seed in (1, 2):
        room.replay(wrong_in_one_of_twenty, trials=400, seed=seed, record=True)
        found.append([one.trial for row in room.record().workloads for one in row.listed])
    assert found[0] != found[1]


def test_exit_zero_forgives_mismatches_only(room):
    assert room.replay(wrong_in_one_of_twenty, exit_zero=True)[0] is ExitCode.OK
    lost = Outcome(Status.INFRASTRUCTURE, detail="no worker")
    assert room.replay(lambda *_: lost, exit_zero=True)[0] is ExitCode.INCOMPLETE


def test_untested_trials_are_no_trials(room):
    code, _, text = room.replay(
        lambda uuid, trial, seed: "untested" if trial < 40 else None, record=True
    )
    assert code is ExitCode.OK and "40 trials left out: the reference's" in text
    row = room.record().workloads[0]
    assert (row.trials, row.untested, row.high) == (60, 40, clopper_pearson(0, 60)[1])


# Crashes


def test_a_crash_is_charged_to_its_trial_and_the_others_are_judged(room):
    def solution(uuid, trial, seed):
        if uuid == room.uuids[1] and trial in (3, 4, 150):
            return "hang" if trial == 4 else "crash"
        return "INCORRECT_NUMERICAL" if trial == 99 else None

    code, _, _ = room.replay(solution, trials=200, record=True)
    assert code is ExitCode.FAILED
    rows = {row.uuid: row for row in room.record().workloads}
    row = rows[room.uuids[1]]
    assert row.trials == 200
    assert [(one.trial, one.status) for one in row.listed] == [
        (3, "RUNTIME_ERROR"),
        (4, "TIMEOUT"),
        (99, "INCORRECT_NUMERICAL"),
        (150, "RUNTIME_ERROR"),
    ]
    assert row.listed[0].seed == trial_seed(0, row.uuid, 3)
    assert all(rows[uuid].mismatches == 1 for uuid in (room.uuids[0], room.uuids[2]))
    covered = sorted(t for e in room.entries() if e.key.uuid == row.uuid for t in e.trials)
    assert covered == list(range(200)), "each trial once"


def test_trials_of_an_attempt_that_was_begun_again_are_not_counted_twice(room):
    """The pool asks a fresh worker where an earlier batch may have spoilt the first."""
    room.replay(lambda _, trial, seed: "crash" if trial == 7 else None, false_starts=5, record=True)
    for row in room.record().workloads:
        assert [one.trial for one in row.listed] == [7] and row.trials == 100


def test_a_solution_that_always_crashes_is_given_up(room):
    code, pool, text = room.replay(lambda *_: "crash", workloads=(room.uuids[0],), record=True)
    assert code is ExitCode.FAILED
    assert len(pool.asked) == MAX_CRASHES
    row = room.record().workloads[0]
    assert (row.trials, row.mismatches) == (MAX_CRASHES, MAX_CRASHES)
    assert f"{MAX_CRASHES} trials ended the worker" in text


def test_a_solution_that_does_not_build_has_no_trials(room):
    broken = Outcome(Status.COMPILE_ERROR, detail="no such header")
    code, _, text = room.replay(lambda *_: broken)
    assert code is ExitCode.FAILED
    assert text.count("trials are missing: COMPILE_ERROR: no such header") == 3


def test_a_broken_machine_is_incomplete_and_asked_again(room):
    lost = Outcome(Status.REFERENCE_ERROR, detail="out of memory")
    broken = {room.uuids[1]}
    code, _, text = room.replay(
        lambda uuid, trial, seed: lost if uuid in broken and trial >= 100 else None, trials=200
    )
    assert code is ExitCode.INCOMPLETE and "out of memory" in text
    code, pool, _ = room.replay(sound, trials=200, resume=True)
    assert code is ExitCode.OK
    assert pool.asked == [(room.uuids[1], range(100, 200))]


# Resuming


def test_killed_and_resumed_gives_the_record_of_one_run(room):
    calls = {"left": 630}

    def killed(uuid, trial, seed):
        calls["left"] -= 1
        if calls["left"] < 0:
            return KeyboardInterrupt()
        return wrong_in_one_of_twenty(uuid, trial, seed)

    room.replay(wrong_in_one_of_twenty, trials=400, record=True)
    whole = room.record()
    ReplayLedger.of(room.root, GPU.slug, ROOM).path.unlink()
    with pytest.raises(KeyboardInterrupt):
        room.replay(killed, trials=400)
    code, pool, _ = room.replay(wrong_in_one_of_twenty, trials=400, resume=True, record=True)
    assert code is ExitCode.FAILED
    assert pool.asked[0] == (room.uuids[1], range(200, 300)), "630 trials: 6 batches were kept"
    resumed = room.record()
    assert replace(resumed, measured_at=whole.measured_at) == whole


def test_more_trials_go_on_from_fewer(room):
    room.replay(sound, trials=130)
    _, pool, _ = room.replay(sound, trials=300, resume=True)
    assert pool.asked[:2] == [(room.uuids[0], range(130, 200)), (room.uuids[0], range(200, 300))]


def test_other_content_seed_or_no_resume_begins_anew(room):
    room.replay(sound)
    for change in ({"seed": 1, "resume": True}, {}):
        assert len(room.replay(sound, **change)[1].asked) == 3
    room.content = "b"
    assert len(room.replay(sound, resume=True)[1].asked) == 3
    room.content = "a"
    assert room.replay(sound, resume=True)[1].asked == []


@pytest.mark.parametrize(
    "place", [(planning.dataset, "content_sha256"), (planning, "judge_sha256"),
              (engine, "replayer_sha256")],
    ids=lambda place: place[1],
)  # fmt: skip
def test_other_data_judge_or_replayer_begins_anew(room, monkeypatch, place):
    room.replay(sound)
    monkeypatch.setattr(*place, lambda *_: "f" * 64)
    assert len(room.replay(sound, resume=True)[1].asked) == 3


def test_another_driver_or_device_begins_anew(room):
    room.replay(sound)
    for facts in (replace(GPU, driver="2.0"), replace(GPU, slug="nvidia-other")):
        assert len(room.replay(sound, facts=facts, resume=True)[1].asked) == 3


def test_a_torn_line_is_left_out_and_its_trials_run_again(room):
    room.replay(sound, workloads=(room.uuids[0],), trials=300)
    path = ReplayLedger.of(room.root, GPU.slug, ROOM).path
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:50] + "\n" + lines[2])
    with pytest.warns(LedgerWarning, match="left out"):
        _, pool, _ = room.replay(sound, workloads=(room.uuids[0],), trials=300, resume=True)
    assert pool.asked == [(room.uuids[0], range(100, 200))]


def test_a_mismatch_survives_a_shorter_run_after_it(room):
    """The later trial 50 passes, as after a race; the replay of 100 must still know of it."""
    uuid = room.uuids[0]
    one = {"workloads": (uuid,), "record": True}
    room.replay(lambda _, trial, seed: "INCORRECT_NUMERICAL" if trial == 50 else None, **one)
    room.replay(sound, **one, trials=1)
    for trials, asked in ((100, []), (60, [(uuid, range(1, 50)), (uuid, range(51, 60))])):
        code, pool, _ = room.replay(sound, **one, trials=trials, resume=True)
        assert (code, pool.asked) == (ExitCode.FAILED, asked)
        (row,) = room.record().workloads
        assert row.trials == trials and [found.trial for found in row.listed] == [50]


def test_the_time_limit_stops_between_batches_and_resume_goes_on(room, monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(engine.time, "monotonic", lambda: clock["now"])

    def slow(uuid, trial, seed):
        clock["now"] += 0.1
        return None

    code, pool, text = room.replay(slow, trials=200, limit_s=25.0, record=True)
    assert code is ExitCode.INCOMPLETE
    assert len(pool.asked) == 3 and "trials are missing: the time limit passed" in text
    record = room.record()
    assert [row.trials for row in record.workloads] == [200, 100, 0]
    assert (
        not record.is_complete
        and "2 of 3 workloads had fewer trials than were asked" in suspicion.suspicion(record)
    )
    assert "100/200 trials, 0 wrong, 10 trials/s" in text
    assert room.replay(sound, trials=200, resume=True)[0] is ExitCode.OK


def test_a_limit_of_0_plans_no_further_than_the_next_batch(room, monkeypatch):
    planned = []

    def watched(gaps, size):
        for batch in split(gaps, size):
            planned.append(batch)
            yield batch

    monkeypatch.setattr(engine, "split", watched)
    code, pool, text = room.replay(sound, trials=engine.MAX_TRIALS, limit_s=0.0)
    assert (code, pool.asked) == (ExitCode.INCOMPLETE, [])
    assert text.count("trials are missing: the time limit passed") == 3
    assert text.count("no trial was judged") == 4, "each workload, and all of them"
    assert planned == [range(100)] * 3


# Requests


def test_contradictions_are_refused(room):
    for facts, request in ((GPU, {"record": True, "only_trial": 1}), (CPU, {"record": True})):
        with pytest.raises(UsageError, match="expected"):
            room.replay(sound, facts=facts, **request)


@pytest.mark.parametrize("limit_s", [float("nan"), -1.0])
def test_a_limit_that_is_no_time_is_refused(room, limit_s):
    with pytest.raises(UsageError, match="--limit-s: expected seconds of at least 0, got"):
        room.replay(sound, limit_s=limit_s)


@pytest.mark.parametrize(
    ("option", "value", "most"), [("--trials", 1_000_001, 1_000_000), ("--trial", 10**6, 999_999)]
)
def test_more_trials_than_a_replay_holds_are_refused(monkeypatch, capsys, option, value, most):
    monkeypatch.setattr(import_module("harness.cli.replay"), "run_replay", lambda *_: ExitCode.OK)
    assert main(["replay", ROOM, option, str(value)]) == ExitCode.USAGE
    message = capsys.readouterr().err
    assert option in message and f"{value} is not in the range" in message
    assert f"<={most}" in message


def test_trials_run_without_a_gpu_too(room):
    code, pool, _ = room.replay(sound, facts=CPU, workloads=(room.uuids[0],), trials=5)
    assert code is ExitCode.OK and pool.asked == [(room.uuids[0], range(5))]


# Records


def test_a_record_survives_the_file(tmp_path):
    record = replay_record(
        {"03fc111f-one": (), "70d53807-two": (4, 90)}, boundary=Boundary((0.5, 0.2), 1e-6)
    )
    path = write_replay(record, tmp_path)
    assert path == tmp_path / "results" / "replay" / "moe.json"
    assert load_replay(path) == record
    assert path.read_text().count("\n    {") == 2, "one workload a line"


def test_a_record_lists_the_first_mismatches_only():
    record = replay_record({"one": tuple(range(150))})
    assert record.workloads[0].mismatches == 150
    assert len(record.workloads[0].listed) == MAX_LISTED
    assert ReplayRecord.from_json(record.to_json()) == record


def test_a_record_keeps_other_workloads_of_the_same_content(room):
    """Ten thousand trials of a few workloads stand beside a thousand of others."""
    first, second, third = room.uuids
    room.replay(sound, workloads=(third,), trials=200, record=True)
    _, _, text = room.replay(wrong_in_one_of_twenty, workloads=(first,), trials=300, record=True)
    assert "; workloads kept from before: 1\n" in text
    record = room.record()
    assert [(row.uuid, row.asked) for row in record.workloads] == [(first, 300), (third, 200)]
    assert record.asked == (200, 300) and record.is_complete and record.mismatches > 0
    room.replay(sound, workloads=(first, second), trials=50, record=True)
    record = room.record()
    assert [row.asked for row in record.workloads] == [50, 50, 200] and record.mismatches == 0
    room.content = "b"
    room.replay(sound, workloads=(second,), trials=50, record=True)
    assert [row.uuid for row in room.record().workloads] == [second], "of another content: nothing"
    path = room.root / "results" / "replay" / f"{ROOM}.json"
    path.write_text("{}")
    assert room.replay(sound, workloads=(first,), trials=50, record=True)[0] is ExitCode.OK
    assert room.record().asked == (50,), "a damaged one does not cost what is new"


def damaged(change):
    values = replay_record({"one": (4, 90)}, boundary=Boundary((0.5,), 1e-6), trials=200).to_json()
    change(values, values["workloads"][0])
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v, row: v.update(extra=1), "extra: expected no such key"),
        (lambda v, row: v.pop("judge_sha256"), "judge_sha256"),
        (lambda v, row: v.update(solution_sha256="x"), "solution_sha256"),
        (lambda v, row: row.update(mismatches=201), "mismatches: expected at most 200"),
        (lambda v, row: row.update(mismatches=3), "listed: expected the first 3"),
        (lambda v, row: row.update(low=0.5, high=0.6), "low: expected an interval around 0.01"),
        (lambda v, row: row.update(trials=150), "trials: expected 200, or fewer and why"),
        (lambda v, row: row.update(stopped="why"), "trials: expected 200, or fewer and why"),
        (lambda v, row: row["listed"][0].update(status="PASSED"), "a status other than PASSED"),
        (lambda v, row: row["margins"].update(below=2), "below: expected at most 1"),
        (lambda v, row: row["margins"].update(quantiles=[1.0]), "5 ascending numbers"),
        (lambda v, row: row["margins"].update(exchange_gap=1.0), "at least exchange_gap"),
        (lambda v, row: v["workloads"].append(row), "1 to 128 different ones"),
        (lambda v, row: v.update(total=0), "total"),
        (lambda v, row: v.update(measured_at="2026-02-31T00:00:00Z"), "measured_at"),
    ],
)
def test_a_damaged_record_is_named(change, message):
    with pytest.raises(RecordError, match=re.escape(message)):
        ReplayRecord.from_json(damaged(change))


def test_a_record_under_another_rooms_name_is_refused(tmp_path):
    path = write_replay(replay_record(), tmp_path)
    path.rename(path.with_name("gdn_decode.json"))
    with pytest.raises(RecordError, match="expected a record of gdn_decode, got moe"):
        load_replay(path.with_name("gdn_decode.json"))


# Suspicion


def test_any_mismatch_is_suspicious_and_the_worst_workload_is_named():
    found = suspicion.suspicion(replay_record({"one": (4,), "two": (7, 9), "three": ()}))
    assert found.startswith("2 of 3 workloads wrong in some trial, most often two, in 2 of 200")
    assert "first trial 7 (seed 1007)" in found


def test_margins_are_suspicious_only_where_the_rule_would_notice_an_exchange():
    harmless = Boundary((0.5, 1e-7), 1e-6)
    assert suspicion.suspicion(replay_record(boundary=harmless)) is None
    sloppy = Boundary((0.5, 0.015), 1e-6, exchanged=1, exchange_gap=0.01)
    found = suspicion.suspicion(replay_record(boundary=sloppy))
    assert "1 of 2 trials are within 0.02 of one and the rule's atol is 0.01" in found
    wide = Boundary((0.5, 0.3), 1e-6, exchanged=1, exchange_gap=0.01)
    assert suspicion.suspicion(replay_record(boundary=wide)) is None


def test_evaluate_is_told_of_a_suspicious_room_and_of_other_bytes(room):
    room.replay(sound, record=True)
    assert suspicion.replay_notes(room.workspace) == []
    room.content = "b"
    (note,) = suspicion.replay_notes(room.workspace, (ROOM,))
    assert note.startswith(f"{ROOM}: replay: measured on aaaaaaaa, not on bbbbbbbb")
    room.replay(wrong_in_one_of_twenty, record=True)
    (note,) = suspicion.replay_notes(room.workspace)
    assert note.startswith(f"{ROOM}: replay: suspicious: ") and "wrong in some trial" in note
    assert suspicion.replay_notes(room.workspace, ("moe",)) == []


def test_a_damaged_record_costs_evaluate_a_note_and_no_verdict(room):
    room.replay(sound, record=True)
    (room.root / "results" / "replay" / f"{ROOM}.json").write_text("{")
    (note,) = suspicion.replay_notes(room.workspace)
    assert "not a JSON record" in note


def test_the_sample_mismatch_is_what_a_ledger_holds():
    result = BatchResult(5, (mismatch(3),), (1,), float("inf"), None, Boundary((0.5,), 1e-6))
    assert BatchResult.from_json(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.FAILED])
def test_evaluate_prints_the_note_behind_its_verdict(monkeypatch, capsys, code):
    command = import_module("harness.cli.evaluate")
    monkeypatch.setattr(command, "read_facts", lambda: GPU)
    monkeypatch.setattr(command, "run_sweep", lambda *_, **__: code)
    monkeypatch.setattr(command, "replay_notes", lambda _, rooms, route: [f"{rooms} suspicious"])
    assert main(["evaluate", "moe"]) == code
    assert "('moe',) suspicious" in capsys.readouterr().out


def test_a_figure_is_drawn_by_a_command_that_asks_for_nothing_else(capsys):
    words = ["--trials", "5", "--resume", "--limit-s", "1"]
    assert main(["replay", ROOM, "--draw", *words]) == ExitCode.USAGE
    message = capsys.readouterr().err
    assert "expected it alone, got" in message
    for option in ("--trials", "--resume", "--limit-s"):
        assert option in message
    assert "--seed" not in message


def test_the_document_shows_what_a_replay_says():
    """The kernel of the published case: 3 wrong trials of 200 on one workload."""
    wrong = {"03fc111f-one": (), "70d53807-two": (41, 97, 160)}
    record = replay_record(wrong, trials=200, room=ROOM)
    shown = [f"{row.uuid[:8]} {describe_row(row, 3)}" for row in record.workloads]
    shown += describe_record(record)
    text = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text()
    block = text.split("<!-- example -->\n")[1].split("<!-- end -->")[0]
    assert block == "".join(f"    {line}\n" for line in shown)
