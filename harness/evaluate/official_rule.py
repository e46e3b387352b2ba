"""What an official evaluator is told of a trial, for whoever judges trials outside the judge.

Equal to what judge.py tells it, which a test holds: that file cannot ask for it here, as its bytes
are a part of the judge's identity.
"""

from __future__ import annotations

from flashinfer_bench.bench.config import BenchmarkConfig

from harness.evaluate.protocol import Settings


def rule_config(settings: Settings, share: float = 1.0) -> BenchmarkConfig:
    """The settings of one trial. share: of the tolerances, 1.0 for the official ones."""
    return BenchmarkConfig(
        warmup_runs=settings.warmup_runs,
        iterations=settings.iterations,
        num_trials=1,
        atol=settings.atol * share,
        rtol=settings.rtol * share,
        required_matched_ratio=settings.required_matched_ratio,
        profile_baseline=False,
        timeout_seconds=settings.timeout_s,
    )
