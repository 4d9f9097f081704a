"""Statistics over rounds: medians, quartiles, and ratios within the same round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Figures = Mapping[str, float]
"""The figures of one turn of a contestant, by name."""


class Spread(NamedTuple):
    """The median of some figures, and their quartiles."""

    low: float
    median: float
    high: float


def quantile(figures: Sequence[float], share: float) -> float:
    """Return the figure below which a share of them lies, with linear interpolation."""
    return float(np.quantile(figures, share))


def spread(figures: Sequence[float]) -> Spread:
    return Spread(quantile(figures, 0.25), quantile(figures, 0.5), quantile(figures, 0.75))


def summary(rounds: Sequence[Figures]) -> dict[str, Spread]:
    """Return the spread of every figure that all rounds have."""
    if not rounds:
        return {}
    names = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    return {name: spread([figures[name] for figures in rounds]) for name in names}


def ratio(ours: Sequence[Figures], theirs: Sequence[Figures], name: str) -> Spread | None:
    """Return the spread over the rounds of our figure ÷ theirs; None if there is nothing to compare."""
    ratios = [
        mine[name] / other[name]
        for mine, other in zip(ours, theirs, strict=False)
        if name in mine and other.get(name, 0.0) > 0.0
    ]
    return spread(ratios) if ratios else None
