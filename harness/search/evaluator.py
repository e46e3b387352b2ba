"""What measures candidates: one protocol, so that a search is tested without a GPU, and how much
effort each stage is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.compare.plan import DEFAULT_ITERATIONS
from harness.compare.record import CompareRecord
from harness.compare.statistics import DEFAULT_ROUNDS
from harness.controller.decision import CONFIRMATION, GATE, SWEEP
from harness.packing import Packed

BASELINE = "baseline"  # the side that every candidate stands beside


@dataclass(frozen=True)
class Effort:
    """rounds, iterations: of the interleaved turns. trials: of correctness, None for the official
    number. is_fresh: in processes of its own, after which the GPU must have been ours alone. The
    time limit is the official one: native candidates are compiled one after another."""

    rounds: int
    iterations: int = DEFAULT_ITERATIONS
    trials: int | None = None
    is_fresh: bool = False


# Ten sides take a quarter of a second a round, so that a gate of ten candidates on three workloads
# costs seconds. A sweep is as precise over all workloads with 6 rounds as one workload with many:
# its score averages them. The confirmation has the rounds of a recorded comparison, and new
# processes, since where their memory lies is part of what the first sweep measured.
EFFORTS = {
    GATE: Effort(rounds=6, trials=1),
    SWEEP: Effort(rounds=6),
    CONFIRMATION: Effort(rounds=DEFAULT_ROUNDS, is_fresh=True),
}


@dataclass(frozen=True)
class Measured:
    """One measurement. record: sides are BASELINE, each candidate by its solution name, and the
    control of the baseline. device_s: seconds that it held the GPU. distrust: why nothing of it
    counts, or None."""

    record: CompareRecord
    device_s: float
    distrust: str | None = None


@dataclass(frozen=True)
class Replayed:
    """objection: what stands against a candidate in many fresh trials, "" where nothing does or the
    room is not flagged. device_s: seconds that it held the GPU."""

    objection: str = ""
    device_s: float = 0.0


class Evaluator(Protocol):
    """Measures packed solutions of one room beside each other."""

    def measure(
        self,
        stage: str,
        baseline: Packed,
        candidates: Sequence[Packed],
        uuids: Sequence[str] | None,
    ) -> Measured:
        """All sides in turns on these workloads, None for all. Raises HarnessError where nothing
        can be measured; what a candidate does wrong is a row of the record."""

    def replay(self, candidate: Packed) -> Replayed:
        """Many fresh trials of the candidate, where the room is flagged."""
