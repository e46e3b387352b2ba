"""What people read of a search: history, explanations, figures, and the commands around them."""

import dataclasses
import json
import re
import shutil

import pytest

from harness.cli import main
from harness.cli.promote import exit_code
from harness.controller.archive import DECISIONS
from harness.controller.decision import GATE, REPLAY, SWEEP
from harness.controller.regimes import freeze_regimes, regimes_path
from harness.controller.state import UNPROFILED
from harness.errors import ExitCode, RecordError, UsageError
from harness.files import write_atomically
from harness.packing import pack
from harness.profiling.record import write_profile
from harness.records import dump_document, write_latest
from harness.report.document import figures_of, tables_of
from harness.report.searches import draw_search, write_searches
from harness.search import session
from harness.search.candidates import pack_sources
from harness.search.folder import FolderProposer
from harness.search.history import describe_history, explain, lineage
from harness.search.loop import run_search
from harness.search.planning import Settings
from harness.search.session import open_search, read_state
from harness.search.trajectory import Trajectory, read_search, read_searches, read_trajectory
from tests import sample_records
from tests.sample_evidence import evidence
from tests.sample_profile import profile_record, profile_row
from tests.unit.search_room import KERNEL, ROOM, SearchRoom, Verdict, analyse_once, by_block


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    analyse_once(monkeypatch)


@pytest.fixture
def room(tmp_path):
    return SearchRoom(tmp_path / "checkout")


@pytest.fixture
def searched(room):
    room.settings = Settings(rounds=4, candidates=3)
    room.run()
    return room


def decisions(room):
    return list(room.archive.lines(DECISIONS).values())


# Words


def test_a_history_lists_every_round_with_its_label(searched):
    lines = describe_history(searched.root, ())
    assert re.match(rf"{ROOM}: 4 rounds, \d+ candidates, 0 refused, [1-9]\d* swept$", lines[0])
    for decision in decisions(searched):
        words = (decision["key"], decision["label"], decision["candidate"])
        assert any(all(word in line for word in words) for line in lines)
    assert "  r001: proposed by parameters; budget: 4 rounds are done" in lines


def test_a_history_says_which_run_is_not_finished(searched):
    manifest = json.loads(searched.manifest.read_text())
    searched.manifest.write_text(json.dumps({**manifest, "stop": None}))
    assert any(
        "not finished; `tune --resume`" in line for line in describe_history(searched.root, ())
    )


def test_a_history_says_what_is_blocked_now(room):
    def worse(stage, constants, position):
        return 10.0 if (constants["v0"], constants["w0"], constants["v1"]) == (2, 1, 8) else 11.0

    room.evaluator.script = worse
    room.settings = Settings(rounds=2, candidates=2)
    room.run()
    lines = describe_history(room.root, (ROOM,))
    assert [line for line in lines if line.startswith("  blocked: block_v in gdn_decode / ")]


def test_a_checkout_that_was_never_searched_says_how_to_begin(room):
    assert describe_history(room.root, ()) == [
        "nothing was searched yet; `python -m harness tune ROOM` begins"
    ]


@pytest.mark.parametrize("form", ["name", "hash", "short", "upper"])
def test_a_candidate_is_explained_by_name_or_hash(searched, form):
    decision = decisions(searched)[0]
    sha256 = decision["sha256"]
    forms = {"hash": sha256, "short": sha256[:7], "upper": sha256[:9].upper()}
    attempt = {"name": decision["candidate"], **forms}[form]
    text = "\n".join(explain(searched.root, attempt))
    for words in (
        sha256, "direction block_v: another block of V", "lineage: gdn_decode-", "<- baseline",
        "+++ b/solutions/gdn_decode/kernel.py", "gate: 1/1 pass", "sweep: 2/2 pass",
        decision["record"], decision["label"], decision["reason"],
    ):  # fmt: skip
        assert words in text, words


def test_a_round_is_explained_by_its_key(searched):
    text = "\n".join(explain(searched.root, "r001/001"))
    decision = decisions(searched)[1]
    for words in ("state: gdn_decode / batch_size 1 / latency", "(same)", decision["reason"]):
        assert words in text
    assert f"  {searched.uuids[0][:8]}  " in text, "the matrix"


