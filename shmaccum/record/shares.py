"""Which rows of a column go to which partition, once it is known how many bytes of it, or which rows: one pass each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shmaccum.shm.memory import COMPILED

if COMPILED:
    from shmaccum.record.fastshares import fast_group, fast_stops, fast_total_and_largest


def total_and_largest(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """Return the sum of sizes, and the largest of them."""
    if COMPILED:
        return fast_total_and_largest(sizes)
    return int(sizes.sum()), int(sizes.max(initial=0))


def stops_of_shares(sizes: NDArray[np.int64], shares: list[int]) -> list[int]:
    """Return the number behind the last of each share, where shares of so many bytes follow one another.

    What reaches across the end of a share belongs to it, and the next one has so much less.

    Args:
        sizes: of what is shared out, in bytes; at least one.
        shares: in bytes, no more than the sizes together.
    """
    if COMPILED:
        return fast_stops(sizes, shares)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    stops: list[int] = ends.searchsorted(np.cumsum(shares)).tolist()
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
