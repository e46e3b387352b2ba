"""A room without a track is not in the contest: who leaves it out, and who takes it when named."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.cli import main
from harness.cli.rooms import config_table, planned_room
from harness.compare.scores import definitions_of_tracks
from harness.compare.sides import choose_rooms as choose_compared
from harness.compare.sides import read_word, rooms_left_out
from harness.config import load_workspace
from harness.dataset import export
from harness.dataset.download import fetch
from harness.doctor.judge import check_dataset
from harness.errors import UsageError
from harness.evaluate.plan import Request, choose_workloads
from harness.report import front_rooms
from harness.report.scored import write_scores
from harness.submit import CONTEST_DEFINITIONS, choose_rooms
from tests.official_rooms import OFFICIAL_ROOMS
from tests.sample_records import record
from tests.small_checkout import definition_file, small_checkout, workload_file

ROOM = "dsa_indexer_prefill"
REAL = load_workspace()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Six rooms, the sixth outside the contest; a few workloads of each."""
    small = small_checkout(tmp_path / "checkout")
    path = small.root / "config.toml"
    path.write_text(f"{path.read_text()}\n{config_table(REAL.room(ROOM))}")
    workspace = load_workspace(small.root)
    for source, target in (
        (definition_file(REAL, ROOM), definition_file(workspace, ROOM)),
        (workload_file(REAL, ROOM), workload_file(workspace, ROOM)),
    ):
        target.parent.mkdir(parents=True)
        shutil.copy(source, target)
    monkeypatch.setattr("harness.config.find_root", lambda start=None: workspace.root)
    return workspace


def test_the_rooms_of_this_checkout():
    assert tuple(REAL.contest_rooms) == OFFICIAL_ROOMS
    assert {room.definition for room in REAL.contest_rooms.values()} == set(CONTEST_DEFINITIONS)
    assert set(REAL.rooms) >= {*OFFICIAL_ROOMS, ROOM}
    assert REAL.room(ROOM).track is None and not REAL.room(ROOM).in_contest


def test_a_table_without_a_track_is_written_and_read_again(checkout):
    table = config_table(REAL.room(ROOM))
    assert "track" not in table
    assert load_workspace(checkout.root).room(ROOM) == REAL.room(ROOM)


def test_a_new_room_of_its_definition_has_no_track_either(checkout):
    assert planned_room(checkout, "second", REAL.room(ROOM).definition).track is None
    alone = replace(checkout, rooms=checkout.contest_rooms)
    assert planned_room(alone, "second", REAL.room(ROOM).definition).track is None


def test_evaluate_judges_it_where_it_is_named():
    def rooms(*names, workloads=("all",)):
        asked = Request(rooms=names, workloads=workloads)
        return list(choose_workloads(REAL, asked, REAL.root, on_cpu=False))

    assert rooms() == rooms(workloads=("smoke",)) == list(OFFICIAL_ROOMS)
    assert rooms(ROOM) == rooms(ROOM, workloads=("smoke",)) == [ROOM]
    assert rooms("moe", ROOM) == ["moe", ROOM]


def test_compare_takes_it_where_it_is_named():
    def rooms(a, b, *names):
        return choose_compared(REAL, read_word(REAL, a), read_word(REAL, b), names)

    assert rooms("ours", "peers") == OFFICIAL_ROOMS
    assert ROOM not in rooms("ours", "deep_gemm")
    assert rooms("ours", "deep_gemm", ROOM) == rooms(ROOM, "peers") == (ROOM,)
    assert rooms_left_out(REAL, "ours", "peers", ()) == []


def test_an_export_leaves_it_out(checkout, monkeypatch, tmp_path):
    shutil.copytree(
        REAL.root / "solutions",
        checkout.root / "solutions",
        ignore=shutil.ignore_patterns("solution.json", ".*", "__pycache__"),
    )
    report = export(checkout, checkout.root, tmp_path / "export", "30cecff1")
    assert (report.definitions, report.solutions) == (1, 1)
    with pytest.raises(UsageError, match="no UUID starts with '5e854864'"):
        export(checkout, checkout.root, tmp_path / "other", "5e854864")
    assert not list((tmp_path / "export").rglob("*prefill_topk*"))


