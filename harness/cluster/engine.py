"""The driver's side of a cluster: it gives out workloads, takes results and survives deaths.

Every GPU of the cluster (every CPU, where no host has a GPU) has one actor. What travels to it is a
Job, its packed solution included, and never the driver's environment; what comes back is an
Outcome. An actor that dies, alone or with its node, gives its workload back to the schedule, and a
new actor takes its place where the cluster still has room for one. The driver asks its own machine
for no GPU: facts and versions are the workers'.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cluster.connection import agree, connect, count, first_line, load_ray, located, refusal
from harness.cluster.estimates import expected_s, recorded_latencies_us, recorded_seconds
from harness.cluster.schedule import Item, Schedule
from harness.cluster.worker import BlobMaker, Fingerprint
from harness.config import Room, Workspace
from harness.dataset.blobs import expected_tensors
from harness.dataset.workloads import read_definition
from harness.devices import DeviceFacts
from harness.errors import EnvironmentUnfit
from harness.evaluate.plan import RoomPlan
from harness.evaluate.pool import WorkerCommand
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job, Outcome, Status
from harness.evaluate.verdicts import Judged, utc_now

START_LIMIT_S = 120.0  # until a worker answers for the first time
# The longest of the rooms whose inputs are there goes first; a worker still imports so long.
BLOBS_WAIT_S = 2.0
CLOSE_WAIT_S = 5.0
REPLACEMENTS = 2  # for each worker that a run began with


@dataclass
class _Hand:
    """One actor as the driver sees it. print: None until it has answered."""

    name: str
    actor: Any
    print: Fingerprint | None = None
    node: str = ""
    is_ready: bool = False
    started_at: str = ""


@dataclass(frozen=True)
class _Asked:
    """What an answer that is still to come answers: open, begin, judge or blobs."""

    what: str
    hand: str = ""
    node: str = ""
    room: str = ""


class RayEngine:
    """An Engine on the Ray cluster of RAY_ADDRESS or of this machine; else it starts one here.

    checkout: the workers' checkout, where it is not the one that their harness lies in. command:
    what their pools start.
    """

    def __init__(
        self,
        workspace: Workspace,
        progress: SweepProgress,
        checkout: str | None = None,
        command: WorkerCommand | None = None,
    ) -> None:
        self._workspace, self._progress = workspace, progress
        self._checkout, self._command = checkout, command
        self._hands: dict[str, _Hand] = {}
        self._makers: dict[str, Any] = {}
        self._asked: dict[Any, _Asked] = {}
        self._open_rooms: dict[str, set[str]] = {}
        self._hired = 0
        self.lost_workers = 0
        self._owns_connection = False

    @property
    def facts(self) -> DeviceFacts:
        return self._common.facts

    @property
    def environment(self) -> Mapping[str, str]:
        return self._common.environment

    @property
    def workers(self) -> tuple[Fingerprint, ...]:
        """Those that have answered."""
        return tuple(hand.print for hand in self._hands.values() if hand.print is not None)

    def describe(self) -> str:
        hosts = len({hand.node for hand in self._hands.values()})
        cores = sorted({worker.cores for worker in self.workers})
        return (
            f"{self.facts.name} ({self.facts.slug}), {count(len(self._hands), 'worker')} on "
            f"{count(hosts, 'host')}, cores each: {' or '.join(map(str, cores))}"
        )

    def __enter__(self) -> RayEngine:
        self._ray = load_ray()
        try:
            if not self._ray.is_initialized():
                connect(self._ray)
                self._owns_connection = True
            resources = self._ray.cluster_resources()
            self._on_gpu = resources.get("GPU", 0) >= 1
            self._size = int(resources.get("GPU" if self._on_gpu else "CPU", 0))
            if not self._size:
                raise EnvironmentUnfit(
                    "cluster: expected a host with a GPU or a CPU, got none; `ray status` lists "
                    "what has joined"
                )
            for _ in range(self._size):
                self._hire()
            for node in self._nodes():
                self._hire_maker(node)
            self._wait_for_all("open", START_LIMIT_S)
            self._common = agree(self.workers, self._workspace.root)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        ray = self._ray
        with contextlib.suppress(Exception):  # the cluster may be gone
            closing = [hand.actor.close.remote() for hand in self._hands.values() if hand.is_ready]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=CLOSE_WAIT_S)
            for actor in [hand.actor for hand in self._hands.values()] + [*self._makers.values()]:
                ray.kill(actor)
        self._hands.clear()
        self._makers.clear()
        self._asked.clear()
        if self._owns_connection:
            ray.shutdown()

    def prepare(self, plans: Sequence[RoomPlan]) -> None:
        """Every worker looks at its timer, cache and data, every host at its blobs; the first
        refusal is raised."""
        root = plans[0].dataset_root
        self._dataset_root = None if root == self._workspace.root else str(root)
        self._rooms: dict[str, Room] = {plan.room.name: plan.room for plan in plans}
        self._identities = {plan.room.name: plan.dataset_sha256 for plan in plans}
        self._timer = plans[0].settings.timer
        self._uuids = {plan.room.name: [row.uuid for row in plan.rows] for plan in plans}
        self._bytes = {plan.room.name: _blob_bytes(plan) for plan in plans}
        for hand in self._hands.values():
            self._begin(hand)
            self._supply(hand.node)
        self._expected = {
            (plan.room.name, uuid): seconds
            for plan in plans
            for uuid, seconds in _estimate(self._workspace, plan, self.facts.slug).items()
        }
        self._wait_for_all("begin", START_LIMIT_S)
        self._wait("blobs", BLOBS_WAIT_S)

    def judge(self, jobs: Sequence[Job]) -> Generator[Judged, None, None]:
        self._jobs = {(job.room, job.uuid): job for job in jobs}
        self._texts: dict[str, Any] = {}
        for job in jobs:  # once a room: a definition and a solution are most of a job's bytes
            if job.room not in self._texts:
                texts = {"definition": job.definition, "solution": job.solution}
                self._texts[job.room] = self._ray.put(texts)
        self._schedule = Schedule(
            Item(room, uuid, self._expected[room, uuid]) for room, uuid in self._jobs
        )
        last_seen = time.monotonic()
        self._give_out()
        while self._schedule.unfinished:
            answers = self._answers(1.0)
            verdicts: list[Judged] = []
            try:
                # Verdicts first: a refusal that came with them must not cost them.
                for asked, value in sorted(answers, key=lambda answer: answer[0].what != "judge"):
                    verdicts += self._handle(asked, value)
                self._give_out()  # a GPU need not wait until the disk has its verdict
            finally:
                yield from verdicts
            if answers or any(hand.is_ready for hand in self._hands.values()):
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > START_LIMIT_S or not self._hands:
                yield from self._give_up()

    # Asking and answers

    def _ask(self, reference: Any, asked: _Asked) -> None:
        self._asked[reference] = asked

    def _answers(self, wait_s: float) -> list[tuple[_Asked, Any]]:
        """What has come: a value, or the exception that took its place."""
        if not self._asked:
            time.sleep(wait_s)
            return []
        ray, waiting = self._ray, list(self._asked)
        ready, _ = ray.wait(waiting, num_returns=1, timeout=wait_s)
        if ready:
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        answers = []
        for reference in ready:
            try:
                value = ray.get(reference)
            except ray.exceptions.RayError as error:
                value = error
            answers.append((self._asked.pop(reference), value))
        return answers

    def _wait_for_all(self, what: str, limit_s: float) -> None:
        """Until every worker has answered. Raises what one of them refuses with."""
        if not self._wait(what, limit_s):
            raise EnvironmentUnfit(
                f"cluster: expected {count(self._size, 'worker')} within {limit_s:g} s, got "
                f"{len(self.workers)}; "
                "`ray status` says what the others wait for"
            )

    def _wait(self, what: str, limit_s: float) -> bool:
        """Whether all answers of a kind came within limit_s. Raises what one of them refuses
        with."""
        deadline = time.monotonic() + limit_s
        while any(asked.what == what for asked in self._asked.values()):
            left_s = deadline - time.monotonic()
            if left_s <= 0.0:
                return False
            for asked, value in self._answers(left_s):
                if asked.what == "blobs":
                    self._take_blobs(asked, value)
                elif isinstance(value, Exception):
                    raise refusal(value) from value
                else:
                    self._note_answer(asked, value)
        return True

    def _note_answer(self, asked: _Asked, value: Any) -> None:
        hand = self._hands[asked.hand]
        if asked.what == "open":
            hand.print, hand.node = value
        elif asked.what == "begin":
            hand.is_ready = True

    # Workers

    def _hire(self) -> None:
        """One more actor; it answers once the cluster has a place for it."""
        ray = self._ray
        self._hired += 1
        name = f"worker {self._hired}"
        needs = {"num_gpus": 1, "num_cpus": 0} if self._on_gpu else {"num_cpus": 1}
        actor = ray.remote(located(ray)).options(max_restarts=0, **needs)
        hand = _Hand(name, actor.remote(self._on_gpu, self._checkout, self._command))
        self._hands[name] = hand
        self._ask(hand.actor.open_here.remote(), _Asked("open", name))

    def _begin(self, hand: _Hand) -> None:
        reference = hand.actor.begin.remote(
            self._timer, self._dataset_root, self._rooms, self._identities
        )
        self._ask(reference, _Asked("begin", hand.name))

    def _dismiss(self, hand: _Hand, why: str) -> None:
        self._progress.note(f"{hand.name} ({hand.print or 'not started'}) was lost: {why}")
        self.lost_workers += 1
        del self._hands[hand.name]
        with contextlib.suppress(Exception):
            self._ray.kill(hand.actor)  # one that is only out of reach must not judge any further
        if self._hired < self._size * (1 + REPLACEMENTS):
            self._hire()

    def _nodes(self) -> list[str]:
        """Every node that has room for a worker."""
        needed = "GPU" if self._on_gpu else "CPU"
        alive = {n["NodeID"]: n["Resources"] for n in self._ray.nodes() if n["Alive"]}
        return [node for node, of in alive.items() if of.get(needed, 0) >= 1]

    def _hire_maker(self, node: str) -> None:
        """One maker of blobs for a host, with the cores that its GPUs' workers can spare."""
        ray = self._ray
        place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        maker = ray.remote(BlobMaker).options(
            num_cpus=0, scheduling_strategy=place, max_restarts=2, max_task_retries=2
        )
        self._makers[node] = maker.remote(self._on_gpu, self._checkout)

    def _supply(self, node: str) -> None:
        """Have the inputs of a host made, small rooms first so that its workers can begin."""
        if node in self._open_rooms:
            return
        if node not in self._makers:
            self._hire_maker(node)
        self._open_rooms[node] = set()
        for room in sorted(self._bytes, key=lambda room: self._bytes[room]):
            if not self._bytes[room]:
                self._open_rooms[node].add(room)
                continue
            reference = self._makers[node].make.remote(
                self._dataset_root, self._rooms[room], self._uuids[room]
            )
            self._ask(reference, _Asked("blobs", node=node, room=room))

    # The run

    def _give_out(self) -> None:
        """A workload for every free worker that should have one."""
        busy = {asked.hand for asked in self._asked.values() if asked.what == "judge"}
        for hand in self._hands.values():
            if not hand.is_ready or hand.name in busy:
                continue
            item = self._schedule.take(hand.name, self._open_rooms[hand.node])
            if item is None:
                continue
            job = self._jobs[item.room, item.key]
            values = {**job.to_json(), "dataset_root": ""}
            del values["definition"], values["solution"]
            hand.started_at = utc_now(timespec="microseconds")
            reference = hand.actor.judge.remote(self._texts[item.room], values)
            self._ask(reference, _Asked("judge", hand.name))

    def _handle(self, asked: _Asked, value: Any) -> Iterator[Judged]:
        if asked.what == "blobs":
            self._take_blobs(asked, value)
            return
        hand = self._hands.get(asked.hand)
        if hand is None:
            return
        if asked.what == "judge":
            yield from self._take_verdict(hand, value)
        elif isinstance(value, Exception):
            self._dismiss(hand, str(refusal(value)).splitlines()[0])
        else:
            self._welcome(hand, asked, value)

    def _take_blobs(self, asked: _Asked, value: Any) -> None:
        """A host without its maker, lost with it perhaps, judges with the blobs that it has."""
        if isinstance(value, self._ray.exceptions.RayTaskError):
            raise refusal(value) from value
        self._open_rooms[asked.node].add(asked.room)

    def _welcome(self, hand: _Hand, asked: _Asked, value: Any) -> None:
        """A worker that takes the place of a lost one, if it is like the others."""
        self._note_answer(asked, value)
        if asked.what == "open":
            assert hand.print is not None
            if hand.print.alike() != self._common.alike():
                self._dismiss(hand, "its device or its versions are not those of this run")
            else:
                self._begin(hand)
        else:
            self._supply(hand.node)

    def _take_verdict(self, hand: _Hand, value: Any) -> Iterator[Judged]:
        errors = self._ray.exceptions
        if isinstance(value, errors.RayTaskError):
            outcome = Outcome(Status.INFRASTRUCTURE, detail=str(refusal(value))[:600])
            yield self._judged(self._schedule.finish(hand.name), outcome, hand)
        elif isinstance(value, Exception):
            item, again = self._schedule.lose(hand.name)
            self._dismiss(hand, first_line(value))
            if item is not None and not again:
                detail = f"its worker was lost each time, the last one to {first_line(value)}"
                yield self._judged(item, Outcome(Status.INFRASTRUCTURE, detail=detail), hand)
        else:
            outcome, clocks = value
            yield self._judged(self._schedule.finish(hand.name), outcome, hand, clocks)

    def _judged(self, item: Item, outcome: Outcome, hand: _Hand | None, clocks: Any = ()) -> Judged:
        job = self._jobs[item.room, item.key]
        if hand is None or hand.print is None:
            return Judged(job, outcome, utc_now(timespec="microseconds"))
        worker = {"host": hand.print.host, "gpu": hand.print.facts.uuid or hand.name}
        return Judged(job, outcome, hand.started_at, clocks, worker)

    def _give_up(self) -> Iterator[Judged]:
        """No worker is left and none has come: say so for each workload that is still to judge."""
        lost = Outcome(
            Status.INFRASTRUCTURE, detail="no worker of the cluster was left to judge it"
        )
        for item in self._schedule.drain():
            yield self._judged(item, lost, None)


def _estimate(workspace: Workspace, plan: RoomPlan, device: str) -> dict[str, float]:
    seconds = recorded_seconds(workspace.root, plan, device)
    latencies_us = recorded_latencies_us(workspace.root, plan, device)
    return expected_s(plan.room.name, plan.rows, seconds, latencies_us)


def _blob_bytes(plan: RoomPlan) -> int:
    """Of all inputs of a room that lie in files."""
    definition = read_definition(plan.dataset_root, plan.room)
    files = [tensors for row in plan.rows for tensors in expected_tensors(definition, row).values()]
    return sum(spec.size_bytes for tensors in files for spec in tensors.values())
