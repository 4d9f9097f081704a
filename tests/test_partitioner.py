"""The partition of the moment: long enough for a batch, and the same share for all in the long run."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter

import pytest

from shmaccum.partitioner import StickyPartitioner

BATCH = 1000


def sticky_of(partition_count: int, sticky_bytes: int = BATCH) -> StickyPartitioner:
    """Return one that chooses among all partitions alike."""
    return StickyPartitioner(sticky_bytes, lambda times: random.choices(range(partition_count), k=times))


def counting() -> StickyPartitioner:
    """Return one that chooses 0, 1, 2, ..."""
    numbers = itertools.count()
    return StickyPartitioner(BATCH, lambda times: list(itertools.islice(numbers, times)))


def choose(sticky: StickyPartitioner, size: int, *, new_batch: bool = False) -> int:
    """Send a record of so many bytes."""
    partition = sticky.partition
    sticky.note_appended(size, new_batch)
    return partition


def test_it_sticks() -> None:
    sticky = counting()
    assert {choose(sticky, 99, new_batch=number == 0) for number in range(10)} == {0}
    assert sticky.remaining == BATCH - 990


def test_it_moves_on_with_a_new_batch() -> None:
    """``testBuiltInPartitionerFractionalBatches``: not in the middle of one."""
    sticky = counting()
    assert choose(sticky, BATCH + 1) == 0
    assert choose(sticky, 1) == 0
    assert choose(sticky, 1, new_batch=True) == 0
    assert sticky.partition == 1
    assert sticky.remaining == BATCH


def test_it_does_not_stay_for_ever() -> None:
    """Twice its share, and it moves on wherever the batch is."""
    sticky = counting()
    choose(sticky, BATCH)
    assert choose(sticky, BATCH) == 0
    assert sticky.partition == 1
    assert sticky.remaining == BATCH


def test_what_remains_is_never_negative() -> None:
    sticky = counting()
    choose(sticky, BATCH + 500)
    assert sticky.remaining == 0


@pytest.mark.parametrize("size", [10, 300, 5000])
def test_all_get_the_same(size: int) -> None:
    """``testUniformBuiltInPartitioner``: in the long run, whatever the sizes of the records."""
    random.seed(1)
    sticky = sticky_of(4)
    sizes: Counter[int] = Counter()
    for number in range(40_000):
        sizes[choose(sticky, size, new_batch=number % 7 == 0)] += size
    share = sum(sizes.values()) / 4
    assert sorted(sizes) == [0, 1, 2, 3]
    assert all(abs(each - share) < 0.15 * share for each in sizes.values())


def test_many_bytes_at_once() -> None:
    """As a batch at a time, but each partition has its share in one piece."""
    sticky = counting()
    assert sticky.spread(100) == {0: 100}
    assert sticky.spread(900) == {0: 900}
    assert sticky.spread(2 * BATCH + 1) == {0: 0, 1: BATCH, 2: BATCH, 3: 1}
    assert sticky.remaining == BATCH - 1
    assert sticky.partition == 3


def test_shares_of_many_bytes() -> None:
    random.seed(1)
    sticky = sticky_of(4)
    shares = sticky.spread(1000 * BATCH + 1)
    assert sorted(shares) == [0, 1, 2, 3]
    assert sum(shares.values()) == 1000 * BATCH + 1
    assert all(abs(share - 250 * BATCH) < 50 * BATCH for share in shares.values())


def test_threads_share_it() -> None:
    """They may count wrongly among each other, but what they get is a partition."""
    sticky = sticky_of(7, sticky_bytes=10)
    bad: list[int] = []

    def run() -> None:
        for _ in range(5000):
            partition = choose(sticky, 3, new_batch=True)
            if not 0 <= partition < 7:
                bad.append(partition)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad
