"""Sweeps on real local Ray clusters of CPU workers, whose judge passes everything (no torch)."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cluster.engine import RayEngine, _blob_bytes
from harness.errors import ExitCode
from harness.evaluate.plan import Request
from harness.evaluate.pool import WorkerCommand
from harness.evaluate.progress import SweepProgress
from harness.evaluate.sweep import sweep_on
from harness.records import TraceLedger
from tests.small_checkout import SMALL
from tests.unit.test_sweep import make_workspace

ray = pytest.importorskip("ray", reason="ray is not installed: it is the extra `cluster`")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

WORKER = Path(__file__).with_name("cluster_worker.py")
TOTAL = sum(len(positions) for positions in SMALL.values())
EVERYTHING = Request(workloads=("all",))


@pytest.fixture(scope="module")
def cluster():
    """A head without a CPU to offer, like a laptop's, where the driver is, and a host with two."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        prepare_environment(patch)
        health = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": health}
        hosts = Cluster(initialize_head=True, head_node_args=head)
        hosts.add_node(num_cpus=2)
        ray.init(address=hosts.address, log_to_driver=False, logging_level="ERROR")
        yield hosts
        ray.shutdown()
        hosts.shutdown()


def prepare_environment(patch):
    patch.setenv("RAY_AUTH_MODE", "disabled")
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.delenv("RAY_ADDRESS", raising=False)
    root = str(Path(__file__).parents[2])
    patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def room(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)


class Bench:
    """A small checkout and what its workers wrote down."""

    def __init__(self, tmp_path, monkeypatch):
        self.workspace = make_workspace(tmp_path, monkeypatch)
        self.log = tmp_path / "judged"
        self.log.touch()
        monkeypatch.setattr("harness.cluster.engine._blob_bytes", lambda plan: 0)

    def command(self, seconds):
        environment = {"JUDGED": str(self.log), "JUDGE_S": str(seconds), "PATH": os.environ["PATH"]}
        return WorkerCommand((sys.executable, str(WORKER)), environment)

    def sweep(self, seconds=0.02, after=lambda done: None, request=EVERYTHING):
        """Exit code and text. after: called with the number of workloads that are done."""
        text = io.StringIO()
        with Watching(text, after) as progress:
            engine = RayEngine(
                self.workspace, progress, str(self.workspace.root), self.command(seconds)
            )
            return sweep_on(engine, self.workspace, request, progress), text.getvalue()

    def ledgers(self):
        rooms = [TraceLedger.of(self.workspace.root, "cpu", name) for name in SMALL]
        return [entry for ledger in rooms for entry in ledger.entries()]

    def assert_judged_once(self):
        entries = self.ledgers()
        assert {entry.status for entry in entries} == {"PASSED"}
        counts = Counter(entry.uuid for entry in entries)
        assert len(counts) == TOTAL and set(counts.values()) == {1}

    def events(self, what):
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(uuid, int(pid), secret) for kind, uuid, pid, secret in lines if kind == what]

    def running(self):
        """Workloads that are being judged, each with its actor's process."""
        ended = {(uuid, pid) for uuid, pid, _ in self.events("end")}
        begun = [(uuid, pid) for uuid, pid, _ in self.events("begin")]
        return [each for each in begun if each not in ended]


class Watching(SweepProgress):
    def __init__(self, stream, after):
        super().__init__(stream)
        self._after, self._count = after, 0

    def workload_finished(self, uuid, axes, outcome, reused):
        super().workload_finished(uuid, axes, outcome, reused)
        self._count += 1
        self._after(self._count)


def test_every_workload_is_judged_once_on_inputs_that_its_host_made(cluster, room, monkeypatch):
    monkeypatch.setenv("DRIVERS_SECRET", "open sesame")
    monkeypatch.setattr(
        "harness.cluster.engine._blob_bytes",
        lambda plan: _blob_bytes(plan) if plan.room.name == "moe" else 0,
    )
    code, text = room.sweep(0.1)
    assert code is ExitCode.OK
    room.assert_judged_once()
    assert "2 workers on 1 host" in text
    assert len({entry.measurement["worker"]["gpu"] for entry in room.ledgers()}) == 2
    assert {secret for _, _, secret in room.events("begin")} == {"none"}, "it was not shipped"
    assert len(list(room.workspace.root.rglob("blob/**/*.safetensors"))) == len(SMALL["moe"])


