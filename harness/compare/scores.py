"""The contest's score, and the two averages that people take it for.

    S_d     = mean over the workloads of d of baseline latency / our latency; 0 if one of ours fails
    S_track = sum of S_d over the track's definitions / how many definitions the track has

Definitions are counted, not rooms: the contest takes one solution of each.

A mean of ratios rewards a large gain on a short workload as much as on a long one. Beside it stand
the ratio of the mean latencies, which long workloads decide, and the geometric mean of the ratios,
which alone does not change its verdict when the two sides change places. None of the three is
another's approximation, so each is printed under its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.config import Room
from harness.errors import UsageError

BASELINE = "flashinfer"  # the library whose latencies the contest's score divides
HOST_GAPS = (
    "A latency holds the gaps that the host leaves between a call's launches: that of a peer of "
    "several short kernels is mostly gaps, and a server that captures graphs does not pay them "
    '(docs/peers.md, "Host time").'
)
TRACK_RULE = (
    "A definition that was not compared counts as 0, as one of which ours failed does. Where the "
    "baseline of a compared definition does not run on the device, its track is undefined there. "
    "Where several rooms answer a definition, the best S_d counts."
)

Definitions = Mapping[str, Sequence[str]]  # of a track: each with the rooms that answer it
Latencies = Sequence[float | None]  # µs, one a workload; None where it did not pass


def ratio_of_means(baseline_us: Latencies, ours_us: Latencies) -> float | None:
    """Mean baseline latency over our mean latency. None where any latency is missing."""
    pairs = _pairs(baseline_us, ours_us)
    if _ratios(pairs) is None:
        return None
    return math.fsum(us for us, _ in pairs if us) / math.fsum(us for _, us in pairs if us)


def geometric_mean(baseline_us: Latencies, ours_us: Latencies) -> float | None:
    """Geometric mean of baseline / ours. None where any latency is missing."""
    ratios = _ratios(_pairs(baseline_us, ours_us))
    return None if ratios is None else math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def track_score(definitions: Definitions, scores: Mapping[str, float | None]) -> float | None:
    """S_track, as TRACK_RULE says. None: undefined.

    definitions: the track's. scores: S_d by room of what was compared on one device, None where it
    is undefined there. Raises UsageError for a track without definitions.
    """
    if not definitions:
        raise UsageError("track score: expected at least one definition, got none")
    best = [_best(rooms, scores) for rooms in definitions.values()]
    known = [score for score in best if score is not None]
    return math.fsum(known) / len(best) if len(known) == len(best) else None


def _best(rooms: Sequence[str], scores: Mapping[str, float | None]) -> float | None:
    """S_d of the definition that these rooms answer."""
    compared = [scores[room] for room in rooms if room in scores]
    known = [score for score in compared if score is not None]
    return max(known) if known else None if compared else 0.0


def definitions_of_tracks(rooms: Mapping[str, Room]) -> dict[str, Definitions]:
    """The definitions of each track with the rooms that answer them, in config.toml's order. Rooms
    that are not in the contest have no track."""
    tracks: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, room in rooms.items():
        if room.track is None:
            continue
        definitions = tracks.setdefault(room.track, {})
        definitions[room.definition] = (*definitions.get(room.definition, ()), name)
    return dict(tracks)


def _pairs(baseline_us: Latencies, ours_us: Latencies) -> list[tuple[float | None, float | None]]:
    if len(baseline_us) != len(ours_us) or not ours_us:
        raise UsageError(
            f"score: expected the same workloads, at least one, of both sides; got "
            f"{len(baseline_us)} of the baseline and {len(ours_us)} of ours"
        )
    wrong = [us for us in (*baseline_us, *ours_us) if us is not None and not 0 < us < math.inf]
    if wrong:
        raise UsageError(f"score: expected latencies above 0, or None, got {wrong[0]}")
    return list(zip(baseline_us, ours_us, strict=True))


def _ratios(pairs: Sequence[tuple[float | None, float | None]]) -> list[float] | None:
    """baseline / ours of each pair; None where any latency is missing."""
    known = [
        baseline / ours for baseline, ours in pairs if baseline is not None and ours is not None
    ]
    return known if len(known) == len(pairs) else None
