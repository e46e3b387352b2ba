"""Verdicts as the ledger keeps them, and what each of them depends on."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.dataset import WorkloadRow
from harness.devices import ClockSample, DeviceFacts, find_nvcc, libraries, nvcc_release
from harness.evaluate.plan import RoomPlan
from harness.evaluate.protocol import Job, Outcome, Status
from harness.records import ResumeKey, TraceEntry


@dataclass(frozen=True)
class Judged:
    """A job's outcome, as it comes back.

    started_at: UTC in ISO form. clocks: samples since the worker's last job. worker: which one it
    was, as the ledger keeps it beside the verdict.
    """

    job: Job
    outcome: Outcome
    started_at: str
    clocks: tuple[ClockSample, ...] = ()
    worker: Mapping[str, str] = field(default_factory=dict)


def entry_of(
    plan: RoomPlan,
    row: WorkloadRow,
    facts: DeviceFacts,
    environment: Mapping[str, str],
    judged: Judged,
) -> TraceEntry:
    """The ledger's line for a verdict that has just been made."""
    outcome = judged.outcome
    return TraceEntry(
        room=plan.room.name,
        definition=plan.room.definition,
        workload=plan.official_workload(row),
        solution_name=plan.packed.name,
        solution_sha256=plan.packed.sha256,
        judge_sha256=plan.judge_sha256,
        dataset_sha256=plan.dataset_sha256,
        settings_sha256=plan.settings_sha256,
        environment=environment,
        device=facts.slug,
        hardware=facts.name,
        status=outcome.status.value,
        seed=plan.settings.seed,
        started_at=judged.started_at,
        ended_at=utc_now(timespec="microseconds"),
        latency_us=outcome.latency_us,
        max_abs_error=outcome.max_abs_error,
        max_rel_error=outcome.max_rel_error,
        matched_ratio=outcome.matched_ratio,
        log=outcome.log,
        detail=outcome.detail,
        evaluation=outcome.evaluation,
        measurement={
            "trial_latencies_us": outcome.trial_latencies_us,
            "reference_latency_us": outcome.reference_latency_us,
            "activities": outcome.activities,
            "stages_s": outcome.stages_s,
            "worker": dict(judged.worker),
        },
    )


def read_environment(facts: DeviceFacts) -> dict[str, str]:
    """Versions that a latency depends on besides the bytes judged, by name.

    nvcc among them: without it a room takes its portable route. On a CPU it makes no difference.
    """
    found = {"driver": facts.driver or "none", "cuda": facts.cuda or "none", **libraries()}
    if facts.uuid is not None:
        nvcc = find_nvcc(facts.capability)
        found["nvcc"] = (nvcc and nvcc_release(nvcc)) or "none"
    return found


def resume_key(
    plan: RoomPlan, facts: DeviceFacts, environment: Mapping[str, str], row: WorkloadRow
) -> ResumeKey:
    """What the verdict on a row depends on."""
    return ResumeKey(
        plan.packed.sha256,
        plan.judge_sha256,
        plan.dataset_sha256,
        plan.settings_sha256,
        tuple(sorted(environment.items())),
        facts.slug,
        row.uuid,
    )


def outcome_of(entry: TraceEntry) -> Outcome:
    """The verdict that an earlier run left."""
    return Outcome(
        Status(entry.status),
        latency_us=entry.latency_us,
        max_abs_error=entry.max_abs_error,
        max_rel_error=entry.max_rel_error,
        matched_ratio=entry.matched_ratio,
        detail=entry.detail,
        log=entry.log,
    )


def whole_seconds(stamp: str) -> str:
    """What `utc_now` gave, without its fraction: the form that records are dated in."""
    return (
        datetime.datetime.fromisoformat(stamp.removesuffix("Z")).isoformat(timespec="seconds") + "Z"
    )


def utc_now(timespec: str = "seconds") -> str:
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    return now.isoformat(timespec=timespec) + "Z"