def test_a_worker_is_at_its_next_workload_before_its_verdict_is_written_down(cluster, room):
    begun = []

    def wait(done):
        """Called while the driver writes the first verdict down."""
        deadline = time.monotonic() + 10
        while done == 1 and len(room.events("begin")) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        begun.append(len(room.events("begin")))

    code, _ = room.sweep(0.3, wait)
    assert code is ExitCode.OK and begun[0] >= 3
    room.assert_judged_once()


@contextlib.contextmanager
def killing(room, wants):
    """SIGKILL the worker of each workload that is begun and that `wants` says yes to.

    wants: called with its UUID and those of the victims so far. Gives the victims, by process.
    """
    end, victims = threading.Event(), {}

    def hunt():
        while not end.wait(0.02):
            running = room.running()
            for uuid, pid in running:
                if pid not in victims and wants(uuid, list(victims.values())):
                    victims[pid] = uuid
                    os.kill(pid, signal.SIGKILL)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        yield victims
    finally:
        end.set()
        hunter.join()


def test_two_killed_workers_lose_no_workload(cluster, room):
    def wants(uuid, before):
        return len(before) < 2 and uuid not in before and len(room.events("end")) >= 2

    with killing(room, wants) as victims:
        code, text = room.sweep(0.3)
    assert code is ExitCode.OK and len(victims) == 2
    assert text.count("was lost: ActorDiedError") == 2
    room.assert_judged_once()
    begun = Counter(uuid for uuid, _, _ in room.events("begin"))
    assert sum(begun.values()) == TOTAL + 2, "only what the two were at was begun again"


def test_a_workload_that_takes_every_worker_with_it_is_given_up(cluster, room, monkeypatch):
    monkeypatch.setattr("harness.cluster.schedule.ATTEMPTS", 2)
    with killing(room, lambda uuid, before: uuid in before or not before) as victims:
        code, _ = room.sweep(0.3)
    assert code is ExitCode.INCOMPLETE and len(victims) == 2
    statuses = Counter(entry.status for entry in room.ledgers())
    assert statuses == {"PASSED": TOTAL - 1, "INFRASTRUCTURE": 1}


def test_a_lost_node_takes_no_workload_with_it(cluster, room):
    host = cluster.add_node(num_cpus=1)
    lost = []

    def remove(done):
        if done == 2:
            cluster.remove_node(host, allow_graceful=False)
            lost.append(host)

    code, text = room.sweep(0.3, remove)
    cluster.wait_for_nodes()  # the next test must not count on a host whose loss is not noticed yet
    assert "3 workers on 2 hosts" in text and "was lost" in text and lost
    assert code is ExitCode.OK
    room.assert_judged_once()


DRIVER = """
import sys
from pathlib import Path
import pytest
from tests.unit.test_cluster_ray import Bench
with pytest.MonkeyPatch.context() as patch:
    Bench(Path(sys.argv[1]), patch).sweep(0.3)
"""


def test_a_sweep_goes_on_where_its_killed_driver_was(cluster, tmp_path, monkeypatch):
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], cwd=root, env=environment
    )
    ledgers = tmp_path / "checkout" / "traces" / "cpu"
    deadline = time.monotonic() + 90
    while sum(path.read_text().count("\n") for path in ledgers.glob("*.jsonl")) < 3:
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.kill()
    child.wait()
    monkeypatch.setattr("tests.unit.test_sweep.small_checkout", lambda path: opened(path))
    room = Bench(tmp_path, monkeypatch)
    done = {entry.uuid for entry in room.ledgers()}
    room.log.write_text("")
    code, text = room.sweep(request=replace(EVERYTHING, resume=True))
    assert code is ExitCode.OK and text.count("(reused)") == len(done) >= 3
    room.assert_judged_once()
    assert done.isdisjoint(uuid for uuid, _, _ in room.events("begin"))


def opened(path):
    from harness.config import load_workspace

    return load_workspace(path)
