"""The ledger of traces: one verdict a line, appended, fsynced and never rewritten.

A line of <room>.jsonl is an official Trace (definition, workload, solution, evaluation) with one
more key, "harness", that flashinfer-bench ignores. Official tools therefore read the ledgers of a
checkout as its traces. They abort on anything else under traces/**/*.jsonl, and where no official
status fits they would draw a wrong conclusion from a borrowed one: RUNTIME_ERROR would count
against the solution, and the official --resume would never judge that workload again. So what is
no verdict on the solution (a bad reference, a broken machine) goes to <room>.unjudged.ndjson
beside it, which they do not scan. NO_GPU_WORK is a verdict, and main itself reports it as
RUNTIME_ERROR: the line says so officially and keeps the finer word under "harness".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import RecordError
from harness.records.lines import append_line, read_lines
from harness.records.runs import RETRIED_STATUSES, STATUSES, UNJUDGED_STATUSES
from harness.records.strict_json import Fields

UNJUDGED_SUFFIX = ".unjudged.ndjson"
_OFFICIAL_KEYS = ("definition", "workload", "evaluation")  # and solution, as solution_name
_OWN_KEY = "harness"


class ResumeKey(NamedTuple):
    """What a verdict depends on. Equal keys, equal verdict."""

    solution_sha256: str
    judge_sha256: str
    dataset_sha256: str
    settings_sha256: str
    environment: tuple[tuple[str, str], ...]
    device: str
    uuid: str


@dataclass(frozen=True)
class TraceEntry:
    """One verdict on one workload.

    workload: the official JSON object (uuid, axes, inputs). device: slug. hardware: the device's
    full name. latency_us: µs. attempt: from 1. started_at, ended_at: UTC in ISO form. detail: one
    line on a failure. evaluation: the official Evaluation as JSON, made from the rest where None.
    measurement: what else was seen, such as the latency of each trial and the kernels' names.
    environment: versions of driver and libraries by name; a line from before they were kept has
    none and is never reused.
    """

    room: str
    definition: str
    workload: Mapping[str, Any]
    solution_name: str
    solution_sha256: str
    judge_sha256: str
    dataset_sha256: str
    settings_sha256: str
    device: str
    hardware: str
    status: str
    seed: int
    started_at: str
    ended_at: str
    attempt: int = 1
    latency_us: float | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    matched_ratio: float | None = None
    log: str = ""
    detail: str = ""
    evaluation: Mapping[str, Any] | None = None
    measurement: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        return str(self.workload["uuid"])

    @property
    def is_judged(self) -> bool:
        """Whether the status is a verdict on the solution."""
        return self.status not in UNJUDGED_STATUSES

    @property
    def resume_key(self) -> ResumeKey:
        return ResumeKey(
            self.solution_sha256, self.judge_sha256, self.dataset_sha256, self.settings_sha256,
            tuple(sorted(self.environment.items())), self.device, self.uuid,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The line as JSON values: an official Trace where the status is a verdict."""
        own = asdict(self)
        line = {key: own.pop(key) for key in _OFFICIAL_KEYS}
        line["evaluation"] = self._official_evaluation() if self.is_judged else None
        return {**line, "solution": own.pop("solution_name"), _OWN_KEY: own}

    @staticmethod
    def from_json(values: Any, source: str = "trace") -> TraceEntry:
        """Raises RecordError naming source and key."""
        return _read_entry(Fields(source, "", values))

    def _official_evaluation(self) -> dict[str, Any]:
        official = "RUNTIME_ERROR" if self.status == "NO_GPU_WORK" else self.status
        if self.evaluation is not None:
            status = self.evaluation.get("status")
            if status != official:
                raise RecordError(
                    f"trace of {self.uuid}: evaluation.status: expected {official}, got {status!r}"
                )
            return dict(self.evaluation)
        evaluation: dict[str, Any] = {
            "status": official,
            "environment": {"hardware": self.hardware, "libs": {}},
            "timestamp": self.ended_at,
            "log": self.log or self.detail,
        }
        if official in ("PASSED", "INCORRECT_NUMERICAL"):
            errors = {"relative": self.max_rel_error, "absolute": self.max_abs_error}
            evaluation["correctness"] = {
                f"max_{kind}_error": float("nan") if error is None else error
                for kind, error in errors.items()
            }
        if official == "PASSED":
            evaluation["performance"] = {"latency_ms": (self.latency_us or 0.0) / 1e3}
        return evaluation


def _read_entry(table: Fields) -> TraceEntry:
    own = table.object(_OWN_KEY)
    workload = table.take("workload", dict)
    if not isinstance(workload.get("uuid"), str):
        raise table.fail("workload.uuid", "text", workload.get("uuid"))
    entry = TraceEntry(
        room=own.text("room"),
        definition=table.text("definition"),
        workload=workload,
        solution_name=table.text("solution"),
        solution_sha256=own.text("solution_sha256"),
        judge_sha256=own.text("judge_sha256"),
        dataset_sha256=own.text("dataset_sha256"),
        settings_sha256=own.text("settings_sha256"),
        device=own.text("device"),
        hardware=own.text("hardware"),
        status=own.text("status"),
        seed=own.count("seed"),
        started_at=own.instant("started_at"),
        ended_at=own.instant("ended_at"),
        attempt=own.count("attempt", 1),
        latency_us=own.positive("latency_us"),
        max_abs_error=own.error("max_abs_error"),
        max_rel_error=own.error("max_rel_error"),
        matched_ratio=own.error("matched_ratio"),
        log=own.take("log", str),
        detail=own.take("detail", str),
        measurement=own.take("measurement", dict) if own.has("measurement") else {},
        environment=own.texts("environment") if own.has("environment") else {},
        evaluation=None if table.is_null("evaluation") else table.take("evaluation", dict),
    )
    own.done()
    table.done()
    if entry.status not in STATUSES:
        raise own.fail("status", f"one of {', '.join(STATUSES)}", entry.status)
    entry.to_json()  # refuses a verdict that the official evaluation contradicts
    return entry


class TraceLedger:
    """The traces of one room on one device: `path` and the unjudged ones beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unjudged_path = path.with_name(path.stem + UNJUDGED_SUFFIX)

    @staticmethod
    def of(root: Path, device: str, room: str) -> TraceLedger:
        """The ledger traces/<device>/<room>.jsonl of a checkout."""
        return TraceLedger(root / "traces" / device / f"{room}.jsonl")

    def append(self, entry: TraceEntry) -> None:
        """Add one line and wait until the disk has it. Raises InfrastructureFailure."""
        append_line(self.path if entry.is_judged else self.unjudged_path, entry.to_json())

    def entries(self) -> list[TraceEntry]:
        """All traces, oldest first. Unreadable lines are left out with one warning each.

        A line is never older than the one above it, whatever a clock that was set back says.
        """
        dated: list[tuple[str, TraceEntry]] = []
        for path in (self.path, self.unjudged_path):
            latest = ""
            for entry in read_lines(path, TraceEntry.from_json):
                latest = max(latest, entry.ended_at)
                dated.append((latest, entry))
        return [entry for _, entry in sorted(dated, key=lambda pair: pair[0])]

    def verdicts(self) -> dict[ResumeKey, TraceEntry]:
        """The newest trace of each key that --resume may reuse: failures too, but never one that
        a broken machine left."""
        return {e.resume_key: e for e in self.entries() if e.status not in RETRIED_STATUSES}
