"""Programs, folders and populations: what is proposed, and what is refused."""

import json
import sys

import pytest

from harness.controller.directions import CATALOGUE, Direction
from harness.errors import HarnessError, PackingError, UsageError
from harness.packing import pack
from harness.records.strict_json import Fields
from harness.search.candidates import (
    CandidateStore,
    Proposal,
    make_candidate,
    pack_sources,
    read_candidate_file,
    read_room,
    unified_patch,
)
from harness.search.command import CommandProposer
from harness.search.folder import FolderProposer
from harness.search.guard import checkout_unchanged
from harness.search.patches import apply_patch
from harness.search.planning import Settings
from harness.search.population import ISLAND_CAPACITY, Member, Population
from harness.search.prompt import write_prompt
from harness.search.proposers import Parent, Plan, RoundInput
from tests.unit.search_room import KERNEL, ROOM, SearchRoom, analyse_once

BETTER = KERNEL.replace('"BLOCK_V": 2', '"BLOCK_V": 4')


@pytest.fixture
def room(tmp_path, monkeypatch):
    analyse_once(monkeypatch)
    return SearchRoom(tmp_path / "checkout")


def patch_of(after, before=KERNEL, path="kernel.py"):
    return unified_patch(ROOM, {path: before}, {path: after})


def plan(sources=None, **changes):
    sources = sources or {"kernel.py": KERNEL}
    facts = RoundInput("the_definition", "the state", "same", "gdn_decode-aaaaaaaa", 6.2)
    values = {
        "room": ROOM,
        "round": "r001/000",
        "direction": CATALOGUE[0],
        "island": 0,
        "count": 2,
        "parent": Parent(None, sources),
        "baseline": sources,
        "seed": "0",
        "facts": facts,
    }
    return Plan(**{**values, **changes})


# Candidates


def test_packing_a_candidate_leaves_the_tree_alone(room):
    before = room.snapshot()
    packed = pack_sources(room.workspace, ROOM, {"kernel.py": BETTER})
    assert room.snapshot() == before
    (room.folder / "kernel.py").write_text(BETTER)
    assert pack(room.workspace, ROOM).sha256 == packed.sha256


def test_a_candidate_knows_its_patch_and_its_lines(room):
    longer = BETTER.replace("LIMIT = 4", "LIMIT = 4\nMORE = 5\nYET = 6")
    proposal = Proposal({"kernel.py": longer})
    candidate = make_candidate(room.workspace, ROOM, proposal, {"kernel.py": KERNEL})
    assert candidate.lines_added == 2
    assert apply_patch(room.workspace, ROOM, {"kernel.py": KERNEL}, candidate.patch) == {
        "kernel.py": longer
    }
    shorter = make_candidate(
        room.workspace, ROOM, Proposal({"kernel.py": KERNEL}), {"kernel.py": longer}
    )
    assert shorter.lines_added == 0


@pytest.mark.parametrize("name", ["../moe/kernel.py", "common/shelf.py", "/kernel.py"])
def test_a_file_outside_the_room_is_refused(room, name):
    with pytest.raises(PackingError, match="touch files of solutions/gdn_decode/ only"):
        pack_sources(room.workspace, ROOM, {"kernel.py": KERNEL, name: "x = 1\n"})


def test_the_shelf_cannot_be_brought_along(room):
    packed = json.loads(pack(room.workspace, ROOM).text)
    for source in packed["sources"]:
        if source["path"] == "shelf.py":
            source["content"] += "x = 1\n"
    path = room.root / "candidate.json"
    path.write_text(json.dumps(packed))
    with pytest.raises(PackingError, match=r"shelf\.py differs from solutions/common"):
        read_candidate_file(room.workspace, ROOM, path)


def test_a_candidate_of_another_definition_is_refused(room):
    packed = json.loads(pack(room.workspace, ROOM).text)
    packed["definition"] = room.workspace.room("moe").definition
    path = room.root / "candidate.json"
    path.write_text(json.dumps(packed))
    with pytest.raises(UsageError, match="the definition of gdn_decode"):
        read_candidate_file(room.workspace, ROOM, path)


