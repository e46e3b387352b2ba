"""What a room submits, what was measured on exactly these bytes, and every objection to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness import dataset
from harness.audit.catalogue import PROBES
from harness.audit.record import AuditRecord, load_audit
from harness.config import Room, SolutionConfig, Workspace, load_solution_config
from harness.devices import DeviceFacts, libraries
from harness.errors import HarnessError, SubmissionRefused
from harness.evaluate.plan import Request, plan_room
from harness.packing import Packed, pack
from harness.packing.official import validate
from harness.records import HASH_CHARACTERS, RunRecord, all_latest, latest_objection

AUDIT_FOLDER = "results/audit"
_SHOWN_WORKLOADS = 3


@dataclass(frozen=True)
class Entry:
    """One definition's submission. evidence: its passing sweeps, one a device. audit: of these
    bytes, or None where it was left out on purpose."""

    room: Room
    config: SolutionConfig
    packed: Packed
    evidence: tuple[RunRecord, ...]
    audit: AuditRecord | None


def prepare(
    workspace: Workspace, rooms: Sequence[Room], without_audit: bool = False
) -> list[Entry]:
    """Pack the rooms and find their evidence.

    without_audit: accept bytes that no audit has seen. One that failed is refused all the same.
    Raises SubmissionRefused with all objections at once.
    """
    records = all_latest(workspace.root)
    entries, objections = [], []
    for room in rooms:
        try:
            packed = pack(workspace, room.name)
            validate(packed)
            config = load_solution_config(workspace.root / "solutions" / room.name / "config.toml")
            own = [record for record in records if record.room == room.name]
            evidence, against = _weigh(workspace, room, packed, own)
            audit, against_audit = _weigh_audit(workspace.root, room, packed, without_audit)
        except HarnessError as error:
            objections.append(f"{room.name}: {error}")
            continue
        objections += [f"{room.name}: {text}" for text in (*against, *against_audit)]
        entries.append(Entry(room, config, packed, evidence, audit))
    if objections:
        raise SubmissionRefused(refusal(objections))
    return entries


def refusal(objections: Sequence[str]) -> str:
    count = "1 objection" if len(objections) == 1 else f"{len(objections)} objections"
    return "\n".join([f"not submitted, {count}:", *objections])


def _weigh(
    workspace: Workspace, room: Room, packed: Packed, records: Sequence[RunRecord]
) -> tuple[tuple[RunRecord, ...], list[str]]:
    """The records of these bytes, and what speaks against submitting on their strength."""
    again = f"run `python -m harness evaluate {room.name} --workloads all --record`"
    own = tuple(record for record in records if record.solution_sha256 == packed.sha256)
    if not own:
        others = [f"{record.solution_name} on {record.device}" for record in records]
        return (), [
            f"results/latest: expected a sweep of {packed.name}, got "
            f"{', '.join(others) or 'none'}; {again}"
        ]
    objections = []
    for record in own:
        place = f"results/latest/{record.device}/{record.room}.json"
        incomplete = latest_objection(record, workspace.root)
        doubts = [] if incomplete is None else [incomplete]
        doubts += _doubts(workspace, room, packed, record)
        objections += [f"{place}: {text}; {again}" for text in doubts]
        failed = [row for row in record.workloads if row.status != "PASSED"]
        if failed:
            shown = ", ".join(f"{row.uuid[:8]} {row.status}" for row in failed[:_SHOWN_WORKLOADS])
            objections.append(
                f"{place}: expected {record.total} workloads passed, got {record.passed} "
                f"(failed: {shown}{', …' if len(failed) > _SHOWN_WORKLOADS else ''}); mend the "
                "kernel, then measure it again"
            )
    return own, objections


def _doubts(workspace: Workspace, room: Room, packed: Packed, record: RunRecord) -> list[str]:
    """What a record says that today's checkout and data set contradict, or that cannot be."""
    texts = []
    if record.definition != room.definition:
        texts.append(f"definition: expected {room.definition}, got {record.definition}")
    root = dataset.locate(workspace)
    official = {row.uuid: dict(row.axes) for row in dataset.read_workloads(root, room)}
    other = [row for row in record.workloads if official.get(row.uuid, row.axes) != row.axes]
    for row in other[:_SHOWN_WORKLOADS]:
        texts.append(f"{row.uuid[:8]}.axes: expected {official[row.uuid]}, got {dict(row.axes)}")
    gpu = DeviceFacts(record.device, record.device, "recorded")
    versions = {**record.libraries, **libraries()}  # the judge need not be installed here
    plan = plan_room(workspace, room.name, packed, (), Request(), root, gpu, versions)
    identities = {
        "judged by another judge": (plan.judge_sha256, record.judge_sha256),
        "judged on other data": (plan.dataset_sha256, record.dataset.sha256),
    }
    for words, (expected, got) in identities.items():
        if expected != got:
            shown = f"{expected[:HASH_CHARACTERS]}, got {got[:HASH_CHARACTERS]}"
            texts.append(f"{words}: expected {shown}")
    clocks = record.clocks
    if clocks is not None and clocks["throttled"] > clocks["samples"]:
        texts.append(f"clocks: {clocks['throttled']} of {clocks['samples']} samples throttled")
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if record.measured_at > now:
        texts.append(f"measured_at: expected a time before {now}, got {record.measured_at}")
    return texts


def _weigh_audit(
    root: Path, room: Room, packed: Packed, without_audit: bool
) -> tuple[AuditRecord | None, list[str]]:
    """The audit of these bytes, and what speaks against submitting on its strength."""
    audit = load_audit(root, room.name)
    place = f"{AUDIT_FOLDER}/{room.name}.json"
    if audit is not None and audit.solution_sha256 == packed.sha256:
        bad = [f"{one.name} {one.verdict}" for one in audit.probes if one.verdict != "PASSED"]
        asked = {one.name for one in audit.probes}
        bad += [f"{probe.name} not asked" for probe in PROBES if probe.name not in asked]
        if not bad:
            return audit, []
        return audit, [
            f"{place}: the audit of these bytes did not pass ({', '.join(bad)}); mend the kernel, "
            f"or audit it again with `python -m harness audit {room.name} --record`"
        ]
    if without_audit:
        return None, []
    got = audit.solution_name if audit else "none"
    return None, [
        f"{place}: expected an audit of {packed.name}, got {got}; run `python -m harness audit "
        f"{room.name} --record` on a GPU, or submit with "
        "--without-audit, which the evaluators will read"
    ]
