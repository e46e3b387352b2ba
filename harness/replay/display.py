"""What a replay prints. Pure."""

from __future__ import annotations

from harness.records import format_digits
from harness.replay.batch import BatchResult, Mismatch
from harness.replay.record import Margins, ReplayRecord, ReplayRow
from harness.replay.statistics import (
    CONFIDENCE,
    QUANTILES,
    clopper_pearson,
    detection_probability,
    set_passes,
    trials_needed,
)

SHARE_DIGITS = 3
MEDIAN = QUANTILES.index(0.5)


def percent(share: float) -> str:
    return f"{format_digits(100.0 * share, SHARE_DIGITS)} %"


def describe_mismatch(room: str, uuid: str, seed: int, found: Mismatch) -> str:
    """What went wrong in a trial, and the command that runs it alone. seed: the replay's."""
    detail = f": {found.detail}" if found.detail else ""
    return (
        f"{uuid[:8]} trial {found.trial} (seed {found.seed}) {found.status}{detail}; repeat: "
        f"python -m harness replay {room} --workloads {uuid} --seed {seed} --trial {found.trial}"
    )


def describe_row(row: ReplayRow, official_trials: int) -> str:
    """Mismatches, rate with interval, and what the official trials would find of them."""
    parts = [
        f"{row.mismatches}/{row.trials} mismatched",
        f"rate {percent(row.rate)} [{percent(row.low)}, {percent(row.high)}]",
    ]
    if row.mismatches:
        found = detection_probability(row.rate, official_trials)
        parts.append(
            f"{official_trials} trials find it {percent(found)} of the time, "
            f"{trials_needed(row.rate)} trials {percent(CONFIDENCE)}"
        )
    return "  ".join(parts)


def describe_notes(row: ReplayRow) -> list[str]:
    """What a reader of the row must know besides."""
    notes = []
    if not row.drawn:
        notes.append("no input is drawn: every trial has the same; only calls can differ")
    if row.untested:
        notes.append(f"{row.untested} trials untested: their reference is not finite")
    if row.margins is not None:
        notes.append(describe_margins(row.margins))
    if row.stopped is not None:
        notes.append(f"incomplete: {row.stopped}")
    return notes


def describe_margins(margins: Margins) -> str:
    least, median = margins.quantiles[0], margins.quantiles[MEDIAN]
    return (
        f"boundary margin: least {least:.3g}, median {median:.3g}; {margins.below} of "
        f"{margins.trials} at most 2 epsilon = {2 * margins.epsilon:.2g}; {margins.exchanged} "
        f"selections differ from the reference's and pass"
    )


def describe_record(record: ReplayRecord) -> list[str]:
    """The room as a whole: all trials, and the chance that a sweep shows nothing."""
    low, high = clopper_pearson(record.mismatches, record.judged)
    lines = [
        f"{record.room}: {record.mismatches}/{record.judged} trials mismatched in "
        f"{len(record.workloads)} of {record.total} workloads, together a rate of "
        f"[{percent(low)}, {percent(high)}]"
    ]
    official, asked = record.official_trials, record.trials
    for trials in dict.fromkeys((official, asked)):
        estimate = set_passes((row.rate for row in record.workloads), trials)
        lowest = set_passes([high] * len(record.workloads), trials)
        lines.append(
            f"{record.room}: a sweep of {trials} trials a workload passes with probability "
            f"{percent(estimate)}; {percent(lowest)} were every rate the upper bound of all trials"
        )
    return lines


def describe_progress(uuid: str, done: int, trials: int, found: int, rate_hz: float) -> str:
    return f"  {uuid[:8]} {done}/{trials} trials, {found} mismatched, {rate_hz:.0f} trials/s"


def describe_single(uuid: str, trial: int, seed: int, result: BatchResult) -> str:
    """One trial that was run alone and passed, or could not be judged."""
    state = "untested, its reference is not finite" if result.untested else "PASSED"
    text = f"{uuid[:8]} trial {trial} (seed {seed}) {state}"
    if result.max_abs_error is not None:
        text += f"  error {result.max_abs_error:.3g} abs {result.max_rel_error:.3g} rel"
    if result.boundary is not None and result.boundary.margins:
        text += f"  margin {result.boundary.margins[0]:.3g}, epsilon {result.boundary.epsilon:.2g}"
    return text
