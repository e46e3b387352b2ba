"""The regimes of a room, and the workload that stands for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.compare.regimes import HasAxes, Regime, regimes


def main_regimes(rows: Sequence[HasAxes]) -> list[Regime]:
    """The groups of the axis that splits the workloads into most, the first of such axes; each
    workload is in one. A single group, "all", where no axis varies."""
    found = regimes(rows)
    counts = {axis: sum(one.axis == axis for one in found) for axis in (r.axis for r in found)}
    if not counts:
        return [Regime("", "all", tuple(row.uuid for row in rows))]
    axis = max(counts, key=lambda axis: counts[axis])
    return [regime for regime in found if regime.axis == axis]


def describe_regime(regime: Regime) -> str:
    """Such as "batch_size 33-64"."""
    return f"{regime.axis} {regime.label}".strip()


def representative(regime: Regime, latencies_us: Mapping[str, float]) -> str:
    """The workload of the regime's median latency, the slower of two; the one in the middle of
    their order where no latency is known."""
    known = [uuid for uuid in regime.uuids if uuid in latencies_us]
    ordered = sorted(known, key=lambda uuid: latencies_us[uuid]) or list(regime.uuids)
    return ordered[len(ordered) // 2]