def test_the_store_gives_back_what_it_got(room):
    store = CandidateStore(room.workspace, ROOM)
    packed = pack_sources(room.workspace, ROOM, {"kernel.py": BETTER})
    store.put(packed)
    assert store.sources(packed.sha256) == {"kernel.py": BETTER}
    store.path(packed.sha256).write_text(pack(room.workspace, ROOM).text)
    with pytest.raises(HarnessError, match="holds"):
        store.get(packed.sha256)
    store.path(packed.sha256).unlink()
    with pytest.raises(HarnessError, match=r"neither .* nor .* has this content.*--abandon"):
        store.get(packed.sha256)


# Patches


def test_a_patch_is_applied_to_a_copy(room):
    before = room.snapshot()
    after = apply_patch(room.workspace, ROOM, {"kernel.py": KERNEL}, patch_of(BETTER))
    assert after == {"kernel.py": BETTER}
    assert room.snapshot() == before


def test_patches_add_and_remove_files(room):
    before = {"kernel.py": KERNEL, "gone.py": "X = 1\n"}
    after = {"kernel.py": KERNEL, "launch.py": "Y = 2"}
    patch = unified_patch(ROOM, before, after)
    assert apply_patch(room.workspace, ROOM, before, patch) == after


def foreign(path):
    return f"--- a/{path}\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    "patch",
    [
        foreign("solutions/moe/kernel.py"),
        foreign("solutions/common/shelf.py"),
        foreign("harness/errors.py"),
        foreign(f"solutions/{ROOM}/config.toml"),
        foreign(f"solutions/{ROOM}/tuning.toml"),
        foreign(f"solutions/{ROOM}/deep/kernel.py"),
        patch_of(BETTER) + foreign("solutions/moe/kernel.py"),
    ],
)
def test_a_patch_that_reaches_further_than_the_rooms_sources_is_refused_whole(room, patch):
    with pytest.raises(PackingError, match="a candidate may touch sources of"):
        apply_patch(room.workspace, ROOM, {"kernel.py": KERNEL}, patch)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (" \n", "empty"),
        ("no patch\n", "does not apply"),
        (patch_of(BETTER, KERNEL.replace("LIMIT", "OTHER")), "does not apply"),
        (foreign("../../kernel.py"), "does not apply|may touch"),
    ],
)
def test_a_patch_that_does_not_apply_is_refused(room, patch, words):
    with pytest.raises(PackingError, match=words):
        apply_patch(room.workspace, ROOM, {"kernel.py": KERNEL}, patch)


# Commands


def program(room, body):
    """A command line that runs `body` with `prompt`, a path, and `here`, its folder."""
    path = room.root.parent / "program.py"
    path.write_text(
        "import pathlib, sys, time\n"
        "prompt = pathlib.Path(sys.argv[-1])\nhere = pathlib.Path.cwd()\n" + body
    )
    return f"{sys.executable} {path}"


def leave(patch):
    return f"(here / 'candidate.patch').write_text({patch!r})\n"


def test_a_program_reads_a_prompt_and_leaves_a_patch(room):
    body = "assert 'Hard gates' in prompt.read_text()\n"
    body += f"assert (here / 'solutions/{ROOM}/kernel.py').read_text()\n"
    body += "assert (here / 'solutions/common/shelf.py').exists()\n"
    proposals = list(
        CommandProposer(room.workspace, program(room, body + leave(patch_of(BETTER)))).propose(
            plan()
        )
    )
    assert [one.sources for one in proposals] == [{"kernel.py": BETTER}] * 2
    assert all(one.refused is None for one in proposals)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('no idea'); sys.exit(3)\n", "ended with code 3: no idea"),
        ("pass\n", "left no candidate.patch"),
        ("time.sleep(60)\n", "took too long"),
        (leave(foreign("harness/errors.py")), "may touch sources of"),
    ],
)
def test_a_program_without_a_patch_of_the_room_is_a_refused_proposal(room, body, words):
    limit_s = 1.0 if "sleep" in body else 60.0
    proposer = CommandProposer(room.workspace, program(room, body), limit_s)
    proposal = next(iter(proposer.propose(plan(count=1))))
    assert proposal.sources is None
    assert words in proposal.refused


