"""What a case is: variants, each of which every contestant takes its turns at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tools.benchmark.settings import Settings
from tools.benchmark.workshop import Workshop

Turn = Callable[[str], dict[str, float]]
"""Has a contestant take a turn; returns its figures by name. Raises BenchmarkError."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One comparison.

    Attributes:
        name: in the report, unique within the case.
        title: a line for people.
        contestants: who takes part; the first one is what the ratios are of.
        turn: what each of them does.
        figures: which figures the tables show, in this order.
        broker: the kind, or empty.
        settings: the same for all.
        facts: what else defines it, for the report.
        rounds_at_most: for what takes long.
        rounds_times: for what varies much: so many rounds for one.
        seldom: contestant -> its rounds at most, where it alone takes long.
        warm_up: whether a round that does not count goes before.
        turn_s: how long a turn takes, about, for the estimate.
        pooled: returns figures of all the rounds of a contestant together, which single rounds are too short for.
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
    turn_s: float = 2.0
    pooled: Callable[[str], Mapping[str, float]] = lambda _: {}

    def rounds_of(self, contestant: str, rounds: int) -> int:
        """Return how many rounds a contestant has that count, where so many are asked for."""
        return min(rounds * self.rounds_times, self.rounds_at_most, self.seldom.get(contestant, self.rounds_at_most))

    def expected_s(self, rounds: int) -> float:
        """Return how long all turns take together, about."""
        turns = sum(self.rounds_of(each, rounds) + self.warm_up for each in self.contestants)
        return turns * self.turn_s


class Case(Protocol):
    """A case of the benchmark."""

    number: int
    name: str
    title: str

    def variants(self, workshop: Workshop) -> Sequence[Variant]:
        """Return its variants. Nothing is measured or started before their turns."""

    def close(self) -> None:
        """End what the turns of all variants have shared."""
