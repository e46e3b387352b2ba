"""What a second GPU gains and costs: results/scale/<device>.json and the tables made from it.

A phase is one run of the evaluation: "one" and "two" on so many GPUs, "again" what the first GPU of
"two" judged, alone once more, "kill" on two with a worker killed in the middle. Each is a table of
its own in the file and replaces what an earlier run left there.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.cluster.simulate import Simulated, curve
from harness.config import Workspace
from harness.dataset import read_workloads
from harness.errors import RecordError
from harness.files import write_atomically
from harness.records import TraceEntry, dump_document, read_json
from harness.report.blocks import replace_block

PHASES = ("one", "two", "again", "kill")
WAITS = ("start", "build", "idle")  # seconds in which a GPU computes nothing that was asked of it
STAGES = ("reference", "correctness", "timing", *WAITS)
UUID_CHARACTERS = 12  # "GPU-" and eight digits: enough to tell the GPUs of a host apart
TRIALS = 3  # fewer give no interval
NEAR, FAR = 0.02, 0.10  # of a latency
RESAMPLES, SEED = 10_000, 0
NOT_MEASURED = "not measured"
CURVES = {1: (1, 2, 4, 8, 16), 50: (1, 2, 8, 32, 64, 250, 1000)}  # candidates: workers of each run


@dataclass(frozen=True)
class Measured:
    """A workload that passed: the start of its GPU's UUID, and each trial's latency in µs."""

    gpu: str
    trials_us: tuple[float, ...]


@dataclass(frozen=True)
class Phase:
    """One run. wall_s: from the start of its cluster to the end. judging_s: from the first
    workload to the last. stages_s: by GPU, seconds of each stage; they add up to judging_s.
    starting_s: until the first workload, where that is known."""

    name: str
    gpus: int
    measured_at: str
    workloads: int
    verdicts: int
    passed: int
    lost_workers: int
    wall_s: float
    judging_s: float
    stages_s: Mapping[str, Mapping[str, float]]
    measured: Mapping[str, Measured] = field(default_factory=dict)
    starting_s: float | None = None

    @property
    def waiting_share(self) -> float:
        """Of the whole run, its cluster's start and end included. A GPU also waits for compilers,
        which run in the first workload's stage "correctness" of a room and are not told apart."""
        judged_s = sum(
            seconds
            for stages in self.stages_s.values()
            for stage, seconds in stages.items()
            if stage not in WAITS
        )
        return 1.0 - judged_s / (self.wall_s * self.gpus)


@dataclass(frozen=True)
class Scale:
    """All phases of one kind of device, by name. hardware: its full name."""

    device: str
    hardware: str
    commit: str
    phases: Mapping[str, Phase]


@dataclass(frozen=True)
class Ratio:
    """Latencies of one run over those of another, workload by workload: their mean with its 95 %
    interval over workloads, and how many differ by no more than NEAR and FAR."""

    mean: float
    low: float
    high: float
    near: int
    far: int


@dataclass(frozen=True)
class Agreement:
    """The same workloads on the same GPU in three runs: beside a busy GPU, alone, alone again.

    again_alone is the yardstick, what two runs differ by of themselves; busy_again decides.
    """

    workloads: int
    busy_alone: Ratio
    again_alone: Ratio
    busy_again: Ratio


def scale_path(root: Path, device: str) -> Path:
    return root / "results" / "scale" / f"{device}.json"


def read_scale(path: Path) -> Scale:
    """Raises RecordError for a file that is none."""
    values = read_json(path, "python scripts/measure_scale.py --phase two")
    try:
        measured: dict[str, dict[str, Measured]] = {}
        for phase, uuid, gpu, *trials_us in values["latencies_us"]:
            measured.setdefault(phase, {})[uuid] = Measured(gpu, tuple(trials_us))
        phases = [Phase(**of, measured=measured.get(of["name"], {})) for of in values["phases"]]
        by_name = {phase.name: phase for phase in phases}
        return Scale(values["device"], values["hardware"], values["commit"], by_name)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{path}: expected what scripts/measure_scale.py writes, got {error!r}; remove it and "
            "measure again"
        ) from error


def write_scale(path: Path, scale: Scale) -> None:
    phases = [scale.phases[name] for name in PHASES if name in scale.phases]
    rows = []
    for phase in phases:
        rows.append({key: value for key, value in asdict(phase).items() if key != "measured"})
    latencies = [
        [phase.name, uuid, of.gpu, *of.trials_us]
        for phase in phases
        for uuid, of in phase.measured.items()
    ]
    document = {
        "device": scale.device,
        "hardware": scale.hardware,
        "commit": scale.commit,
        "phases": rows,
        "latencies_us": latencies,
    }
    write_atomically(path, dump_document(document, ("phases", "latencies_us")))


