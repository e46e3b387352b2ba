"""Disks that fill up, clocks that go back, ledgers that are cut, sweeps that meet."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.errors import DeviceBusy, EnvironmentUnfit, ExitCode, InfrastructureFailure
from harness.evaluate.pool import Pool
from harness.records import lines
from harness.records.lines import LedgerWarning
from tests.unit import fault_room as room

UUIDS = [f"good-{n}" for n in range(4)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def workspace(tmp_path):
    workspace = room.fault_checkout(tmp_path / "checkout", UUIDS)
    with room.stand_ins(workspace):
        yield workspace


# Disks


def full_disk(monkeypatch, after):
    """The disk takes `after` lines, then a part of the next, then nothing."""
    real, count = os.write, [0]

    def write(descriptor, data):
        count[0] += 1
        if count[0] <= after:
            return real(descriptor, data)
        if count[0] == after + 1:
            return real(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lines.os, "write", write)


def only_ledger_writes(monkeypatch, after):
    """As full_disk, for the ledger's descriptor alone: the pool writes into pipes."""
    ledger_module = type(os)("ledger_os")
    ledger_module.__dict__.update(os.__dict__)
    monkeypatch.setattr(lines, "os", ledger_module)
    full_disk(monkeypatch, after)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_disk_that_fills_up_costs_the_verdict_that_did_not_fit(workspace, after):
    with pytest.MonkeyPatch.context() as patch:
        only_ledger_writes(patch, after)
        with pytest.raises(InfrastructureFailure, match="free space and run again") as caught:
            room.sweep(workspace)
    assert caught.value.exit_code is ExitCode.INCOMPLETE
    assert [entry.uuid for entry in room.judged(workspace)] == UUIDS[:after]
    text = room.ledger(workspace).path.read_text()
    assert text == "" or text.endswith("\n"), "no half line"
    assert room.sweep(workspace, resume=True) is ExitCode.OK
    room.assert_one_verdict_each(workspace, UUIDS)


def test_a_real_disk_of_32_kib_that_fills_up_loses_no_verdict(workspace):
    folder = workspace.root / "traces"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=32k,mode=755", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with open(folder / "other", "wb", 0) as other, pytest.raises(OSError, match="No space"):
            while True:
                other.write(bytes(1 << 10))
        os.truncate(folder / "other", (folder / "other").stat().st_size - (8 << 10))
        with pytest.raises(InfrastructureFailure, match=r"No space left|only a part of the line"):
            for _ in range(20):
                room.sweep(workspace)
        kept = room.judged(workspace)
        assert kept, "what fitted is there"
        (folder / "other").unlink()
        assert room.sweep(workspace, resume=True) is ExitCode.OK
        assert len(room.ledger(workspace).verdicts()) == len(UUIDS)
        assert [e.uuid for e in room.judged(workspace)][: len(kept)] == [e.uuid for e in kept]
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_cache_that_cannot_be_written_is_said_before_anything_is_judged(workspace, monkeypatch):
    monkeypatch.setenv("FIB_CACHE_PATH", "/proc/nobody-can-write-here")
    with pytest.raises(EnvironmentUnfit, match="FIB_CACHE_PATH") as caught:
        room.sweep(workspace)
    assert caught.value.exit_code is ExitCode.UNFIT
    assert room.ledger(workspace).entries() == []


# Ledgers


def test_a_ledger_cut_anywhere_costs_its_last_line(workspace):
    assert room.sweep(workspace) is ExitCode.OK
    path = room.ledger(workspace).path
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1
    draw = random.Random(0)
    places = sorted({start, start + 1, len(whole) - 1, *draw.sample(range(start, len(whole)), 9)})
    for place in places:
        path.write_bytes(whole[:place])
        lost = place not in (start, len(whole) - 1)  # at both, whole lines alone are left
        with pytest.warns(LedgerWarning) if lost else _nothing():
            assert room.sweep(workspace, resume=True) is ExitCode.OK
        room.assert_one_verdict_each(workspace, UUIDS)
        assert path.read_bytes().startswith(whole[:start]), "earlier lines are never touched"


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_a_damaged_line_in_the_middle_is_judged_again_alone(workspace):
    assert room.sweep(workspace) is ExitCode.OK
    path = room.ledger(workspace).path
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second.replace(b'"status"', b'"sta\xff"', 1) + b"".join(rest))
    with pytest.warns(LedgerWarning, match="left out"):
        assert room.sweep(workspace, resume=True) is ExitCode.OK
    with pytest.warns(LedgerWarning, match="left out"):
        assert sorted(entry.uuid for entry in room.judged(workspace)) == UUIDS


