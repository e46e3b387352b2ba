"""What a program that writes candidates is told: one prompt file a round. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.controller.decision import LABELS, MANY_LINES, SMALL_GAIN
from harness.records import format_us
from harness.search.proposers import Plan

PATCH_NAME = "candidate.patch"


def write_prompt(plan: Plan) -> str:
    """Role, round input, protocol, hard gates and decision contract, as Markdown."""
    return (
        "\n\n".join(
            [
                f"# {plan.room}: round {plan.round}",
                _role(plan),
                _round_input(plan),
                _protocol(plan),
                _hard_gates(plan),
                _contract(),
            ]
        ).rstrip()
        + "\n"
    )


def _role(plan: Plan) -> str:
    return (
        "## Role\n\n"
        f"Make the kernel of one definition, `{plan.facts.definition}`, faster over all of its "
        "workloads. The official evaluator, its acceptance rule and its timer decide what is right "
        "and what is fast; what you expect does not."
    )


def _round_input(plan: Plan) -> str:
    facts = plan.facts
    latency = "not measured"
    if facts.mean_latency_us is not None:
        latency = f"{format_us(facts.mean_latency_us)} us"
    lines = [
        f"* Baseline: {facts.baseline}, mean latency {latency}.",
        f"* State: {facts.state} ({facts.match} in memory).",
        f"* Direction of this round: **{plan.direction.name}**: {plan.direction.hypothesis}.",
        "* Implementation surfaces: Triton, CUDA C++ through the shelf, and dispatch in Python.",
        f"* Files: `solutions/{plan.room}/` is yours; `solutions/common/` is shared and fixed. "
        f"Both lie beside this prompt, as the parent of this round "
        f"({plan.parent.sha256[:8] if plan.parent.sha256 else 'the baseline'}) has them.",
    ]
    sections = [
        ("Regimes", facts.regimes),
        ("Profile", facts.profile),
        ("Supervisor", facts.findings),
        ("Blocked directions", facts.blocked),
        ("Recommended directions", facts.recommended),
        ("Earlier rounds in this state", facts.past),
    ]
    text = "## Round input\n\n" + "\n".join(lines)
    for title, items in sections:
        text += f"\n\n### {title}\n\n{_list(items)}"
    return text


def _protocol(plan: Plan) -> str:
    return (
        "## Protocol\n\n"
        f"1. Read `docs/kernels/{plan.room}.md` of the project and the sources here before you "
        "write anything.\n"
        "2. Change what the direction names, and nothing beside it: one hypothesis a candidate.\n"
        "3. Take thresholds from the regimes above, never from another operator.\n"
        f"4. Leave `{PATCH_NAME}` beside this prompt: one patch that `git apply` takes, with paths "
        f"such as `solutions/{plan.room}/kernel.py`: `git init && git add solutions` before you "
        f"edit, `git diff --output={PATCH_NAME}` afterwards, make one.\n"
        "5. End with code 0. Another code, or no patch, is a refused proposal."
    )


def _hard_gates(plan: Plan) -> str:
    return (
        "## Hard gates\n\n"
        f"* A patch that touches anything outside `solutions/{plan.room}/` is refused whole.\n"
        "* Every workload passes the official rule. One that fails rejects the candidate.\n"
        "* No output is cached, no input is written, no work leaves the call.\n"
        "* One fast workload is no result: the full distribution improves, no workload is slower, "
        "and the interval excludes no difference, twice.\n"
        f"* Below {100 * SMALL_GAIN:g} % of gain at most {MANY_LINES} more lines are accepted."
    )


def _contract() -> str:
    return (
        "## Decision\n\n"
        f"The round ends with one label: {', '.join(f'*{label}*' for label in LABELS)}. The "
        "harness measures and decides; it keeps the comparison, the profile, the candidate, every "
        "workload's ratio and the reason. A proposal carries no weight but its measurement."
    )


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"* {item}" for item in items) or "None."
