"""Sweeps that are killed at random points: nothing judged is lost, doubled or another's."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit import fault_room as room

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KILLS, SEED = 60, 20260301
MOST_VERDICTS, LONGEST_S = 5, 0.05  # until a kill: verdicts, and then seconds
UUIDS = [f"slow-{n}" for n in range(12)]

# Forks a sweep for each line that it reads, says its pid, and waits for it to end.
STARTER = """
import io, os, sys
from pathlib import Path
from tests.unit import fault_room as room

workspace = room.load_workspace(Path(sys.argv[1]))
for line in sys.stdin:
    sha256, output = line.split()
    pid = os.fork()
    if pid == 0:
        with open(output, "w", buffering=1) as stream, room.stand_ins(workspace, sha256):
            os._exit(int(room.sweep(workspace, resume=True, stream=stream)))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Starter:
    """Sweeps in processes of their own, without importing anything anew."""

    def __init__(self, root):
        command = [sys.executable, "-c", STARTER, str(root)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def start(self, sha256, output):
        self.process.stdin.write(f"{sha256} {output}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def wait(self):
        return int(self.process.stdout.readline())


@pytest.fixture
def workspace(tmp_path):
    return room.fault_checkout(tmp_path / "checkout", UUIDS)


@pytest.fixture
def starter(workspace):
    starter = Starter(workspace.root)
    with starter.process:  # leaving it closes the pipes, which ends the process
        yield starter


def wait_for(output, count):
    """Until a sweep has shown so many finished workloads, those it reuses among them."""
    deadline = time.monotonic() + 60.0
    while not output.exists() or len(shown(output)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def shown(output):
    """UUIDs of the workloads that a sweep said it had finished."""
    return set(re.findall(r"slow-\d+(?= .*PASSED)", output.read_text()))


def lines_of(workspace):
    """(solution, uuid) of every whole line, in the order written."""
    path = room.ledger(workspace).path
    found = []
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        value = json.loads(line)
        found.append((value["harness"]["solution_sha256"], value["workload"]["uuid"]))
    return found


def test_a_sweep_killed_at_random_points_loses_and_doubles_nothing(workspace, starter, tmp_path):
    """A new solution whenever one is finished, so that kills fall on every part of a sweep."""
    draw, output = random.Random(SEED), tmp_path / "output"
    solution, killed, finished = 0, 0, 0
    while killed < KILLS:
        sha256 = f"{solution:064x}"
        output.unlink(missing_ok=True)
        wanted = sum(sha == sha256 for sha, _ in lines_of(workspace))
        wanted = min(len(UUIDS), wanted + draw.randrange(MOST_VERDICTS))
        pid = starter.start(sha256, output)
        wait_for(output, wanted)
        time.sleep(draw.uniform(0.0, LONGEST_S))
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.kill(pid, signal.SIGKILL)
        code = starter.wait()
        lines = lines_of(workspace)
        assert len(lines) == len(set(lines)), "no verdict twice"
        mine = {uuid for sha, uuid in lines if sha == sha256}
        assert shown(output) <= mine, "what was shown as finished is on the disk"
        assert [uuid for sha, uuid in lines if sha == sha256] == UUIDS[: len(mine)]
        if code == -signal.SIGKILL:
            killed += 1
        if mine == set(UUIDS):
            solution, finished = solution + 1, finished + 1
    starter.start(f"{solution:064x}", output)
    assert starter.wait() == 0
    assert finished >= 3
    lines = lines_of(workspace)
    assert len(lines) == len(set(lines)) == (solution + 1) * len(UUIDS)
    for entry in room.judged(workspace):
        assert entry.max_abs_error == float(entry.uuid.partition("-")[2]), "its own answer"


def test_a_sweep_that_is_terminated_leaves_no_worker_and_goes_on(workspace, starter, tmp_path):
    output = tmp_path / "output"
    pid = starter.start("a" * 64, output)
    wait_for(output, 3)
    deadline = time.monotonic() + 20
    workers = _children(pid)
    assert workers
    os.kill(pid, signal.SIGTERM)
    assert starter.wait() == -signal.SIGTERM
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    starter.start("a" * 64, output)
    assert starter.wait() == 0
    room.assert_one_verdict_each(workspace, UUIDS)


def _children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
