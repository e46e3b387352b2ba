"""A checkout ready to submit: a git repository, its rooms, passing sweeps and passed audits."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from harness.audit import record
from harness.audit.catalogue import PROBES
from harness.audit.record import AuditRecord, ProbeResult
from harness.config import Workspace, load_workspace
from harness.dataset import read_workloads
from harness.devices import DeviceFacts
from harness.evaluate.plan import JUDGE_SOURCES, Request, plan_room
from harness.packing import pack
from harness.records import DatasetIdentity, Protocol, RunRecord, to_text, write_latest
from tests import sample_records
from tests.small_checkout import small_checkout

GIT_IDENTITY = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")


def git(root: Path, *arguments: str) -> str:
    """git's output in a repository; its failure is the test's."""
    return subprocess.run(
        ["git", *GIT_IDENTITY, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout


def sweep(workspace: Workspace, room: str, **changes: object) -> RunRecord:
    """A passing sweep of what the room packs to now, by today's judge on today's data."""
    entry, packed, root = workspace.room(room), pack(workspace, room), workspace.root
    gpu = DeviceFacts("nvidia-h200", "NVIDIA H200", "GPU-0")
    plan = plan_room(workspace, room, packed, (), Request(), root, gpu)
    official = asdict(entry.evaluation)
    values = {
        "room": room,
        "definition": entry.definition,
        "solution_name": packed.name,
        "solution_sha256": packed.sha256,
        "judge_sha256": plan.judge_sha256,
        "dataset": DatasetIdentity("generated", plan.dataset_sha256),
        "protocol": Protocol(
            warmup=official["warmup_runs"],
            **{
                key: official[key]
                for key in ("iterations", "trials", "atol", "rtol", "required_matched_ratio")
            },
        ),
        "workloads": tuple(
            sample_records.row(row.uuid, axes=dict(row.axes)) for row in read_workloads(root, entry)
        ),
    }
    return sample_records.record(**{**values, **changes})


def write_audit(workspace: Workspace, room: str, **changes: object) -> Path:
    """results/audit/<room>.json: a passed audit of what the room packs to now."""
    packed = pack(workspace, room)
    values = {
        "room": room,
        "definition": workspace.room(room).definition,
        "solution_name": packed.name,
        "solution_sha256": packed.sha256,
        "commit": "c" * 40,
        "device": "nvidia-h200",
        "driver": "580.65.06",
        "libraries": {"torch": "2.11.0"},
        "seed": 1,
        "workloads": ("u-0",),
        "probes": tuple(ProbeResult(probe.name, probe.claim, "PASSED", "") for probe in PROBES),
        "measured_at": "2026-02-01T00:00:00Z",
    }
    return record.write_audit(AuditRecord(**{**values, **changes}), workspace.root)


def overwrite_latest(workspace: Workspace, run: RunRecord) -> None:
    """Put a record that write_latest would refuse where it would lie."""
    path = workspace.root / "results" / "latest" / run.device / f"{run.room}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_text(run))


def commit_all(workspace: Workspace) -> str:
    git(workspace.root, "add", "--all")
    git(workspace.root, "commit", "--quiet", "--allow-empty", "--message", "state")
    return git(workspace.root, "rev-parse", "HEAD").strip()


def submission_checkout(root: Path) -> Workspace:
    """Build it in an empty folder, all committed."""
    workspace = small_checkout(root)
    shutil.copytree(
        load_workspace().root / "solutions",
        root / "solutions",
        ignore=shutil.ignore_patterns("solution.json", ".*", "__pycache__"),
    )
    for source in JUDGE_SOURCES:
        (root / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(load_workspace().root / source, root / source)
    for room in workspace.rooms:
        write_latest(sweep(workspace, room), root)
        write_audit(workspace, room)
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "Someone")
    git(root, "config", "user.email", "someone@example.org")
    commit_all(workspace)
    return workspace
