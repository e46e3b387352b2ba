"""Schedule, estimates, simulation and what a worker refuses: no Ray, no torch."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import main
from harness.cluster import connection
from harness.cluster.connection import agree, connect
from harness.cluster.engine import RayEngine, _Asked, _Hand
from harness.cluster.estimates import COSTS, expected_s
from harness.cluster.schedule import ATTEMPTS, START_S, Item, Schedule
from harness.cluster.simulate import official_load, simulate
from harness.cluster.worker import (
    BUILT_NAME,
    Fingerprint,
    Worker,
    own_checkout,
    sources_sha256,
)
from harness.dataset import WorkloadRow
from harness.devices import DeviceFacts
from harness.errors import DeviceBusy, EnvironmentUnfit, ExitCode
from harness.evaluate.plan import JUDGE_SOURCES
from harness.evaluate.pool import WorkerCommand
from harness.evaluate.protocol import Outcome, Status
from harness.rules import SOURCES
from tests.nvcc import load_shelf
from tests.small_checkout import small_checkout
from tests.unit.test_pool import WAITING, job


@pytest.fixture(autouse=True)
def _own_builds(tmp_path, monkeypatch):
    """A worker on a GPU changes this in its process; here that is the tests' own."""
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "builds"))


NO_WORKER = WorkerCommand(("false",))
H200 = DeviceFacts("nvidia-h200", "NVIDIA H200", uuid="GPU-1", driver="580.1")


def items(**rooms: list[float]) -> list[Item]:
    return [Item(room, f"{room}{n}", s) for room, of in rooms.items() for n, s in enumerate(of)]


def drain(schedule: Schedule, workers: list[str]) -> dict[str, list[Item]]:
    """What each worker judges when all take turns and every workload takes one turn."""
    judged: dict[str, list[Item]] = {worker: [] for worker in workers}
    while schedule.unfinished:
        taken = {worker: schedule.take(worker) for worker in workers}
        assert any(taken.values()), "nobody takes what is left"
        for worker, item in taken.items():
            if item is not None:
                judged[worker].append(schedule.finish(worker))
    return judged


# Schedule


def test_the_longest_goes_first_and_each_goes_once():
    judged = drain(Schedule(items(moe=[1.0, 3.0, 2.0])), ["a"])
    assert [item.expected_s for item in judged["a"]] == [3.0, 2.0, 1.0]


def test_a_worker_stays_in_its_room_while_that_has_work():
    judged = drain(Schedule(items(moe=[9.0] * 9, decode=[8.0] * 9), start_s=1e9), ["a", "b"])
    assert {len({item.room for item in of}) for of in judged.values()} == {1}


def test_a_free_worker_takes_the_longest_room_that_nobody_is_in_then_helps_where_it_gains_most():
    schedule = Schedule(items(big=[10.0] * 8, small=[10.0] * 3, last=[1.0]), start_s=5.0)
    assert [schedule.take(name).room for name in "abcde"] == ["big", "small", "last", "big", "big"]


def test_nobody_starts_a_process_for_work_that_ends_before_it_has_started():
    schedule = Schedule(items(moe=[3.0, 2.0, 2.0]), start_s=10.0)
    assert schedule.take("a") is not None
    assert schedule.take("b") is None
    assert Schedule(items(moe=[30.0, 20.0]), start_s=10.0).take("b") is not None


def test_a_room_whose_inputs_are_not_there_yet_waits():
    schedule = Schedule(items(moe=[1.0], decode=[50.0]))
    assert schedule.take("a", ()) is None
    assert schedule.take("a", ["moe"]).room == "moe"
    schedule.finish("a")
    assert schedule.take("a", ["moe"]) is None
    assert schedule.take("a", ["moe", "decode"]).room == "decode"


def test_a_room_that_nobody_is_in_is_worth_waiting_for_its_inputs():
    schedule = Schedule(items(moe=[50.0, 50.0], decode=[50.0]))
    assert schedule.take("a", ["moe"]).room == "moe"
    assert schedule.take("b", ["moe"]) is None
    assert schedule.take("b", ["moe", "decode"]).room == "decode"
    assert schedule.take("c", ["moe", "decode"]).room == "moe"


