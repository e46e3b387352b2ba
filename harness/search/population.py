"""A small population on islands: who may be a parent, who is an elite, how islands exchange.

Pure, and immutable: each step gives a new population, which the manifest keeps after every round.
Fitness is the mean ratio of the run's first baseline to the member: above 1 it is the faster. The
baseline itself is a parent on every island.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.records.strict_json import Fields

ISLAND_CAPACITY = 6  # elites that an island keeps
EXPLOIT = 0.6  # how often the best of the island is the parent; else anyone
MIGRATION_ROUNDS = 4


@dataclass(frozen=True)
class Member:
    """A candidate that passed its gate. parent: content it was made from, None for the baseline.
    round: its key."""

    sha256: str
    name: str
    island: int
    fitness: float
    parent: str | None
    round: str

    @staticmethod
    def from_json(table: Fields) -> Member:
        """Raises RecordError naming source and key."""
        member = Member(
            sha256=table.text("sha256"),
            name=table.text("name"),
            island=table.count("island"),
            fitness=table.number("fitness", 0.0),
            parent=None if table.is_null("parent") else table.text("parent"),
            round=table.text("round"),
        )
        table.done()
        return member


@dataclass(frozen=True)
class Population:
    """islands: count. members: best first on each island, islands in order."""

    islands: int
    members: tuple[Member, ...] = ()

    def island(self, number: int) -> list[Member]:
        return [member for member in self.members if member.island == number]

    def add(self, member: Member) -> Population:
        """With one more; the weakest of a full island leaves. The same content is kept once."""
        others = [
            other
            for other in self.members
            if (other.island, other.sha256) != (member.island, member.sha256)
        ]
        return replace(self, members=_keep([*others, member], self.islands))

    def migrate(self) -> Population:
        """Each island's best also lives on the next."""
        guests = []
        for number in range(self.islands):
            for best in self.island(number)[:1]:
                guests.append(replace(best, island=(number + 1) % self.islands))
        population = self
        for guest in guests if self.islands > 1 else ():
            population = population.add(guest)
        return population

    def parent(self, island: int, baseline_fitness: float, seed: str) -> Member | None:
        """Whom the next candidates of an island are made from; None is the baseline."""
        draw = random.Random(seed)
        choices: list[Member | None] = [None, *self.island(island)]
        if draw.random() < EXPLOIT:
            return max(choices, key=lambda one: one.fitness if one else baseline_fitness)
        return draw.choice(choices)

    def to_json(self) -> list[dict[str, Any]]:
        return [vars(member) for member in self.members]

    @staticmethod
    def from_json(islands: int, values: Sequence[Any], source: str) -> Population:
        """Raises RecordError naming source and key."""
        members = [
            Member.from_json(Fields(source, f"members[{index}]", value))
            for index, value in enumerate(values)
        ]
        return Population(islands, tuple(members))


def _keep(members: Sequence[Member], islands: int) -> tuple[Member, ...]:
    kept: list[Member] = []
    for number in range(islands):
        own = [member for member in members if member.island == number]
        own.sort(key=lambda member: (-member.fitness, member.sha256))
        kept += own[:ISLAND_CAPACITY]
    return tuple(kept)
