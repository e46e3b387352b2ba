"""One workload: every side is judged, then measured in rounds, one side at a time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from harness.compare.lanes import Lane
from harness.compare.record import MIN_ROUNDS, SideResult
from harness.evaluate.pool import MeasurementFailed, Pool
from harness.evaluate.protocol import Job, Outcome, Stage, Status
from harness.records import RETRIED_STATUSES

SLOW_CALL_US = 20_000.0  # a round of a dozen such calls a side is a quarter of a second or more
SLOW_TURNS = 2  # one after the other: a single hiccup must not cost both sides of a pair rounds
SLOW_ROUNDS = MIN_ROUNDS
SLOW_WARMUP_RUNS, SLOW_ITERATIONS = 0, 1  # against noise of microseconds a long call needs no more

OnStage = Callable[[Stage], None]


@dataclass(frozen=True)
class Visits:
    """How often the sides take turns, and the calls of one turn."""

    rounds: int
    warmup_runs: int
    iterations: int


def judge_sides(
    lanes: Sequence[Lane], jobs: Mapping[str, Job], on_stage: OnStage
) -> dict[str, Outcome]:
    """Inputs, reference, build and correctness of every side at once; what passed is kept.

    Lanes with the same content build one after another: the native route compiles at its first
    call, from files that another worker's build would be rewriting. Where machine or reference
    failed, for want of memory perhaps, the side is asked again while nobody else works.
    """
    pending: dict[str, Future[Outcome]] = {}
    for index, lane in enumerate(lanes):
        if not lane.is_warm:
            wait(pending[twin.side] for twin in lanes[:index] if twin.content == lane.content)
        pending[lane.side] = lane.submit(partial(_judge, jobs[lane.side], on_stage))
    outcomes = {}
    for lane in lanes:
        outcomes[lane.side] = pending[lane.side].result()
    for lane in lanes:
        outcome = outcomes[lane.side]
        if outcome.status.value in RETRIED_STATUSES:
            outcome = lane.submit(partial(_judge, jobs[lane.side], on_stage)).result()
            outcomes[lane.side] = outcome
        lane.is_warm = outcome.status is Status.PASSED
    return outcomes


def _judge(job: Job, on_stage: OnStage, pool: Pool) -> Outcome:
    return pool.run(job, on_stage)


def _measure(warmup_runs: int, iterations: int, timeout_s: float, pool: Pool) -> float:
    """Median of one turn, in µs."""
    return statistics.median(pool.measure(warmup_runs, iterations, timeout_s))


@dataclass
class _Turns:
    """What one side has shown so far."""

    lane: Lane
    rounds_us: list[float]
    is_slow: bool = False
    failure: Outcome | None = None

    def warm_up(self, timeout_s: float) -> None:
        """A discarded turn, and another where the first was slow: one may be the machine's."""
        for _ in range(SLOW_TURNS):
            call_us = self.take(SLOW_WARMUP_RUNS, SLOW_ITERATIONS, timeout_s)
            self.is_slow = call_us is not None and call_us > SLOW_CALL_US
            if not self.is_slow:
                return

    def take(self, warmup_runs: int, iterations: int, timeout_s: float) -> float | None:
        """One turn, while nobody else uses the GPU; None where the side fails in it."""
        task = partial(_measure, warmup_runs, iterations, timeout_s)
        try:
            return self.lane.submit(task).result()
        except MeasurementFailed as error:
            self.failure = error.outcome
            self.lane.is_warm = False
            return None


def measure_sides(
    lanes: Sequence[Lane], outcomes: Mapping[str, Outcome], visits: Visits, timeout_s: float
) -> tuple[dict[str, SideResult], dict[str, str]]:
    """Rounds of every side whose outcome is PASSED; the others' rows say what they failed of.
    Beside them the logs of those that did not pass, by side.

    Discarded turns come first and tell slow sides, which get SLOW_ROUNDS. The order moves on by
    one from round to round, so that no side always follows the same idle time.
    """
    turns = [_Turns(lane, []) for lane in lanes if outcomes[lane.side].status is Status.PASSED]
    for side in turns:
        side.warm_up(timeout_s)
    for number in range(visits.rounds):
        in_round = [
            side
            for side in turns
            if side.failure is None and not (side.is_slow and number >= SLOW_ROUNDS)
        ]
        first = number % len(in_round) if in_round else 0
        for side in in_round[first:] + in_round[:first]:
            calls = (
                (SLOW_WARMUP_RUNS, SLOW_ITERATIONS)
                if side.is_slow
                else (visits.warmup_runs, visits.iterations)
            )
            latency_us = side.take(*calls, timeout_s)
            if latency_us is not None:
                side.rounds_us.append(latency_us)
    rounds_us = {side.lane.side: tuple(side.rounds_us) for side in turns if side.failure is None}
    failures = {side.lane.side: side.failure for side in turns if side.failure is not None}
    results, logs = {}, {}
    for name, outcome in {**outcomes, **failures}.items():
        results[name] = SideResult(outcome.status.value, outcome.detail, rounds_us.get(name, ()))
        if name not in rounds_us:
            logs[name] = outcome.log
    return results, logs
