"""Which rows of a column go to which partition, by the batches that they fill, or row by row: one pass each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shmaccum._compiled import COMPILED

if COMPILED:
    from shmaccum.record.columns.fastshares import fast_group, fast_least_and_largest, fast_stops


def least_and_largest(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """Return the smallest and the largest of some sizes; at least one."""
    if COMPILED:
        return fast_least_and_largest(sizes)
    return int(sizes.min()), int(sizes.max())


def stops_of_batches(sizes: NDArray[np.int64], overhead: int, first_room: int, room: int) -> list[int]:
    """Return the number behind the last row of each batch, where rows fill one batch after the other.

    A row for which a whole batch has no room gets one of its own.

    Args:
        sizes: of the rows' bodies, in bytes; at least one.
        overhead: bytes that a record takes besides its body.
        first_room: bytes that the first batch has for records.
        room: bytes that each of the others has.
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
    """Group rows by partition, those of each in their order.

    Args:
        partitions: of each row; at least one.
        count: partitions that there are. A row may name another one.

    Returns:
        The rows' numbers, group by group; and of each group its partition, where it begins, and where it ends.
    """
    if COMPILED:
        order, ends = np.empty(len(partitions), np.int64), np.zeros(count, np.int64)
        if fast_group(partitions, order, ends):
            bounds = [0, *ends.tolist()]
            return order, [(n, start, stop) for n, (start, stop) in enumerate(pairwise(bounds)) if start < stop]
    # The narrowest type that will do: numpy sorts that in one or two passes.
    kind = np.min_scalar_type(partitions.max()) if partitions.min() >= 0 else np.int64
    order = np.argsort(partitions.astype(kind), kind="stable")
    partitions = partitions[order]
    starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return order, [(int(partitions[start]), start, stop) for start, stop in pairwise(starts)]
