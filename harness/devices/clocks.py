"""Clocks as they were seen, and which samples were throttled. Nothing here sets a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.devices.sources import ClockSample, DeviceFacts, Nvml, load_nvml

CLOCK_TOLERANCE = 0.05  # below the fastest sample; boost steps of 15 MHz stay within it

# NVML's clock event reasons, by bit. The ones that slow a busy GPU down against its will:
THROTTLE_REASONS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
IDLE_REASON = 0x01


def sample_clocks(facts: DeviceFacts, nvml: Nvml | None = None) -> ClockSample:
    """Clocks of this moment; all None on a CPU."""
    return ClockSample() if facts.uuid is None else (nvml or load_nvml()).sample(facts.uuid)


def throttled(samples: Sequence[ClockSample]) -> list[bool]:
    """For each sample, whether the GPU was slowed down: NVML gives a reason for it, or the SM
    clock lies more than CLOCK_TOLERANCE below the fastest sample.

    An idle GPU lowers its clock by itself: such a sample is neither judged by its clock nor a
    measure for the others.
    """
    busy_mhz = [s.sm_mhz for s in samples if s.sm_mhz is not None and not _is_idle(s)]
    fastest_mhz = max(busy_mhz, default=0)
    return [
        any((sample.reasons or 0) & bit for bit in THROTTLE_REASONS)
        or (
            sample.sm_mhz is not None
            and not _is_idle(sample)
            and sample.sm_mhz < (1.0 - CLOCK_TOLERANCE) * fastest_mhz
        )
        for sample in samples
    ]


def _is_idle(sample: ClockSample) -> bool:
    return bool((sample.reasons or 0) & IDLE_REASON)


def throttle_reasons(samples: Sequence[ClockSample]) -> list[str]:
    """Names of the reasons that NVML gave in any sample."""
    seen = 0
    for sample in samples:
        seen |= sample.reasons or 0
    return [name for bit, name in THROTTLE_REASONS.items() if seen & bit]


def describe_throttling(samples: Sequence[ClockSample]) -> str:
    """ "1 of 3 samples throttled", with the reasons that NVML gave."""
    text = f"{sum(throttled(samples))} of {len(samples)} samples throttled"
    reasons = throttle_reasons(samples)
    return f"{text} ({', '.join(reasons)})" if reasons else text


def summarise_clocks(samples: Sequence[ClockSample]) -> dict[str, Any] | None:
    """The "clocks" of a run record: lowest and highest of each, how many were throttled.

    None where NVML said nothing at all.
    """
    ranges = {}
    for key in ("sm_mhz", "memory_mhz", "power_w", "temperature_c"):
        values = [getattr(sample, key) for sample in samples if getattr(sample, key) is not None]
        ranges[key] = [min(values), max(values)] if values else None
    if all(value is None for value in ranges.values()):
        return None
    return {
        "samples": len(samples),
        "throttled": sum(throttled(samples)),
        "reasons": throttle_reasons(samples),
        **ranges,
    }
