"""What the controller keeps: closed rounds, keyed lines, the index, frozen regimes."""

import contextlib
import dataclasses
import os
import sqlite3

import pytest

from harness.controller.archive import ATTEMPTS, DECISIONS, MEMORY, Archive
from harness.controller.index import index_path, open_index
from harness.controller.memory import ClosedRound
from harness.controller.regimes import (
    derive_regimes,
    freeze_regimes,
    natural_breaks,
    regimes_path,
)
from harness.errors import RecordError
from tests import sample_records
from tests.sample_compare import compare_record
from tests.sample_search import NAME, decision_line, measured_line, proposal_line
from tests.unit.test_controller import closed


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path, "gdn_decode")


def fill(archive, run="run"):
    key = f"{run}/000"
    archive.step(ATTEMPTS, f"{key}/proposal", lambda: proposal_line(key))
    archive.step(ATTEMPTS, f"{key}/gate", lambda: measured_line(key))
    archive.step(DECISIONS, key, lambda: decision_line(key))
    archive.step(MEMORY, key, lambda: closed(run=run).to_json())


def test_a_step_is_made_once(archive):
    made = []

    def make():
        made.append(1)
        return proposal_line("k", known=len(made))

    assert archive.step(ATTEMPTS, "k/proposal", make) == proposal_line("k", known=1)
    assert archive.step(ATTEMPTS, "k/proposal", make)["known"] == 1
    fresh = Archive(archive.root, archive.room)
    assert fresh.step(ATTEMPTS, "k/proposal", make)["known"] == 1
    assert made == [1]


def test_a_step_that_fails_leaves_nothing(archive):
    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.step(DECISIONS, "k", broken)
    assert not archive.path(DECISIONS).exists()
    assert archive.step(DECISIONS, "k", lambda: decision_line("k")) == decision_line("k")


def test_a_torn_line_is_made_again(archive):
    archive.step(DECISIONS, "a", lambda: decision_line("a"))
    with archive.path(DECISIONS).open("a") as file:
        file.write('{"key": "b", "val')
    fresh = Archive(archive.root, archive.room)
    with pytest.warns(UserWarning, match="torn|left out"):
        assert fresh.step(DECISIONS, "b", lambda: decision_line("b")) == decision_line("b")
    assert list(Archive(archive.root, archive.room).lines(DECISIONS)) == ["a", "b"]


def test_a_closed_round_survives_its_json(archive):
    one = closed("b", "promote globally", gain=None, best=None, findings=("plateau: x",))
    archive.step(MEMORY, one.key, one.to_json)
    assert archive.history() == [one]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("label", "keep", "one of archive only"), ("round", -1, "count"), ("gain", "x", "float")],
)
def test_a_damaged_round_is_an_error_that_names_its_key(key, value, words):
    values = {**closed().to_json(), key: value}
    values = {**values, "candidates": [], "findings": [], "blocked": [], "recommended": []}
    with pytest.raises(RecordError, match=f"here: {key}: .*{words}"):
        ClosedRound.from_json(values, "here")


def test_a_comparison_is_kept_beside_the_lines(archive):
    record = compare_record({"baseline": 1.2})
    label = archive.write_record("run/000/sweep", record)
    assert label == "results/search/gdn_decode/records/run-000-sweep.json"
    assert archive.load_record(label) == record


def test_the_index_follows_the_archive_and_can_be_made_again(archive):
    fill(archive)
    with open_index(archive.root) as index:
        found = index.execute("SELECT name, direction FROM candidate").fetchall()
        assert [tuple(row) for row in found] == [(NAME, "a")]
    fill(archive, "next")
    with open_index(archive.root) as index:
        assert index.execute("SELECT count(*) FROM round").fetchone()[0] == 2
        assert index.execute("SELECT stage, score FROM measurement").fetchone()[1] == 1.1
        before = list(index.iterdump())
    index_path(archive.root).unlink()
    with open_index(archive.root) as index:
        assert list(index.iterdump()) == before


def test_an_unchanged_archive_is_not_read_again(archive, monkeypatch):
    fill(archive)
    with open_index(archive.root):
        pass
    monkeypatch.setattr("harness.controller.index._make", lambda *_: pytest.fail("made again"))
    with open_index(archive.root) as index:
        assert index.execute("SELECT count(*) FROM decision").fetchone()[0] == 1


