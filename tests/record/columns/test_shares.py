"""How the rows of a column are shared out by the batches that they fill: as one would who goes from row to row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum._core import least_and_largest, stops_of_batches
from shmaccum.record.columns.bodies import grouped

sizes_of_rows = st.lists(st.integers(1, 50), min_size=1, max_size=30)


@settings(deadline=None)
@given(sizes_of_rows)
def test_least_and_largest(sizes: list[int]) -> None:
    assert least_and_largest(np.array(sizes)) == (min(sizes), max(sizes))


@settings(deadline=None)
@given(sizes_of_rows, st.integers(0, 9), st.integers(0, 60), st.integers(1, 90))
def test_a_batch_ends_with_the_last_row_that_fits(sizes: list[int], overhead: int, first_room: int, room: int) -> None:
    stops, filled, left = [], 0, first_room
    for row, size in enumerate(sizes):
        if filled and filled + size + overhead > left:
            stops.append(row)
            filled, left = 0, room
        filled += size + overhead
    assert stops_of_batches(np.array(sizes), overhead, first_room, room) == [*stops, len(sizes)]


@settings(deadline=None)
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=30), st.integers(1, 7))
def test_rows_are_grouped_in_their_order(partitions: list[int], count: int) -> None:
    """Also rows of partitions that do not exist, or not yet: these are an error for the caller to report."""
    order, groups = grouped(np.array(partitions), count)
    assert {number: order[start:stop].tolist() for number, start, stop in groups} == {
        number: [row for row, there in enumerate(partitions) if there == number] for number in set(partitions)
    }
    assert [stop for _, _, stop in groups[:-1]] == [start for _, start, _ in groups[1:]]
