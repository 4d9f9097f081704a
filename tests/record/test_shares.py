"""How the rows of a column are shared out by their bytes: as one would who goes from row to row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum.record.shares import grouped, stops_of_shares, total_and_largest

sizes_of_rows = st.lists(st.integers(1, 50), min_size=1, max_size=30)


@settings(deadline=None)
@given(sizes_of_rows)
def test_total_and_largest(sizes: list[int]) -> None:
    assert total_and_largest(np.array(sizes)) == (sum(sizes), max(sizes))


@settings(deadline=None)
@given(sizes_of_rows, st.lists(st.integers(0, 200), max_size=5))
def test_a_share_ends_with_the_row_that_fills_it(sizes: list[int], shares: list[int]) -> None:
    shares = [*shares, max(0, sum(sizes) - sum(shares))]
    while sum(shares) > sum(sizes):  # no more than there is
        shares.remove(max(shares))
    stops, row, before, end = [], 0, 0, 0
    for share in shares:
        end += share
        while before < end:
            before += sizes[row]
            row += 1
        stops.append(row)
    assert stops_of_shares(np.array(sizes), shares) == stops


@settings(deadline=None)
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=30), st.integers(1, 7))
def test_rows_are_grouped_in_their_order(partitions: list[int], count: int) -> None:
    """Those of partitions that there are not, or not yet, among them: they are an error of somebody else's."""
    order, groups = grouped(np.array(partitions), count)
    assert {number: order[start:stop].tolist() for number, start, stop in groups} == {
        number: [row for row, there in enumerate(partitions) if there == number] for number in set(partitions)
    }
    assert [stop for _, _, stop in groups[:-1]] == [start for _, start, _ in groups[1:]]