@pytest.mark.parametrize(
    "attempt",
    ["zzzz", "abc", "r001/099", "moe/r001/001", ROOM, "r001", "", "%%%%", "____", "%" * 64],
)
def test_an_attempt_that_nobody_made_is_an_error_that_shows_what_there_is(searched, attempt):
    with pytest.raises(UsageError, match=f"{attempt}: no such round") as error:
        explain(searched.root, attempt)
    last = decisions(searched)[-1]
    assert last["key"] in str(error.value) and last["candidate"] in str(error.value)
    assert ("history gdn_decode`" in str(error.value)) == (attempt == ROOM)


def test_before_any_search_there_is_nothing_to_explain(room):
    with pytest.raises(UsageError, match="nothing was searched yet; `python -m harness tune ROOM`"):
        explain(room.root, "r001/000")


def test_a_round_names_its_candidates_and_how_far_they_came(searched):
    text = explain(searched.root, f"{ROOM}/r001/000")
    proposals = searched.archive.lines("attempts")["r001/000/proposal"]["proposals"]
    for one in proposals:
        line = next(line for line in text if line.startswith(f"  {one['name']}  "))
        assert one["note"] in line and ("gate: mean ratio" in line or "confirmation: mean" in line)
    assert f"  decided about: {decisions(searched)[0]['candidate']}" in text


def test_a_refused_proposal_stands_in_its_round(room):
    room.root.joinpath("more.patch").write_text("nothing")
    room.run(proposer=FolderProposer(room.workspace, room.root / "more.patch"))
    text = explain(room.root, "r001/000")
    assert any(line.startswith("  refused: more.patch: the patch does not apply") for line in text)


def test_a_round_of_two_rooms_is_asked_for_by_room(searched):
    other = searched.archive.folder.with_name("moe")
    shutil.copytree(searched.archive.folder, other)
    with pytest.raises(UsageError, match="write gdn_decode/r001/001 or moe/r001/001"):
        explain(searched.root, "r001/001")
    assert explain(searched.root, "moe/r001/001")[0].startswith("moe r001/001: ")


def test_lineage_ends_at_the_baseline(searched):
    names = lineage(searched.archive, decisions(searched)[0]["sha256"])
    assert names[0] == decisions(searched)[0]["candidate"] and names[-1] == "baseline"


# Figures


def test_a_trajectory_counts_candidates_and_rises_with_promotions(searched):
    found = read_trajectory(searched.archive, "r001")
    assert found.total == sum(len(one.candidates) for one in searched.archive.history())
    promoted = [one for one in searched.archive.history() if one.is_promotion]
    assert len(found.best) == 1 + len(promoted) >= 2
    assert found.best[0] == (0, 1.0)
    assert found.best[-1][1] == pytest.approx(1.05 ** len(promoted), rel=1e-3)
    assert sum(point.is_swept for point in found.points) == len(promoted)


def test_a_failed_candidate_counts_and_has_no_point(room):
    room.evaluator.script = lambda stage, constants, position: (
        by_block(stage, constants, position) if constants["v0"] == 2 else Verdict("TIMEOUT")
    )
    room.settings = Settings(rounds=1, candidates=6)
    room.run()
    found = read_trajectory(room.archive, "r001")
    assert found.total == 6 and 0 < len({point.number for point in found.points}) < 6


def test_the_largest_jumps_but_the_last_are_marked():
    best = ((0, 1.0), (3, 1.5), (5, 1.55), (8, 1.9), (9, 3.0))
    assert Trajectory("x", "r001", (), best, 9).jumps == ((3, 1.5), (8, 1.9))
    assert Trajectory("x", "r001", (), best[:2], 9).jumps == ()
    assert Trajectory("x", "r001", (), best[:1], 9).jumps == ()


def test_figures_are_drawn_from_the_archive_alone_and_always_alike(searched):
    path = regimes_path(searched.root, ROOM)
    write_atomically(path, dump_document(dataclasses.asdict(searched.regimes()), ("regimes",)))
    first, again = (
        draw_search(read_search(searched.archive)),
        draw_search(read_search(searched.archive)),
    )
    assert [figure.name for figure in first] == [
        f"search-{ROOM}-r001-trajectory",
        f"search-{ROOM}-r001-regimes",
    ]
    assert first == again
    assert "1.05" in first[1].svg
    searched.run()
    assert len(draw_search(read_search(searched.archive))) > 2, "earlier runs keep their figures"
    assert draw_search(read_search(SearchRoom(searched.root.parent / "other").archive)) == []


def test_the_report_has_a_chapter_of_searches_where_there_was_one(searched):
    assert write_searches(evidence()) == ()
    (section,) = write_searches(evidence(searched=read_searches(searched.root)))
    (table,) = tables_of((section,))
    rounds = searched.archive.history()
    assert [row[0] for row in table.rows] == [one.key for one in rounds]
    assert [row[-2] for row in table.rows] == [one.label for one in rounds]
    assert [one.name for one in figures_of((section,))] == [f"search-{ROOM}-r001-trajectory"]


@pytest.mark.parametrize("row", [None, [2.0, None, None, None], [None, 2.0, None, None]])
def test_a_sweep_without_latencies_has_no_figure_of_regimes(searched, row):
    path = regimes_path(searched.root, ROOM)
    write_atomically(path, dump_document(dataclasses.asdict(searched.regimes()), ("regimes",)))
    found = read_search(searched.archive)
    matrix = [] if row is None else [[uuid[:8], *row] for uuid in searched.uuids]
    bare = dataclasses.replace(found.swept[0], matrix=matrix)
    drawn = draw_search(dataclasses.replace(found, swept=(bare,)))
    assert [figure.name for figure in drawn] == [f"search-{ROOM}-r001-trajectory"]


# Sessions


def recorded(room):
    """A recorded run of the room, from which regimes come."""
    rows = tuple(
        sample_records.row(uuid, 10.0 * (index + 1), floor_us=4.0, axes={"batch_size": index + 1})
        for index, uuid in enumerate(room.uuids)
    )
    record = sample_records.record(rows, device="nvidia-test")
    write_latest(record, room.root)
    return record


def test_a_session_freezes_regimes_and_holds_the_archive(room):
    record = recorded(room)
    values = (room.workspace, ROOM, Settings(rounds=1), None, room.evaluator, "nvidia-test")
    with open_search(*values, room.lines.append) as search:
        assert search.regimes == freeze_regimes(room.root, record)
        assert search.regimes.representatives == room.uuids
        assert search.profile.regime == "batch_size 2", "most of the time is spent there"
        assert search.profile.headroom == pytest.approx(5.0)
        assert search.profile.bottleneck == UNPROFILED
    packed = pack(room.workspace, ROOM)
    said = f"the recorded sweep is of {record.solution_sha256[:8]}, the room packs to"
    assert [line for line in room.lines if said in line]
    write_latest(dataclasses.replace(record, solution_sha256=packed.sha256), room.root)
    room.lines.clear()
    with open_search(*values, room.lines.append):
        assert room.lines == [], "fresh evidence needs no words"


def test_a_session_without_a_recorded_run_says_what_to_run(room):
    values = (room.workspace, ROOM, Settings(), None, room.evaluator, "nvidia-test")
    with (
        pytest.raises(RecordError, match="evaluate gdn_decode --record"),
        open_search(*values, room.lines.append),
    ):
        pass


def test_the_parameter_proposer_comes_from_the_rooms_declaration(room):
    proposer = session.parameter_proposer(room.workspace, ROOM, None)
    assert [one.name for one in proposer.directions] == ["block_v", "warps"]


# Commands


@pytest.mark.parametrize(
    ("until", "script", "code"),
    [
        (GATE, by_block, ExitCode.OK),
        (SWEEP, by_block, ExitCode.OK),
        (REPLAY, by_block, ExitCode.OK),
        (GATE, lambda *_: Verdict("TIMEOUT"), ExitCode.INCOMPLETE),
        (REPLAY, lambda stage, constants, position: 10.0 + constants["v0"], ExitCode.FAILED),
        (GATE, lambda stage, constants, position: 10.0 + constants["v0"], ExitCode.FAILED),
        (
            SWEEP,
            lambda stage, constants, position: 10.0 + position * (constants["v0"] - 2),
            ExitCode.FAILED,
        ),
    ],
)
def test_exit_codes_of_single_candidates(room, until, script, code):
    room.evaluator.script = script
    room.settings = Settings(rounds=1, candidates=1, islands=1, until=until, seed=0)
    path = room.root.parent / "candidate.json"
    better = KERNEL.replace('"BLOCK_V": 2', '"BLOCK_V": 4')
    path.write_text(pack_sources(room.workspace, ROOM, {"kernel.py": better}).text)
    search = dataclasses.replace(room.search(), proposer=FolderProposer(room.workspace, path))
    position = run_search(search)
    assert exit_code(search, f"{position.run}/000", until) is code
    assert (room.kernel == better) == (until == REPLAY and code is ExitCode.OK)


def test_a_candidate_that_is_the_baseline_is_no_success(room):
    path = room.root.parent / "candidate.json"
    path.write_text(pack(room.workspace, ROOM).text)
    room.settings = Settings(rounds=1, candidates=1, islands=1, until=GATE)
    search = dataclasses.replace(room.search(), proposer=FolderProposer(room.workspace, path))
    position = run_search(search)
    assert exit_code(search, f"{position.run}/000", GATE) is ExitCode.FAILED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "nowhere"], "room: expected one of"),
        (["tune", "gdn_decode", "--resume", "--abandon"], "choose one"),
        (["tune", "gdn_decode", "--command", "x", "--folder", "y"], "choose one"),
        (["gate", "gdn_decode", "no-such-file.json"], "no such file or folder"),
        (["promote", "gdn_decode", "docs"], "expected one candidate"),
        (["gate", "gdn_decode", "c.json", "--resume", "--abandon"], "choose one"),
        (["explain", "zzzz"], "zzzz: no"),
        (["history", "nowhere"], "room: expected one of"),
        (["history", "--figures", ""], "--figures: expected a folder, got an empty name"),
    ],
)
def test_command_lines_that_mean_nothing(arguments, words, capsys):
    assert main(arguments) == ExitCode.USAGE
    assert words in capsys.readouterr().err


def test_a_history_can_be_drawn(searched, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("harness.cli.history.load_workspace", lambda: searched.workspace)
    assert main(["history", ROOM, "--figures", str(tmp_path / "figures")]) == 0
    text = (tmp_path / "figures" / f"search-{ROOM}-r001-trajectory.svg").read_text()
    assert text.startswith("<svg") and "candidate" in text
    assert "promote globally" in capsys.readouterr().out


def test_an_attempt_can_be_explained(searched, monkeypatch, capsys):
    monkeypatch.setattr("harness.cli.history.load_workspace", lambda: searched.workspace)
    assert main(["explain", "r001/000"]) == 0
    assert "promote globally" in capsys.readouterr().out


def test_the_profile_of_the_regime_that_costs_most_is_the_state(room):
    record = recorded(room)
    light = profile_row("u-0", regime="batch_size 1", regime_workloads=9, latency_us=5.0)
    heavy = profile_row("u-1", regime="batch_size 64", regime_workloads=5, latency_us=10.5)
    values = {"room": ROOM, "device": "nvidia-test"}
    write_profile(profile_record(light, heavy, **values), room.root)
    state = read_state(room.root, record, room.regimes())
    assert (state.regime, state.bottleneck) == ("batch_size 64", heavy.kind)
    assert state.limiting_resource == ", ".join(heavy.limiters)
    assert (state.dominant_kernel, state.occupancy) == ("split", 0.12)
    assert state.headroom == pytest.approx(5.0)
    assert state.source == "results/profiles/nvidia-test/gdn_decode.json"