def damage_page(data):
    """The last page of the file, where rows lie."""
    return data[:-4096] + b"\xff" * 4096


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"no database" * 99,
        lambda data: data[: len(data) // 2],
        damage_page,
        lambda data: data.replace(b"archive only", b"archiv\xff only"),
        lambda data: data.replace(b"archive only", b"archive lone"),
        lambda data: b"",
    ],
)
def test_a_damaged_index_is_made_again(archive, damage):
    fill(archive)
    with open_index(archive.root) as index:
        before = list(index.iterdump())
    path = index_path(archive.root)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    with open_index(archive.root) as index:
        assert list(index.iterdump()) == before
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert list(other.iterdump()) == before, "the file is whole again"


def test_an_edit_of_the_same_length_is_seen(archive):
    fill(archive)
    with open_index(archive.root):
        pass
    path = archive.path(MEMORY)
    then = path.stat()
    path.write_text(path.read_text().replace('"measured"', '"imagined"').replace("10.0", "99.0"))
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert path.stat().st_size == then.st_size
    with open_index(archive.root) as index:
        assert index.execute("SELECT device_s FROM round").fetchone()[0] == 99.0


def folder_instead(path):
    path.mkdir(parents=True)


def file_above(path):
    path.parent.parent.mkdir()
    path.parent.write_text("")


@pytest.mark.parametrize("obstruct", [folder_instead, file_above])
def test_where_the_index_cannot_be_kept_it_is_in_memory(archive, obstruct):
    fill(archive)
    obstruct(index_path(archive.root))
    with open_index(archive.root) as index:
        assert index.execute("SELECT count(*) FROM candidate").fetchone()[0] == 1
    assert not index_path(archive.root).is_file()
    assert list(archive.root.rglob(".index*")) == [], "nothing half-written"


def test_a_full_disk_leaves_the_index_in_memory(archive, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    fill(archive)
    monkeypatch.setattr("harness.controller.index._keep", full)
    with open_index(archive.root) as index:
        assert index.execute("SELECT count(*) FROM round").fetchone()[0] == 1


# Regimes


def run_of(latencies_us):
    rows = tuple(
        sample_records.row(f"u-{index}", us, axes={"batch_size": index + 1})
        for index, us in enumerate(latencies_us)
    )
    return sample_records.record(rows)


def test_regimes_break_where_latencies_do():
    assert natural_breaks([1.0, 1.1, 5.0, 5.2, 20.0], 3) == [(1.0, 1.1), (5.0, 5.2), (20.0, 20.0)]
    assert natural_breaks([1.0, 1.01, 1.02, 1.021], 3) == [(1.0, 1.01), (1.02, 1.021)], "two stand"
    assert natural_breaks([2.0, 2.0, 2.0], 3) == [(2.0, 2.0)]
    assert natural_breaks([3.0], 3) == [(3.0, 3.0)]


def test_a_representative_is_in_the_middle_of_its_regime():
    regimes = derive_regimes(run_of([10.0, 1.0, 1.05, 1.1, 10.5])).regimes
    assert [regime.uuids for regime in regimes] == [("u-1", "u-2", "u-3"), ("u-0", "u-4")]
    assert regimes[0].representative == "u-2"
    assert regimes[0].label == "batch_size 2-4"
    assert sum(regime.share for regime in regimes) == pytest.approx(1.0)


def test_an_axis_that_only_some_workloads_have_is_named():
    rows = [
        sample_records.row("u-0", 1.0, axes={"num_queries": 8}),
        sample_records.row("u-1", 1.0, axes={"num_queries": 8, "ragged_ranges": 1}),
        sample_records.row("u-2", 9.0, axes={"num_queries": 64, "score_levels": 16}),
    ]
    labels = [one.label for one in derive_regimes(sample_records.record(tuple(rows))).regimes]
    assert labels == ["num_queries 8, ragged_ranges 0-1", "num_queries 64, score_levels 16"]


def test_the_heaviest_regime_has_the_largest_share():
    assert derive_regimes(run_of([1.0, 1.0, 1.0, 20.0])).heaviest.uuids == ("u-3",)


def test_regimes_are_frozen_once(tmp_path):
    first = freeze_regimes(tmp_path, run_of([1.0, 5.0]))
    again = freeze_regimes(tmp_path, run_of([1.0, 1.0]))
    assert again == first and len(first.representatives) == 2
    regimes_path(tmp_path, "gdn_decode").unlink()
    assert len(freeze_regimes(tmp_path, run_of([1.0, 1.0])).regimes) == 1


def test_a_run_with_a_failure_has_no_regimes():
    record = run_of([1.0, 2.0])
    broken = dataclasses.replace(
        record, workloads=(record.workloads[0], sample_records.row("u-9", None))
    )
    with pytest.raises(RecordError, match="u-9 has no latency"):
        derive_regimes(broken)
