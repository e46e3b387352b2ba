"""Declared constants of a room, mutated within their declared bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from harness.controller.directions import Direction
from harness.errors import ConfigError
from harness.search.candidates import Proposal
from harness.search.declaration import Declaration, TuningDirection
from harness.search.proposers import Plan

MOST_PAIRS = 200  # mutations of two constants at once, drawn after all single ones


class ParameterProposer:
    """Single mutations of the parent first, the nearest values before far ones; then pairs."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration

    def describe(self) -> str:
        return "parameters"

    @property
    def directions(self) -> Sequence[Direction]:
        return [one.direction for one in self._declaration.directions]

    def propose(self, plan: Plan) -> Iterator[Proposal]:
        one = self._direction(plan.direction.name)
        present = self._declaration.read(plan.parent.sources)
        draw = random.Random(plan.seed)
        for edits in self._mutations(one, present, draw):
            try:
                sources = self._declaration.apply(plan.parent.sources, edits)
            except ConfigError:  # limits that do not rise: no table, so no candidate
                continue
            changes = ", ".join(
                f"{constant} {present[constant]} -> {value}" for constant, value in edits.items()
            )
            yield Proposal(sources, plan.parent.sha256, edits, changes)

    def _direction(self, name: str) -> TuningDirection:
        return next(one for one in self._declaration.directions if one.direction.name == name)

    @staticmethod
    def _mutations(
        one: TuningDirection, present: Mapping[str, int], draw: random.Random
    ) -> Iterator[dict[str, int]]:
        singles = []
        for constant, values in one.constants.items():
            at = present[constant]
            nearest = sorted((v for v in values if v != at), key=lambda v: _steps(values, v, at))
            singles += [(index, draw.random(), constant, v) for index, v in enumerate(nearest)]
        ordered = sorted(singles)  # by distance, and at random among those as far
        yield from ({constant: value} for _, _, constant, value in ordered)
        if len(one.constants) < 2:
            return
        for _ in range(MOST_PAIRS):
            first, second = draw.sample(ordered, 2)
            if first[2] != second[2]:
                yield {first[2]: first[3], second[2]: second[3]}


def _steps(values: Sequence[int], value: int, present: int) -> int:
    """How many values lie between two; the present one may be no member."""
    low, high = sorted((value, present))
    return sum(low < other <= high for other in values)
