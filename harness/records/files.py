"""Where run records lie, who may become the latest, and the judge's identity."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import load_workspace
from harness.errors import RecordError
from harness.files import write_atomically
from harness.records.runs import RETRIED_STATUSES, RunRecord, to_text
from harness.records.strict_json import encode, read_json

RESULT_TIMER = "cupti"  # the only timer whose numbers may stand in results/latest
HASH_CHARACTERS = 8


def load(path: Path) -> RunRecord:
    """Read one run record. Raises RecordError naming file and key."""
    values = read_json(path, "python -m harness evaluate --record")
    return RunRecord.from_json(values, str(path))


def latest_path(root: Path, device: str, room: str) -> Path:
    return root / "results" / "latest" / device / f"{room}.json"


def latest(root: Path, device: str, room: str) -> RunRecord | None:
    """The last full sweep of a room on a device (a slug), or None where there is none."""
    path = latest_path(root, device, room)
    return load(path) if path.exists() else None


def all_latest(root: Path) -> list[RunRecord]:
    """Every record under results/latest, sorted by path. Raises RecordError for a record that
    lies under another device's or room's name."""
    records = []
    for path in sorted((root / "results" / "latest").glob("*/*.json")):
        record = load(path)
        if (record.device, record.room) != (path.parent.name, path.stem):
            raise RecordError(
                f"{path}: holds {record.room} on {record.device}; expected what its path says"
            )
        records.append(record)
    return records


def official_uuids(root: Path, definition: str) -> tuple[str, ...]:
    """The definition's workloads in official order, from workloads/<op_type>/<definition>.jsonl.

    Raises RecordError for a file that is missing or damaged."""
    paths = sorted((root / "workloads").glob(f"*/{definition}.jsonl"))
    if len(paths) != 1:
        raise RecordError(
            f"{root}/workloads/*/{definition}.jsonl: expected 1 file, got {len(paths)}"
        )
    lines = paths[0].read_text(encoding="utf-8").split("\n")
    try:
        return tuple(json.loads(line)["workload"]["uuid"] for line in lines if line.strip())
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{paths[0]}: expected a workload with a UUID in each line, got {error!r}; restore it "
            "from git"
        ) from error


def run_path(root: Path, record: RunRecord) -> Path:
    stamp = re.sub(r"[-:]", "", record.measured_at)
    name = f"{stamp}-{record.solution_sha256[:HASH_CHARACTERS]}.json"
    return root / "results" / "runs" / record.device / record.room / name


def write_run(record: RunRecord, root: Path) -> Path:
    """Keep a run, full sweep or not. Raises RecordError if it contradicts itself."""
    record = RunRecord.from_json(record.to_json())
    path = run_path(root, record)
    text = to_text(record)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise RecordError(f"{path}: holds another run already; runs are never overwritten")
    write_atomically(path, text)
    return path


def write_latest(record: RunRecord, root: Path) -> Path:
    """Make a full sweep the room's latest.

    Raises RecordError unless `record` holds all official workloads of the room in official order,
    each with a verdict, judged by the official settings and timed by CUPTI.
    """
    record = RunRecord.from_json(record.to_json())
    path = latest_path(root, record.device, record.room)
    objection = latest_objection(record, root)
    if objection is not None:
        raise RecordError(f"{path}: {objection}; keep such a run by write_run alone")
    write_atomically(path, to_text(record))
    return path


def latest_objection(record: RunRecord, root: Path) -> str | None:
    """Why a run may not become the latest, or None."""
    room = load_workspace(root).room(record.room)
    official = official_uuids(root, room.definition)
    got = tuple(row.uuid for row in record.workloads)
    if got != official:
        missing = len(set(official) - set(got))
        return (
            f"expected the {len(official)} official workloads in order, got {len(got)} "
            f"({missing} missing)"
        )
    broken = [row.uuid for row in record.workloads if row.status in RETRIED_STATUSES]
    if broken:
        return f"{len(broken)} workloads have no verdict (first {broken[0]}), use --resume"
    if record.timer != RESULT_TIMER:
        return f"timer: expected {RESULT_TIMER}, got {record.timer}, which does not compare with it"
    asked, used = room.evaluation, record.protocol
    settings = {
        "warmup": (asked.warmup_runs, used.warmup),
        "iterations": (asked.iterations, used.iterations),
        "trials": (asked.trials, used.trials),
        "atol": (asked.atol, used.atol),
        "rtol": (asked.rtol, used.rtol),
        "required_matched_ratio": (asked.required_matched_ratio, used.required_matched_ratio),
    }
    for key, (expected, value) in settings.items():
        if expected != value:
            return f"protocol.{key}: expected the official {expected}, got {value}"
    return None


def judge_sha256(
    definition: Path,
    workloads: Path,
    evaluator: str,
    evaluator_sources: Sequence[Path],
    timer: str,
    settings: Mapping[str, Any],
) -> str:
    """Identity of the judge: definition file, workload file, evaluator, timer and settings.

    evaluator: its name and version, such as "flashinfer-bench 0.1.2 DefaultEvaluator".
    evaluator_sources: the files that hold its rules. Paths do not count, their bytes do.
    """
    parts = [definition.read_bytes(), workloads.read_bytes(), evaluator.encode()]
    parts += [source.read_bytes() for source in evaluator_sources]
    parts += [timer.encode(), settings_sha256(settings).encode()]
    digest = hashlib.sha256()
    for part in parts:  # lengths first: no byte can move from one part to the next unseen
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def settings_sha256(settings: Mapping[str, Any]) -> str:
    """Identity of evaluation settings, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(encode(settings), sort_keys=True).encode()).hexdigest()