def test_the_official_set_is_not_asked_for_it(checkout, tmp_path):
    asked = {}
    hub = SimpleNamespace(
        HfApi=lambda: SimpleNamespace(
            list_repo_commits=lambda *_, **__: [SimpleNamespace(commit_id="5e832ce8" + "0" * 32)]
        ),
        snapshot_download=lambda **options: asked.update(options),
    )
    fetch(checkout, tmp_path / "official", hub)
    assert len(asked["allow_patterns"]) == 15
    assert not [pattern for pattern in asked["allow_patterns"] if "dsa_prefill" in pattern]


def test_data_set_commands_count_the_contests_files(checkout, capsys):
    """A set without the sixth definition, as the official one is, is whole."""
    shutil.rmtree(checkout.root / "definitions" / "dsa_prefill")
    assert main(["dataset", "make", "--jobs", "1"]) == 0
    assert main(["dataset", "verify"]) == 0
    blobs = len(list((checkout.root / "blob").rglob("*.safetensors")))
    assert f"{blobs} blobs checked, {blobs} with their hash" in capsys.readouterr().out
    assert f"{blobs} of {blobs} blobs" in check_dataset(checkout).found
    assert main(["dataset", "verify", ROOM]) == 3


def test_no_track_counts_it():
    found = definitions_of_tracks(REAL.rooms)
    assert found == definitions_of_tracks(REAL.contest_rooms)
    assert None not in found and sum(len(one) for one in found.values()) == 5


def test_score_refuses_it(capsys):
    assert main(["score", ROOM]) == 2
    assert "not in the contest" in capsys.readouterr().err


def test_submit_leaves_it_out_and_refuses_it():
    assert [room.name for room in choose_rooms(REAL, ())] == list(OFFICIAL_ROOMS)
    with pytest.raises(UsageError, match=f"{ROOM}: expected one of the contest's definitions"):
        choose_rooms(REAL, ["moe", ROOM])
    entered = replace(REAL.room(ROOM), track="sparse_attention")
    workspace = replace(REAL, rooms={**REAL.rooms, ROOM: entered})
    with pytest.raises(UsageError, match="nobody there would judge it"):
        choose_rooms(workspace, ())


def test_a_room_of_the_contest_without_its_track_is_not_entered():
    rooms = {**REAL.rooms, "moe": replace(REAL.room("moe"), track=None)}
    workspace = replace(REAL, rooms=rooms)
    assert "moe" not in [room.name for room in choose_rooms(workspace, ())]
    with pytest.raises(UsageError, match=r"moe: expected a track in config\.toml"):
        choose_rooms(workspace, ["moe"])


def test_roofline_counts_it_where_it_is_named(checkout, capsys):
    assert main(["dataset", "make", "--jobs", "1"]) == 0
    capsys.readouterr()
    (checkout.root / "workloads" / "published_b200.csv").write_bytes(
        (REAL.root / "workloads" / "published_b200.csv").read_bytes()
    )
    assert main(["roofline"]) == 0
    assert ROOM not in capsys.readouterr().out
    assert main(["roofline", ROOM]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {ROOM}")]
    assert len(rows) == 1


def test_the_front_page_shows_it_once_it_is_measured():
    assert front_rooms(REAL.rooms, []) == list(OFFICIAL_ROOMS)
    assert front_rooms(REAL.rooms, [record(room=ROOM)]) == [*OFFICIAL_ROOMS, ROOM]


def test_the_reports_score_has_no_row_for_it():
    evidence = SimpleNamespace(workspace=REAL, compared={}, packed={})
    text = json.dumps([str(block) for block in write_scores(evidence).blocks])
    assert "gdn_prefill" in text and ROOM not in text