def test_two_workers_share_the_official_rooms_almost_evenly():
    """Rooms as uneven as the contest's: the longest takes three times as long as the shortest."""
    rooms = {"prefill": 48.1, "indexer": 43.8, "moe": 31.9, "attention": 16.5, "decode": 15.6}
    load = items(**{room: [seconds / 20] * 20 for room, seconds in rooms.items()})
    alone, both = (simulate(load, n, driver_s=0.0).wall_s for n in (1, 2))
    assert alone == pytest.approx(sum(rooms.values()) + 5 * START_S)
    assert alone / both > 1.9


def test_what_a_lost_worker_was_at_is_judged_by_another_one():
    schedule = Schedule(items(moe=[1.0]))
    item = schedule.take("a")
    assert schedule.take("b") is None
    assert schedule.lose("a") == (item, True)
    assert schedule.take("b") == item
    schedule.finish("b")
    assert schedule.unfinished == 0
    assert schedule.lose("b") == (None, False), "an idle worker takes nothing with it"


def test_a_workload_is_given_up_after_its_last_attempt():
    schedule = Schedule(items(moe=[1.0]))
    outcomes = []
    for n in range(ATTEMPTS):
        item = schedule.take(f"worker {n}")
        outcomes.append(schedule.lose(f"worker {n}"))
    assert outcomes == [(item, True)] * (ATTEMPTS - 1) + [(item, False)]
    assert schedule.unfinished == 0 and schedule.take("another") is None


def test_what_nobody_will_judge_can_be_named():
    schedule = Schedule(items(moe=[1.0, 2.0], decode=[3.0]))
    schedule.take("a")
    assert len(schedule.drain()) == 2 and schedule.unfinished == 1


# Estimates


def row(uuid: str, **axes: int) -> WorkloadRow:
    return WorkloadRow(uuid, axes, {}, ())


def test_an_earlier_run_decides_then_the_rooms_cost_spread_by_latency():
    rows = [row("seen", n=1), row("slow", n=2), row("fast", n=8)]
    latencies_us = {"seen": 1.0, "slow": 2000.0, "fast": 2.0}
    expected = expected_s("moe", rows, {"seen": 7.5}, latencies_us)
    assert expected["seen"] == 7.5
    assert expected["slow"] > COSTS["moe"].compile_s > expected["fast"] > COSTS["moe"].least_s


def test_a_room_without_latencies_is_spread_by_axes_and_costs_as_much():
    rows = [row("small", n=1), row("middle", n=4), row("big", n=8)]
    expected = expected_s("moe", rows, {}, {"small": 99.0})
    assert expected["small"] < expected["middle"] < expected["big"]
    cost = COSTS["moe"]
    assert sum(expected.values()) == pytest.approx(3 * cost.mean_s + cost.compile_s)
    assert min(expected_s("a room of somebody", rows, {}, {}).values()) > 0


# Simulation


def test_the_simulated_run_accounts_for_all_time():
    load = items(moe=[2.0, 2.0], decode=[4.0])
    run = simulate(load, 2, driver_s=0.0, start_s=1.0)
    assert run.wall_s == pytest.approx(5.0)
    assert run.judging_share == pytest.approx(8 / 10)
    assert run.starting_share == pytest.approx(2 / 10)
    assert run.idle_share == pytest.approx(0.0)


def test_a_slow_driver_is_what_many_workers_wait_for():
    load = [Item("moe", str(n), 1.0) for n in range(1000)]
    run = simulate(load, 500, driver_s=0.1, start_s=0.0)
    assert run.wall_s >= 1000 * 0.1
    assert run.driver_share > 0.9 > run.judging_share


def test_the_official_load_has_every_workload_of_every_candidate_once():
    load = official_load(3)
    assert len(load) == len({item.key for item in load}) == 3 * 324
    assert Counter(item.room.split()[0] for item in load)["gdn_prefill"] == 300


# Workers


def fingerprint(**changes) -> Fingerprint:
    base = Fingerprint("host-a", 1, H200, {"torch": "2.13"}, sources_sha256(own_checkout()), 16)
    return replace(base, **changes)


