"""Measures candidates on this machine's GPU: a warm worker a side, in turns with the baseline.

Workers outlive a measurement, so that a candidate costs its build and its rounds, and not a new
process. All sides of a measurement build at once. Each finished workload is a line of
traces/<device>/<room>.search.ndjson before the next one starts, and what was measured is taken from
there when a run goes on. Only what machine or reference failed is measured a second time, in new
workers; both lines stay.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import dataset
from harness.compare.display import describe_failures
from harness.compare.engine import STRANGERS, compare_row, has_strangers, record_of
from harness.compare.lanes import CLOSE_WAIT_S, Lane, PoolFactory
from harness.compare.ledger import CompareEntry, CompareLedger
from harness.compare.plan import ComparePlan, CompareRequest, complete_plan
from harness.compare.record import Side
from harness.compare.sides import PackedSide
from harness.config import Workspace
from harness.dataset import WorkloadRow
from harness.devices import DeviceFacts, read_facts, require_gpu
from harness.errors import RecordError, UsageError
from harness.evaluate.alone import LOCK_WAIT_S, hold_device
from harness.evaluate.plan import Request, choose_workloads, plan_room, torch_device
from harness.evaluate.pool import Pool, build_caches
from harness.evaluate.progress import SweepProgress
from harness.evaluate.verdicts import utc_now
from harness.files import KEEPS_RESULTS, require_writable
from harness.packing import Packed
from harness.records import sole_writer
from harness.replay.engine import ReplayRequest, replay_solution
from harness.replay.record import load_replay, replay_path
from harness.replay.suspicion import is_exposed, suspicion
from harness.search.evaluator import BASELINE, EFFORTS, Effort, Measured, Replayed
from harness.timing import require_timer

LEDGER_SUFFIX = ".search.ndjson"
SHOWN_FAILURES = 3  # of a workload's sides; the ledger has all of them


class LiveEvaluator:
    """A context manager: it holds the GPU, and its workers end with it.

    make_pool: only with one of its own does it run without a GPU.
    """

    def __init__(
        self,
        workspace: Workspace,
        room: str,
        progress: SweepProgress,
        *,
        seed: int = 0,
        commit: str | None = None,
        facts: DeviceFacts | None = None,
        make_pool: PoolFactory | None = None,
    ) -> None:
        self._workspace, self._room, self._progress = workspace, room, progress
        self._seed, self._commit = seed, commit
        self.facts = facts or read_facts()
        if make_pool is None:
            require_gpu(self.facts, "candidates are told apart by latency")
        if self.facts.uuid is not None:
            require_timer("cupti")
        self._root = dataset.locate(workspace, None)
        self._bench = _Bench(torch_device(self.facts), workspace.root, make_pool or Pool)
        path = workspace.root / "traces" / self.facts.slug / f"{room}{LEDGER_SUFFIX}"
        self._ledger = CompareLedger(path)
        self._held = contextlib.ExitStack()

    def __enter__(self) -> LiveEvaluator:
        with contextlib.ExitStack() as held:
            held.enter_context(hold_device(self.facts))
            require_writable(*build_caches())
            require_writable(self._workspace.root / "traces", advice=KEEPS_RESULTS)
            held.enter_context(sole_writer(self._ledger.path, LOCK_WAIT_S))
            rows = self._rows(None)
            dataset.ensure_blobs(self._root, self._workspace.room(self._room), list(rows))
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._bench.close()
        self._held.close()

    def measure(
        self,
        stage: str,
        baseline: Packed,
        candidates: Sequence[Packed],
        uuids: Sequence[str] | None,
    ) -> Measured:
        """As Evaluator.measure. Raises HarnessError."""
        began, started_at = time.monotonic(), utc_now(timespec="microseconds")
        effort = EFFORTS[stage]
        plan = self._plan(effort, baseline, candidates, self._rows(uuids))
        if effort.is_fresh:
            self._bench.close()
        self._progress.room_started(
            self._room,
            len(plan.base.rows),
            0,
            f"{baseline.name}, {stage} of {len(candidates)} more",
        )
        known = self._ledger.final()  # of a run before this one
        entries = [
            known.get(plan.key(row)) or self._measure_row(plan, row) for row in plan.base.rows
        ]
        entries = self._again(plan, entries)
        distrust = None
        if effort.is_fresh:
            self._bench.close()  # so that whoever is left on the GPU is a stranger
            if has_strangers(self.facts):
                distrust = STRANGERS
                self._ledger.void(started_at, distrust)
        record = record_of(self._workspace, plan, entries)
        return Measured(record, round(time.monotonic() - began, 3), distrust)

    def replay(self, candidate: Packed) -> Replayed:
        """As Evaluator.replay. A room is flagged where its recorded replay is suspicious; then the
        candidate must be clean on the workloads that are, in as many trials."""
        path, began = replay_path(self._workspace.root, self._room), time.monotonic()
        if not path.exists():
            return Replayed()
        try:
            record = load_replay(path)
        except RecordError as error:
            return Replayed(str(error))
        if suspicion(record) is None:
            return Replayed()
        rows = self._rows(
            [
                row.uuid
                for row in record.workloads
                if row.mismatches or row.stopped is not None or is_exposed(row, record.atol)
            ]
        )
        self._bench.close()  # memory and the GPU belong to the trials
        asked = Request(rooms=(self._room,), seed=record.seed)
        plan = plan_room(
            self._workspace, self._room, candidate, rows, asked, self._root, self.facts
        )
        trials = max(row.asked for row in record.workloads if row.uuid in {r.uuid for r in rows})
        request = ReplayRequest(self._room, trials=trials, seed=record.seed, resume=True)
        found = replay_solution(self._workspace, plan, request, self.facts, self._progress)
        return Replayed(suspicion(found) or "", round(time.monotonic() - began, 3))

    def _rows(self, uuids: Sequence[str] | None) -> tuple[WorkloadRow, ...]:
        wanted = ("all",) if uuids is None else tuple(uuids)
        asked = Request(rooms=(self._room,), workloads=wanted)
        chosen = choose_workloads(self._workspace, asked, self._root, on_cpu=False)
        if self._room not in chosen:
            raise UsageError(f"{self._room}: expected workloads, got none of {', '.join(wanted)}")
        return chosen[self._room]

    def _plan(
        self,
        effort: Effort,
        baseline: Packed,
        candidates: Sequence[Packed],
        rows: tuple[WorkloadRow, ...],
    ) -> ComparePlan:
        asked = Request(rooms=(self._room,), trials=effort.trials, seed=self._seed)
        base = plan_room(self._workspace, self._room, baseline, rows, asked, self._root, self.facts)
        request = CompareRequest(
            a=BASELINE,
            b="candidates",
            rounds=effort.rounds,
            iterations=effort.iterations,
            trials=effort.trials,
            seed=self._seed,
            commit=self._commit,
        )
        sides = [_side(BASELINE, baseline)]
        sides += [_side(candidate.name, candidate) for candidate in candidates]
        return complete_plan(request, asked, base, tuple(sides), self.facts)

    def _measure_row(self, plan: ComparePlan, row: WorkloadRow) -> CompareEntry:
        contents = {one.side.name: one.packed.sha256 for one in plan.running}
        self._progress.workload_started(row.uuid, plan.base.settings.timeout_s)
        entry = compare_row(plan, row, self._bench.seat(contents), self._progress)
        self._ledger.append(entry)
        passed = sum(result.status == "PASSED" for result in entry.results.values())
        self._progress.row_finished(
            row.uuid,
            f"{passed} of {len(entry.results)} sides pass",
            describe_failures(entry.results)[:SHOWN_FAILURES],
            False,
        )
        return entry

    def _again(self, plan: ComparePlan, entries: Sequence[CompareEntry]) -> list[CompareEntry]:
        """The entries, those without a verdict measured once more by new workers."""
        result = list(entries)
        lost = [index for index, entry in enumerate(entries) if not entry.is_final]
        if lost:
            self._progress.note(f"{self._room}: {len(lost)} workloads lost to the machine, again")
            self._bench.close()
        for index in lost:
            self._progress.room_started(self._room, 1, 0, f"{plan.sides[0].packed.name}, retried")
            result[index] = self._measure_row(plan, plan.base.rows[index])
        return result


class _Bench:
    """Lanes that are kept warm and given to whichever sides come next."""

    def __init__(self, device: str, root: Path, make_pool: PoolFactory) -> None:
        self._device, self._root, self._make_pool = device, root, make_pool
        self._lanes: list[Lane] = []

    def seat(self, contents: Mapping[str, str]) -> tuple[Lane, ...]:
        """A lane for each side, in their order; a side gets one that has its content, if any.

        contents: side to the hash of what it runs.
        """
        free = list(self._lanes)
        seats: dict[str, Lane] = {}
        for side, content in contents.items():
            known = next((lane for lane in free if lane.content == content), None)
            if known is not None:
                free.remove(known)
                seats[side] = known
        for side, content in contents.items():
            if side in seats:
                continue
            if free:
                lane = free.pop(0)
            else:
                lane = Lane(side, content, self._make_pool(self._device, self._root))
                self._lanes.append(lane)
            lane.content, lane.is_warm = content, False
            seats[side] = lane
        for side, lane in seats.items():
            lane.side = side
        return tuple(seats[side] for side in contents)

    def close(self) -> None:
        """End all workers."""
        deadline = time.monotonic() + CLOSE_WAIT_S
        while self._lanes:
            self._lanes.pop().close(deadline)


def _side(name: str, packed: Packed) -> PackedSide:
    return PackedSide(Side(name, "json", packed.name, packed.sha256), packed)
