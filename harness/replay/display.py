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
LEAST_SHARE = 1e-6  # what is less is said to be less
MEDIAN = QUANTILES.index(0.5)


def percent(share: float) -> str:
    if 0.0 < share < LEAST_SHARE:
        return f"under {100.0 * LEAST_SHARE:.4f} %"
    return f"{format_digits(100.0 * share, SHARE_DIGITS)} %"


def describe_mismatch(room: str, uuid: str, seed: int, found: Mismatch) -> str:
    """What went wrong in a trial, and the command that runs it alone. seed: the replay's."""
    detail = f": {found.detail}" if found.detail else ""
    return (
        f"{uuid[:8]} trial {found.trial} (seed {found.seed}) {found.status}{detail}; repeat it: "
        f"python -m harness replay {room} --workloads {uuid} --seed {seed} --trial {found.trial}"
    )


def describe_row(row: ReplayRow, official_trials: int) -> str:
    """Trials, how many were wrong, the rate, and what the official trials would show of it."""
    text = describe_rate(row.trials, row.mismatches)
    if row.mismatches:
        shown = detection_probability(row.rate, official_trials)
        text += (
            f"; {official_trials} official trials would show it {percent(shown)} of the time, "
            f"{trials_needed(row.rate)} trials {100 * CONFIDENCE:.0f} %"
        )
    return text


def describe_rate(trials: int, wrong: int) -> str:
    """Such as "200 trials, 3 wrong: 1.50 % (95 % interval 0.311 % to 4.32 %)"."""
    if not trials:
        return "no trial was judged"
    low, high = clopper_pearson(wrong, trials)
    return (
        f"{_count(trials, 'trial')}, {wrong} wrong: {percent(wrong / trials)} "
        f"({100 * CONFIDENCE:.0f} % interval {percent(low)} to {percent(high)})"
    )


def describe_notes(row: ReplayRow) -> list[str]:
    """What a reader of the row must know besides."""
    notes = []
    if not row.drawn:
        notes.append(
            "every trial has the same inputs, as in the contest: only a difference between calls "
            "can show"
        )
    if row.untested:
        notes.append(
            f"{_count(row.untested, 'trial')} left out: the reference's own answer is not finite"
        )
    if row.margins is not None:
        notes += describe_margins(row.margins)
    if row.stopped is not None:
        notes.append(f"trials are missing: {row.stopped}")
    return notes


def describe_margins(margins: Margins) -> list[str]:
    """How near a tie the selections were, and what that changed."""
    least, median = margins.quantiles[0], margins.quantiles[MEDIAN]
    return [
        f"between the last score selected and the first left out: {least:.3g} at the least, "
        f"{median:.3g} in the middle trial",
        f"rounding can exchange two tokens within {2 * margins.epsilon:.2g}: so near were "
        f"{margins.below} of {margins.trials} trials; {margins.exchanged} accepted selections are "
        "not the reference's",
    ]


def describe_record(record: ReplayRecord) -> list[str]:
    """The room as a whole: all trials, and the chance that a sweep shows nothing."""
    room, count, wrong = record.room, len(record.workloads), record.mismatches
    lines = [
        f"{room}: {count} of {record.total} workloads together: "
        f"{describe_rate(record.judged, wrong)}"
    ]
    if not record.judged:
        return lines
    _, high = clopper_pearson(wrong, record.judged)
    official, each = record.official_trials, f"on each of {_count(count, 'workload')}"
    if not wrong:
        most = percent(set_passes([high] * count, official))
        lines.append(
            f"{room}: a fault in {percent(high)} of trials, the interval's upper end, would pass a "
            f"sweep of {official} official trials {each} {most} of the time"
        )
        return lines
    rates = [row.rate for row in record.workloads]
    for trials in dict.fromkeys((official, *record.asked)):
        kind = "official " if trials == official else ""
        seen = percent(set_passes(rates, trials))
        most = percent(set_passes([high] * count, trials))
        lines.append(
            f"{room}: a sweep of {trials} {kind}trials {each} would pass all the same {seen} of "
            f"the time, {most} at the interval's upper end"
        )
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe_progress(uuid: str, done: int, trials: int, found: int | None, rate_hz: float) -> str:
    """found: wrong trials; None inside a batch, whose verdicts are not known yet."""
    wrong = "" if found is None else f", {found} wrong"
    rate = f"{rate_hz:.0f}" if rate_hz >= 10 else f"{rate_hz:.2g}"
    return f"  {uuid[:8]} {done}/{trials} trials{wrong}, {rate} trials/s"


def describe_single(uuid: str, trial: int, seed: int, result: BatchResult) -> str:
    """One trial that was run alone and passed, or could not be judged."""
    left_out = "left out: the reference's own answer is not finite"
    state = left_out if result.untested else "PASSED"
    text = f"{uuid[:8]} trial {trial} (seed {seed}) {state}"
    if result.max_abs_error is not None:
        text += f", error {result.max_abs_error:.3g} absolute, {result.max_rel_error:.3g} relative"
    if result.boundary is not None and result.boundary.margins:
        least, epsilon = result.boundary.margins[0], result.boundary.epsilon
        text += (
            f", last score selected less first left out {least:.3g}, exchanged by rounding within "
            f"{2 * epsilon:.2g}"
        )
    return text