# Clocks


def test_a_clock_set_back_changes_no_verdict(workspace, monkeypatch):
    """Deadlines use another clock; of two verdicts on one workload the one written last counts."""
    hours = iter((9, 9, 8, 8, 10, 7, 6, 6))
    clock = SimpleNamespace(
        now=lambda zone: datetime.datetime(2026, 3, 1, next(hours), tzinfo=zone)
    )
    fake = SimpleNamespace(datetime=clock, timezone=datetime.timezone)
    monkeypatch.setattr("harness.evaluate.verdicts.datetime", fake)
    assert room.sweep(workspace) is ExitCode.OK
    room.assert_one_verdict_each(workspace, UUIDS)
    path = room.ledger(workspace).path
    line = json.loads(path.read_text().splitlines()[0])
    line["harness"].update(status="TIMEOUT", started_at="2026-03-01T01:00:00Z")
    line["harness"]["ended_at"] = "2026-03-01T01:00:01Z"
    line["evaluation"] = {**line["evaluation"], "status": "TIMEOUT"}
    del line["evaluation"]["correctness"], line["evaluation"]["performance"]
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    verdicts = room.ledger(workspace).verdicts()
    assert len(verdicts) == len(UUIDS)
    assert {e.uuid: e.status for e in verdicts.values()} == {
        UUIDS[0]: "TIMEOUT", **dict.fromkeys(UUIDS[1:], "PASSED")
    }  # fmt: skip


# Sweeps


def _resumed(root, barrier, results):
    workspace = room.load_workspace(root)
    with room.stand_ins(workspace):
        barrier.wait()
        try:
            results.put(int(room.sweep(workspace, resume=True)))
        except DeviceBusy as error:
            results.put(int(error.exit_code))


def test_two_sweeps_at_once_judge_each_workload_once(tmp_path):
    uuids = [f"slow-{n}" for n in range(30)]
    workspace = room.fault_checkout(tmp_path / "checkout", uuids)
    processes = multiprocessing.get_context("spawn")
    barrier, results = processes.Barrier(3), processes.Queue()
    sweeps = [
        processes.Process(target=_resumed, args=(workspace.root, barrier, results))
        for _ in range(3)
    ]
    for one in sweeps:
        one.start()
    codes = [results.get(timeout=60) for _ in sweeps]
    for one in sweeps:
        one.join(10)
    assert set(codes) <= {ExitCode.OK, ExitCode.BUSY} and ExitCode.OK in codes
    room.assert_one_verdict_each(workspace, uuids)


def _runs(process):
    """Whether a process, by its folder in /proc, is there and no zombie."""
    with contextlib.suppress(FileNotFoundError):
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_next_pool_ends_what_a_killed_sweep_left(tmp_path):
    """The child's worker dies with the sweep, and nobody is left to end the child."""
    script = (
        "import sys, time\nfrom harness.evaluate.strays import MARK, make_mark\n"
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '60'], env={MARK: make_mark()}, start_new_session=1)\n"
        "print(child.pid, flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        child = Path("/proc") / owner.stdout.readline().strip()
        Pool("cpu", tmp_path, room.FAKE).close()
        assert _runs(child), "its sweep lives"  # by its state: exec may not have named it yet
        owner.kill()
    Pool("cpu", tmp_path, room.FAKE).close()
    deadline = time.monotonic() + 5.0
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)
