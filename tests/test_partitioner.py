"""The partition of the moment: long enough for a batch, and the same share for all in the long run."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from shmaccum.partitioner import StickyPartitioner

BATCH = 1000


def choose(sticky: StickyPartitioner, partition_count: int, size: int, *, new_batch: bool = False) -> int:
    """Send a record of so many bytes."""
    partition = sticky.partition(partition_count)
    sticky.note_appended(size, partition_count, new_batch=new_batch)
    return partition


def test_it_sticks() -> None:
    sticky = StickyPartitioner(BATCH)
    assert len({choose(sticky, 100, 99, new_batch=number == 0) for number in range(10)}) == 1
    assert sticky.remaining == BATCH - 990


def test_it_moves_on_with_a_new_batch() -> None:
    """``testBuiltInPartitionerFractionalBatches``: not in the middle of one."""
    random.seed(2)
    moved = 0
    for _ in range(50):
        sticky = StickyPartitioner(BATCH)
        first = choose(sticky, 100, BATCH + 1)
        assert choose(sticky, 100, 1) == first
        assert choose(sticky, 100, 1, new_batch=True) == first
        moved += sticky.partition(100) != first
    assert moved > 40


def test_it_does_not_stay_for_ever() -> None:
    """Twice its share, and it moves on wherever the batch is."""
    random.seed(3)
    moved = 0
    for _ in range(50):
        sticky = StickyPartitioner(BATCH)
        first = choose(sticky, 100, BATCH)
        choose(sticky, 100, BATCH)
        moved += sticky.partition(100) != first
        assert sticky.remaining == BATCH
    assert moved > 40


def test_what_remains_is_never_negative() -> None:
    sticky = StickyPartitioner(BATCH)
    choose(sticky, 5, BATCH + 500)
    assert sticky.remaining == 0


@pytest.mark.parametrize("size", [10, 300, 5000])
def test_all_get_the_same(size: int) -> None:
    """``testUniformBuiltInPartitioner``: in the long run, whatever the sizes of the records."""
    random.seed(1)
    sticky = StickyPartitioner(BATCH)
    sizes: Counter[int] = Counter()
    for number in range(40_000):
        sizes[choose(sticky, 4, size, new_batch=number % 7 == 0)] += size
    share = sum(sizes.values()) / 4
    assert sorted(sizes) == [0, 1, 2, 3]
    assert all(abs(each - share) < 0.15 * share for each in sizes.values())


@pytest.mark.parametrize("count", [1, 3])
def test_it_follows_the_number_of_partitions(count: int) -> None:
    """Whatever it was that it stuck to: the partition that it names is one that there is."""
    for _ in range(20):
        sticky = StickyPartitioner(BATCH)
        choose(sticky, 50, 1)
        assert sticky.partition(count) < count


def test_threads_share_it() -> None:
    """They may count wrongly among each other, but what they get is a partition."""
    sticky = StickyPartitioner(10)
    bad: list[int] = []

    def run() -> None:
        for _ in range(5000):
            partition = choose(sticky, 7, 3, new_batch=True)
            if not 0 <= partition < 7:
                bad.append(partition)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad
