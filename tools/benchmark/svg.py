"""Draws two kinds of plots as SVG: bars with quartiles, and lines.

Text and lines have a colour that is readable on white and on black, because documents are shown on both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from tools.benchmark.statistics import Spread
from tools.benchmark.tables import number

INK: Final = "#7a7f87"
COLOURS: Final = ("#d1495b", "#2e86ab", "#edae49", "#66a182", "#8d6a9f", "#9c6644")
_FONT: Final = "font-family='sans-serif' font-size='12'"
_WIDTH: Final = 760
_LABELS: Final = 310
_LEGEND: Final = 260
_BAR: Final = 18
_GAP: Final = 6
_HEIGHT: Final = 360
_MARGIN: Final = 80
_FEW_DECADES: Final = 3


class Bar(NamedTuple):
    """A bar: label, length, and quartiles."""

    label: str
    spread: Spread
    colour: str


class Line(NamedTuple):
    """Points from left to right, on an evenly spaced axis."""

    label: str
    points: Mapping[str, float]
    colour: str
    dashed: bool = False


def bars(title: str, unit: str, groups: Mapping[str, Sequence[Bar]]) -> str:
    """Return horizontal bars, each group on a scale of its own; a thin line shows the quartiles."""
    parts: list[str] = []
    y = 30
    for heading, its_bars in groups.items():
        y += 26
        parts.append(_text(0, y - 6, heading, weight="bold"))
        longest = max((bar.spread.high for bar in its_bars), default=0.0) or 1.0
        scale = (_WIDTH - _LABELS - 90) / longest
        for bar in its_bars:
            middle = y + _BAR / 2
            parts.append(_text(_LABELS - 8, middle + 4, bar.label, anchor="end"))
            length = bar.spread.median * scale
            parts.append(f"<rect x='{_LABELS}' y='{y}' width='{length:.1f}' height='{_BAR}' fill='{bar.colour}'/>")
            low, high = _LABELS + bar.spread.low * scale, _LABELS + bar.spread.high * scale
            parts.append(_stroke(low, middle, high, middle))
            parts.append(_text(max(high, _LABELS + length) + 6, middle + 4, number(bar.spread.median)))
            y += _BAR + _GAP
    return _svg(y + 10, f"{title} ({unit})", parts)


def lines(title: str, unit: str, axis: str, all_lines: Sequence[Line]) -> str:
    """Return lines on a logarithmic scale; the axis has the points' places in order."""
    places = list(dict.fromkeys(place for line in all_lines for place in line.points))
    marks = _marks([value for line in all_lines for value in line.points.values()])
    right, low, high = _WIDTH - _LEGEND, _HEIGHT - 10, 40

    def x_of(place: str) -> float:
        return _MARGIN + 20 + places.index(place) * (right - _MARGIN - 40) / max(1, len(places) - 1)

    def y_of(value: float) -> float:
        return low - math.log(value / marks[0]) / math.log(marks[-1] / marks[0]) * (low - high)

    parts = [_stroke(_MARGIN, y_of(mark), right, y_of(mark), opacity=0.3) for mark in marks]
    parts += [_text(_MARGIN - 6, y_of(mark) + 4, number(mark), anchor="end") for mark in marks]
    parts += [_text(x_of(place), low + 18, place, anchor="middle") for place in places]
    parts.append(_text((_MARGIN + right) / 2, low + 36, axis, anchor="middle"))
    for order, line in enumerate(all_lines):
        points = {x_of(place): y_of(value) for place, value in line.points.items()}
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points.items())
        dashes = " stroke-dasharray='5 4'" if line.dashed else ""
        style = f"stroke='{line.colour}' stroke-width='2'{dashes}"
        parts.append(f"<polyline points='{corners}' fill='none' {style}/>")
        parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{line.colour}'/>" for x, y in points.items()]
        y = high + 6 + 18 * order
        parts.append(f"<line x1='{right + 14}' y1='{y}' x2='{right + 38}' y2='{y}' {style}/>")
        parts.append(_text(right + 44, y + 4, line.label))
    return _svg(_HEIGHT + 40, f"{title} ({unit})", parts)


def _marks(values: Sequence[float]) -> list[float]:
    """Return a few round numbers that enclose all values."""
    # One decade more at the bottom: the logarithm of a value just under a power of ten is rounded up.
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if most - least <= _FEW_DECADES else (1,)
    marks = [step * 10.0**power for power in range(least - 1, most + 1) for step in steps]
    first = max(place for place, mark in enumerate(marks) if mark <= min(values))
    last = min(place for place, mark in enumerate(marks) if mark > max(values) or place == len(marks) - 1)
    return marks[first : last + 1]


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height:.0f}' "
        f"viewBox='0 0 {_WIDTH} {height:.0f}' {_FONT}>"
    )
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", _text(0, 18, title, weight="bold"), *parts, "</svg>", ""]
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f"fill='{INK}' text-anchor='{anchor}' font-weight='{weight}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>"


def _stroke(x1: float, y1: float, x2: float, y2: float, *, opacity: float = 1) -> str:
    return (
        f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{INK}' stroke-opacity='{opacity:g}'/>"
    )
