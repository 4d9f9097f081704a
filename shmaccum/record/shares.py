"""How many bytes the bodies of a column are, and which of them make up a partition's share of these: one pass each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shmaccum.shm.memory import COMPILED

if COMPILED:
    from shmaccum.record.fastcolumns import fast_stops, fast_total_and_largest


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
