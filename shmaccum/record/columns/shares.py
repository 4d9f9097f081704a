"""Shares out a column's rows among partitions, by full batches or row by row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shmaccum._compiled import COMPILED

if COMPILED:
    from shmaccum.record.columns.fastshares import fast_group, fast_least_and_largest, fast_stops


def least_and_largest(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """Return the smallest and the largest of at least one size."""
    if COMPILED:
        return fast_least_and_largest(sizes)
    return int(sizes.min()), int(sizes.max())


def stops_of_batches(sizes: NDArray[np.int64], overhead: int, first_room: int, room: int) -> list[int]:
    """Return the number after the last row of each batch, if rows fill one batch after the other.

    A row that is larger than a whole batch gets a batch of its own.

    Args:
        sizes: of the rows' bodies, in bytes; at least one.
        overhead: bytes that a record takes in addition to its body.
        first_room: bytes for records in the first batch.
        room: bytes for records in each of the others.
    """
    if COMPILED:
        return fast_stops(sizes, overhead, first_room, room)
    ends = np.cumsum(sizes + overhead)
    stops: list[int] = []
    start, begin, left = 0, 0, first_room
    while start < len(ends):
        start = max(start + 1, int(ends.searchsorted(begin + left, "right")))
        begin, left = int(ends[start - 1]), room
        stops.append(start)
    return stops


def grouped(partitions: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], list[tuple[int, int, int]]]:
    """Group rows by partition, in their order within each.

    Args:
        partitions: of each row; at least one.
        count: number of partitions. A row can name another one.

    Returns:
        The rows' numbers, group by group; and for each group its partition, begin and end.
    """
    if COMPILED:
        order, ends = np.empty(len(partitions), np.int64), np.zeros(count, np.int64)
        if fast_group(partitions, order, ends):
            bounds = [0, *ends.tolist()]
            return order, [(n, start, stop) for n, (start, stop) in enumerate(pairwise(bounds)) if start < stop]
    # The narrowest sufficient type: numpy sorts it in one or two passes.
    kind = np.min_scalar_type(partitions.max()) if partitions.min() >= 0 else np.int64
    order = np.argsort(partitions.astype(kind), kind="stable")
    partitions = partitions[order]
    starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return order, [(int(partitions[start]), start, stop) for start, stop in pairwise(starts)]
