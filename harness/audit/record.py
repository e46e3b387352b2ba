"""results/audit/<room>.json: what the probes found in one packed solution."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.audit.room_record import load_room_record, write_room_record
from harness.records import read_subject
from harness.records.strict_json import Fields, encode

VERDICTS = ("PASSED", "FAILED", "NOT_RUN")
COMMAND = "python -m harness audit ROOM --record"
_PROBE_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class ProbeResult:
    """What one probe found. detail: why it failed or did not run, or a note."""

    name: str
    claim: str
    verdict: str
    detail: str


@dataclass(frozen=True)
class AuditRecord:
    """One audit of one solution. seed: of the inputs that the solution could not know.

    device: slug. libraries: name to version. workloads: UUIDs. measured_at: when it began, UTC.
    """

    room: str
    definition: str
    solution_name: str
    solution_sha256: str
    commit: str
    device: str
    driver: str | None
    libraries: Mapping[str, str]
    seed: int
    workloads: tuple[str, ...]
    probes: tuple[ProbeResult, ...]
    measured_at: str

    @property
    def passed(self) -> bool:
        """Whether every probe ran and found nothing."""
        return all(probe.verdict == "PASSED" for probe in self.probes)

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values, keys in the committed order."""
        values = dataclasses.asdict(self)
        probes, measured_at = values.pop("probes"), values.pop("measured_at")
        values |= {"passed": self.passed, "probes": list(probes), "measured_at": measured_at}
        encoded: dict[str, Any] = encode(values)
        return encoded

    @staticmethod
    def from_json(values: Any, source: str = "audit record") -> AuditRecord:
        """Check every key and value. Raises RecordError naming source and key."""
        return _read(Fields(source, "", values))


def record_path(root: Path, room: str) -> Path:
    return root / "results" / "audit" / f"{room}.json"


def load_audit(root: Path, room: str) -> AuditRecord | None:
    """A room's recorded audit, or None where there is none. Raises RecordError."""
    return load_room_record(record_path(root, room), room, AuditRecord.from_json, COMMAND)


def write_audit(record: AuditRecord, root: Path) -> Path:
    """Replace the room's record; git keeps the former one. Raises RecordError for an audit that
    contradicts itself."""
    path = record_path(root, record.room)
    return write_room_record(path, record, AuditRecord.from_json, "probes")


def _read(table: Fields) -> AuditRecord:
    probes = tuple(
        _read_probe(Fields(table.source, f"probes[{index}]", values))
        for index, values in enumerate(table.take("probes", list))
    )
    workloads = tuple(table.take("workloads", list))
    passed = table.take("passed", bool)
    record = AuditRecord(
        **read_subject(table),
        seed=table.count("seed"),
        workloads=workloads,
        probes=probes,
        measured_at=table.moment("measured_at"),
    )
    table.done()
    if not workloads or not all(isinstance(uuid, str) and uuid for uuid in workloads):
        raise table.fail("workloads", "at least one UUID", list(workloads))
    names = [probe.name for probe in probes]
    if not names or len(set(names)) < len(names):
        raise table.fail("probes", "at least one, each once", names)
    if passed is not record.passed:
        raise table.fail("passed", str(record.passed), passed)
    return record


def _read_probe(table: Fields) -> ProbeResult:
    probe = ProbeResult(
        name=table.text("name", _PROBE_NAME),
        claim=table.text("claim"),
        verdict=table.text("verdict"),
        detail=table.take("detail", str),
    )
    table.done()
    if probe.verdict not in VERDICTS:
        raise table.fail("verdict", f"one of {', '.join(VERDICTS)}", probe.verdict)
    return probe