def test_two_gpus_of_one_kind_are_alike_and_their_uuids_differ():
    other = fingerprint(host="host-b", pid=2, facts=replace(H200, uuid="GPU-2"))
    assert agree([fingerprint(), other], own_checkout()) == fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": replace(H200, slug="nvidia-b200", name="NVIDIA B200")},
        {"environment": {"torch": "2.12"}},
        {"environment": {"torch": "2.13", "driver": "570.1"}},
    ],
    ids=["device", "library", "driver"],
)
def test_workers_that_differ_are_refused_by_name(changes):
    with pytest.raises(EnvironmentUnfit, match=r"got 2 kinds .*host-a.*host-b"):
        agree([fingerprint(), fingerprint(host="host-b", **changes)], own_checkout())


def test_a_judge_that_is_not_the_drivers_is_refused():
    with pytest.raises(EnvironmentUnfit, match="expected the driver's judge on host-a"):
        agree([fingerprint(judge_sha256="0" * 64)], own_checkout())


@pytest.mark.parametrize("changed", ["harness/evaluate/judge.py", "harness/ranges.py"])
def test_a_workers_judge_is_its_sources_and_those_of_every_rule(tmp_path, changed):
    for source in (*JUDGE_SOURCES, *itertools.chain(*SOURCES.values())):
        path = tmp_path / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    before = sources_sha256(tmp_path)
    (tmp_path / changed).write_text("another")
    assert sources_sha256(tmp_path) != before


def test_a_host_with_other_data_is_refused_before_it_judges(tmp_path, monkeypatch):
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    workspace = small_checkout(tmp_path / "checkout")
    worker = Worker(False, str(workspace.root), NO_WORKER)
    worker.open()
    room = workspace.room("moe")
    with pytest.raises(EnvironmentUnfit, match=r"moe: expected the driver's data set \(00000000\)"):
        worker.begin("host", None, {"moe": room}, {"moe": "0" * 64})


def test_a_worker_holds_its_gpu_until_it_is_closed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("harness.cluster.worker.read_device_facts", lambda _: H200)
    monkeypatch.setattr("harness.evaluate.alone.require_idle", lambda _: None)
    monkeypatch.setattr("harness.evaluate.alone.LOCK_WAIT_S", 0.0)
    first = Worker(True, command=NO_WORKER)
    assert first.open().facts.uuid == "GPU-1"
    with pytest.raises(DeviceBusy, match="GPU-1"):
        Worker(True, command=NO_WORKER).open()
    first.close()
    second = Worker(True, command=NO_WORKER)
    second.open()
    second.close()


