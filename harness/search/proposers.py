"""What a proposer is asked and what it answers: one protocol for programs, folders and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.controller.directions import Direction
from harness.search.candidates import Proposal


@dataclass(frozen=True)
class Parent:
    """What a candidate may be made from. sha256: None for the baseline."""

    sha256: str | None
    sources: Mapping[str, str]


@dataclass(frozen=True)
class RoundInput:
    """What a round knows, in words, for whoever writes candidates. match: how memory knew the
    state. past: earlier rounds in it, one line each."""

    definition: str
    state: str
    match: str
    baseline: str
    mean_latency_us: float | None
    regimes: Sequence[str] = ()
    profile: Sequence[str] = ()
    findings: Sequence[str] = ()
    blocked: Sequence[str] = ()
    recommended: Sequence[str] = ()
    past: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """One round's order. round: its key. count: candidates that are wanted. seed: text that decides
    every random choice of the round."""

    room: str
    round: str
    direction: Direction
    island: int
    count: int
    parent: Parent
    baseline: Mapping[str, str]
    seed: str
    facts: RoundInput = field(default_factory=lambda: RoundInput("", "", "", "", None))


class Proposer(Protocol):
    """Makes candidates. The same plan gives the same proposals, or the archive remembers them."""

    def describe(self) -> str:
        """What it is, as the manifest keeps it: a run goes on with the same proposer only."""

    @property
    def directions(self) -> Sequence[Direction]:
        """What it can be asked to try."""

    def propose(self, plan: Plan) -> Iterator[Proposal]:
        """As many proposals as it has; the loop stops taking them when it has enough new ones."""
