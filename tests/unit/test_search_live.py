"""The live evaluator with scripted workers: turns, warm workers, retries, resuming, strangers."""

import dataclasses
import io
import json
import threading
from collections import Counter

import pytest

from harness.compare.ledger import CompareLedger
from harness.compare.record import CONTROL
from harness.controller.decision import CONFIRMATION, GATE, SWEEP
from harness.devices import DeviceFacts
from harness.errors import EnvironmentUnfit
from harness.evaluate import plan as planning
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Outcome, Status
from harness.packing import pack
from harness.replay.record import replay_path, write_replay
from harness.search.candidates import pack_sources, read_room
from harness.search.evaluator import BASELINE, EFFORTS, Replayed
from harness.search.live import LEDGER_SUFFIX, LiveEvaluator
from tests.sample_replay import replay_record
from tests.unit.search_room import KERNEL, ROOM, SearchRoom, analyse_once

GPU = DeviceFacts("nvidia-test", "NVIDIA Test", uuid="GPU-test", driver="1.0")
PASSED = Outcome(Status.PASSED)


class Workers:
    """All workers of a test. events: (worker, what, block of V, UUID)."""

    def __init__(self):
        self.events, self.verdicts, self.pools = [], {}, 0
        self.lock = threading.Lock()

    def __call__(self, device, root):
        self.pools += 1
        return Worker(self, self.pools)

    def measured(self):
        return [block for _, what, block, _ in self.events if what == "measured"]


class Worker:
    def __init__(self, workers, number):
        self.workers, self.number = workers, number

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.workers.events.append((self.number, "ended", None, None))

    def run(self, job, on_stage):
        text = json.loads(job.solution)["sources"]
        kernel = next(one["content"] for one in text if one["path"] == "kernel.py")
        self.block, self.uuid = int(kernel.split('"BLOCK_V": ')[1][0]), job.uuid
        self.trials = job.settings.trials
        with self.workers.lock:
            self.workers.events.append((self.number, "judged", self.block, job.uuid))
            told = self.workers.verdicts.get(self.block, PASSED)
            return (
                told.pop(0)
                if isinstance(told, list) and told
                else (told if isinstance(told, Outcome) else PASSED)
            )

    def measure(self, warmup_runs, iterations, timeout_s):
        self.workers.events.append((self.number, "measured", self.block, self.uuid))
        return (10.0 / self.block,) * iterations


@pytest.fixture
def room(tmp_path, monkeypatch):
    analyse_once(monkeypatch)
    room = SearchRoom(tmp_path / "checkout")
    for source in planning.JUDGE_SOURCES:
        path = room.root / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rules")
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    room.strangers = False
    for name, stand_in in {
        "search.live.dataset.ensure_blobs": lambda *_: None,
        "search.live.has_strangers": lambda facts: room.strangers,
        "search.live.require_timer": lambda name: None,
        "evaluate.alone.require_idle": lambda facts: None,
        "compare.engine.read_data": lambda *_: {},
    }.items():
        monkeypatch.setattr(f"harness.{name}", stand_in)
    room.workers = Workers()
    return room


def evaluator(room, **options):
    progress = SweepProgress(io.StringIO())
    return LiveEvaluator(
        room.workspace, ROOM, progress, facts=GPU, make_pool=room.workers, **options
    )


def candidate(room, block):
    sources = read_room(room.workspace, ROOM)
    text = KERNEL.replace('"BLOCK_V": 2', f'"BLOCK_V": {block}')
    return pack_sources(room.workspace, ROOM, {**sources, "kernel.py": text})


def test_candidates_take_turns_with_the_baseline_of_the_same_rounds(room):
    baseline, four, eight = pack(room.workspace, ROOM), candidate(room, 4), candidate(room, 8)
    with evaluator(room) as live:
        measured = live.measure(GATE, baseline, [four, eight], room.uuids[:1])
    record = measured.record
    assert [side.name for side in record.sides] == [BASELINE, four.name, eight.name, CONTROL]
    turns = room.workers.measured()[4:]
    rounds = [turns[start : start + 4] for start in range(0, len(turns), 4)]
    assert len(rounds) == EFFORTS[GATE].rounds
    assert all(sorted(order) == [2, 2, 4, 8] for order in rounds)
    results = record.workloads[0].sides
    assert set(results[four.name].rounds_us) == {2.5} and set(results[BASELINE].rounds_us) == {5.0}


def test_a_gate_is_cheap_and_a_sweep_official(room):
    baseline, four = pack(room.workspace, ROOM), candidate(room, 4)
    with evaluator(room) as live:
        gate = live.measure(GATE, baseline, [four], room.uuids[:1]).record
        sweep = live.measure(SWEEP, baseline, [four], None).record
    assert (gate.protocol.correctness_trials, len(gate.workloads)) == (1, 1)
    assert (sweep.protocol.correctness_trials, len(sweep.workloads)) == (3, 2)
    assert gate.judge_sha256 != sweep.judge_sha256


def test_workers_stay_warm_from_one_measurement_to_the_next(room):
    baseline = pack(room.workspace, ROOM)
    with evaluator(room) as live:
        live.measure(GATE, baseline, [candidate(room, 4)], room.uuids[:1])
        live.measure(GATE, baseline, [candidate(room, 8)], room.uuids[:1])
        assert room.workers.pools == 3
    by_worker = Counter(
        (number, block) for number, what, block, _ in room.workers.events if what == "judged"
    )
    assert by_worker[1, 2] == 2, "the baseline keeps its worker"
    assert sorted(number for number, what, *_ in room.workers.events if what == "ended") == [
        1,
        2,
        3,
    ]


