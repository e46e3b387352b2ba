"""NCU's raw page as text: a units row, every value in quotes, commas in large numbers."""

from __future__ import annotations

from collections.abc import Mapping

ELAPSED = "avg.pct_of_peak_sustained_elapsed"
# column -> (unit, value), as `--print-units base` writes them
COLUMNS: dict[str, tuple[str, str]] = {
    "gpu__time_duration.sum": ("ns", "12,832"),
    "launch__grid_size": ("", "512"),
    "launch__block_size": ("", "256"),
    "launch__registers_per_thread": ("register/thread", "64"),
    "launch__shared_mem_per_block_static": ("byte/block", "0"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "49,152"),
    "launch__occupancy_limit_registers": ("block", "4"),
    "launch__occupancy_limit_shared_mem": ("block", "4"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "launch__occupancy_limit_warps": ("block", "8"),
    "launch__occupancy_limit_barriers": ("block", "32"),
    "launch__waves_per_multiprocessor": ("", "1.73"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "50"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "41.45"),
    f"sm__throughput.{ELAPSED}": ("%", "44.0"),
    f"gpu__compute_memory_throughput.{ELAPSED}": ("%", "52.1"),
    f"dram__throughput.{ELAPSED}": ("%", "34.6"),
    f"sm__pipe_tensor_cycles_active.{ELAPSED}": ("%", "0"),
    "smsp__sass_inst_executed_op_local_ld.sum": ("inst", "1,000"),
    "smsp__sass_inst_executed_op_local_st.sum": ("inst", "24"),
}
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream")
DENIED = (
    "==PROF== Connected to process 41 (/usr/bin/python3)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0.\n"
)


def ncu_table(
    *launches: tuple[str, Mapping[str, str]],
    units: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    added: Mapping[str, tuple[str, str]] | None = None,
) -> str:
    """The page of these launches, (kernel name, values that differ). units: that differ."""
    columns = {name: pair for name, pair in (COLUMNS | dict(added or {})).items()}
    columns = {name: pair for name, pair in columns.items() if name not in without}
    lines = ["==PROF== Connected to process 41 (/usr/bin/python3)"]
    for index, (name, _) in enumerate(launches):
        lines.append(f'==PROF== Profiling "{name}" - {index}: 0%....50%....100% - 9 passes')
    lines.append("==PROF== Disconnected from process 41")
    lines.append(_line([*IDENTITY, *columns]))
    found = [(units or {}).get(column, unit) for column, (unit, _) in columns.items()]
    lines.append(_line([""] * len(IDENTITY) + found))
    for index, (name, changes) in enumerate(launches):
        identity = [str(index), "41", "python3", "127.0.0.1", name, "1", "7"]
        values = [changes.get(column, value) for column, (_, value) in columns.items()]
        lines.append(_line([*identity, *values]))
    return "\n".join(lines) + "\n"


def _line(values: list[str]) -> str:
    return ",".join('"' + value.replace('"', '""') + '"' for value in values)
