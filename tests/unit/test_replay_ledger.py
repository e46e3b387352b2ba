"""What a ledger of replays takes for an entry, and which of its entries a later run keeps; what
a record keeps of an earlier one."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from harness.records import DatasetIdentity, LedgerWarning
from harness.replay.batch import BatchResult, split
from harness.replay.ledger import ReplayEntry, ReplayKey, ReplayLedger, choose_entries
from harness.replay.record import merge_replays
from tests.sample_replay import mismatch, replay_record

KEY = ReplayKey("a", "b", "c", "d", (), "gpu", 0, "uuid")


def entry(first, done, label="2026-01-31T12:00:00Z", wrong=(), untested=(), max_abs_error=None):
    found = tuple(mismatch(trial) for trial in wrong)
    result = BatchResult(done, found, tuple(untested), max_abs_error)
    return ReplayEntry(KEY, first, result, label, label)


# Choosing


def test_of_batches_that_overlap_the_newest_counts():
    old, new, beyond = entry(0, 100, "old"), entry(50, 100, "new"), entry(150, 100)
    chosen, gaps = choose_entries([old, new, beyond], 200)
    assert chosen == [new]
    assert gaps == [range(50), range(150, 200)]
    assert list(split([range(30, 50), range(150, 420)], 100)) == [
        range(30, 50), range(150, 200), range(200, 300), range(300, 400), range(400, 420)
    ]  # fmt: skip


@pytest.mark.parametrize("is_newer", [True, False])
def test_a_shorter_batch_never_hides_a_longer_one(is_newer):
    long, short = entry(0, 100, wrong=(50,)), entry(0, 1)
    entries = [long, short] if is_newer else [short, long]
    assert choose_entries(entries, 100) == ([long], [])


def test_a_mismatch_of_a_batch_left_out_counts_in_the_one_that_is_kept():
    old = entry(0, 100, "1", wrong=(7, 60, 99))
    new = entry(0, 100, "2", wrong=(7, 80), untested=(3, 60), max_abs_error=0.5)
    (kept,), gaps = choose_entries([old, new], 100)
    assert gaps == [] and kept.result == BatchResult(
        100, tuple(map(mismatch, (7, 60, 80, 99))), (3,), 0.5
    )
    assert kept.started_at == "1", "evidence is as old as its oldest part"


def test_a_mismatch_that_no_kept_batch_covers_is_a_batch_of_its_own():
    longer = entry(0, 100, wrong=(5, 50))
    chosen, gaps = choose_entries([longer], 20)
    assert chosen == [entry(5, 1, wrong=(5,))]
    assert gaps == [range(5), range(6, 20)]


# Reading


@pytest.mark.parametrize(
    "result",
    [
        BatchResult(10, (mismatch(20),)),
        BatchResult(10, (mismatch(9),)),
        BatchResult(10, (mismatch(12), mismatch(12))),
        BatchResult(10, (), (20,)),
        BatchResult(10, (), (12, 12)),
        BatchResult(10, (mismatch(12),), (12,)),
    ],
    ids=["behind", "before", "twice", "untested behind", "untested twice", "both"],
)
def test_a_line_whose_trials_cannot_be_is_left_out(tmp_path, result):
    ledger = ReplayLedger(tmp_path / "room.replay.ndjson")
    sound = entry(10, 10, wrong=(10, 19), untested=(11,))
    ledger.append(replace(sound, result=result))
    ledger.append(sound)
    with pytest.warns(LedgerWarning, match="ndjson:1: left out .* at most once, from 10 to 19"):
        assert ledger.entries() == {KEY: [sound]}


PROGRAM = """
import sys, warnings
from pathlib import Path
import harness.__main__ as program
import harness.cli
from harness.replay.ledger import ReplayLedger

def command():
    ReplayLedger(Path(sys.argv[1])).entries()
    warnings.warn("of a library", UserWarning)
    return 0

harness.cli.main = command
sys.exit(program.start())
"""


def test_the_user_reads_of_it_in_one_line_without_our_code(tmp_path):
    path = tmp_path / "room.replay.ndjson"
    path.write_text(json.dumps({"solution_sha256": "a"}) + "\n")
    argv = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    first, *others = done.stderr.splitlines()
    assert first.startswith(f"warning: {path}:1: left out a line that is no trace: ")
    assert "LedgerWarning" not in done.stderr
    assert "UserWarning: of a library" in others[0], "other people's warnings stay as they are"


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"judge_sha256": "f" * 64},
        {"dataset": DatasetIdentity("workloads", "f" * 64)},
        {"device": "nvidia-b200"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_was_judged_otherwise_is_not_kept(change):
    old, new = replay_record({"one": ()}), replay_record({"two": ()})
    later = replace(new, measured_at="2027-01-31T12:00:00Z", commit="another")
    both = merge_replays(old, later, ["one", "two"])
    assert [row.uuid for row in both.workloads] == ["one", "two"]
    assert (both.measured_at, both.commit) == (old.measured_at, "another"), "of the oldest batch"
    assert merge_replays(replace(old, **change), new, ["one", "two"]) == new
