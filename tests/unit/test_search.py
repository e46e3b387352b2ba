"""A search with a scripted evaluator: rounds, decisions, promotion, memory, budget, resuming."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from harness.controller.archive import ATTEMPTS, DECISIONS
from harness.controller.decision import ARCHIVE, CONFIRMATION, GATE, PROMOTE, REJECT, REPLAY, SWEEP
from harness.controller.state import Profile
from harness.errors import HarnessError, UsageError
from harness.packing import pack
from harness.search.candidates import pack_sources, read_room
from harness.search.loop import settings_to_resume
from harness.search.planning import Settings
from harness.search.promotion import promote, require_unchanged, restore
from tests.unit.search_room import (
    KERNEL,
    PROFILE,
    ROOM,
    SearchRoom,
    Verdict,
    analyse_once,
    by_block,
    flat,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    analyse_once(monkeypatch)


@pytest.fixture
def room(tmp_path):
    return SearchRoom(tmp_path / "checkout")


def decisions(room):
    return list(room.archive.lines(DECISIONS).values())


def labels(room):
    return [one["label"] for one in decisions(room)]


def attempts(room, stage):
    return [line for line in room.archive.lines(ATTEMPTS).values() if line["stage"] == stage]


def one_round(room, script, **settings):
    room.evaluator.script = script
    room.settings = dataclasses.replace(room.settings, rounds=1, **settings)
    room.run()
    return decisions(room)[-1]


# Promotion


def test_a_search_promotes_what_is_faster_everywhere(room):
    position = room.run()
    assert PROMOTE in labels(room)
    assert position.speedup > 1.04
    assert position.stop == "budget: 3 rounds are done"
    assert pack(room.workspace, ROOM).sha256 == position.baseline_sha256
    assert room.kernel != KERNEL
    assert len(room.kernel) == len(KERNEL), "one digit for another and nothing else"


def test_a_promotion_stands_on_gate_sweep_and_confirmation(room):
    decision = one_round(room, by_block)
    assert decision["label"] == PROMOTE
    stages = [stage for stage, *_ in room.evaluator.asked]
    assert stages == [GATE, SWEEP, CONFIRMATION]
    assert [count for *_, count in room.evaluator.asked] == [1, 2, 2], "representatives, then all"


def test_a_decision_carries_its_evidence(room):
    decision = one_round(room, by_block)
    record = room.archive.load_record(decision["record"])
    assert decision["candidate"] in [side.name for side in record.sides]
    assert room.archive.load_record(decision["confirmation"]) == record
    assert decision["profile"]["bottleneck"] == "latency"
    assert [row[0] for row in decision["matrix"]] == [uuid[:8] for uuid in room.uuids]
    assert all(row[3] > 1.04 and row[4] == "FAST" for row in decision["matrix"])
    proposal = room.archive.lines(ATTEMPTS)[decision["proposal"]]
    patches = {one["name"]: one["patch"] for one in proposal["proposals"]}
    patch = patches[decision["candidate"]]
    assert patch.startswith(f"--- a/solutions/{ROOM}/kernel.py\n+++ b/solutions/{ROOM}/kernel.py\n")
    assert decision["reason"].startswith("all 2 workloads pass")


def test_every_round_ends_with_one_label(room):
    room.run()
    assert [one["key"] for one in decisions(room)] == ["r001/000", "r001/001", "r001/002"]
    assert set(labels(room)) <= {ARCHIVE, PROMOTE, REJECT}


def test_what_is_only_faster_on_the_representative_is_a_local_win(room):
    def script(stage, constants, position):
        changed = constants["v0"] != 2 or constants["v1"] != 8
        return 10.0 * (1.0 if not changed else 0.9 if position == 0 else 1.1)

    decision = one_round(room, script)
    assert (decision["label"], "a local win" in decision["reason"]) == (ARCHIVE, True)
    assert room.kernel == KERNEL


def test_one_wrong_workload_rejects_and_the_tree_stays_byte_for_byte(room):
    before = room.folder.joinpath("kernel.py").read_bytes()

    def script(stage, constants, position):
        changed = constants["v0"] != 2 or constants["v1"] != 8
        if changed and position == 1:
            return Verdict("INCORRECT_NUMERICAL")
        return 10.0 * (0.8 if changed else 1.0)

    decision = one_round(room, script)
    assert decision["label"] == REJECT and "1 of 2 workloads pass" in decision["reason"]
    assert room.folder.joinpath("kernel.py").read_bytes() == before


def test_what_is_no_faster_never_reaches_the_sweep(room):
    def slower(stage, constants, position):
        return 10.0 if (constants["v0"], constants["v1"]) == (2, 8) else 10.5

    assert one_round(room, slower)["label"] == REJECT
    assert [stage for stage, *_ in room.evaluator.asked] == [GATE]


def test_a_gain_that_is_not_confirmed_is_archived(room):
    def script(stage, constants, position):
        changed = constants["v0"] != 2 or constants["v1"] != 8
        return 10.0 * (0.9 if changed and stage != CONFIRMATION else 1.0)

    decision = one_round(room, script)
    assert decision["label"] == ARCHIVE and decision["reason"].startswith("confirmation")
    assert room.kernel == KERNEL


def test_a_suspicious_replay_blocks_a_promotion(room):
    room.evaluator.objection = "3 of 200 mismatched"
    decision = one_round(room, by_block)
    assert decision["label"] == ARCHIVE and "3 of 200 mismatched" in decision["reason"]
    assert room.archive.history()[-1].device_s == 9.0, "gate, sweep, confirmation and the replay"
    assert room.kernel == KERNEL


def test_strangers_on_the_gpu_are_no_verdict(room):
    room.evaluator.distrust = "another process computed"
    decision = one_round(room, by_block)
    assert decision["label"] == ARCHIVE and decision["is_lost"]
    assert not room.archive.history()[-1].is_failure


def test_the_gate_alone_can_be_asked_for(room):
    decision = one_round(room, by_block, until=GATE)
    assert decision["label"] == ARCHIVE and decision["reason"].startswith("no sweep")
    assert [stage for stage, *_ in room.evaluator.asked] == [GATE]


def test_as_many_candidates_are_swept_as_the_settings_allow(room):
    one_round(room, by_block, candidates=6, sweeps=2)
    names = next(names for stage, names, _ in room.evaluator.asked if stage == SWEEP)
    assert len(names) == 2
    gate = attempts(room, GATE)[0]["results"]
    ordered = sorted(gate, key=lambda name: -gate[name]["geometric_mean"])
    assert {gate[name]["geometric_mean"] for name in names} == {
        gate[name]["geometric_mean"] for name in ordered[:2]
    }


# Memory


def test_a_direction_that_failed_twice_is_blocked_and_the_next_run_knows(room):
    room.evaluator.script = flat

    def worse(stage, constants, position):
        return 10.0 if constants == original else 11.0

    original = {"v0": 2, "v1": 8, "w0": 1, "w1": 1, "lines": KERNEL.count("\n")}
    room.evaluator.script = worse
    room.settings = Settings(rounds=9, candidates=2)
    position = room.run()
    tried = [closed.direction for closed in room.archive.history()]
    assert sorted(tried) == ["block_v", "block_v", "warps", "warps"]
    assert "every direction is blocked" in position.stop
    assert room.archive.history()[-1].blocked == ("block_v",)
    again = room.run()
    assert again.run == "r002" and again.next_round == 0
    assert "every direction is blocked" in again.stop


def test_another_state_is_another_chance(room):
    room.evaluator.script = lambda stage, constants, position: (
        10.0
        if (constants["v0"], constants["w0"], constants["v1"], constants["w1"]) == (2, 1, 8, 1)
        else 11.0
    )
    room.settings = Settings(rounds=9, candidates=2)
    room.run()
    room.profile = Profile(ROOM, "batch_size 1", "memory")
    position = room.run()
    assert position.next_round == 4
    assert room.archive.history()[4].direction == "warps", "it answers memory"


def test_trouble_is_told_to_the_next_round(room):
    room.evaluator.script = lambda stage, constants, position: (
        Verdict("RUNTIME_ERROR")
        if (constants["v0"], constants["w0"], constants["v1"], constants["w1"]) != (2, 1, 8, 1)
        else 10.0
    )
    room.run()
    last = room.archive.history()[-1]
    assert last.findings == ("stalling: no candidate passed the gate in 2 rounds",)
    assert any("stalling" in line for line in room.lines)


def test_the_budget_of_device_time_ends_a_run(room):
    room.settings = Settings(rounds=9, candidates=2, device_s=7.0)
    position = room.run()
    assert position.stop.startswith("budget: ") and position.next_round < 9
    assert sum(closed.device_s for closed in room.archive.history()) >= 7.0


def test_no_content_is_measured_twice_in_a_run(room):
    room.settings = Settings(rounds=6, candidates=4)
    room.run()
    gated = [name for line in attempts(room, GATE) for name in line["results"]]
    assert len(gated) == len(set(gated)) >= 12
    assert (
        f"{ROOM}-{pack(SearchRoom(room.root.parent / 'other').workspace, ROOM).sha256[:8]}"
        not in (gated)
    ), "the first baseline is known even after a promotion"


def test_lineage_leads_back_to_the_baseline(room):
    room.settings = Settings(rounds=4, candidates=4, islands=1)
    room.run()
    proposals = [one for line in attempts(room, "proposal") for one in line["proposals"]]
    parents = {one["sha256"]: one["parent"] for one in proposals}
    assert any(parents.values()), "a later candidate has a parent"
    for sha256 in parents:
        seen = 0
        while sha256 is not None:
            sha256, seen = parents[sha256], seen + 1
            assert seen <= len(parents)


# Runs


def test_the_same_seed_gives_the_same_run(tmp_path):
    first, second = SearchRoom(tmp_path / "a"), SearchRoom(tmp_path / "b")
    first.run()
    second.run()
    assert first.snapshot() == second.snapshot()


def test_another_seed_gives_other_candidates(tmp_path):
    rooms = [SearchRoom(tmp_path / name) for name in ("a", "b")]
    rooms[1].settings = dataclasses.replace(rooms[1].settings, seed=1)
    for room in rooms:
        room.run()
    first, second = ([list(line["results"]) for line in attempts(room, GATE)] for room in rooms)
    assert first != second


def test_an_unfinished_run_is_not_forgotten(room):
    room.run()
    manifest = json.loads(room.manifest.read_text())
    room.manifest.write_text(json.dumps({**manifest, "stop": None}))
    with pytest.raises(UsageError, match=r"run r001 was not finished.*--resume.*--abandon"):
        room.run()
    assert room.run(abandon=True).run == "r002"


def test_nothing_to_resume_is_an_error(room):
    with pytest.raises(UsageError, match="no run to resume"):
        room.run(resume=True)


def test_a_run_is_resumed_by_what_began_it_and_with_its_seed(room):
    with pytest.raises(UsageError, match="no run to resume"):
        settings_to_resume(room.archive, REPLAY)
    room.run(settings=dataclasses.replace(room.settings, until=GATE, seed=7))
    with pytest.raises(UsageError, match=r"run r001 goes as far as gate, got replay; resume it by"):
        room.run(resume=True)
    assert settings_to_resume(room.archive, GATE).seed == 7


def test_a_promotion_needs_nothing_but_the_rooms_filesystem(room, monkeypatch):
    """A rename reaches no other filesystem, and traces/ may lie on one."""
    replace, renamed = os.replace, []

    def rename(source, target):
        renamed.append((Path(source), Path(target)))
        replace(source, target)

    monkeypatch.setattr("harness.search.promotion.os.replace", rename)
    before = read_room(room.workspace, ROOM)
    after = {**before, "kernel.py": KERNEL + "# more\n"}
    promote(room.workspace, ROOM, before, after, pack_sources(room.workspace, ROOM, after).sha256)
    inside = [source for source, target in renamed if target == room.folder / "kernel.py"]
    assert [source.parent.parent for source in inside] == [room.folder.parent]
    assert sorted(path.name for path in room.folder.parent.iterdir()) == ["common", ROOM]


def test_a_manifest_with_a_stage_that_is_none_is_refused_and_nothing_is_done(room):
    room.evaluator.measure = None  # the first round does not end
    with pytest.raises(TypeError):
        room.run()
    text = room.manifest.read_text()
    room.manifest.write_text(text.replace('"until": "replay"', '"until": "foo"'))
    before = room.snapshot()
    named = r"r001\.json: settings\.until: expected one of gate, .*got .foo."
    with pytest.raises(HarnessError, match=named):
        room.run(resume=True)
    assert room.snapshot() == before


def test_a_finished_run_stays_finished(room):
    room.run()
    before = room.snapshot()
    room.run(resume=True)
    assert room.snapshot() == before


def test_a_room_that_somebody_edits_is_not_overwritten(room):
    search = room.search()
    room.run()
    room.folder.joinpath("kernel.py").write_text(room.kernel.replace("LIMIT = 4", "LIMIT = 5"))
    manifest = json.loads(room.manifest.read_text())
    manifest["settings"]["rounds"], manifest["stop"] = 4, None
    room.manifest.write_text(json.dumps(manifest))
    before = room.snapshot()
    with pytest.raises(HarnessError, match=r"kernel\.py: changed since the run began"):
        room.run(resume=True)
    assert room.snapshot() == before
    assert search.archive.root == room.root


# The tree


@pytest.fixture
def pair(room):
    before = read_room(room.workspace, ROOM)
    after = {**before, "kernel.py": KERNEL.replace('"BLOCK_V": 2', '"BLOCK_V": 4')}
    return before, after


def sha_of(room, sources):
    from harness.search.candidates import pack_sources

    return pack_sources(room.workspace, ROOM, sources).sha256


def test_promotion_and_restoration_are_exact(room, pair):
    before, after = pair
    snapshot = room.snapshot()
    promote(room.workspace, ROOM, before, after, sha_of(room, after))
    assert room.kernel == after["kernel.py"]
    restore(room.workspace, ROOM, before, after)
    assert room.snapshot() == snapshot


def test_a_promotion_that_packs_to_something_else_is_undone(room, pair):
    before, after = pair
    snapshot = room.snapshot()
    with pytest.raises(HarnessError, match="Restored"):
        promote(room.workspace, ROOM, before, after, "0" * 64)
    assert room.snapshot() == snapshot


def test_files_come_and_go_with_a_promotion(room, pair):
    before, after = pair
    after = {
        **after,
        "kernel.py": after["kernel.py"].replace(
            "from .shelf", "from .launch import WARPS\nfrom .shelf"
        ),
        "launch.py": "WARPS = 1\n",
    }
    sha256 = sha_of(room, after)
    promote(room.workspace, ROOM, before, after, sha256)
    assert pack(room.workspace, ROOM).sha256 == sha256
    restore(room.workspace, ROOM, before, after)
    assert not room.folder.joinpath("launch.py").exists() and room.kernel == KERNEL


def test_somebody_elses_file_is_not_touched(room, pair):
    before, after = pair
    room.folder.joinpath("kernel.py").write_text(KERNEL + "\n")
    for refused in (
        lambda: promote(room.workspace, ROOM, before, after, "0" * 64),
        lambda: restore(room.workspace, ROOM, before, after),
        lambda: require_unchanged(room.workspace, ROOM, before),
    ):
        with pytest.raises(HarnessError, match="nothing was written"):
            refused()
    assert room.kernel == KERNEL + "\n"


def test_the_state_comes_from_the_profile(room):
    one_round(room, by_block)
    assert room.archive.history()[0].state.bottleneck == PROFILE.bottleneck
    assert room.archive.history()[0].match == "new"
