"""What a profile prints. Pure."""

from __future__ import annotations

from harness.profiling.record import ProfileRow
from harness.profiling.shares import KernelShare, base_name
from harness.records import ABSENT, format_digits, format_us

SHOWN_SHARE = 0.05  # kernels below it are counted together
UNKNOWN = "unknown"
NOTHING = "nothing"


def describe_row(row: ProfileRow) -> str:
    """One line: latency, headroom, kernels, what bounds them."""
    headroom = "" if row.headroom is None else f" ({row.headroom:.2f} x floor)"
    return (
        f"{row.uuid[:8]} {row.regime}: {format_us(row.latency_us)} us{headroom}; "
        f"{describe_shares(row)}; bound by {row.kind or UNKNOWN} ({row.reason}), "
        f"limited by {describe_limiters(row)}"
    )


def describe_notes(row: ProfileRow) -> list[str]:
    """What is missing, and why."""
    return [text for text in (row.no_shares, row.no_launches) if text]


def describe_shares(row: ProfileRow) -> str:
    """Kernels with their parts of the call, such as "split 72 %, merge 28 %"."""
    if row.shares is None:
        return f"{row.dominant} {ABSENT}"
    shown = [one for one in row.shares if one.share >= SHOWN_SHARE] or list(row.shares[:1])
    parts = [f"{_label(one)} {format_digits(100 * one.share, 3)} %" for one in shown]
    rest = row.shares[len(shown) :]
    if rest:
        share = sum(one.share for one in rest)
        parts.append(f"{len(rest)} others {format_digits(100 * share, 2)} %")
    return ", ".join(parts)


def describe_limiters(row: ProfileRow) -> str:
    """What keeps more warps from an SM: "unknown", "nothing", or resources."""
    if row.limiters is None:
        return UNKNOWN
    return ", ".join(row.limiters) or NOTHING


def _label(one: KernelShare) -> str:
    return base_name(one.name) + (f" x {one.launches}" if one.launches > 1 else "")
