"""A case: variants, in each of which every contestant takes turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.benchmark.environment import Environment
from tools.benchmark.settings import Settings

Turn = Callable[[str], dict[str, float]]
"""Runs one turn of a contestant; returns its figures by name. Raises BenchmarkError."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One comparison.

    Attributes:
        name: in the report, unique within the case.
        title: a line for people.
        contestants: the first one is the base of the ratios.
        turn: runs one turn.
        figures: figures in the tables, in this order.
        broker: the kind, or empty.
        settings: the same for all.
        facts: other parameters, for the report.
        rounds_at_most: limit for variants that take long.
        rounds_times: multiplier of rounds for variants that vary much.
        seldom: contestant -> its own limit of rounds, if it alone takes long.
        warm_up: whether a round that does not count comes first.
        pooled: returns figures over all rounds of a contestant together, for which single rounds are too short.
    """

    name: str
    title: str
    contestants: Sequence[str]
    turn: Turn
    figures: Sequence[str]
    broker: str = ""
    settings: Settings = field(default_factory=Settings)
    facts: Mapping[str, Any] = field(default_factory=dict)
    rounds_at_most: int = 99
    rounds_times: int = 1
    seldom: Mapping[str, int] = field(default_factory=dict)
    warm_up: bool = True
    pooled: Callable[[str], Mapping[str, float]] = lambda _: {}

    def rounds_of(self, contestant: str, rounds: int) -> int:
        """Return how many of the requested rounds a contestant runs, without the warm-up."""
        return min(rounds * self.rounds_times, self.rounds_at_most, self.seldom.get(contestant, self.rounds_at_most))


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the benchmark; ``variants`` starts and measures nothing before their turns."""

    number: int
    name: str
    title: str
    variants: Callable[[Environment], Sequence[Variant]]


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count > 1)}"
