"""Histograms: percentiles within a bucket's width, sums over processes that died, and no value that breaks them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from core_slabs import empty_segment
from histograms import bucket_of
from hypothesis import given
from hypothesis import strategies as st

from shmaccum._core import HISTOGRAM_BUCKETS, Geometry, Histogram, count_value
from shmaccum.shm import distribution
from shmaccum.shm.distribution import Distribution, least_of
from shmaccum.shm.layout import OfSender

GEOMETRY = Geometry(64, 8, max_processes=4, max_topics=4, max_partitions=4)
SEGMENT = empty_segment(GEOMETRY)
WORDS = SEGMENT.writable().cast("Q")
AT = GEOMETRY.sender_histogram(OfSender.QUEUE_TIME)
LARGEST = least_of(HISTOGRAM_BUCKETS) - 1
"""The largest value whose bucket has an end."""
VALUES = st.lists(st.integers(0, LARGEST) | st.integers(0, 100_000), min_size=1, max_size=200)


def counted(values: list[int]) -> Distribution:
    """Return a histogram that has counted these values and no others."""
    for word in range(Histogram.length):
        WORDS[AT + word] = 0
    for value in values:
        count_value(SEGMENT, AT, value)
    return distribution.read(WORDS, AT)


def exact(values: list[int], percent: float) -> int:
    """Return a percentile of values: the least one that this part of them does not exceed."""
    return sorted(values)[max(1, -int(-len(values) * percent // 100)) - 1]


def test_a_bucket_is_at_most_an_eighth_as_wide_as_its_least_value() -> None:
    leasts = [least_of(bucket) for bucket in range(HISTOGRAM_BUCKETS)]
    assert leasts[0] == 0
    assert all(end - least == 1 or (end - least) * 8 <= least for least, end in pairwise(leasts))


@given(VALUES, st.sampled_from([0, 1, 50, 90, 99, 99.9, 100]))
def test_a_percentile_is_within_the_width_of_a_bucket(values: list[int], percent: float) -> None:
    found, true = counted(values), exact(values, percent)
    assert found.count == len(values)
    assert found.total == sum(values)
    assert found.largest == max(values)
    assert true <= found.percentile(percent) <= max(true, true * 9 // 8)


def test_distributions_can_be_added_and_subtracted() -> None:
    one, both = counted([1, 2, 300]), counted([1, 2, 300, 4, 50_000])
    assert one + counted([4, 50_000]) == both
    assert (both - one).count == 2
    assert (both - one).percentile(100) == 50_000
    assert [bucket for bucket, each in enumerate((both - one).counts) if each] == [bucket_of(4), bucket_of(50_000)]
    assert Distribution().percentile(99) == Distribution().mean == 0


def test_values_beyond_the_last_bucket_count_there() -> None:
    found = counted([LARGEST + 1, 1 << 50])
    assert found.counts[-1] == 2
    assert found.percentile(50) == found.percentile(100) == 1 << 50


@pytest.mark.parametrize("word", [Histogram.TOTAL, Histogram.LARGEST, Histogram.BUCKETS + 7])
def test_a_damaged_word_fails_no_call(word: int) -> None:
    WORDS[AT + word] = (1 << 64) - 1
    count_value(SEGMENT, AT, 7)
    assert distribution.read(WORDS, AT).count >= 0
