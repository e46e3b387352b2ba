"""The chapter of profiles, one row a regime: what bounds a call there, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.compare.regimes import Regime
from harness.profiling.display import UNKNOWN, describe_limiters, describe_shares
from harness.profiling.record import ProfileRecord, ProfileRow
from harness.profiling.representatives import representative
from harness.records import HASH_CHARACTERS
from harness.report.document import Column, Kind, Paragraph, Section, Table, Value, content_label
from harness.report.evidence import Evidence

WHAT = (
    "Kernels with their share of a call's GPU time, by Torch Profiler. The other numbers are "
    "NCU's, of the longest launch of the kernel with the largest share, alone and with cold "
    "caches. A dash: not measured. `docs/profiling.md` says how classes and limits follow."
)
_SHARES = ("occupancy", "possible", "SM", "memory", "DRAM", "tensor")
_COLUMNS = (
    *(Column("room"), Column("regime"), Column("workload", Kind.CODE)),
    *(Column("latency µs", Kind.US), Column("latency / floor", Kind.RATIO)),
    *(Column("kernels"), Column("bound by"), Column("limited by")),
    Column("waves/SM", Kind.RATIO),
    *(Column(name, Kind.SHARE) for name in _SHARES),
    *(Column("registers", Kind.COUNT), Column("shared KB", Kind.RATIO)),
    *(Column("spills", Kind.COUNT), Column("because")),
    *(Column("device"), Column("content", Kind.CONTENT)),
)


def write_profiles(evidence: Evidence) -> tuple[Section, ...]:
    """The chapter, where any room was profiled."""
    if not evidence.profiled:
        return ()
    table = profiles_table(evidence.profiled, evidence.packed)
    return (Section("Profiles", "profiles", (Paragraph(WHAT), table)),)


def profiles_table(records: Sequence[ProfileRecord], packed: Mapping[str, str | None]) -> Table:
    """One row a regime: the profiled workload of its median latency. packed: content hash of each
    room as it packs now."""
    rows = tuple(
        _row(record, row, packed.get(record.room))
        for record in records
        for row in one_a_regime(record.workloads)
    )
    return Table(
        "profiles", "What bounds each regime, by the workload that stands for it.", _COLUMNS, rows
    )


def one_a_regime(rows: Sequence[ProfileRow]) -> list[ProfileRow]:
    """Where several workloads of a regime were profiled, the one of their median latency."""
    by_uuid = {row.uuid: row for row in rows}
    latencies_us = {row.uuid: row.latency_us for row in rows if row.latency_us is not None}
    regimes = dict.fromkeys(row.regime for row in rows)
    uuids = {name: tuple(row.uuid for row in rows if row.regime == name) for name in regimes}
    return [
        by_uuid[representative(Regime("", name, uuids[name]), latencies_us)] for name in regimes
    ]


def _row(record: ProfileRecord, row: ProfileRow, packed_sha256: str | None) -> tuple[Value, ...]:
    kernel = row.kernel
    shared = kernel.shared_bytes_per_block
    return (
        *(record.room, row.regime, row.uuid[:HASH_CHARACTERS], row.latency_us, row.headroom),
        *(describe_shares(row), row.kind or UNKNOWN, describe_limiters(row)),
        kernel.waves_per_sm,
        *(kernel.achieved_occupancy, kernel.theoretical_occupancy),
        *(kernel.sm_share, kernel.memory_share, kernel.dram_share, kernel.tensor_share),
        kernel.registers_per_thread,
        None if shared is None else shared / 1e3,
        *(kernel.spills, row.reason, record.device),
        content_label(record.solution_sha256, record.solution_sha256 != packed_sha256),
    )
