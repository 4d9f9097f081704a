"""What is drawn is where it belongs."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import example, given
from hypothesis import strategies as st

from tools.benchmark.statistics import Spread
from tools.benchmark.svg import COLOURS, Bar, Line, bars, lines

SPACE = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=8))
@example([999999999.9999999])
def test_points_lie_between_round_marks(values: list[float]) -> None:
    drawing = ET.fromstring(lines("t", "u", "a", [Line("l", dict(zip("abcdefgh", values, strict=False)), COLOURS[0])]))
    grid = [float(line.attrib["y1"]) for line in drawing.iter(f"{SPACE}line") if line.attrib["y1"] == line.attrib["y2"]]
    top, bottom = min(grid[:-1]), max(grid[:-1])  # the last one is the legend's
    for point in drawing.iter(f"{SPACE}circle"):
        assert top - 0.1 <= float(point.attrib["cy"]) <= bottom + 0.1
    assert len(list(drawing.iter(f"{SPACE}circle"))) == len(values)
    marks = [text.text or "" for text in drawing.iter(f"{SPACE}text") if text.attrib["text-anchor"] == "end"]
    assert 2 <= len(marks) == len(set(marks)) <= 14


def test_labels_are_escaped() -> None:
    drawing = ET.fromstring(bars("a & b", "", {"<t>": [Bar("a <b>", Spread(1.0, 1.0, 1.0), COLOURS[0])]}))
    assert {"<t>", "a <b>"} <= {each.text for each in drawing.iter(f"{SPACE}text")}
