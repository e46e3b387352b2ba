"""One run of one room as frozen values, and the checks that a run record must pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from harness.records.strict_json import Fields, dump_document, encode
from harness.records.summary import summarise

OFFICIAL_STATUSES = (
    "PASSED",
    "INCORRECT_SHAPE",
    "INCORRECT_NUMERICAL",
    "INCORRECT_DTYPE",
    "RUNTIME_ERROR",
    "COMPILE_ERROR",
    "TIMEOUT",
)
# These say nothing about the solution, and no official status means that.
UNJUDGED_STATUSES = ("INVALID_REFERENCE", "REFERENCE_ERROR", "INFRASTRUCTURE")
# A reference may fail for want of memory or a cache; an invalid one comes out the same again.
RETRIED_STATUSES = ("INFRASTRUCTURE", "REFERENCE_ERROR")
# flashinfer-bench main reports a call without GPU work as RUNTIME_ERROR of the solution.
STATUSES = (*OFFICIAL_STATUSES, "NO_GPU_WORK", *UNJUDGED_STATUSES)

SHA256 = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
COMMIT = re.compile(r"[0-9a-f]{7,40}(-dirty)?")
UNKNOWN_COMMIT = "unknown"  # of a tree without git
COMMIT_OR_UNKNOWN = re.compile(f"{COMMIT.pattern}|{UNKNOWN_COMMIT}")


@dataclass(frozen=True)
class WorkloadRow:
    """One workload of a run. Latencies in µs.

    latency_us is None where the workload did not pass or only the host's clock was read; floor_us
    where nobody measured the device's ceilings; the errors (worst over trials and outputs) and
    matched_ratio (least) where the acceptance rule reports none.
    """

    uuid: str
    axes: Mapping[str, int]
    status: str
    latency_us: float | None = None
    floor_us: float | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    matched_ratio: float | None = None


@dataclass(frozen=True)
class Protocol:
    """How each workload was run: counts of calls, and the element rule of the evaluator."""

    warmup: int
    iterations: int
    trials: int
    atol: float
    rtol: float
    required_matched_ratio: float


@dataclass(frozen=True)
class DatasetIdentity:
    """Which workload data: its name, and the sha256 of the room's share of it."""

    name: str
    sha256: str


@dataclass(frozen=True)
class RunRecord:
    """One run of one room on one device, workloads in the order in which they were asked for.

    device: slug such as "nvidia-h200". libraries: name to version. clocks: what was seen of the
    GPU's clocks, or None. measured_at: when the first of its workloads was started, an earlier
    run's where --resume kept its verdict; UTC, "2026-01-31T23:59:59Z".
    """

    room: str
    definition: str
    solution_name: str
    solution_sha256: str
    judge_sha256: str
    commit: str
    device: str
    driver: str | None
    libraries: Mapping[str, str]
    clocks: Mapping[str, Any] | None
    timer: str
    protocol: Protocol
    dataset: DatasetIdentity
    seed: int
    workloads: tuple[WorkloadRow, ...]
    measured_at: str

    @property
    def passed(self) -> int:
        return sum(row.status == "PASSED" for row in self.workloads)

    @property
    def total(self) -> int:
        return len(self.workloads)

    @property
    def mean_latency_us(self) -> float | None:
        """Mean over all workloads, in µs. None where any lacks a latency."""
        summary = summarise([row.latency_us for row in self.workloads])
        return summary.mean_us if summary else None

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values, keys in the committed order."""
        values = asdict(self)
        workloads, measured_at = values.pop("workloads"), values.pop("measured_at")
        values |= {
            "passed": self.passed,
            "total": self.total,
            "mean_latency_us": self.mean_latency_us,
            "workloads": list(workloads),
            "measured_at": measured_at,
        }
        encoded: dict[str, Any] = encode(values)
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "run record") -> RunRecord:
        """Check every key and value. Raises RecordError naming source and key."""
        return _read_record(Fields(source, "", values))


def _read_row(table: Fields, timer: str) -> WorkloadRow:
    row = WorkloadRow(
        uuid=table.text("uuid"),
        axes=table.take("axes", dict),
        status=table.text("status"),
        latency_us=table.positive("latency_us"),
        floor_us=table.positive("floor_us"),
        max_abs_error=table.error("max_abs_error"),
        max_rel_error=table.error("max_rel_error"),
        matched_ratio=None
        if table.is_null("matched_ratio")
        else table.number("matched_ratio", 0.0, 1.0),
    )
    table.done()
    if row.status not in STATUSES:
        raise table.fail("status", f"one of {', '.join(STATUSES)}", row.status)
    if not all(type(size) is int and size >= 0 for size in row.axes.values()):
        raise table.fail("axes", "sizes", row.axes)
    if row.latency_us is not None and row.status != "PASSED":
        raise table.fail("latency_us", f"null beside {row.status}", row.latency_us)
    if (row.latency_us is None) != (timer == "host") and row.status == "PASSED":
        raise table.fail("latency_us", f"a latency unless only the host timed ({timer})", None)
    return row


class Subject(TypedDict):
    """What every record says of itself: what was judged, and where."""

    room: str
    definition: str
    solution_name: str
    solution_sha256: str
    commit: str
    device: str
    driver: str | None
    libraries: dict[str, str]


def read_subject(table: Fields) -> Subject:
    """Raises RecordError."""
    return {
        "room": table.text("room", NAME),
        "definition": table.text("definition"),
        "solution_name": table.text("solution_name"),
        "solution_sha256": table.text("solution_sha256", SHA256),
        "commit": table.text("commit", COMMIT_OR_UNKNOWN),
        "device": table.text("device", NAME),
        "driver": None if table.is_null("driver") else table.text("driver"),
        "libraries": table.texts("libraries"),
    }


def _read_record(table: Fields) -> RunRecord:
    timer = table.text("timer")
    rows = tuple(
        _read_row(Fields(table.source, f"workloads[{index}]", values), timer)
        for index, values in enumerate(table.take("workloads", list))
    )
    if not rows:
        raise table.fail("workloads", "at least one", [])
    protocol, dataset = table.object("protocol"), table.object("dataset")
    counts = table.count("passed"), table.count("total")
    mean_us = table.positive("mean_latency_us")
    record = RunRecord(
        **read_subject(table),
        judge_sha256=table.text("judge_sha256", SHA256),
        clocks=table.clocks("clocks"),
        timer=timer,
        protocol=Protocol(
            warmup=protocol.count("warmup"),
            iterations=protocol.count("iterations", 1),
            trials=protocol.count("trials", 1),
            atol=protocol.number("atol", 0.0),
            rtol=protocol.number("rtol", 0.0),
            required_matched_ratio=protocol.number("required_matched_ratio", 0.0, 1.0),
        ),
        dataset=DatasetIdentity(dataset.text("name"), dataset.text("sha256", SHA256)),
        seed=table.count("seed"),
        workloads=rows,
        measured_at=table.moment("measured_at"),
    )
    for part in (protocol, dataset, table):
        part.done()
    uuids = [row.uuid for row in rows]
    if len(set(uuids)) < len(uuids):
        raise table.fail("workloads", "each UUID once", max(uuids, key=uuids.count))
    if counts != (record.passed, record.total):
        raise table.fail("passed", f"{record.passed} of {record.total}", counts)
    if mean_us != record.mean_latency_us:
        raise table.fail("mean_latency_us", repr(record.mean_latency_us), mean_us)
    return record


def to_text(record: RunRecord) -> str:
    """The record as JSON text, one key a line and one workload a line."""
    return dump_document(record.to_json(), ("workloads",))
