"""Nsight Compute: where it is, the command that profiles one call, the launches in its raw page.

The one reader of its tables. Columns are found by name and scaled by the units row below the
header, so the order of columns, the version of NCU and its choice of prefixes do not matter. What
NCU does not report is None.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InfrastructureFailure, ToolMissing

NCU = "ncu"
ABSENT = f"{NCU}: not on PATH nor in CUDA_HOME; part of Nsight Compute"
DENIED = "ERR_NVGPUCTRPERM"
DENIED_HINT = (
    f"{NCU}: {DENIED}: this host keeps the GPU's counters for administrators, a setting of its "
    "driver (NVreg_RestrictProfilingToAdminUsers=0)"
)
DURATION = "gpu__time_duration.sum"
HEADER = '"ID"'  # begins the table
KERNEL = "Kernel Name"
ABSENT_VALUES = ("", "n/a", "no data", "nan", "(!) nan", "(!) n/a")
SHOWN_CHARACTERS = 300  # of the tool's last words


class NcuDenied(ToolMissing):
    """The host keeps the performance counters for administrators."""


class NcuUnreadable(InfrastructureFailure):
    """There is no table, or no launch in it, or a number in it is none."""


@dataclass(frozen=True)
class LaunchMetrics:
    """One launch as NCU saw it: alone, with cold caches. None where it does not say.

    limit_…: blocks that fit on an SM by that resource alone. waves_per_sm: the grid over the
    blocks that fit on all SMs at once. Occupancy: resident warps over the most that an SM holds.
    sm_share, memory_share, dram_share, tensor_share: of the unit's peak rate over the launch's
    whole duration; memory_share is the busiest of L1, L2 and DRAM. spills: instructions of a warp
    that load or store local memory, where registers are spilled to.
    """

    name: str
    duration_us: float | None = None
    grid_blocks: int | None = None
    block_threads: int | None = None
    registers_per_thread: int | None = None
    shared_bytes_per_block: int | None = None
    limit_registers: int | None = None
    limit_shared_memory: int | None = None
    limit_blocks: int | None = None
    limit_warps: int | None = None
    limit_barriers: int | None = None
    waves_per_sm: float | None = None
    theoretical_occupancy: float | None = None
    achieved_occupancy: float | None = None
    sm_share: float | None = None
    memory_share: float | None = None
    dram_share: float | None = None
    tensor_share: float | None = None
    spills: int | None = None


@dataclass(frozen=True)
class _Source:
    """Where a field comes from. columns: alternatives, the first complete one holds; the columns
    of one are added. base: its unit without prefix. scale: from there to the field's unit."""

    base: str
    columns: tuple[tuple[str, ...], ...]
    scale: float = 1.0
    is_count: bool = False


def _count(*columns: str) -> _Source:
    return _Source("count", tuple((column,) for column in columns), is_count=True)


def _share(*columns: str) -> _Source:
    return _Source("%", tuple((column,) for column in columns), scale=0.01)