def phase_of(
    name: str, gpus: int, workloads: int, entries: Sequence[TraceEntry], wall_s: float,
    judging_s: float, lost_workers: int, starting_s: float | None = None,
) -> Phase:  # fmt: skip
    """A run from the lines that it left in the ledgers.

    Raises RecordError where a workload has two verdicts of this run.
    """
    uuids = {entry.uuid for entry in entries}
    if len(uuids) != len(entries):
        raise RecordError(f"phase {name}: {len(entries)} verdicts on {len(uuids)} workloads")
    by_gpu: dict[str, list[TraceEntry]] = {}
    for entry in sorted(entries, key=_gpu_of):
        by_gpu.setdefault(_gpu_of(entry), []).append(entry)
    return Phase(
        name=name,
        gpus=gpus,
        measured_at=max(entry.ended_at for entry in entries),
        workloads=workloads,
        verdicts=len(entries),
        passed=sum(entry.status == "PASSED" for entry in entries),
        lost_workers=lost_workers,
        wall_s=round(wall_s, 3),
        judging_s=round(judging_s, 3),
        starting_s=None if starting_s is None else round(starting_s, 3),
        stages_s={gpu: _stages(judging_s, of) for gpu, of in by_gpu.items()},
        measured={
            entry.uuid: Measured(_gpu_of(entry), tuple(entry.measurement["trial_latencies_us"]))
            for entry in entries
            if entry.status == "PASSED" and len(entry.measurement["trial_latencies_us"]) >= TRIALS
        },
    )


def _gpu_of(entry: TraceEntry) -> str:
    return str(entry.measurement["worker"].get("gpu", "none"))[:UUID_CHARACTERS]


def _stages(judging_s: float, entries: Sequence[TraceEntry]) -> dict[str, float]:
    """Seconds of one GPU. What a worker's job took beyond its stages went into starting it."""
    spent = dict.fromkeys(STAGES, 0.0)
    for entry in entries:
        stages = dict(entry.measurement["stages_s"])
        total = stages.pop("total", sum(stages.values()))
        for stage, seconds in stages.items():
            spent[stage if stage in spent else "reference"] += seconds
        spent["start"] += max(0.0, total - sum(stages.values()))
    spent["idle"] = max(0.0, judging_s - sum(spent.values()))
    return {stage: round(seconds, 3) for stage, seconds in spent.items()}


def compared(scale: Scale) -> list[str]:
    """Workloads that passed alone, beside a busy GPU and alone again, on one GPU."""
    if not {"one", "two", "again"} <= scale.phases.keys():
        return []
    alone, busy, again = (scale.phases[name].measured for name in ("one", "two", "again"))
    return [
        uuid
        for uuid in alone
        if uuid in busy and uuid in again and busy[uuid].gpu == alone[uuid].gpu == again[uuid].gpu
    ]


def agreement(scale: Scale, workloads: Sequence[str] | None = None) -> Agreement | None:
    """workloads: some of those that are compared; all where None. None where fewer than two."""
    common = compared(scale) if workloads is None else list(workloads)
    if len(common) < 2:
        return None
    alone, busy, again = (scale.phases[name].measured for name in ("one", "two", "again"))
    alone_us, busy_us, again_us = (
        [statistics.median(of[uuid].trials_us) for uuid in common] for of in (alone, busy, again)
    )
    return Agreement(
        len(common),
        busy_alone=_ratio(busy_us, alone_us),
        again_alone=_ratio(again_us, alone_us),
        busy_again=_ratio(busy_us, again_us),
    )


def _ratio(over_us: Sequence[float], under_us: Sequence[float]) -> Ratio:
    import numpy as np
    from scipy.stats import bootstrap

    ratios = np.asarray(over_us) / np.asarray(under_us)
    bounds = bootstrap(
        (ratios,),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(SEED),
    ).confidence_interval
    near, far = (int((abs(ratios - 1) <= limit).sum()) for limit in (NEAR, FAR))
    return Ratio(float(ratios.mean()), float(bounds.low), float(bounds.high), near, far)


def speedup(scale: Scale) -> float | None:
    """Wall time of one GPU over that of two; None unless both judged the same workloads."""
    one, two = (scale.phases.get(name) for name in ("one", "two"))
    if one is None or two is None or one.workloads != two.workloads:
        return None
    return one.wall_s / two.wall_s


def render_page(text: str, root: Path, rooms: Mapping[str, str]) -> str:
    """docs/scale.md with its rendered blocks, from results/scale/ and from the simulation. rooms:
    of each workload."""
    paths = sorted((root / "results" / "scale").glob("*.json"))
    measured = "\n\n".join(describe_scale(read_scale(path), rooms) for path in paths)
    text = replace_block(text, "measured", measured or NOT_MEASURED)
    for candidates, workers in CURVES.items():
        block = f"candidates-{candidates}"
        text = replace_block(text, block, describe_curve(curve(candidates, workers)))
    return text