def test_a_worker_keeps_what_it_has_built(room):
    baseline, four, eight = pack(room.workspace, ROOM), candidate(room, 4), candidate(room, 8)
    with evaluator(room) as live:
        live.measure(GATE, baseline, [four], room.uuids[:1])
        live.measure(SWEEP, baseline, [eight, four], None)
    owners = {}
    for number, what, block, _ in room.workers.events:
        if what == "judged":
            owners.setdefault(block, set()).add(number)
    assert {block: len(numbers) for block, numbers in owners.items()} == {2: 2, 4: 1, 8: 1}


def test_a_confirmation_has_new_workers(room):
    baseline, four = pack(room.workspace, ROOM), candidate(room, 4)
    with evaluator(room) as live:
        live.measure(SWEEP, baseline, [four], None)
        live.measure(CONFIRMATION, baseline, [four], None)
    assert room.workers.pools == 6


def test_strangers_during_a_confirmation_take_its_word(room):
    room.strangers = True
    baseline, four = pack(room.workspace, ROOM), candidate(room, 4)
    with evaluator(room) as live:
        assert live.measure(SWEEP, baseline, [four], None).distrust is None
        distrusted = live.measure(CONFIRMATION, baseline, [four], None)
        assert "another process" in distrusted.distrust
    path = room.root / "traces" / GPU.slug / f"{ROOM}{LEDGER_SUFFIX}"
    assert len(CompareLedger(path).entries()) == 2, "the sweep's lines stay"


def test_what_a_killed_run_measured_is_not_measured_again(room):
    baseline, four = pack(room.workspace, ROOM), candidate(room, 4)
    with evaluator(room) as live:
        first = live.measure(SWEEP, baseline, [four], None).record
    room.workers.events.clear()
    with evaluator(room) as live:
        again = live.measure(SWEEP, baseline, [four], None).record
    assert again == first
    assert room.workers.events == []


def test_only_what_the_machine_lost_is_retried_and_both_attempts_are_kept(room):
    lost = Outcome(Status.INFRASTRUCTURE, detail="no worker")
    room.workers.verdicts = {4: [lost, lost]}
    baseline, four = pack(room.workspace, ROOM), candidate(room, 4)
    with evaluator(room) as live:
        record = live.measure(SWEEP, baseline, [four], None).record
    assert all(row.sides[four.name].status == "PASSED" for row in record.workloads)
    path = room.root / "traces" / GPU.slug / f"{ROOM}{LEDGER_SUFFIX}"
    entries = CompareLedger(path).entries()
    assert [entry.is_final for entry in entries] == [False, True, True]


def test_a_wrong_candidate_is_a_verdict_and_is_not_retried(room):
    wrong = Outcome(Status.INCORRECT_NUMERICAL, detail="y")
    room.workers.verdicts = {4: wrong}
    baseline, four = pack(room.workspace, ROOM), candidate(room, 4)
    with evaluator(room) as live:
        record = live.measure(GATE, baseline, [four], room.uuids[:1]).record
    assert record.workloads[0].sides[four.name].status == "INCORRECT_NUMERICAL"
    judged = [block for _, what, block, _ in room.workers.events if what == "judged"]
    assert judged.count(4) == 1


def test_a_whole_search_runs_on_it(room):
    with evaluator(room) as live:
        room.settings = dataclasses.replace(room.settings, rounds=1)
        position = room.run(evaluator=live)
    assert position.speedup > 1.2
    assert '"BLOCK_V": 4' in room.kernel or '"BLOCK_V": 8' in room.kernel


def test_a_room_without_a_replay_is_not_flagged_and_a_damaged_one_is(room):
    with evaluator(room) as live:
        assert live.replay(pack(room.workspace, ROOM)) == Replayed()
        path = replay_path(room.root, ROOM)
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert "expected" in live.replay(pack(room.workspace, ROOM)).objection


def write_suspicious(room, wrong):
    write_replay(replay_record(wrong, room=ROOM, device=GPU.slug, trials=150, seed=3), room.root)


def test_a_flagged_room_replays_the_candidate_where_it_is_suspicious(room, monkeypatch):
    first, second = room.uuids
    asked = []

    def replayed(workspace, plan, request, facts, progress):
        asked.append((plan.packed.sha256, [row.uuid for row in plan.rows], request.trials))
        return replay_record({second: room.wrong}, room=ROOM, trials=request.trials)

    monkeypatch.setattr("harness.search.live.replay_solution", replayed)
    four = candidate(room, 4)
    write_suspicious(room, {first: (), second: ()})
    with evaluator(room) as live:
        assert live.replay(four) == Replayed() and asked == [], "clean: not flagged"
    write_suspicious(room, {first: (), second: (7,)})
    with evaluator(room) as live:
        room.wrong = (7, 9)
        assert "in 2 of 150: first trial" in live.replay(four).objection
        room.wrong = ()
        assert live.replay(four).objection == "", "the candidate is the cure"
    assert asked == [(four.sha256, [second], 150)] * 2


def test_without_a_gpu_there_is_no_search(room):
    cpu = DeviceFacts("cpu", "a processor")
    with pytest.raises(EnvironmentUnfit, match=r"latency: expected a GPU, but .* harness evaluate"):
        LiveEvaluator(room.workspace, ROOM, SweepProgress(), facts=cpu)
