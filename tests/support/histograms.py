"""What tests know of the buckets of histograms."""

from __future__ import annotations

from bisect import bisect_right

from shmaccum._core import HISTOGRAM_BUCKETS
from shmaccum.shm.distribution import least_of


def bucket_of(value: int) -> int:
    """Return the bucket that counts a value: the last one whose least value is not larger."""
    return bisect_right(range(HISTOGRAM_BUCKETS), value, key=least_of) - 1
