"""From a request to jobs: what is judged, how, and what an earlier run already answered."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness import dataset
from harness.config import Room, Workspace
from harness.dataset import WorkloadRow
from harness.devices import DeviceFacts, libraries
from harness.errors import UsageError
from harness.evaluate.protocol import HOST_TIMER, Job, Settings
from harness.packing import Packed, pack
from harness.records import judge_sha256, official_uuids, settings_sha256
from harness.rules import rule_sources

PROTOCOLS = ("official", "fast")
MOST_TRIALS = 10_000  # of a verdict; replay is for more
FAST_WARMUP_RUNS, FAST_ITERATIONS, FAST_TRIALS = 3, 10, 1
# Of every definition; a rule of one alone adds its own files (harness/rules).
JUDGE_SOURCES = (
    "harness/evaluators.py",
    "harness/timing.py",
    "harness/evaluate/judge.py",
    "harness/evaluate/diagnosis.py",
    "harness/evaluate/timed_call.py",
    "harness/evaluate/worker.py",
    "harness/evaluate/protocol.py",
)


def judge_sources(definition: str) -> tuple[str, ...]:
    """The files whose text decides what a verdict on this definition's solutions is."""
    return (*JUDGE_SOURCES, *rule_sources(definition))


@dataclass(frozen=True)
class Request:
    """What the user asked for. None, and no workloads, mean the room's official value or this
    machine's default: everything on a GPU, the small smoke workloads in the interpreter."""

    rooms: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    protocol: str = "official"
    trials: int | None = None
    seed: int = 0
    resume: bool = False
    route: str | None = None
    dataset: str | None = None
    timer: str | None = None
    time_reference: bool = False
    only_trial: int | None = None
    dump_folder: str | None = None
    record: bool = False
    commit: str | None = None


@dataclass(frozen=True)
class RoomPlan:
    """One room, ready to run. is_full: rows are the official workloads, in official order."""

    room: Room
    packed: Packed
    rows: tuple[WorkloadRow, ...]
    settings: Settings
    dataset_root: Path
    definition: str
    dataset_sha256: str
    judge_sha256: str
    settings_sha256: str
    is_full: bool

    @staticmethod
    def official_workload(row: WorkloadRow) -> dict[str, Any]:
        return {"axes": dict(row.axes), "inputs": dict(row.inputs), "uuid": row.uuid}

    def job(self, row: WorkloadRow, device: str, request: Request) -> Job:
        return Job(
            room=self.room.name,
            definition=self.definition,
            solution=self.packed.text,
            dataset_root=str(self.dataset_root),
            workload=self.official_workload(row),
            device=device,
            settings=self.settings,
            only_trial=request.only_trial,
            time_reference=request.time_reference,
            dump_folder=str(Path(request.dump_folder).resolve()) if request.dump_folder else None,
            repeat_options="".join(
                f" --{name} {shlex.quote(value)}"
                for name, value in (("route", request.route), ("dataset", request.dataset))
                if value
            ),
        )


def torch_device(facts: DeviceFacts) -> str:
    """Workers see the first visible GPU, or none."""
    return "cpu" if facts.uuid is None else "cuda:0"


def make_plans(
    workspace: Workspace,
    request: Request,
    facts: DeviceFacts,
    versions: Mapping[str, str] | None = None,
) -> list[RoomPlan]:
    """Pack the rooms, choose the workloads, resolve the settings. Raises HarnessError.

    versions: of the libraries that judge; this process's own where None.
    """
    root = dataset.locate(workspace, request.dataset)
    chosen = choose_workloads(workspace, request, root, facts.uuid is None)
    plans = []
    for room, rows in chosen.items():
        packed = pack(workspace, room, request.route)
        plans.append(plan_room(workspace, room, packed, rows, request, root, facts, versions))
    return plans