def test_a_program_that_edits_the_checkout_ends_the_run(room):
    body = f"pathlib.Path({str(room.root / 'config.toml')!r}).open('a').write('# mine\\n')\n"
    proposer = CommandProposer(room.workspace, program(room, body + leave(patch_of(BETTER))))
    with pytest.raises(HarnessError, match=r"config\.toml: changed while a proposer worked"):
        list(proposer.propose(plan()))


def test_a_program_that_is_not_there_is_an_error_of_the_command_line(room):
    with pytest.raises(UsageError, match="cannot be started"):
        list(CommandProposer(room.workspace, "no-such-program").propose(plan()))
    with pytest.raises(UsageError, match="got nothing"):
        CommandProposer(room.workspace, " ")


def test_a_search_by_a_program_promotes_its_patch_and_counts_its_refusals(room):
    body = leave(patch_of(BETTER))
    room.proposer = CommandProposer(room.workspace, program(room, body))
    room.settings = Settings(rounds=1, candidates=2, islands=1)
    position = room.run()
    assert room.kernel == BETTER and position.speedup > 1.04
    closed = room.archive.history()[0]
    assert (len(closed.candidates), closed.known) == (1, 1), "the second answer is the first"
    assert closed.direction == "more in flight", "of the catalogue, for latency"


def test_the_guard_sees_new_changed_and_lost_files(room):
    for change in (
        lambda: (room.root / "harness").mkdir() or (room.root / "harness" / "x.py").write_text(""),
        lambda: (room.folder / "kernel.py").write_text(BETTER),
        lambda: (room.root / "harness" / "x.py").unlink(),
    ):
        with pytest.raises(HarnessError, match="changed"), checkout_unchanged(room.root):
            change()
    with checkout_unchanged(room.root):
        (room.folder / "solution.json").write_text("{}")


def test_the_prompt_holds_what_a_round_knows():
    facts = RoundInput(
        "the_definition", "gdn / latency", "same", "gdn_decode-aaaaaaaa", 6.2,
        regimes=["batch_size 1: 2 workloads"], findings=["plateau: x"], blocked=["tiles"],
        recommended=["fusion"], past=["r001/000 tiles: archive only: y"],
    )  # fmt: skip
    text = write_prompt(plan(facts=facts))
    for words in (
        "## Role", "## Round input", "## Protocol", "## Hard gates", "## Decision",
        "the_definition", "6.200 us", "gdn / latency", "batch_size 1: 2 workloads", "plateau: x",
        "tiles", "fusion", "archive only: y", "candidate.patch", CATALOGUE[0].hypothesis,
        "*archive only*, *promote globally*, *reject and restore*",
    ):  # fmt: skip
        assert words in text, words


# Folders


def test_a_folder_offers_its_files_in_order(room):
    folder = room.root.parent / "candidates"
    folder.mkdir()
    (folder / "b.json").write_text(pack_sources(room.workspace, ROOM, {"kernel.py": BETTER}).text)
    (folder / "a.patch").write_text(patch_of(KERNEL.replace("LIMIT = 4", "LIMIT = 5")))
    (folder / "c.patch").write_text(foreign("harness/errors.py"))
    (folder / "notes.txt").write_text("")
    proposals = list(FolderProposer(room.workspace, folder).propose(plan()))
    assert [one.note for one in proposals] == ["a.patch", "b.json", "c.patch"]
    assert proposals[1].sources == {"kernel.py": BETTER}
    assert proposals[2].sources is None and "may touch" in proposals[2].refused


