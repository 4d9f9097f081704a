"""Histograms in the slab: times and sizes, of which people want percentiles.

A bucket's count is one store of one writer, so a histogram is never torn, and a death loses one value. Readers take no
lock. `shmaccum.shm.layout.statistics` has the buckets, after HdrHistogram's: a percentile is off by at most an eighth.
A `Distribution` is a reader's copy. Copies can be added, such as those of all processes, and subtracted, for the time
between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shmaccum._compiled import COMPILED
from shmaccum.shm.layout import HISTOGRAM_BUCKETS, HISTOGRAM_WORDS, Histogram
from shmaccum.shm.memory import SlabMemory

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_COMPILED: Final = COMPILED
_TOTAL: Final = Histogram.TOTAL
_LARGEST: Final = Histogram.LARGEST
_BUCKETS: Final = Histogram.BUCKETS
_ALL_BITS: Final = (1 << 64) - 1
_LAST_BUCKET: Final = HISTOGRAM_BUCKETS - 1
_EXACT: Final = 16
"""Values below this have a bucket each."""
_PARTS: Final = 8
"""Buckets of each larger power of two."""


def count(memory: SlabMemory, at: int, value: int) -> None:
    """Count a value in the histogram at a word index."""
    words = memory.words
    octave, part = 0, value
    while part >= _EXACT:
        part >>= 1
        octave += 1
    bucket = octave * _PARTS + part
    if bucket > _LAST_BUCKET:
        bucket = _LAST_BUCKET
    # A damaged word can be at its limit: statistics wrap around, and never fail the call that they are about.
    words[at + _BUCKETS + bucket] = words[at + _BUCKETS + bucket] + 1 & _ALL_BITS
    words[at + _TOTAL] = words[at + _TOTAL] + value & _ALL_BITS
    if value > words[at + _LARGEST]:
        words[at + _LARGEST] = value


def count_all(memory: SlabMemory, at: int, values: npt.NDArray[np.int64], more: int) -> None:
    """Count many values.

    Args:
        memory: the slab's.
        at: word index of the histogram.
        values: one-dimensional, of any stride; not negative.
        more: added to each.
    """
    if _COMPILED:
        sizes = values
        for index in range(len(values)):
            count(memory, at, sizes[index] + more)
        return
    import numpy as np

    found, numbers = np.unique(values, return_counts=True)
    words = memory.words
    for value, number in zip(found.tolist(), numbers.tolist(), strict=True):
        count(memory, at, value + more)
        bucket = at + _BUCKETS + bucket_of(value + more)
        words[bucket] = words[bucket] + number - 1 & _ALL_BITS
        words[at + _TOTAL] = words[at + _TOTAL] + (number - 1) * (value + more) & _ALL_BITS


def bucket_of(value: int) -> int:
    """Return the bucket that counts a value."""
    octave = max(0, value.bit_length() - _EXACT.bit_length() + 1)
    return min(octave * _PARTS + (value >> octave), _LAST_BUCKET)


def least_of(bucket: int) -> int:
    """Return the least value that a bucket counts."""
    octave = max(0, bucket // _PARTS - 1)
    return bucket - octave * _PARTS << octave


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values that a histogram has counted.

    Attributes:
        counts: of each bucket.
        total: the sum of all values.
        largest: the largest value; after a subtraction, not less than the largest one left.
    """

    counts: tuple[int, ...] = (0,) * HISTOGRAM_BUCKETS
    total: int = 0
    largest: int = 0

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Their mean; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """Return the largest value of the bucket that holds a percentile; 0 without values.

        Args:
            percent: 0 to 100; 99 for the value that 99 of 100 do not exceed.
        """
        number = self.count
        rank = max(1, -int(-number * percent // 100))
        for bucket, each in enumerate(self.counts):
            rank -= each
            if each and rank <= 0:
                return min(least_of(bucket + 1) - 1, self.largest) if bucket < _LAST_BUCKET else self.largest
        return 0

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Yield, for each bucket that is not empty, the largest value that it counts, and its count."""
        for bucket, each in enumerate(self.counts):
            if each:
                yield (least_of(bucket + 1) - 1 if bucket < _LAST_BUCKET else max(self.largest, least_of(bucket))), each

    def __add__(self, other: Distribution) -> Distribution:
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Distribution(counts, self.total + other.total, max(self.largest, other.largest))

    def __sub__(self, earlier: Distribution) -> Distribution:
        """Return what was counted since an earlier copy."""
        counts = tuple(max(0, now - then) for now, then in zip(self.counts, earlier.counts, strict=True))
        return Distribution(counts, max(0, self.total - earlier.total), self.largest)


def read(words: memoryview, at: int) -> Distribution:
    """Read the histogram at a word index."""
    values: Sequence[int] = words[at : at + HISTOGRAM_WORDS].tolist()
    return Distribution(tuple(values[_BUCKETS:]), values[_TOTAL], values[_LARGEST])


def read_all(words: memoryview, places: Sequence[int]) -> Distribution:
    """Read histograms and return their sum."""
    return sum((read(words, at) for at in places if words[at + _TOTAL]), Distribution())
