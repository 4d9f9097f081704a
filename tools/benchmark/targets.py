"""The targets and whether they are met: the last table of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.benchmark.results import Result, ratio_of, spread_of
from tools.benchmark.statistics import Spread
from tools.benchmark.tables import Table, number, with_spread


class Part(NamedTuple):
    """One number of a target, with a bound for its median; targets.toml says what it is made of."""

    label: str
    case: str
    variant: str
    figure: str
    peer: str = ""
    ours: str = ""
    at_least: float | None = None
    at_most: float | None = None
    inverse: bool = False
    unit: str = " ×"

    @property
    def has_bound(self) -> bool:
        return self.at_least is not None or self.at_most is not None

    def reached(self, result: Result) -> Spread | None:
        """Find it in a result; return None if it was not measured."""
        if not self.peer:
            return spread_of(result, self.case, self.variant, self.ours, self.figure)
        found = ratio_of(result, self.case, self.variant, self.peer, self.figure, self.ours)
        return Spread(1 / found.high, 1 / found.median, 1 / found.low) if found and self.inverse else found

    def met(self, reached: Spread | None) -> bool | None:
        """Return whether it is met; None if it was not measured."""
        if reached is None:
            return None
        return (self.at_least or 0.0) <= reached.median and (self.at_most is None or reached.median <= self.at_most)

    def text(self) -> str:
        if self.at_least is not None:
            return f"{self.label} ≥ {number(self.at_least)}{self.unit}"
        if self.at_most is not None:
            return f"{self.label} ≤ {number(self.at_most)}{self.unit}"
        return f"{self.label} (no target)"


with Path(__file__).with_name("targets.toml").open("rb") as _file:
    TARGETS: Final[dict[str, Sequence[Part]]] = {
        what: [Part(**part) for part in parts] for what, parts in tomllib.load(_file).items()
    }


def target_table(result: Result) -> Table:
    """Return target, bound, value, and whether it is met."""
    rows = []
    for what, parts in TARGETS.items():
        found = [(part, part.reached(result)) for part in parts]
        shown = ["-" if reached is None else with_spread(reached, part.unit) for part, reached in found]
        verdicts = [part.met(reached) for part, reached in found if part.has_bound]
        verdict = "not measured" if None in verdicts else "met" if verdicts else "no target"
        bounds = ", ".join(part.text() for part in parts)
        rows.append([what, bounds, ", ".join(shown), "**not met**" if False in verdicts else verdict])
    return Table(["target", "at least, at most", "reached", ""], rows)
