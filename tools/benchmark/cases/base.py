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
        warm_up: whether a round that does not count goes before.
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
    warm_up: bool = True


class Case(Protocol):
    """A case of the benchmark."""

    number: int
    name: str
    title: str

    def variants(self, workshop: Workshop) -> Sequence[Variant]:
        """Return its variants. Nothing is measured or started before their turns."""

    def close(self) -> None:
        """End what the turns of all variants have shared."""