def test_a_folder_is_searched_until_it_is_empty_and_never_blocked(room):
    folder = room.root.parent / "candidates"
    folder.mkdir()
    for number in (5, 6, 7):
        text = KERNEL.replace("LIMIT = 4", f"LIMIT = {number}")
        (folder / f"{number}.patch").write_text(patch_of(text))
    room.proposer = FolderProposer(room.workspace, folder)
    room.evaluator.script = lambda stage, constants, position: 10.0
    room.settings = Settings(rounds=9, candidates=1, islands=1)
    position = room.run()
    closed = room.archive.history()
    assert [len(one.candidates) for one in closed] == [1, 1, 1, 0, 0]
    assert position.stop == "nothing new was proposed in 2 rounds"


def test_a_run_goes_on_with_its_own_proposer_only(room):
    room.run()
    manifest = json.loads(room.manifest.read_text())
    room.manifest.write_text(json.dumps({**manifest, "stop": None}))
    room.proposer = CommandProposer(room.workspace, "true")
    with pytest.raises(UsageError, match="was proposed by parameters, got command true"):
        room.run(resume=True)


def test_a_candidate_that_is_not_there_is_not_taken_for_one_of_another_kind(room):
    with pytest.raises(UsageError, match=r"gone\.patch: no such file"):
        FolderProposer(room.workspace, room.root / "gone.patch")


@pytest.mark.parametrize("name", ["empty", "kernel.py"])
def test_what_holds_no_candidate_is_refused(room, name):
    (room.root / "empty").mkdir()
    (room.root / "kernel.py").write_text("")
    with pytest.raises(UsageError, match=r"\.json or \.patch"):
        FolderProposer(room.workspace, room.root / name)


# Populations


def member(name, fitness, island=0):
    return Member(name * 64, f"gdn_decode-{name * 8}", island, fitness, None, "r001/000")


def test_an_island_keeps_its_best():
    population = Population(2)
    for index, name in enumerate("abcdefgh"):
        population = population.add(member(name, 1.0 + index / 10))
    kept = population.island(0)
    assert len(kept) == ISLAND_CAPACITY and kept[0].sha256 == "h" * 64
    assert population.island(1) == []


def test_the_same_content_is_kept_once_an_island():
    population = Population(2).add(member("a", 1.0)).add(member("a", 1.2)).add(member("a", 1.1, 1))
    assert [one.fitness for one in population.members] == [1.2, 1.1]


def test_the_best_of_each_island_also_lives_on_the_next():
    population = Population(2).add(member("a", 1.2)).add(member("b", 1.1, 1)).migrate()
    assert [one.sha256[0] for one in population.island(0)] == ["a", "b"]
    assert [one.sha256[0] for one in population.island(1)] == ["a", "b"]
    alone = Population(1).add(member("a", 1.2))
    assert alone.migrate() == alone


def test_parents_are_mostly_the_best_and_sometimes_anyone():
    population = Population(1).add(member("a", 1.3)).add(member("b", 1.1))
    drawn = [population.parent(0, 1.0, str(seed)) for seed in range(200)]
    names = [one.sha256[0] if one else "baseline" for one in drawn]
    assert names.count("a") > 100
    assert 5 < names.count("b") < 50 and 5 < names.count("baseline") < 50
    assert population.parent(0, 1.0, "7") == population.parent(0, 1.0, "7")


def test_a_baseline_that_is_fitter_than_its_island_is_the_parent():
    population = Population(1).add(member("a", 1.1))
    best = [population.parent(0, 1.5, str(seed)) for seed in range(100)]
    assert best.count(None) > 60


def test_a_population_survives_its_json():
    population = Population(2).add(member("a", 1.1)).add(member("b", 1.2, 1))
    values = json.loads(json.dumps(population.to_json()))
    assert Population.from_json(2, values, "here") == population
    assert Member.from_json(Fields("here", "", values[0])) == population.members[0]


def test_directions_of_a_folder_are_no_hypotheses(room):
    folder = room.root.parent / "one.patch"
    folder.write_text(patch_of(BETTER))
    directions = FolderProposer(room.workspace, folder).directions
    assert [one.is_hypothesis for one in directions] == [False]
    assert Direction("x", "y").is_hypothesis


def test_the_sources_of_the_tree_are_read_as_they_lie(room):
    assert read_room(room.workspace, ROOM) == {"kernel.py": KERNEL}
