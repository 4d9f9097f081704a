"""Tables of results: rows of text, formatted by the report and the document."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.benchmark.results import Result

with Path(__file__).with_name("figures.csv").open(newline="", encoding="utf-8") as _file:
    _FIGURES: Final = list(csv.DictReader(_file))
FIGURES: Final = {each["figure"]: each["heading"] for each in _FIGURES}
"""The heading of each figure."""
LESS_IS_BETTER: Final = frozenset(each["figure"] for each in _FIGURES if each["better"] == "less")
MORE_IS_BETTER: Final = frozenset(each["figure"] for each in _FIGURES if each["better"] == "more")

_DIGITS: Final = 3


class Table(NamedTuple):
    """A heading, and rows with the same number of cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def by_contestant(variant: Result) -> Table:
    """Return a variant's figures, a row for each contestant: the median, and the quartiles where there are rounds.

    The ratios are ours ÷ theirs, of the first two figures.
    """
    figures = variant["figures"]
    compared = figures[:2] if any(variant["ratios"].values()) else []
    rows = []
    for name, contestant in variant["contestants"].items():
        cells = [with_spread(contestant["summary"].get(figure)) for figure in figures]
        rows.append([name, *cells, *_ratios(variant, name, compared)])
    return Table(_head("", figures, compared), rows)


def side_by_side(variants: Sequence[Result]) -> Table:
    """Return the medians of many variants with the same contestants and figures, a row for each variant.

    A cell has all contestants' figures; the last columns are ours ÷ the last contestant's, of the first two figures.
    """
    figures, contestants = variants[0]["figures"], list(variants[0]["contestants"])
    compared = figures[:2]
    rows = []
    for variant in variants:
        summaries = [variant["contestants"][name]["summary"] for name in contestants]
        cells = [" / ".join(_median(summary, figure) for summary in summaries) for figure in figures]
        rows.append([variant["title"], *cells, *_ratios(variant, contestants[-1], compared)])
    return Table(_head(" / ".join(contestants), figures, compared), rows)


def _head(first: str, figures: Sequence[str], compared: Sequence[str]) -> list[str]:
    return [first, *(FIGURES[each] for each in figures), *(f"ratio of {FIGURES[each]}" for each in compared)]


def _ratios(variant: Result, peer: str, compared: Sequence[str]) -> list[str]:
    found = variant["ratios"].get(peer, {})
    return [with_spread(found[each], " ×") if each in found else "" for each in compared]


def costs(variants: Sequence[Result]) -> Table:
    """Return limits, a row for each; the unit is in the title."""
    rows = [
        [variant["title"], with_spread(contestant["summary"].get(variant["figures"][0]))]
        for variant in variants
        for contestant in variant["contestants"].values()
    ]
    return Table(["", "median (quartiles)"], rows)


def with_spread(spread: Sequence[float] | None, unit: str = "") -> str:
    """Return a median, with the quartiles if they differ."""
    if spread is None:
        return "-"
    low, middle, high = map(number, spread)
    return f"{middle}{unit}" if low == middle == high else f"{middle}{unit} ({low} - {high})"


def number(value: float) -> str:
    """Return a number with three significant digits and thousands separators."""
    if value == 0:
        return "0"
    if abs(value) >= 10**_DIGITS:
        digits = _DIGITS - len(str(int(abs(value))))
        return f"{round(value, digits):,.0f}"
    return f"{value:.{_DIGITS}g}"


def _median(summary: dict[str, Any], figure: str) -> str:
    found = summary.get(figure)
    return "-" if found is None else number(found[1])


def markdown(table: Table) -> str:
    lines = [table.head, ["---", *["---:"] * (len(table.head) - 1)], *table.rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def plain(table: Table) -> str:
    widths = [max(len(row[place]) for row in (table.head, *table.rows)) for place in range(len(table.head))]
    lines = []
    for first, *others in (table.head, *table.rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(["   ", first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
