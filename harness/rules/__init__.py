"""Acceptance rules of definitions that are not the contest's, and how their inputs are drawn.

    prefill_inputs      queries, keys, weights and ranges of a dsa_prefill workload
    prefill_selection   the rule: the best keys of each range, by their scores

The contest's rules lie in harness/evaluators.py and belong to the judge of every room. The files of
a further rule belong to the judge of its definition alone, so that a change to them leaves what was
measured of the contest's rooms as it is. Nothing here imports torch before `register` is called.
"""

from __future__ import annotations

from harness.config import DSA_PREFILL

__all__ = ["DSA_PREFILL", "SOURCES", "register", "rule_sources"]

# Definition -> the files, beside the judge's own, that say what a right answer to it is.
SOURCES = {
    DSA_PREFILL: (
        "harness/evaluate/start.py",
        "harness/ranges.py",
        "harness/rules/__init__.py",
        "harness/rules/prefill_inputs.py",
        "harness/rules/prefill_selection.py",
    )
}


def rule_sources(definition: str) -> tuple[str, ...]:
    """Paths from the checkout's root; none for a definition that the judge knows by itself."""
    return SOURCES.get(definition, ())


def register() -> None:
    """Make flashinfer-bench know the rules. Must run in every process that resolves an evaluator.

    Runs before or behind harness.evaluators.register, and as often as one likes.
    """
    from flashinfer_bench.bench.evaluators import registry

    from harness.rules.prefill_selection import PrefillSelectionEvaluator

    if PrefillSelectionEvaluator not in registry._EVALUATORS:
        registry._EVALUATORS.append(PrefillSelectionEvaluator)
