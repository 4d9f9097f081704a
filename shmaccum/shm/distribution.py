"""Reads the slab's histograms (``core/statistics.pxi``): percentiles, sums, and differences.

Readers take no lock. A percentile is too large by at most an eighth, the width of a bucket. Copies can be added, such
as those of all processes, and subtracted, for the time between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from shmaccum._core import HISTOGRAM_BUCKETS, HISTOGRAM_PARTS, Histogram

_LAST: Final = HISTOGRAM_BUCKETS - 1


def least_of(bucket: int) -> int:
    """Return the least value that a bucket counts."""
    octave = max(0, bucket // HISTOGRAM_PARTS - 1)
    return bucket - octave * HISTOGRAM_PARTS << octave


class Distribution(NamedTuple):
    """The values that a histogram has counted."""

    counts: tuple[int, ...] = (0,) * HISTOGRAM_BUCKETS
    """Of each bucket."""
    total: int = 0
    """The sum of all values."""
    largest: int = 0
    """The largest value; after a subtraction, not less than the largest one left."""

    @property
    def count(self) -> int:  # type: ignore[override]  # a tuple's method of this name goes
        """How many values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Their mean; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """Return the largest value of the bucket that holds a percentile, such as 99; 0 without values."""
        number = self.count
        rank = max(1, -int(-number * percent // 100))
        for bucket, each in enumerate(self.counts):
            rank -= each
            if each and rank <= 0:
                return min(least_of(bucket + 1) - 1, self.largest) if bucket < _LAST else self.largest
        return 0

    def __add__(self, other: Distribution) -> Distribution:  # type: ignore[override]
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Distribution(counts, self.total + other.total, max(self.largest, other.largest))

    def __sub__(self, earlier: Distribution) -> Distribution:
        """Return the values counted since an earlier copy."""
        counts = tuple(max(0, now - then) for now, then in zip(self.counts, earlier.counts, strict=True))
        return Distribution(counts, max(0, self.total - earlier.total), self.largest)


def read(words: memoryview, at: int) -> Distribution:
    """Read the histogram at a word index."""
    values: Sequence[int] = words[at : at + Histogram.length].tolist()
    return Distribution(tuple(values[Histogram.BUCKETS :]), values[Histogram.TOTAL], values[Histogram.LARGEST])


def read_all(words: memoryview, places: Iterable[int]) -> Distribution:
    """Read histograms and return their sum."""
    counted = (at for at in places if words[at + Histogram.TOTAL] or words[at + Histogram.BUCKETS])
    return sum((read(words, at) for at in counted), Distribution())
