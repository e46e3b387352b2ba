"""The chapter of replays: what stands in its tables, and that its figure draws every case."""

import csv
import io
from importlib import import_module
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from harness.cli import main
from harness.config import load_workspace
from harness.replay.batch import Boundary
from harness.replay.record import all_replays, replay_path, write_replay
from harness.replay.statistics import clopper_pearson
from harness.report.document import Bullets, Section, tables_of
from harness.report.publish import compose, render
from harness.report.replays import draw_replay, write_replays
from harness.report.svg import standalone
from tests.sample_evidence import evidence
from tests.sample_replay import replay_record

TWO = {"03fc111f-one": (), "70d53807-two": (4, 90, 91)}
BOUNDARY = Boundary((0.5, 0.2, 1e-7), 1e-6, exchanged=1, exchange_gap=2e-6)


def chapter(record):
    (section,) = write_replays(evidence(replayed={"moe": record}))
    return section


def table(record, name):
    return next(t for t in tables_of((chapter(record),)) if t.name == name)


def test_without_replays_there_is_no_chapter():
    assert write_replays(evidence()) == ()
    assert "Replays" not in render(compose(evidence()))["report.md"]


def test_the_chapter_stands_in_every_form_of_the_report():
    files = render(compose(evidence(replayed={"moe": replay_record(TWO, boundary=BOUNDARY)})))
    for name in ("report.md", "report.html"):
        assert "Replay of moe" in files[name] and "Suspicious: 1 of 2 workloads" in files[name]
    assert {"tables/replays.csv", "tables/replay-moe.csv", "tables/margins-moe.json",
            "plots/replay-moe.svg"} <= set(files)  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(files["tables/replay-moe.csv"])))
    assert rows[1]["wrong"] == "3" and float(rows[1]["rate"]) == 3 / 200


def test_a_row_says_what_three_trials_and_the_replay_would_find():
    found = table(replay_record(TWO), "replay-moe")
    row = dict(zip([column.name for column in found.columns], found.rows[1], strict=True))
    assert row["shown by 3"] == pytest.approx(1 - (1 - 3 / 200) ** 3)
    assert row["shown by 200"] == pytest.approx(1 - (1 - 3 / 200) ** 200)
    assert row["trials for 95%"] == 199
    assert (row["from"], row["to"]) == clopper_pearson(3, 200)
    unseen = dict(zip([column.name for column in found.columns], found.rows[0], strict=True))
    assert unseen["trials for 95%"] is None and unseen["shown by 3"] == 0.0
    assert (row["status"], unseen["status"]) == ("INCORRECT_NUMERICAL", "PASSED")
    assert (row["abs error"], row["rel error"]) == (6.0, 0.16), "of a wrong trial"
    assert (unseen["abs error"], unseen["rel error"]) == (0.25, 0.008)


def test_a_workload_that_lacks_trials_is_no_pass():
    record = replay_record(stopped={"03fc111f-one": (100, "the time limit passed")})
    assert table(record, "replay-moe").rows[0][2] == "incomplete"


def test_the_summary_multiplies_over_the_set_and_marks_stale_content():
    record = replay_record(TWO, solution_sha256="e" * 64)
    (row,) = table(record, "replays").rows
    assert row[2].startswith("stale, measured on eeeeeeee")
    assert row[8] == pytest.approx((1 - 3 / 200) ** 3)


def test_margins_have_a_table_only_where_there_are_any():
    names = {t.name for t in tables_of((chapter(replay_record()),))}
    assert "margins-moe" not in names
    (row,) = table(replay_record(boundary=BOUNDARY), "margins-moe").rows
    assert row[2] == 3 and row[3] == 1e-7
    assert row[-4:] == (4e-6, 1, 1, 4e-6)


def test_what_a_reader_must_know_is_said():
    record = replay_record(drawn=(), stopped={"03fc111f-one": (100, "the time limit passed")})
    section = next(block for block in chapter(record).blocks if isinstance(block, Section))
    notes = next(block for block in section.blocks if isinstance(block, Bullets)).items
    assert (
        "fewer trials than were asked for" in notes[0]
        and "100 of 200" in notes[0]
        and "the time limit passed" in notes[0]
    )
    assert notes[1].startswith("1 workloads draw no input")


@pytest.mark.parametrize(
    "wrong",
    [{"one": ()}, {"one": tuple(range(200))}, {f"{n:08d}": () for n in range(128)}, TWO],
    ids=["none wrong", "all wrong", "128 workloads", "one wrong"],
)
def test_every_case_has_a_figure(wrong):
    figure = draw_replay(replay_record(wrong))
    root = ElementTree.fromstring(figure.svg)
    text = "".join(root.itertext())
    assert "wrong trials on nvidia-h200" in text and "chance to show it" in text
    assert ("observed" in text) == any(wrong.values())
    assert figure.svg == draw_replay(replay_record(wrong)).svg


def test_trials_that_never_began_have_a_figure():
    record = replay_record(stopped={"03fc111f-one": (100, "stopped")})
    assert "svg" in draw_replay(record).svg


def words(svg):
    return list(ElementTree.fromstring(svg).itertext())


def test_every_recorded_replay_has_its_figure_beside_it():
    records = all_replays(load_workspace().root)
    assert records
    for record in records:
        drawn = replay_path(load_workspace().root, record.room).with_suffix(".svg")
        again = f"run python -m harness replay {record.room} --draw"
        assert words(drawn.read_text()) == words(standalone(draw_replay(record))), again


def test_a_record_is_drawn_without_running_anything(tmp_path, monkeypatch):
    record = replay_record(TWO)
    write_replay(record, tmp_path)
    workspace = SimpleNamespace(root=tmp_path, room=lambda name: SimpleNamespace(name=name))
    command = import_module("harness.cli.replay")
    monkeypatch.setattr(command, "load_workspace", lambda: workspace)
    monkeypatch.setattr(command, "run_replay", lambda *_: pytest.fail("it ran"))
    assert main(["replay", record.room, "--draw"]) == 0
    figure = replay_path(tmp_path, record.room).with_suffix(".svg")
    assert figure.read_text() == standalone(draw_replay(record))
    assert main(["replay", "gdn_decode", "--draw"]) != 0
