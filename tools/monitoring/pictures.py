"""Draws the dashboard's panels, and the times of alerts, as SVG; Grafana is not needed for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from tools.benchmark.svg import COLOURS, INK

_COLUMNS: Final = 3
_WIDTH: Final = 380
_HEIGHT: Final = 220
_LEFT: Final = 62
_TOP: Final = 28
_PLOT_WIDTH: Final = _WIDTH - _LEFT - 14
_PLOT_HEIGHT: Final = 120
_LEGEND_LINES: Final = 3
_GAP_S: Final = 1.5
"""Between two points of a line, at most: they are a second apart."""
_ROW: Final = 22
_NAMES: Final = 230
_STATES: Final = {"pending": "#edae49", "firing": "#d1495b"}

Points = Sequence[tuple[float, float]]


class Curve(NamedTuple):
    """A line of a panel."""

    label: str
    points: Points


class Plot(NamedTuple):
    """A panel with its data."""

    title: str
    unit: str
    curves: Sequence[Curve]


def panels(plots: Sequence[Plot], begin: float, end: float, events: Sequence[tuple[float, str]]) -> str:
    """Return all panels in a grid; dashed lines mark the events, numbered as in the last line of the picture."""
    parts = []
    for number, plot in enumerate(plots):
        place = f"<g transform='translate({number % _COLUMNS * _WIDTH} {number // _COLUMNS * _HEIGHT})'>"
        parts += [place, *_panel(plot, begin, end, [at for at, _ in events]), "</g>"]
    height = -(-len(plots) // _COLUMNS) * _HEIGHT + 26
    parts.append(_text(_LEFT, height - 10, _events(begin, events)))
    return _svg(_COLUMNS * _WIDTH, height, "The dashboard's panels", parts)


def alerts(
    found: Mapping[str, Mapping[str, Sequence[float]]], begin: float, end: float, events: Sequence[tuple[float, str]]
) -> str:
    """Return a row for each alert: at which seconds it was pending, and at which it fired."""
    width = _COLUMNS * _WIDTH
    scale = (width - _NAMES - 20) / (end - begin)
    parts = []
    for row, (alert, states) in enumerate(found.items()):
        y = 10 + row * _ROW
        parts.append(_text(_NAMES - 10, y + 14, alert, anchor="end"))
        parts.append(_line(_NAMES, y + _ROW, width - 20, y + _ROW, opacity=0.2))
        for state, colour in _STATES.items():
            parts += [
                f"<rect x='{_NAMES + (at - begin) * scale:.1f}' y='{y + 4}' width='{scale:.1f}' height='{_ROW - 7}' "
                f"fill='{colour}'/>"
                for at in states.get(state, ())
            ]
    bottom = 10 + len(found) * _ROW
    for number, (at, _) in enumerate(events, start=1):
        x = _NAMES + (at - begin) * scale
        parts.append(_line(x, 4, x, bottom, dashed=True))
        parts.append(_text(x, bottom + 14, str(number), anchor="middle"))
    parts.append(_text(_NAMES, bottom + 36, _events(begin, events)))
    for x, (state, colour) in zip((10, 90), _STATES.items(), strict=True):
        parts.append(f"<rect x='{x}' y='{bottom + 26}' width='12' height='12' fill='{colour}'/>")
        parts.append(_text(x + 16, bottom + 36, state))
    return _svg(width, bottom + 46, "Alerts", parts)


def _panel(plot: Plot, begin: float, end: float, events: Sequence[float]) -> list[str]:
    most = max((value for curve in plot.curves for _, value in curve.points), default=0.0) or 1.0
    low = _TOP + _PLOT_HEIGHT

    def x_of(at: float) -> float:
        return _LEFT + (at - begin) / (end - begin) * _PLOT_WIDTH

    def y_of(value: float) -> float:
        return low - value / most * _PLOT_HEIGHT

    parts = [_text(_LEFT, 16, plot.title, weight="bold")]
    for part in (0.0, 0.5, 1.0):
        parts.append(_line(_LEFT, y_of(most * part), _LEFT + _PLOT_WIDTH, y_of(most * part), opacity=0.3))
        parts.append(_text(_LEFT - 6, y_of(most * part) + 4, shown(most * part, plot.unit), anchor="end"))
    parts += [_line(x_of(at), _TOP, x_of(at), low, dashed=True) for at in events]
    for number, at in enumerate(events, start=1):
        parts.append(_text(x_of(at), low + 13, str(number), anchor="middle", size=10))
    for number, curve in enumerate(plot.curves):
        colour = COLOURS[number % len(COLOURS)]
        for points in _pieces(curve.points):
            corners = " ".join(f"{x_of(at):.1f},{y_of(value):.1f}" for at, value in points)
            parts.append(f"<polyline points='{corners}' fill='none' stroke='{colour}' stroke-width='1.6'/>")
        if number < _LEGEND_LINES * 2:
            x, y = _LEFT + number % 2 * _PLOT_WIDTH / 2, low + 28 + number // 2 * 14
            parts.append(f"<rect x='{x:.0f}' y='{y - 8:.0f}' width='9' height='9' fill='{colour}'/>")
            parts.append(_text(x + 13, y, curve.label, size=10))
    return parts


def _pieces(points: Points) -> Iterator[Points]:
    """Yield the parts of a line between which there is no data."""
    begin = 0
    for place in range(1, len(points) + 1):
        if place == len(points) or points[place][0] - points[place - 1][0] > _GAP_S:
            yield points[begin:place]
            begin = place


def shown(value: float, unit: str) -> str:
    """Return a value with its unit, as short as an axis needs it."""
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1000:.3g} ms"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    base, units = (1024.0, ("B", "KiB", "MiB", "GiB")) if unit == "bytes" else (1000.0, ("", "k", "M", "G"))
    power = 0
    while value >= base and power < len(units) - 1:
        value /= base
        power += 1
    return f"{value:.3g} {units[power]}{'B/s' if unit == 'Bps' else '/s' if unit == 'ops' else ''}".strip()


def legend(template: str, labels: Mapping[str, str]) -> str:
    """Return a legend as Grafana fills in its template; the slab's name without what makes it unique to a run."""
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)
    return re.sub(r"-\d+\b", "", text)


def _events(begin: float, events: Sequence[tuple[float, str]]) -> str:
    return "   ".join(f"{number} {what} ({at - begin:.0f} s)" for number, (at, what) in enumerate(events, start=1))


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}' "
        f"viewBox='0 0 {width:.0f} {height:.0f}' font-family='sans-serif' font-size='12'>"
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 12) -> str:
    style = f"fill='{INK}' text-anchor='{anchor}' font-weight='{weight}' font-size='{size}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, *, opacity: float = 1, dashed: bool = False) -> str:
    dashes = " stroke-dasharray='3 3'" if dashed else ""
    style = f"stroke='{INK}' stroke-opacity='{opacity:g}'{dashes}"
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' {style}/>"