_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_SHARED = "launch__shared_mem_per_block"
_LOCAL = "inst_executed_op_local"
_SOURCES: dict[str, _Source] = {
    "duration_us": _Source("s", ((DURATION,),), scale=1e6),
    "grid_blocks": _count("launch__grid_size"),
    "block_threads": _count("launch__block_size"),
    "registers_per_thread": _count("launch__registers_per_thread"),
    "shared_bytes_per_block": _Source(
        "byte", ((f"{_SHARED}_static", f"{_SHARED}_dynamic"), (_SHARED,)), is_count=True
    ),
    "limit_registers": _count("launch__occupancy_limit_registers"),
    "limit_shared_memory": _count("launch__occupancy_limit_shared_mem"),
    "limit_blocks": _count("launch__occupancy_limit_blocks"),
    "limit_warps": _count("launch__occupancy_limit_warps"),
    "limit_barriers": _count("launch__occupancy_limit_barriers"),
    "waves_per_sm": _Source("count", (("launch__waves_per_multiprocessor",),)),
    "theoretical_occupancy": _share("sm__maximum_warps_per_active_cycle_pct"),
    "achieved_occupancy": _share("sm__warps_active.avg.pct_of_peak_sustained_active"),
    "sm_share": _share(f"sm__throughput.{_ELAPSED}"),
    "memory_share": _share(f"gpu__compute_memory_throughput.{_ELAPSED}"),
    "dram_share": _share(f"dram__throughput.{_ELAPSED}", f"gpu__dram_throughput.{_ELAPSED}"),
    "tensor_share": _share(f"sm__pipe_tensor_cycles_active.{_ELAPSED}"),
    # The names differ by architecture and by what was collected.
    "spills": _Source(
        "count",
        (
            (f"smsp__sass_{_LOCAL}_ld.sum", f"smsp__sass_{_LOCAL}_st.sum"),
            (f"smsp__{_LOCAL}_ld.sum", f"smsp__{_LOCAL}_st.sum"),
            ("sass__inst_executed_register_spilling",),
            ("derived__local_spilling_requests",),
        ),
        is_count=True,
    ),
}
COUNTS = tuple(name for name, source in _SOURCES.items() if source.is_count)
SECTIONS = (
    "LaunchStats",
    "Occupancy",
)  # the launch's own facts; other columns are asked for singly
_IMPORTED = ("derived__", "sass__")  # of sections, and of patched code: read where they are
_REFUSED = re.compile(r"Failed to (?:access|find) [^:\n]*metrics?[^:\n]*: (?P<names>.+)")
_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
_UNIT = re.compile(
    r"(?P<prefix>[numKMG]?)(?P<base>second|s|byte|%|inst|request|block|thread|warp|register)"
    r"(/(block|thread))?"
)
_BASES = {"second": "s", "s": "s", "byte": "byte", "%": "%"}


def find_ncu(environment: Mapping[str, str] | None = None) -> str | None:
    """NCU's path, or None."""
    environment = os.environ if environment is None else environment
    found = shutil.which(NCU, path=environment.get("PATH"))
    for folder in (environment.get("CUDA_HOME"), "/usr/local/cuda"):
        path = Path(folder or "/", "bin", NCU)
        if found is None and path.is_file():
            found = str(path)
    return found


def profile_metrics(without: Collection[str] = ()) -> list[str]:
    """Every metric that LaunchMetrics is made of and that is asked for singly. without: what NCU
    refused."""
    columns = [name for one in _SOURCES.values() for part in one.columns for name in part]
    return [name for name in columns if not name.startswith(_IMPORTED) and name not in without]


def ncu_command(
    program: str, log: Path, module: str, job: Path, metrics: Sequence[str], *sections: str
) -> list[str]:
    """NCU on the one call for which `python -m MODULE JOB` switches the profiler on.

    log: where NCU writes its table, apart from what the call prints.
    """
    return [
        program,
        *("--profile-from-start", "off"),
        *("--target-processes", "all"),
        *("--cache-control", "all"),
        *("--clock-control", "none"),
        *(word for section in sections for word in ("--section", section)),
        *("--metrics", ",".join(metrics)),
        *("--page", "raw"),
        *("--print-units", "base"),
        "--csv",
        *("--log-file", str(log)),
        *(sys.executable, "-m", module, str(job)),
    ]


def read_log(run: Callable[[], str], log: Path) -> str:
    """What NCU writes while `run` runs its command and returns what that printed; where NCU writes
    no table, after that: a program that fails early says why there."""
    log.unlink(missing_ok=True)
    output = run()
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return text if HEADER in text else f"{output}\n{text}"


def refused_metrics(text: str) -> frozenset[str]:
    """The metrics that NCU says this GPU does not have: with one of them it profiles nothing."""
    found = _REFUSED.findall(text)
    return frozenset(
        name.strip(" .") for names in found for name in names.split(",") if name.strip()
    )