def rooms_of(workspace: Workspace) -> dict[str, str]:
    """The room of each workload of the contest."""
    return {
        row.uuid: name
        for name in workspace.contest_rooms
        for row in read_workloads(workspace.root, workspace.room(name))
    }


def describe_scale(scale: Scale, rooms: Mapping[str, str]) -> str:
    """The phases of one device, in Markdown. rooms: of each workload."""
    rows = [_table_row(scale.phases[name]) for name in PHASES if name in scale.phases]
    gain, same = speedup(scale), agreement(scale)
    lines = [
        f"{scale.hardware}, commit `{scale.commit[:12]}`.",
        "",
        "| run | GPUs | verdicts | passed | workers lost | wall s | judging s | "
        "starting s | waiting |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
        f"Speed-up of two GPUs, by wall time: {NOT_MEASURED if gain is None else f'{gain:.2f}'}.",
        "",
        "| run | GPU | " + " | ".join(f"{stage} s" for stage in STAGES) + " |",
        "|---|---:|" + "---:|" * len(STAGES),
        *(
            line
            for name in PHASES
            if name in scale.phases
            for line in _gpu_rows(scale.phases[name])
        ),
        "",
        *_describe_agreement(same),
        *_describe_rooms(scale, rooms),
    ]
    return "\n".join(lines)


def describe_curve(runs: Sequence[Simulated]) -> str:
    """A simulated curve, in Markdown; the first run is what the speed-up is over."""
    lines = [
        "| workers | wall s | speed-up | judging | starting | idle | driver busy |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        shares = (run.judging_share, run.starting_share, run.idle_share, run.driver_share)
        cells = [str(run.workers), f"{run.wall_s:.0f}", f"{runs[0].wall_s / run.wall_s:.1f}"]
        cells += [f"{share:.0%}" for share in shares]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _table_row(phase: Phase) -> str:
    cells = [phase.name, phase.gpus, f"{phase.verdicts} of {phase.workloads}", phase.passed]
    cells += [phase.lost_workers, f"{phase.wall_s:.0f}", f"{phase.judging_s:.0f}"]
    cells += ["" if phase.starting_s is None else f"{phase.starting_s:.0f}"]
    return "| " + " | ".join(str(cell) for cell in [*cells, f"{phase.waiting_share:.0%}"]) + " |"


def _gpu_rows(phase: Phase) -> list[str]:
    return [
        f"| {phase.name} | {gpu} | "
        + " | ".join(f"{seconds.get(stage, 0.0):.1f}" for stage in STAGES)
        + " |"
        for gpu, seconds in enumerate(phase.stages_s.values())
    ]


def _describe_agreement(same: Agreement | None) -> list[str]:
    if same is None:
        return [f"Latencies beside a busy GPU: {NOT_MEASURED}."]
    rows = {
        "beside a busy GPU / alone": same.busy_alone,
        "alone again / alone": same.again_alone,
        "beside a busy GPU / alone again": same.busy_again,
    }
    return [
        f"Latencies of {same.workloads} workloads on the same GPU:",
        "",
        f"| ratio | mean (95 % interval) | within {NEAR:.0%} | within {FAR:.0%} |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {of.mean:.3f} ({of.low:.3f} to {of.high:.3f}) | {of.near} | {of.far} |"
            for name, of in rows.items()
        ),
        "",
        _conclude(same),
    ]


def _describe_rooms(scale: Scale, rooms: Mapping[str, str]) -> list[str]:
    by_room: dict[str, list[str]] = {}
    for uuid in compared(scale):
        by_room.setdefault(rooms.get(uuid, "of other data"), []).append(uuid)
    rows = []
    for name, of in sorted(by_room.items()):
        same = agreement(scale, of)
        if same is not None:
            ratio = same.busy_again
            cell = f"{ratio.mean:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
            rows.append(f"| {name} | {len(of)} | {cell} |")
    if not rows:
        return []
    return [
        "",
        "Room by room, beside a busy GPU / alone again:",
        "",
        "| room | workloads | mean (95 % interval) |",
        "|---|---:|---:|",
        *rows,
    ]


def _conclude(same: Agreement) -> str:
    busy = same.busy_again
    mean, low, high = (f"{value - 1:+.1%}" for value in (busy.mean, busy.low, busy.high))
    found = f"{mean} on average ({low} to {high})"
    if busy.low <= 1.0 <= busy.high:
        found += ", not told apart from none"
    yardstick = same.again_alone
    mean, low, high = (f"{v - 1:+.1%}" for v in (yardstick.mean, yardstick.low, yardstick.high))
    return (
        f"What a busy GPU beside it does to a latency, by the last row: {found}. Two runs alone "
        f"differ by {mean} ({low} to {high}); less than that these runs cannot show."
    )
