"""Paired ratios of latencies, with intervals that say how sure they are.

A round measures every side of a workload within a second or two, so a clock that drifts by 1 % a
minute moves both alike, and the ratio within a round does not see it. The ratio of a workload is
the mean of the middle half of its rounds' log ratios: with normal noise nearly as precise as the
mean, and outliers, which are common and always slow, do not reach it. Between two readings of a
stepping clock it also takes values that a median cannot.

Percentile and BCa intervals promise too much here. With noise of 0.75 % a round and 2 % of rounds
3 to 20 % slower, nominal 95 % intervals held the true ratio (scipy.stats.bootstrap, 2000 runs):

    rounds   statistic            percentile   BCa
    5        mean                 84 %         82 %
    5        mean of the middle   91 %         90 %
    14       mean                 90 %         84 %
    14       mean of the middle   95 %         94 %

and constant rounds make BCa NaN. So the bootstrap only supplies the standard error, and Student's t
with n - 1 degrees of freedom the number of errors. Sides alike and sides 3 % apart, noise of 0.5 to
1 % a round, the same outliers, drift and a clock that steps by 32 ns, 2000 workloads a cell:

    latency    rounds   held the truth   half width   called FAST or SLOW   3 % found FAST
    20 µs      3        96 %             2.6 %        0.4 %                 38 %
    20 µs      5        97 %             1.6 %        0                     62 %
    20 µs      8        95 %             1.0 %        0                     89 %
    20 µs      14       94 to 96 %       0.7 %        0                     99 %
    5 µs       14       95 to 97 %       0.8 %        0                     98 %
    2 µs       14       98 %             1.1 %        0                     87 %
    2 µs       3        92 to 99 %       3.1 %        0.9 %                 21 %
    1 µs       14       100 %            3.0 %        0                     12 %

14 rounds are the fewest that find a gain of 3 % in 95 of 100 workloads at the upper end of that
noise; their number is even, so that each side goes first as often.

Rounds do not show how two processes of one solution differ, by where their memory lies or by what
else their host does: on an H200 by 1.6 % (gdn_decode), 4 % (moe) and 5 to 13 % (two short
launches with a gap that the host leaves between them). The control measures it on every workload,
and ProcessSpread carries it into every interval: an effect must exceed what two equal processes
show.
What all workloads of a process share is a single draw, and makes the widest interval. Simulated,
50 workloads of 14 rounds, standard deviations from workload to workload and in common:

    within    common   workloads held   score held   called different   half width of the score
    1.5 %     0        96 %             100 %        0.8 %              2 %
    1.5 %     0.3 %    97 %             99 %         0.6 %              3 %
    1.5 %     1 %      98 %             98 %         0.6 %              8 %
    0.5 %     2 %      97 %             97 %         1.7 %              16 %
    0         3 %      96 %             97 %         2.5 %              25 %

Only the first side has a control; the other's processes are taken to differ as the first's do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.compare.record import MIN_ROUNDS
from harness.errors import UsageError

DEFAULT_ROUNDS = 14
DEFAULT_MARGIN = 0.01  # of latency: less is no reason to pick one of two kernels
CONFIDENCE = 0.95
POWER = 0.8  # of the minimum detectable effect
RESAMPLES = 2000
TIMER_STEP_US = 0.032  # CUPTI's clock; the medians in results/ lie on half steps of it
MIDDLE_HALF = 0.25  # the share cut from each end

FAST, SLOW, SAME, UNSURE = "FAST", "SLOW", "SAME", "UNSURE"
WORDS = (FAST, SLOW, SAME, UNSURE)

_BATCH = 64  # resamples held at once
_CENTRAL_SHARE = 0.8  # of the resampled values, whose width gives the standard error
_QUARTILES_PER_SIGMA = 1.349  # of a normal distribution
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A ratio of latencies and the range that holds the true one.

    mde: minimum detectable effect, as a fraction of latency: the true difference that rounds as
    noisy as these tell from none in four of five repetitions.
    """

    value: float
    low: float
    high: float
    mde: float


@dataclass(frozen=True)
class ProcessSpread:
    """How the log ratio of two processes of one solution varies beyond what their rounds explain.

    within: variance from workload to workload, known with `freedom` degrees of freedom. common:
    what all workloads share, the square of their mean log ratio: one draw, one degree of freedom.
    """

    within: float = 0.0
    common: float = 0.0
    freedom: int = 1

    @property
    def variance(self) -> float:
        """Of one workload."""
        return self.within + self.common