def test_each_gpu_compiles_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.cluster.worker.read_device_facts", lambda _: H200)
    monkeypatch.setattr("harness.cluster.worker.hold_device", lambda _: nullcontext())
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path))
    folders = []
    for gpu in ("0", "3", "", " 1, 2", "GPU-07f5,GPU-369f", "MIG-GPU-07f5/1/0", "../up"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
        worker = Worker(True, command=NO_WORKER)
        worker.open()
        folders.append(Path(os.environ["TVM_FFI_CACHE_DIR"]))
        worker.close()
        assert os.environ["TVM_FFI_CACHE_DIR"] == str(tmp_path)
    assert {folder.parent for folder in folders} == {tmp_path}
    names = ["0", "3", "0", "1", "GPU-07f5", "MIG-GPU-07f5-1-0", "---up"]
    assert [folder.name for folder in folders] == [f"gpu-{name}" for name in names]


def test_what_another_gpus_worker_has_compiled_is_not_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.cluster.worker.read_device_facts", lambda _: H200)
    monkeypatch.setattr("harness.cluster.worker.hold_device", lambda _: nullcontext())
    monkeypatch.setattr("harness.cluster.worker.sample_clocks", lambda _: None)
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (tmp_path / "gpu-0" / "build_x").mkdir(parents=True)
    (tmp_path / "gpu-1").mkdir()
    names = [f"moe_{n:016x}.so" for n in range(4)]
    (tmp_path / "gpu-0" / names[0]).write_text("whole")
    (tmp_path / "gpu-0" / "build_x" / names[1]).write_text("half")
    (tmp_path / "gpu-0" / names[2]).write_text("theirs")
    (tmp_path / "gpu-0" / "libtorch_c_dlpack_addon.so").write_text("a library's own")
    (tmp_path / "gpu-1" / names[2]).write_text("own")
    worker = Worker(True, str(tmp_path), WAITING)
    worker.open()
    worker.judge({}, job("good-1").to_json())
    found = {path.name: path.read_text() for path in (tmp_path / "gpu-1").iterdir()}
    assert found == {names[0]: "whole", names[2]: "own"}
    (tmp_path / "gpu-0" / names[0]).write_text("written over")
    assert (tmp_path / "gpu-1" / names[0]).read_text() == "whole"
    (tmp_path / "gpu-0" / names[3]).write_text("of this room")
    worker.judge({}, job("good-2").to_json())
    assert not (tmp_path / "gpu-1" / names[3]).exists()  # only a new room asks for it
    worker.judge({}, replace(job("good-3"), room="second").to_json())
    assert (tmp_path / "gpu-1" / names[3]).exists()
    worker.close()


def test_what_a_room_compiles_has_a_name_that_is_taken_over():
    architecture, toolkit = SimpleNamespace(name="9.0a"), SimpleNamespace(release=(13, 0))
    key = load_shelf("native_build")._key({"moe.cu": b"text"}, architecture, toolkit)
    assert BUILT_NAME.fullmatch(f"moe_{key}.so")


def test_a_worker_and_its_processes_have_the_cores_of_their_gpu(tmp_path, monkeypatch):
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr("harness.cluster.worker.read_device_facts", lambda _: H200)
    monkeypatch.setattr("harness.cluster.worker.hold_device", lambda _: nullcontext())
    monkeypatch.setattr("harness.cluster.worker.own_cores", lambda gpu: [max(cores)])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    worker = Worker(True, str(tmp_path), WAITING)
    worker.open()
    assert os.sched_getaffinity(worker._pool._worker._process.pid) == {max(cores)}
    assert os.sched_getaffinity(0) == {max(cores)}
    worker.close()
    assert os.sched_getaffinity(0) == cores and os.environ["OMP_NUM_THREADS"] == "1"


def test_a_worker_whose_process_cannot_start_leaves_this_one_as_it_was(tmp_path, monkeypatch):
    cores, builds = os.sched_getaffinity(0), os.environ["TVM_FFI_CACHE_DIR"]
    monkeypatch.setattr("harness.cluster.worker.own_cores", lambda gpu: [max(cores)])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    worker = Worker(True, str(tmp_path), replace(WAITING, argv=("/no/such/program",)))
    with pytest.raises(FileNotFoundError):
        worker.open()
    assert os.sched_getaffinity(0) == cores
    assert (os.environ["TVM_FFI_CACHE_DIR"], os.environ["OMP_NUM_THREADS"]) == (builds, "1")


def test_a_process_imports_while_the_gpu_is_looked_at_and_ends_where_that_is_refused(
    tmp_path, monkeypatch
):
    begun = []

    def read_facts(_):
        begun.append(worker._pool._standby)
        return H200

    def refuse(_):
        raise DeviceBusy("somebody else's")

    monkeypatch.setattr("harness.cluster.worker.read_device_facts", read_facts)
    monkeypatch.setattr("harness.cluster.worker.hold_device", refuse)
    worker = Worker(True, str(tmp_path), WAITING)
    with pytest.raises(DeviceBusy):
        worker.open()
    assert not begun[0].alive()


def test_the_first_room_has_the_process_that_began_with_the_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    worker = Worker(False, str(tmp_path), WAITING)
    worker.open()
    began = worker._pool._worker._process.pid
    pids = [
        int(worker.judge({}, replace(job("good-1"), room=room).to_json())[0].log)
        for room in ("first", "first", "second")
    ]
    worker.close()
    assert pids[:2] == [began, began] and pids[2] != began
    assert (tmp_path / "begun").read_text().split() == [str(began), str(pids[2])]


def test_a_worker_that_cannot_begin_leaves_neither_lock_nor_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    begun = []

    def fail(_):
        begun.append(worker._pool._worker)
        raise FileNotFoundError("a source of the judge")

    monkeypatch.setattr("harness.cluster.worker.sources_sha256", fail)
    worker = Worker(False, str(tmp_path), WAITING)
    with pytest.raises(FileNotFoundError):
        worker.open()
    assert not begun[0].alive()
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    second = Worker(False, str(tmp_path), WAITING)
    second.open()
    second.close()


@pytest.mark.parametrize("order", [("judge", "blobs"), ("blobs", "judge")])
def test_a_refusal_costs_no_verdict_that_came_with_it(order):
    class RayTaskError(Exception):
        cause = OSError("disk full")

    engine = RayEngine(None, SimpleNamespace(note=print))
    engine._ray = SimpleNamespace(
        put=lambda value: value, exceptions=SimpleNamespace(RayTaskError=RayTaskError)
    )
    actor = SimpleNamespace(judge=SimpleNamespace(remote=lambda *_: object()))
    engine._hands = {"w": _Hand("w", actor, None, "n", True)}
    engine._open_rooms = {"n": {"r"}}
    engine._expected = {("r", "a"): 1.0, ("r", "b"): 1.0}
    came = {
        "judge": (_Asked("judge", "w"), (Outcome(Status.PASSED), ())),
        "blobs": (_Asked("blobs", node="n", room="x"), RayTaskError("no blobs")),
    }

    def answers(_):
        engine._asked.clear()
        return [came[what] for what in order]

    engine._answers = answers
    texts = {"definition": "", "solution": ""}
    jobs = [
        SimpleNamespace(room="r", uuid=uuid, to_json=lambda: dict(texts), **texts) for uuid in "ab"
    ]
    written = []
    with pytest.raises(EnvironmentUnfit):
        for judged in engine.judge(jobs):
            written.append(judged.job.uuid)
    assert written == ["a"]


def test_what_a_lost_worker_left_on_the_gpu_is_waited_for(tmp_path, monkeypatch):
    answers = [DeviceBusy("a dying process"), None]

    def require_idle(_):
        answer = answers.pop(0)
        if answer:
            raise answer

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("harness.cluster.worker.read_device_facts", lambda _: H200)
    monkeypatch.setattr("harness.evaluate.alone.require_idle", require_idle)
    worker = Worker(True, command=NO_WORKER)
    worker.open()
    worker.close()
    assert answers == []


def test_without_ray_the_engine_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["evaluate", "--engine", "ray"]) == ExitCode.TOOL_MISSING
    assert "install the extra `cluster`" in capsys.readouterr().err


