"""Medians, quartiles, ratios."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.benchmark.statistics import quantile, ratio, spread, summary

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30)


@given(NUMBERS)
def test_quartiles_are_those_of_the_standard_library(figures: list[float]) -> None:
    expected = statistics.quantiles(figures, n=4, method="inclusive")
    assert spread(figures) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_of_one() -> None:
    assert spread([7.0]) == (7.0, 7.0, 7.0)


def test_of_none() -> None:
    with pytest.raises(ValueError, match="no figures"):
        quantile([], 0.5)


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
