"""A profile as a state signature: coarse enough that two rounds can be in the same state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.records.strict_json import Fields

UNPROFILED = "unprofiled"
BOTTLENECKS = ("launch", "latency", "memory", "tensor", "mixed", UNPROFILED)
SAME, SIMILAR, NEW = "same", "similar", "new"

# Upper bounds of bands: repeated profiles of one kernel vary by a few percent, and a signature that
# changed with them would never be met again.
OCCUPANCY_BANDS = ((0.25, "low"), (0.6, "middle"))
HEADROOM_BANDS = ((1.25, "at the floor"), (2.0, "near the floor"))


@dataclass(frozen=True)
class Profile:
    """What a profile says of one regime, as far as it decides anything.

    dominant_kernel, dominant_share: the kernel with most GPU time and its share of it.
    bottleneck: one of BOTTLENECKS. limiting_resource: what keeps occupancy down, or None.
    occupancy: achieved, 0 to 1. headroom: latency over the floor of the roofline. source: the file
    that it came from. What was not measured is None.
    """

    room: str
    regime: str
    bottleneck: str = UNPROFILED
    dominant_kernel: str | None = None
    dominant_share: float | None = None
    limiting_resource: str | None = None
    occupancy: float | None = None
    headroom: float | None = None
    source: str | None = None


@dataclass(frozen=True)
class StateSignature:
    """Where a room stands. occupancy, headroom: names of bands, or None."""

    room: str
    regime: str
    bottleneck: str
    limiting_resource: str | None
    dominant_kernel: str | None
    occupancy: str | None
    headroom: str | None

    @property
    def key(self) -> str:
        """The signature as one line of text: equal keys, equal states."""
        parts = (self.regime, self.bottleneck, self.limiting_resource, self.dominant_kernel)
        bands = [
            f"{name} {band}"
            for name, band in (("occupancy", self.occupancy), ("headroom", self.headroom))
            if band
        ]
        return " / ".join([self.room, *(part for part in parts if part), *bands])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(table: Fields) -> StateSignature:
        """Raises RecordError naming source and key."""
        signature = StateSignature(
            room=table.text("room"),
            regime=table.text("regime"),
            bottleneck=table.text("bottleneck"),
            limiting_resource=table.optional_text("limiting_resource"),
            dominant_kernel=table.optional_text("dominant_kernel"),
            occupancy=table.optional_text("occupancy"),
            headroom=table.optional_text("headroom"),
        )
        table.done()
        if signature.bottleneck not in BOTTLENECKS:
            expected = f"one of {', '.join(BOTTLENECKS)}"
            raise table.fail("bottleneck", expected, signature.bottleneck)
        return signature


@dataclass(frozen=True)
class StateMatch:
    """What memory has of a state. kind: SAME, SIMILAR (same room, bottleneck and limiter) or NEW.
    key: of the state that matched, None for a new one."""

    kind: str
    key: str | None = None


def signature(profile: Profile) -> StateSignature:
    """The state that a profile describes."""
    return StateSignature(
        room=profile.room,
        regime=profile.regime,
        bottleneck=profile.bottleneck,
        limiting_resource=profile.limiting_resource,
        dominant_kernel=profile.dominant_kernel,
        occupancy=_band(profile.occupancy, OCCUPANCY_BANDS, "high"),
        headroom=_band(profile.headroom, HEADROOM_BANDS, "much"),
    )


def match(state: StateSignature, known: Sequence[StateSignature]) -> StateMatch:
    """The newest known state that equals `state`, else the newest that is similar."""
    if any(other == state for other in known):
        return StateMatch(SAME, state.key)
    for other in reversed(known):
        if _trait(other) == _trait(state) and state.bottleneck != UNPROFILED:
            return StateMatch(SIMILAR, other.key)
    return StateMatch(NEW)


def _trait(state: StateSignature) -> tuple[str, str, str | None]:
    return state.room, state.bottleneck, state.limiting_resource


def _band(value: float | None, bands: Sequence[tuple[float, str]], above: str) -> str | None:
    if value is None:
        return None
    return next((name for bound, name in bands if value <= bound), above)
