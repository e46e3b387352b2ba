"""Runs the probes on one packed solution: a process each, so that one crash costs one probe."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import dataset
from harness.audit.catalogue import PROBES, WARNING, Probe
from harness.audit.record import AuditRecord, ProbeResult, write_audit
from harness.config import Workspace
from harness.devices import DeviceFacts, read_facts
from harness.errors import ExitCode, UsageError
from harness.evaluate.alone import hold_device
from harness.evaluate.plan import Request, RoomPlan, choose_workloads, plan_room, torch_device
from harness.evaluate.pool import Pool, WorkerCommand, build_caches, worker_environment
from harness.evaluate.progress import SweepProgress
from harness.evaluate.protocol import Job, Outcome, Status
from harness.evaluate.sweep import read_commit, require_commit
from harness.evaluate.verdicts import read_environment, utc_now, whole_seconds
from harness.files import expand_home, require_writable
from harness.packing import Packed, pack
from harness.packing.official import read_packed
from harness.records import Subject

SEED_BITS = 31
CALLS_OF_A_PROBE = 4  # for each one that the judge's time limit is meant for
_NO_VERDICT = (Status.INFRASTRUCTURE, Status.REFERENCE_ERROR, Status.INVALID_REFERENCE)
PoolFactory = Callable[[str, Path, WorkerCommand], Pool]


@dataclass(frozen=True)
class AuditRequest:
    """target: a room or a packed JSON file. No workloads: the room's smoke workloads.

    seed: of the inputs that the solution cannot know; None draws one.
    """

    target: str
    workloads: tuple[str, ...] = ()
    seed: int | None = None
    dataset: str | None = None
    commit: str | None = None
    record: bool = False


def worker_command(function: str, seed: int, environment: Mapping[str, str]) -> WorkerCommand:
    """A process that answers jobs with what `function` of harness.audit finds."""
    argv = (sys.executable, "-m", "harness.audit.worker", function, str(seed))
    return WorkerCommand(argv, dict(environment))


def subject_of(
    workspace: Workspace, plan: RoomPlan, facts: DeviceFacts, commit: str | None
) -> Subject:
    """What a record of this plan says of itself. commit: None is the checkout's own."""
    libraries = read_environment(facts)
    libraries.pop("driver", None)
    return {
        "room": plan.room.name,
        "definition": plan.room.definition,
        "solution_name": plan.packed.name,
        "solution_sha256": plan.packed.sha256,
        "commit": commit or read_commit(workspace.root),
        "device": facts.slug,
        "driver": facts.driver,
        "libraries": libraries,
    }


def run_audit(
    workspace: Workspace,
    request: AuditRequest,
    progress: SweepProgress,
    facts: DeviceFacts | None = None,
    make_pool: PoolFactory = Pool,
    probes: tuple[Probe, ...] = PROBES,
) -> ExitCode:
    """Run every probe that this machine can; print as it goes. Returns the exit code.

    1: a probe found something; 6: some probe did not run.
    """
    require_commit(request.commit)
    facts = facts or read_facts()
    if request.record and request.target not in workspace.rooms:
        raise UsageError(
            f"--record keeps the evidence of a room as packed now; expected one of "
            f"{', '.join(workspace.rooms)}, got {request.target!r}"
        )
    if request.record and facts.uuid is None:
        raise UsageError("--record keeps evidence: expected a GPU, got none; leave it out")
    plan = plan_target(workspace, request.target, request.workloads, request.dataset, facts)
    make_ready(plan)
    seed = secrets.randbits(SEED_BITS) if request.seed is None else request.seed
    progress.note(f"warning: {WARNING}")
    progress.note(
        f"{plan.room.name}: {len(probes)} probes on {len(plan.rows)} workloads, solution "
        f"{plan.packed.name}, device {facts.name}, seed {seed}"
    )
    began = utc_now()
    results = []
    with hold_device(facts):
        for probe in probes:
            result = _run_probe(workspace, plan, probe, facts, seed, make_pool)
            results.append(result)
            progress.note(
                f"{plan.room.name} {len(results)}/{len(probes)} {probe.name} {result.verdict}"
            )
            if result.detail:
                progress.note(f"    {result.detail}")
    return _conclude(workspace, request, plan, facts, seed, tuple(results), began, progress)


def plan_target(
    workspace: Workspace,
    target: str,
    workloads: tuple[str, ...],
    folder: str | None,
    facts: DeviceFacts,
) -> RoomPlan:
    """A room as packed now, or a packed JSON, with its smoke workloads or those named.

    Reads and makes nothing else, so that a wrong name is told before what the machine lacks.
    Raises HarnessError.
    """
    room, packed = find_target(workspace, target)
    request = Request(rooms=(room,), workloads=workloads or ("smoke",), trials=1, dataset=folder)
    root = dataset.locate(workspace, folder)
    chosen = choose_workloads(workspace, request, root, facts.uuid is None)
    if room not in chosen:
        raise UsageError(f"workloads: none of {', '.join(workloads)} is one of {room}")
    return plan_room(workspace, room, packed, chosen[room], request, root, facts)