class RayOfNothing:
    """Stands for the package: counts who asks to join."""

    def __init__(self):
        self.joined = 0

    def init(self, **_):
        self.joined += 1


@pytest.fixture
def ray(monkeypatch):
    for name in ("PYTHONPATH", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "1")  # connect sets them; this puts them back
    return RayOfNothing()


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_where_nobody_listens_is_refused_before_ray_tries(ray, listener, monkeypatch):
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(EnvironmentUnfit, match=f"expected a Ray cluster at {address}, got Conn"):
        connect(ray)
    assert ray.joined == 0


def test_a_host_that_does_not_answer_is_given_up_after_seconds(ray, monkeypatch):
    def create_connection(address, timeout):
        assert (address, timeout <= 10.0) == (("::1", "6379"), True)
        raise TimeoutError("timed out")

    monkeypatch.setattr(connection.socket, "create_connection", create_connection)
    with pytest.raises(EnvironmentUnfit, match=r"at \[::1\]:6379, got TimeoutError: timed out"):
        connect(ray, address="[::1]:6379")


def test_an_address_where_somebody_listens_is_rays_matter(ray, listener, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
    connect(ray)
    assert ray.joined == 1


@pytest.mark.parametrize("address", ["auto", "local", "ray://127.0.0.1:1", "nonsense", ""])
def test_what_is_no_host_and_port_is_rays_matter(ray, address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    connect(ray)
    assert ray.joined == 1


def test_ray_is_loaded_by_nothing_but_the_engine_that_is_entered():
    root = Path(__file__).parents[2]
    naming = [
        path.name for path in (root / "harness").rglob("*.py") if "import ray" in path.read_text()
    ]
    assert naming == ["connection.py"]