NO_SPREAD = ProcessSpread()


def process_spread(
    first_us: ArrayLike, again_us: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> ProcessSpread:
    """From the rounds of one solution in two processes; shapes and errors as for ratio_intervals.

    Two equal solutions have the ratio 1, so their mean log ratio is all error.
    """
    first, again = _matrices(first_us, again_us)
    if not len(first):
        return NO_SPREAD
    logs = np.log(again) - np.log(first)
    values = _middle_mean(logs)
    errors = _standard_errors((logs,), _middle_mean, resamples, seed)
    common = float(values.mean()) ** 2
    if len(values) == 1:
        return ProcessSpread(0.0, common)
    within = float(values.var(ddof=1) - np.mean(errors**2))
    return ProcessSpread(max(0.0, within), common, len(values) - 1)


def word(interval: Interval, margin: float = DEFAULT_MARGIN) -> str:
    """What an interval says about A against B.

    FAST: A is faster by more than the margin. SLOW: slower by more. SAME: the difference is within
    the margin. UNSURE: the interval reaches across one of these borders; more rounds may tell.
    """
    if not 0 <= margin < 1:
        raise UsageError(f"margin: expected a fraction from 0 to below 1, got {margin}")
    if interval.low > 1 + margin:
        return FAST
    if interval.high < 1 / (1 + margin):
        return SLOW
    if 1 / (1 + margin) <= interval.low and interval.high <= 1 + margin:
        return SAME
    return UNSURE


def ratio_intervals(
    a_us: ArrayLike,
    b_us: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    spread: ProcessSpread = NO_SPREAD,
) -> list[Interval]:
    """The ratio B / A of each workload, from rounds in which both sides were measured.

    a_us, b_us: [workloads, rounds] in µs; column n of both is one round. spread: what two equal
    processes differ by, as the control showed. Raises UsageError for
    other shapes, fewer than 3 rounds, or a latency that is not above 0.
    """
    a, b = _matrices(a_us, b_us)
    if not len(a):
        return []
    logs = np.log(b) - np.log(a)
    errors = _standard_errors((logs,), _middle_mean, resamples, seed)
    rounding = _rounding_us(a) / np.median(a, axis=1) + _rounding_us(b) / np.median(b, axis=1)
    half, detectable = _widths(
        [
            (errors**2, np.full(len(a), logs.shape[1] - 1.0)),
            (np.full(len(a), spread.within), np.full(len(a), float(spread.freedom))),
            (np.full(len(a), spread.common), np.ones(len(a))),
        ],
        confidence,
    )
    values, half, detectable = _middle_mean(logs), half + rounding, detectable + rounding
    return [
        Interval(math.exp(value), math.exp(value - width), math.exp(value + width), math.expm1(mde))
        for value, width, mde in zip(values, half, detectable, strict=True)
    ]


def score_interval(
    a_us: Sequence[Sequence[float]],
    b_us: Sequence[Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    spread: ProcessSpread = NO_SPREAD,
) -> Interval:
    """Mean over the workloads of the ratio of medians B / A: S_d with B as the baseline.

    a_us, b_us: the rounds of each workload in µs, paired; workloads may differ in their number.
    Rounds are resampled for each workload apart. spread: as for ratio_intervals. Raises UsageError
    as that does, and where there is no workload.
    """
    if len(a_us) != len(b_us) or not len(a_us):
        raise UsageError(
            f"score: expected the same workloads, at least one, of both sides; got {len(a_us)} "
            f"and {len(b_us)}"
        )
    rounds = np.array([len(us) for us in a_us])
    ratios, variances, rounding = np.empty((3, len(a_us)))
    for count in np.unique(rounds):
        members = np.flatnonzero(rounds == count)
        a, b = _matrices([a_us[i] for i in members], [b_us[i] for i in members])
        a_median, b_median = np.median(a, axis=1), np.median(b, axis=1)
        ratios[members] = b_median / a_median
        variances[members] = _standard_errors((a, b), _ratio_of_medians, resamples, seed) ** 2
        rounding[members] = ratios[members] * (TIMER_STEP_US / 2) * (1 / a_median + 1 / b_median)
    value = float(ratios.mean())
    of_rounds = variances.sum() / len(ratios) ** 2
    squares = (variances**2 / (rounds - 1)).sum() / len(ratios) ** 4
    of_within = spread.within * (ratios**2).mean() / len(ratios)
    (half,), (detectable,) = _widths(
        [
            (np.array([of_rounds]), np.array([of_rounds**2 / squares if squares > 0 else 1.0])),
            (np.array([of_within]), np.array([float(spread.freedom)])),
            (np.array([spread.common * value**2]), np.ones(1)),
        ],
        confidence,
    )
    half = float(half + rounding.mean())
    mde = float(detectable + rounding.mean()) / value
    return Interval(value, max(0.0, value - half), value + half, mde)


def _middle_mean(values: Array, axis: int = -1) -> Array:
    """Mean of the middle half: nearly as precise as the mean, and outliers do not reach it."""
    from scipy.stats import trim_mean

    middle: Array = trim_mean(values, MIDDLE_HALF, axis=axis)
    return middle


def _ratio_of_medians(a_us: Array, b_us: Array, axis: int = -1) -> Array:
    ratio: Array = np.median(b_us, axis=axis) / np.median(a_us, axis=axis)
    return ratio


def _standard_errors(
    samples: tuple[Array, ...], statistic: Any, resamples: int, seed: int
) -> Array:
    """[workloads]: standard error of `statistic`, from resampled rounds.

    Rounds are drawn together from all samples. The spread is read from the middle of the resampled
    values: a resample that happens to hold an outlier several times would swell a variance. The
    bootstrap's variance is that of n, enlarged here to that of n - 1.
    """
    from scipy.stats import bootstrap, norm

    bounds = bootstrap(
        samples,
        statistic,
        paired=True,
        vectorized=True,
        axis=-1,
        n_resamples=resamples,
        batch=_BATCH,
        method="percentile",
        confidence_level=_CENTRAL_SHARE,
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    sigmas = 2 * norm.ppf((1 + _CENTRAL_SHARE) / 2)
    rounds = samples[0].shape[-1]
    errors: Array = (bounds.high - bounds.low) / sigmas * math.sqrt(rounds / (rounds - 1))
    return errors


def _widths(parts: Sequence[tuple[Array, Array]], confidence: float) -> tuple[Array, Array]:
    """How far an interval reaches to each side, and the least effect that it detects.

    parts: independent variances, each with its degrees of freedom. Welch's sum of them trusts a
    part with one degree of freedom too much where its draw came out small, so that no interval is
    narrower than one part alone would make it.
    """
    from scipy.stats import t

    if not 0.5 <= confidence < 1:
        raise UsageError(f"confidence: expected from 0.5 to below 1, got {confidence}")
    variances, freedoms = (np.stack(values) for values in zip(*parts, strict=True))
    total = variances.sum(axis=0)
    squares = (variances**2 / freedoms).sum(axis=0)
    freedom = np.where(squares > 0, total**2 / np.where(squares > 0, squares, 1), 1)
    quantile = (1 + confidence) / 2
    alone = (t.ppf(quantile, freedoms) * np.sqrt(variances)).max(axis=0)
    half: Array = np.maximum(alone, t.ppf(quantile, freedom) * np.sqrt(total))
    return half, half + t.ppf(POWER, freedom) * np.sqrt(total)


def _rounding_us(rounds_us: Array) -> Array:
    """[workloads]: how far the mean of readings may lie from the truth because the clock steps.

    Half a step where all rounds read alike. Noise of a step's size takes the reading across the
    border as often as it should, and the mean is right again: the error of a rounded normal
    variable falls with exp(-2 pi^2 sigma^2), sigma in steps.
    """
    low, high = np.quantile(rounds_us, [0.25, 0.75], axis=1)
    sigma_steps = (high - low) / _QUARTILES_PER_SIGMA / TIMER_STEP_US
    rounding: Array = TIMER_STEP_US / 2 * np.exp(-2 * (np.pi * sigma_steps) ** 2)
    return rounding


def _matrices(a_us: ArrayLike, b_us: ArrayLike) -> tuple[Array, Array]:
    try:
        a, b = np.asarray(a_us, np.float64), np.asarray(b_us, np.float64)
    except ValueError as error:
        raise UsageError(f"rounds: expected as many of every workload, got {error}") from error
    if a.shape != b.shape or a.ndim != 2:
        raise UsageError(
            f"rounds: expected two tables [workloads, rounds] of one shape, got {a.shape} and "
            f"{b.shape}"
        )
    if len(a) and a.shape[1] < MIN_ROUNDS:
        raise UsageError(f"rounds: expected at least {MIN_ROUNDS}, got {a.shape[1]}")
    if not (np.isfinite(a) & np.isfinite(b) & (a > 0) & (b > 0)).all():
        raise UsageError("rounds: expected latencies above 0 µs, got one that is not")
    return a, b