def make_ready(plan: RoomPlan) -> None:
    """Make the tensors that a plan's workloads lack; see that builds have a place to lie.

    Raises HarnessError.
    """
    require_writable(*build_caches())
    dataset.ensure_blobs(plan.dataset_root, plan.room, list(plan.rows))


def find_target(workspace: Workspace, target: str) -> tuple[str, Packed]:
    """The room that a word means, and the solution. Raises UsageError, PackingError."""
    path = expand_home(target)
    if target not in workspace.rooms and _is_path(target) and not path.is_file():
        raise UsageError(
            f"{path}: no such file; expected a packed JSON, as `python pack.py` writes it, or one "
            f"of the rooms {', '.join(workspace.rooms)}"
        )
    if target in workspace.rooms or not path.is_file():
        return workspace.room(target).name, pack(workspace, target)
    packed, definition = read_packed(path)
    for room in workspace.rooms.values():
        if room.definition == definition:
            return room.name, packed
    raise UsageError(
        f"{path}: solves {definition}; expected the definition of one of "
        f"{', '.join(workspace.rooms)}"
    )


def _is_path(target: str) -> bool:
    """Whether a word can only be meant as a file's."""
    return target.endswith(".json") or "/" in target


def jobs_of(plan: RoomPlan, facts: DeviceFacts) -> list[Job]:
    """One job a workload, of one trial and with time for several calls."""
    request = Request(rooms=(plan.room.name,), trials=1)
    settings = replace(plan.settings, timeout_s=CALLS_OF_A_PROBE * plan.settings.timeout_s)
    jobs = [plan.job(row, torch_device(facts), request) for row in plan.rows]
    return [replace(job, settings=settings) for job in jobs]


def _run_probe(
    workspace: Workspace,
    plan: RoomPlan,
    probe: Probe,
    facts: DeviceFacts,
    seed: int,
    make_pool: PoolFactory,
) -> ProbeResult:
    """The first workload that fails decides; then the first that could not be probed at all."""
    if probe.needs_gpu and facts.uuid is None:
        return ProbeResult(probe.name, probe.claim, "NOT_RUN", "needs a GPU")
    device = torch_device(facts)
    command = worker_command(probe.function, seed, worker_environment(device, workspace.root))
    found = []
    with make_pool(device, workspace.root, command) as pool:
        for job in jobs_of(plan, facts):
            verdict, detail = read_answer(pool.run(job))
            found.append((verdict, f"{job.uuid[:8]}: {detail}" if detail else ""))
            if verdict == "FAILED":
                break
    return ProbeResult(probe.name, probe.claim, *_sum_up(found))


def read_answer(outcome: Outcome) -> tuple[str, str]:
    """Verdict and detail of one workload. A solution that ended the worker has failed."""
    if outcome.status in _NO_VERDICT:
        return "NOT_RUN", outcome.detail
    answer: dict[str, Any] = outcome.evaluation or {}
    verdict, detail = answer.get("verdict"), answer.get("detail")
    if outcome.status is not Status.PASSED or not isinstance(detail, str):
        return "FAILED", outcome.detail or outcome.status.value
    return (verdict if verdict in ("PASSED", "NOT_RUN") else "FAILED"), detail


def _sum_up(found: list[tuple[str, str]]) -> tuple[str, str]:
    """One verdict for all workloads. Where one could show nothing, another may have."""
    failed = [detail for verdict, detail in found if verdict == "FAILED"]
    if failed:
        return "FAILED", failed[0]
    passed = [detail for verdict, detail in found if verdict == "PASSED"]
    if not passed:
        return "NOT_RUN", found[0][1] if found else "no workload"
    notes = dict.fromkeys(detail.partition(": ")[2] for detail in passed if detail)
    return "PASSED", "; ".join(notes)


def _conclude(
    workspace: Workspace,
    request: AuditRequest,
    plan: RoomPlan,
    facts: DeviceFacts,
    seed: int,
    results: tuple[ProbeResult, ...],
    began: str,
    progress: SweepProgress,
) -> ExitCode:
    record = AuditRecord(
        **subject_of(workspace, plan, facts, request.commit),
        seed=seed,
        workloads=tuple(row.uuid for row in plan.rows),
        probes=results,
        measured_at=whole_seconds(began),
    )
    counts = {
        verdict: sum(result.verdict == verdict for result in results)
        for verdict in ("PASSED", "FAILED", "NOT_RUN")
    }
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    progress.note(f"{plan.room.name}: {text}")
    if counts["NOT_RUN"]:
        why = "the audit is incomplete"
        progress.note(f"{plan.room.name}: {why}" + (", not recorded" if request.record else ""))
    elif request.record:
        path = write_audit(record, workspace.root)
        progress.note(f"{plan.room.name}: recorded in {path.relative_to(workspace.root)}")
    if counts["FAILED"]:
        return ExitCode.FAILED
    return ExitCode.INCOMPLETE if counts["NOT_RUN"] else ExitCode.OK
