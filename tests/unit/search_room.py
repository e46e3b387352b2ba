"""A room with a table of launches, searched by a scripted evaluator: no torch, no GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.compare.analysis import Comparison, analyse
from harness.compare.record import CONTROL, CompareRecord
from harness.config import Workspace
from harness.controller.archive import Archive
from harness.controller.regimes import Regime, Regimes
from harness.controller.state import Profile
from harness.dataset import read_workloads
from harness.packing import Packed
from harness.search.candidates import CandidateStore, read_room
from harness.search.declaration import load_declaration
from harness.search.evaluator import BASELINE, Measured, Replayed
from harness.search.loop import run_search
from harness.search.parameters import ParameterProposer
from harness.search.planning import Position, Search, Settings
from tests.sample_records import DEFINITION
from tests.small_checkout import small_checkout

ROOM = "gdn_decode"
CONFIG = f"""[solution]
name = "gdn_decode"
definition = "{DEFINITION}"
author = "contest-kernels"

[build]
language = "triton"
entry_point = "kernel.py::run"
destination_passing_style = true
"""
KERNEL = '''"""A kernel that nobody runs: µ, so that characters are not bytes."""

import math

from .shelf import shared

LAUNCHES = (
    (1, {"BLOCK_V": 2, "num_warps": 1}),
    (math.inf, {"BLOCK_V": 8, "num_warps": 1}),
)
LIMIT = 4


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    return shared(LAUNCHES, LIMIT)
'''
TUNING = """[block_v]
hypothesis = "another block of V"
answers = ["latency"]

[block_v.constants]
"kernel.py:LAUNCHES[0].BLOCK_V" = [1, 2, 4, 8]
"kernel.py:LAUNCHES[1].BLOCK_V" = [2, 4, 8, 16]

[warps]
hypothesis = "more warps"
answers = ["memory"]

