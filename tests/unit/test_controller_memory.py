"""What the controller keeps: closed rounds, keyed lines, the index, frozen regimes."""

import dataclasses
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
from tests.unit.test_controller import closed

RESULT = {
    "workloads": 3,
    "passed": 3,
    "failure": None,
    "lost": None,
    "score": 1.1,
    "low": 1.0,
    "high": 1.2,
    "geometric_mean": 1.1,
    "ratio_of_means": 1.1,
    "fast": [],
    "slow": [],
}
PROPOSAL = {
    "name": "gdn_decode-aaaaaaaa",
    "sha256": "a" * 64,
    "parent": None,
    "island": 0,
    "lines_added": 0,
    "refused": None,
}


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path, "gdn_decode")


def fill(archive, run="run"):
    head = {"round": f"{run}/000", "direction": "a"}
    proposals = {**head, "stage": "proposal", "proposals": [PROPOSAL]}
    archive.step(ATTEMPTS, f"{run}/000/proposal", lambda: proposals)
    gate = {**head, "stage": "gate", "results": {PROPOSAL["name"]: RESULT}, "record": None}
    archive.step(ATTEMPTS, f"{run}/000/gate", lambda: gate)
    decision = {"candidate": PROPOSAL["name"], "label": "archive only", "reason": "why"}
    archive.step(DECISIONS, f"{run}/000", lambda: decision)
    archive.step(MEMORY, f"{run}/000", lambda: closed(run=run).to_json())


def test_a_step_is_made_once(archive):
    made = []

    def make():
        made.append(1)
        return {"value": len(made)}

    assert archive.step(ATTEMPTS, "k", make) == {"key": "k", "value": 1}
    assert archive.step(ATTEMPTS, "k", make)["value"] == 1
    assert Archive(archive.root, archive.room).step(ATTEMPTS, "k", make)["value"] == 1
    assert made == [1]


def test_a_step_that_fails_leaves_nothing(archive):
    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.step(ATTEMPTS, "k", broken)
    assert not archive.path(ATTEMPTS).exists()
    assert archive.step(ATTEMPTS, "k", lambda: {"value": 2})["value"] == 2


def test_a_torn_line_is_made_again(archive):
    archive.step(ATTEMPTS, "a", lambda: {"value": 1})
    with archive.path(ATTEMPTS).open("a") as file:
        file.write('{"key": "b", "val')
    fresh = Archive(archive.root, archive.room)
    with pytest.warns(UserWarning, match="torn|left out"):
        assert fresh.step(ATTEMPTS, "b", lambda: {"value": 3})["value"] == 3
    assert list(Archive(archive.root, archive.room).lines(ATTEMPTS)) == ["a", "b"]


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
        assert [tuple(row) for row in found] == [(PROPOSAL["name"], "a")]
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
    monkeypatch.setattr("harness.controller.index._rebuild", lambda *_: pytest.fail("rebuilt"))
    with open_index(archive.root) as index:
        assert index.execute("SELECT count(*) FROM decision").fetchone()[0] == 1


def test_a_damaged_index_is_made_again(archive):
    fill(archive)
    index_path(archive.root).parent.mkdir(parents=True)
    index_path(archive.root).write_text("no database" * 99)
    with open_index(archive.root) as index:
        assert index.execute("SELECT count(*) FROM candidate").fetchone()[0] == 1
    with sqlite3.connect(index_path(archive.root)) as other:
        assert other.execute("SELECT count(*) FROM source").fetchone()[0] == 1
    other.close()


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
