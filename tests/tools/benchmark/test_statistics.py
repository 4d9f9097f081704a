"""Medians, quartiles, ratios."""

from __future__ import annotations

from tools.benchmark.statistics import ratio, spread, summary


def test_quartiles() -> None:
    assert spread([7.0]) == (7.0, 7.0, 7.0)
    assert spread([4.0, 1.0, 3.0, 2.0]) == (1.75, 2.5, 3.25)


def test_summary_has_what_all_rounds_have() -> None:
    assert summary([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": (1.5, 2.0, 2.5)}
    assert summary([]) == {}


def test_a_ratio_is_of_the_same_round() -> None:
    """Of medians it would be 1: the rounds that were slow for one were slow for the other too."""
    ours = [{"x": 2.0}, {"x": 4.0}, {"x": 20.0}]
    theirs = [{"x": 1.0}, {"x": 4.0}, {"x": 5.0}]
    found = ratio(ours, theirs, "x")
    assert found == (1.5, 2.0, 3.0)


def test_no_ratio() -> None:
    assert ratio([{"x": 1.0}], [{"x": 0.0}], "x") is None
    assert ratio([], [{"x": 1.0}], "x") is None
    assert ratio([{"x": 1.0}], [{"y": 1.0}], "x") is None