[warps.constants]
"kernel.py:LAUNCHES[0].num_warps" = [1, 2, 4]
"kernel.py:LAUNCHES[1].num_warps" = [1, 2, 4]
"""
PROFILE = Profile(ROOM, "batch_size 1", "latency", "step_kernel", 1.0, "grid", 0.5, 1.5)
NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Verdict:
    """What a side shows instead of a latency."""

    status: str
    detail: str = "scripted"


# (stage, constants of the side, position of the workload) to a latency in µs or a verdict.
Script = Callable[[str, Mapping[str, int], int], "float | Verdict"]


def flat(stage, constants, position):
    """Nothing matters."""
    return 10.0


def by_block(stage, constants, position):
    """Blocks of 4 are best, by 5 % a step; warps cost."""
    steps = abs(constants["v0"].bit_length() - 3) + abs(constants["v1"].bit_length() - 3)
    return (10.0 + 5.0 * position) * 1.05**steps * 1.02 ** (constants["w0"] + constants["w1"])


def constants_of(packed: Packed) -> dict[str, int]:
    """v0, w0, v1, w1 of the table, and limit."""
    sources = {one["path"]: one["content"] for one in json.loads(packed.text)["sources"]}
    text = sources["kernel.py"]
    found = re.findall(r'"BLOCK_V": (\d+), "num_warps": (\d+)', text)
    (v0, w0), (v1, w1) = (tuple(map(int, pair)) for pair in found)
    return {"v0": v0, "w0": w0, "v1": v1, "w1": w1, "lines": text.count("\n")}


class ScriptedEvaluator:
    """Measures what a script says; `asked` is every (stage, names, UUIDs)."""

    def __init__(self, script: Script, uuids: tuple[str, ...], objection: str = "") -> None:
        self.script, self.uuids, self.objection = script, uuids, objection
        self.asked: list[tuple[str, tuple[str, ...], int]] = []
        self.distrust: str | None = None

    def measure(self, stage, baseline, candidates, uuids) -> Measured:
        chosen = self.uuids if uuids is None else tuple(uuids)
        self.asked.append((stage, tuple(one.name for one in candidates), len(chosen)))
        sides = {BASELINE: baseline, **{one.name: one for one in candidates}, CONTROL: baseline}
        return Measured(self._record(stage, sides, chosen), 2.0, self.distrust)

    def replay(self, candidate) -> Replayed:
        return Replayed(self.objection, 3.0)

    def _record(self, stage, sides, uuids) -> CompareRecord:
        rows, states = [], dict.fromkeys(sides, "measured")
        for uuid in uuids:
            results = {}
            for name, packed in sides.items():
                told = self.script(stage, constants_of(packed), self.uuids.index(uuid))
                if isinstance(told, Verdict):
                    results[name] = {"status": told.status, "detail": told.detail, "rounds_us": []}
                    states[name] = "failed"
                else:
                    noise = [1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0]
                    rounds_us = [round(told * factor, 6) for factor in noise]
                    results[name] = {"status": "PASSED", "detail": "", "rounds_us": rounds_us}
            rows.append(
                {"uuid": uuid, "axes": {"batch_size": 1}, "floor_us": 1.0, "sides": results}
            )
        described = [
            {
                "name": name,
                "kind": CONTROL if name == CONTROL else "json",
                "solution_name": packed.name,
                "solution_sha256": packed.sha256,
                **dict.fromkeys(
                    ("package", "pinned", "installed", "prepared", "stands_in", "caveat")
                ),
                "state": states[name],
                "reason": None if states[name] == "measured" else "scripted",
            }
            for name, packed in sides.items()
        ]
        values = {
            "room": ROOM,
            "definition": DEFINITION,
            "device": "nvidia-test",
            "hardware": "NVIDIA Test",
            "driver": None,
            "libraries": {},
            "clocks": None,
            "timer": "cupti",
            "commit": "unknown",
            "judge_sha256": "b" * 64,
            "dataset": {"name": "generated", "sha256": "d" * 64},
            "seed": 0,
            "protocol": {
                "correctness_trials": 3,
                "atol": 0.01,
                "rtol": 0.01,
                "required_matched_ratio": 1.0,
                "rounds": 6,
                "warmup": 2,
                "iterations": 10,
            },
            "sides": described,
            "workloads": rows,
            "measured_at": NOW,
        }
        return CompareRecord.from_json(values)


_ANALYSED: dict[tuple[str, str, str], Comparison] = {}


def analyse_once(monkeypatch) -> None:
    """Analyse equal records once: intervals take a third of a second and are not tested here."""

    def remembered(record, a, b):
        key = (repr(record), a, b)
        if key not in _ANALYSED:
            _ANALYSED[key] = analyse(record, a, b)
        return _ANALYSED[key]

    monkeypatch.setattr("harness.search.rounds.analyse", remembered)


@dataclass
class SearchRoom:
    """A checkout in `root` whose room is searched. Same arguments, same files."""

    root: Path
    script: Script = by_block
    settings: Settings = field(default_factory=lambda: Settings(rounds=3, candidates=3, islands=2))
    profile: Profile = PROFILE

    def __post_init__(self) -> None:
        self.workspace: Workspace = small_checkout(self.root)
        self.folder = self.root / "solutions" / ROOM
        self.folder.mkdir(parents=True)
        (self.root / "solutions" / "common").mkdir()
        (self.root / "solutions" / "common" / "shelf.py").write_text("def shared(*_):\n    pass\n")
        (self.folder / "config.toml").write_text(CONFIG)
        (self.folder / "kernel.py").write_text(KERNEL)
        (self.folder / "tuning.toml").write_text(TUNING)
        rows = read_workloads(self.root, self.workspace.room(ROOM))
        self.uuids = tuple(row.uuid for row in rows)
        self.evaluator = ScriptedEvaluator(self.script, self.uuids)
        self.lines: list[str] = []
        self.proposer = None

    @property
    def archive(self) -> Archive:
        return Archive(self.root, ROOM)

    @property
    def manifest(self) -> Path:
        """Of the newest run."""
        return self.archive.manifest_path(self.archive.runs()[-1])

    @property
    def kernel(self) -> str:
        return (self.folder / "kernel.py").read_text()

    def regimes(self) -> Regimes:
        one = Regime("batch_size 1", self.uuids, 12.5, 1.0, self.uuids[0])
        return Regimes(ROOM, "nvidia-test", "a" * 64, "d" * 64, NOW, (one,))

    def search(self, **changes) -> Search:
        """A fresh search, as a new process makes it."""
        archive = self.archive
        declaration = load_declaration(self.root, ROOM, read_room(self.workspace, ROOM))
        values = {
            "workspace": self.workspace,
            "room": ROOM,
            "settings": self.settings,
            "proposer": self.proposer or ParameterProposer(declaration),
            "evaluator": self.evaluator,
            "profile": self.profile,
            "regimes": self.regimes(),
            "archive": archive,
            "store": CandidateStore(self.workspace, ROOM),
            "clock": lambda: NOW,
            "note": self.lines.append,
        }
        return Search(**{**values, **changes})

    def run(self, *, resume: bool = False, abandon: bool = False, **changes) -> Position:
        return run_search(self.search(**changes), resume=resume, abandon=abandon)

    def snapshot(self) -> dict[str, bytes]:
        """Every file that a run leaves and that is committed."""
        folders = (self.root / "results", self.root / "solutions")
        paths = [path for top in folders for path in sorted(top.rglob("*")) if path.is_file()]
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}