def read_csv(text: str) -> tuple[LaunchMetrics, ...]:
    """The launches of NCU's raw page in their order; its other lines are left out.

    Raises NcuDenied, and NcuUnreadable where there is no launch or a value cannot be read.
    """
    if DENIED in text:
        raise NcuDenied(DENIED_HINT)
    rows = _read_table(text)
    if "Metric Name" in (rows[0] if rows else {}):
        raise NcuUnreadable(f"{NCU}: expected the raw page, got the details; add `--page raw`")
    if len(rows) < 2:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = lines[-1][:SHOWN_CHARACTERS] if lines else "it printed nothing"
        raise NcuUnreadable(f"{NCU}: no kernel was profiled: {last}")
    units, *launches = rows
    return tuple(_read_launch(row, units) for row in launches)


def _read_table(text: str) -> list[dict[str, str]]:
    """The units row and the rows of launches, by column name."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith(HEADER)), None)
    if begin is None:
        return []
    header, *rest = csv.reader(io.StringIO("\n".join(lines[begin:])))
    if KERNEL not in header:
        raise NcuUnreadable(f"{NCU}: expected a column {KERNEL!r}, got {', '.join(header)[:200]}")
    return [dict(zip(header, row, strict=True)) for row in rest if len(row) == len(header)]


def _read_launch(row: Mapping[str, str], units: Mapping[str, str]) -> LaunchMetrics:
    if units[KERNEL] or not row[KERNEL]:
        raise NcuUnreadable(
            f"{NCU}: expected a row of units below the header and a name in each row, got "
            f"{units[KERNEL]!r} and {row[KERNEL]!r}"
        )
    values = {name: _read_field(source, row, units) for name, source in _SOURCES.items()}
    if all(value is None for value in values.values()):
        raise NcuUnreadable(
            f"{NCU}: {row[KERNEL]}: none of the metrics that a profile is made of; "
            "docs/profiling.md has the command that collects them"
        )
    counts = {name: round(value) for name in COUNTS if (value := values[name]) is not None}
    numbers = {name: value for name, value in values.items() if name not in COUNTS}
    return LaunchMetrics(name=row[KERNEL], **numbers, **counts)  # type: ignore[arg-type]


def _read_field(source: _Source, row: Mapping[str, str], units: Mapping[str, str]) -> float | None:
    for columns in source.columns:
        values = [_read_value(column, source.base, row, units) for column in columns]
        known = [value for value in values if value is not None]
        if len(known) == len(columns):
            return sum(known) * source.scale
    return None


def _read_value(
    column: str, base: str, row: Mapping[str, str], units: Mapping[str, str]
) -> float | None:
    """In the base unit; None where the column is missing or empty."""
    text = row.get(column, "").strip()
    if text.lower() in ABSENT_VALUES:
        return None
    scale = _scale(units[column].strip(), base)
    try:
        value = float(text.replace(",", ""))
    except ValueError as error:
        raise NcuUnreadable(f"{NCU}: {column}: expected a number, got {text!r}") from error
    if scale is None:
        raise NcuUnreadable(f"{NCU}: {column}: expected a unit of {base}, got {units[column]!r}")
    return value * scale if value == value else None


def _scale(unit: str, base: str) -> float | None:
    """From a unit with its prefix to its base; None for a unit of something else."""
    if not unit:
        return 1.0 if base in ("count", "%") else None
    match = _UNIT.fullmatch(unit)
    if match is None or _BASES.get(match["base"], "count") != base:
        return None
    return _PREFIXES[match["prefix"]]


def longest(launches: Sequence[LaunchMetrics]) -> LaunchMetrics | None:
    """The launch with the largest known duration, or the first where none is known."""
    return max(launches, key=lambda launch: launch.duration_us or 0.0, default=None)


def durations_us(launches: Sequence[LaunchMetrics]) -> tuple[float, ...]:
    """Of each launch. Raises NcuUnreadable where one is missing."""
    found = tuple(one.duration_us for one in launches if one.duration_us is not None)
    if len(found) < len(launches):
        raise NcuUnreadable(f"{NCU}: expected {DURATION} of each launch, got {len(found)}")
    return found