def choose_workloads(
    workspace: Workspace, request: Request, root: Path, on_cpu: bool
) -> dict[str, tuple[WorkloadRow, ...]]:
    """The rows that are asked for, by room; rooms without any are left out. Raises HarnessError."""
    names = dict.fromkeys(request.rooms or tuple(workspace.contest_rooms))
    rooms = [workspace.room(name) for name in names]
    smoke = {room.name: room.smoke_cpu if on_cpu else room.smoke for room in rooms}
    wanted = request.workloads or ("smoke" if on_cpu else "all",)
    without = [name for name, prefixes in smoke.items() if "smoke" in wanted and not prefixes]
    if without:
        key = "smoke_cpu" if on_cpu else "smoke"
        raise UsageError(
            f"workloads: {without[0]} has no smoke workloads here; name UUIDs, or add some to "
            f"[rooms.{without[0]}] {key} in config.toml"
        )
    chosen = dataset.select_rooms(
        {room.name: dataset.read_workloads(root, room) for room in rooms},
        workspace.rooms,
        wanted,
        smoke,
    )
    return {room.name: tuple(chosen[room.name]) for room in rooms if room.name in chosen}


def resolve_settings(room: Room, request: Request, on_cpu: bool) -> Settings:
    """Command line over protocol over config.toml. On a CPU one trial, timed by the host."""
    if request.protocol not in PROTOCOLS:
        raise UsageError(
            f"protocol: expected one of {', '.join(PROTOCOLS)}, got {request.protocol!r}"
        )
    official = room.evaluation
    settings = Settings(**asdict(official), timer=request.timer or "cupti", seed=request.seed)
    if request.protocol == "fast":
        settings = replace(
            settings,
            warmup_runs=FAST_WARMUP_RUNS,
            iterations=FAST_ITERATIONS,
            trials=FAST_TRIALS,
        )
    if on_cpu:
        settings = replace(settings, trials=1, timer=HOST_TIMER)
    if request.trials is not None:
        settings = replace(settings, trials=request.trials)
    return settings


def describe_settings(plan: RoomPlan, request: Request) -> str:
    """The resolved settings that are not config.toml's, each with where it comes from."""
    official = plan.room.evaluation
    changed = []
    for name, value in asdict(plan.settings).items():
        if name in ("timer", "seed") or value == getattr(official, name):
            continue
        asked = name == "trials" and request.trials is not None
        on_cpu = name == "trials" and plan.settings.timer == HOST_TIMER
        source = "--trials" if asked else "no GPU" if on_cpu else f"--protocol {request.protocol}"
        changed.append(f"{name} {value} ({source})")
    return "settings of config.toml" + (", but " + ", ".join(changed) if changed else "")


def plan_room(
    workspace: Workspace,
    name: str,
    packed: Packed,
    rows: tuple[WorkloadRow, ...],
    request: Request,
    root: Path,
    facts: DeviceFacts,
    versions: Mapping[str, str] | None = None,
) -> RoomPlan:
    """How one packed solution of a room is judged. root: the data set's; versions: see make_plans.

    Raises HarnessError.
    """
    room = workspace.room(name)
    settings = resolve_settings(room, request, facts.uuid is None)
    definition = dataset.find_file(root, "definitions", room)
    workloads = dataset.find_file(root, "workloads", room)
    version = (versions or libraries()).get("flashinfer-bench", "unknown")
    values = {**asdict(settings), "only_trial": request.only_trial}
    return RoomPlan(
        room=room,
        packed=packed,
        rows=rows,
        settings=settings,
        dataset_root=root,
        definition=definition.read_text(encoding="utf-8"),
        dataset_sha256=dataset.content_sha256(root, room),
        judge_sha256=judge_sha256(
            definition,
            workloads,
            f"flashinfer-bench {version}",
            [workspace.root / source for source in judge_sources(room.definition)],
            settings.timer,
            {key: value for key, value in values.items() if key != "seed"},
        ),
        settings_sha256=settings_sha256(values),
        is_full=tuple(row.uuid for row in rows) == official_uuids(workspace.root, room.definition),
    )
