"""What parent and worker say to each other: a job goes in, stages and one outcome come out."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Status(str, Enum):
    """Verdict on one workload. The first seven are the official ones."""

    PASSED = "PASSED"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    COMPILE_ERROR = "COMPILE_ERROR"
    TIMEOUT = "TIMEOUT"
    NO_GPU_WORK = "NO_GPU_WORK"  # nothing that the timer could attribute to the call
    INVALID_REFERENCE = "INVALID_REFERENCE"  # NaN or Inf in the reference: nothing was tested
    REFERENCE_ERROR = "REFERENCE_ERROR"  # the reference raised, crashed or hung
    INFRASTRUCTURE = "INFRASTRUCTURE"  # says nothing about the solution; retried on resume


class Stage(str, Enum):
    """What a worker is doing; decides who is to blame when it dies."""

    START = "start"
    INPUTS = "inputs"
    REFERENCE = "reference"
    BUILD = "build"
    CORRECTNESS = "correctness"
    TIMING = "timing"
    REFERENCE_TIMING = "timing of the reference"


HOST_TIMER = "host"  # the correctness call on the host's clock: what a run on a CPU has
SOLUTION_STAGES = (Stage.BUILD, Stage.CORRECTNESS, Stage.TIMING)


@dataclass(frozen=True)
class Settings:
    """Everything that decides a verdict besides the bytes judged. Part of the judge hash."""

    warmup_runs: int
    iterations: int
    trials: int
    atol: float
    rtol: float
    required_matched_ratio: float
    timeout_s: int
    timer: str
    seed: int


@dataclass(frozen=True)
class Job:
    """One workload of one room. Paths are absolute; `workload` is the official JSON object.

    definition, solution: the JSON texts themselves, so that an edit or a pack in the middle of a
    sweep cannot change what is judged.
    repeat_options: what a command that repeats this job needs besides room, UUID and seed.
    keep: judge correctness only, and hold the solution ready to be measured until the next job.
    """

    room: str
    definition: str
    solution: str
    dataset_root: str
    workload: dict[str, Any]
    device: str
    settings: Settings
    only_trial: int | None = None
    time_reference: bool = False
    dump_folder: str | None = None
    repeat_options: str = ""
    keep: bool = False

    @property
    def uuid(self) -> str:
        return str(self.workload["uuid"])

    def trials(self) -> list[int]:
        """Indices of the trials to run."""
        if self.only_trial is not None:
            return [self.only_trial]
        return list(range(self.settings.trials))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Job:
        return Job(**{**values, "settings": Settings(**values["settings"])})


@dataclass(frozen=True)
class Outcome:
    """The verdict on one job. Latencies in µs; errors are the worst over trials and outputs.

    evaluation: the official Evaluation as JSON, None where no official status exists.
    faulted: the worker's CUDA context is unusable afterwards.
    """

    status: Status
    latency_us: float | None = None
    trial_latencies_us: tuple[float, ...] = ()
    reference_latency_us: float | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    matched_ratio: float | None = None
    activities: tuple[str, ...] = ()
    detail: str = ""
    log: str = ""
    evaluation: dict[str, Any] | None = None
    faulted: bool = False
    stages_s: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.value}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Outcome:
        return Outcome(
            **{
                **values,
                "status": Status(values["status"]),
                "trial_latencies_us": tuple(values["trial_latencies_us"]),
                "activities": tuple(values["activities"]),
            }
        )


def trial_seed(seed: int, uuid: str, trial: int) -> int:
    """The seed of one trial's random inputs: independent of which other trials run."""
    digest = hashlib.sha256(f"{seed}:{uuid}:{trial}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
