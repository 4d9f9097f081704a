"""The BufferPool, by the scenarios of Kafka's ``BufferPoolTest``.

Kafka's threads are processes here where a scenario is about waiting for each other; its sizes are multiples of 8,
the least that a slot can be. What differs:

* ``testSimple``: a larger buffer is a chain of slots, so its memory counts as allocated, like any other.
* ``testLargeAvailableMemory`` is about 32-bit overflow, which Python's integers do not have.
* ``outOfMemoryOnAllocation``: memory is reserved when the slab is made; an allocation cannot fail for lack of it.
* ``testCleanupMemoryAvailabilityOnMetricsException`` stands for any error in the middle of a wait: here,
  of `BufferPool.while_waiting`.
* ``closeAllocations`` and ``closeNotifyWaiters`` are one test.
* ``testDelayedAllocation`` and ``testCleanupMemoryAvailabilityWaiterOnInterruption`` are in
  ``test_buffer_pool_processes.py``.
"""

from __future__ import annotations

import math
import random
import time
from multiprocessing.connection import Connection

import pytest
import runs
from killpoints import interrupt_before, lines_here
from pools import MakePool, join_pool, slots_of
from processes import PATIENCE_S, Start, finish, in_threads, wait_until

from shmaccum import _core
from shmaccum._core import Buffer, Slot, Super
from shmaccum.accumulator import buffer_pool
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.errors import BufferExhaustedError, IllegalStateError, ProducerClosedError, RecordTooLargeError
from shmaccum.shm.lifecycle import detach

MAX_BLOCK_MS = 10
FOREVER_MS = PATIENCE_S * 1000


def allocate(link: Connection, name: str, size: int, max_block_ms: float) -> Buffer:
    pool = join_pool(name)
    link.send("about to")
    return pool.allocate(size, max_block_ms)


def test_simple(make_pool: MakePool) -> None:
    """Memory comes in whole slots."""
    pool = make_pool(64, 8)
    for size, slots in ((0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3), (64, 8)):
        buffer = pool.allocate(size, MAX_BLOCK_MS)
        assert buffer.slots == slots
        assert pool.available_memory() == 64 - 8 * slots
        pool.deallocate(buffer)
        assert pool.available_memory() == 64


def test_cannot_allocate_more_memory_than_we_have(make_pool: MakePool) -> None:
    pool = make_pool(1024, 512)
    buffer = pool.allocate(1024, MAX_BLOCK_MS)
    assert buffer.slots * pool.poolable_size == 1024
    pool.deallocate(buffer)

    with pytest.raises(RecordTooLargeError, match=r"1025 bytes.*hard limit of 1024.*buffer\.memory"):
        pool.allocate(1025, MAX_BLOCK_MS)


def test_buffer_exhausted_error_is_raised(make_pool: MakePool) -> None:
    """Also ``nonBlockingMode``, ``testBlockTimeout``, ``testCleanupMemoryAvailabilityWaiterOnBlockTimeout``."""
    pool = make_pool(16, 8)
    pool.allocate(8, MAX_BLOCK_MS)

    for max_block_ms in (0, MAX_BLOCK_MS):
        with pytest.raises(BufferExhaustedError) as error:
            pool.allocate(16, max_block_ms)

        for fact in (
            "16 bytes",
            f"{max_block_ms} ms",
            "Total memory: 16 bytes",
            "Available memory: 8 bytes",
            "max.block.ms",
        ):
            assert fact in str(error.value)
        assert pool.queued() == 0
        assert not pool.slab.pool.is_exhausted()
        assert pool.available_memory() == 8


def test_cleanup_memory_availability_on_an_error_in_the_wait(make_pool: MakePool) -> None:
    pool = make_pool(16, 8)
    pool.allocate(8, 0)

    def fail() -> None:
        raise MemoryError

    pool.while_waiting = fail
    with pytest.raises(MemoryError):
        pool.allocate(16, 1000)

    assert pool.available_memory() == 8
    assert pool.queued() == 0
    pool.allocate(8, 0)  # this does not time out


def test_an_interrupt_of_an_allocation_leaks_no_memory(make_pool: MakePool) -> None:
    """Wherever it comes: memory that the caller has not got is free again."""
    pool = make_pool(64, 8)
    taken: list[Buffer] = []
    lines = lines_here(lambda: pool.allocate(8, 0, taken), buffer_pool)
    pool.deallocate(*taken)
    for line in lines:
        assert interrupt_before(line, lambda: pool.allocate(8, 0), buffer_pool)
        assert pool.available_memory() == 64, f"after an interrupt before {line}"


def hammer(link: Connection, name: str, iterations: int, seed: int) -> None:
    """Use the pool in two threads."""
    pool = join_pool(name)

    def use(thread: int) -> None:
        randomness = random.Random(2 * seed + thread)
        for _ in range(iterations):
            pooled = randomness.random() < 0.5
            size = pool.poolable_size if pooled else randomness.randrange(1, pool.total_memory)
            buffer = pool.allocate(size, FOREVER_MS)
            places = _core.places_of(pool.slab.core, buffer.slot, buffer.slots * pool.poolable_size) or []
            mark = randomness.randbytes(8)
            for begin, end in places:
                pool.slab.buffer[begin:end] = mark * ((end - begin) // 8)
            if not randomness.randrange(8):
                time.sleep(0)
            for begin, end in places:
                assert pool.slab.buffer[begin:end] == mark * ((end - begin) // 8), "another process has the same memory"
            pool.deallocate(buffer)

    link.send("ready")
    link.recv()
    runs.in_threads(2, use)
    detach(pool.slab)


def test_stressful_situation(make_pool: MakePool, start: Start, slab_name: str) -> None:
    number = 6
    pool = make_pool(number // 2 * 1024, 1024)
    children = [start(hammer, slab_name, 50, seed) for seed in range(number)]
    for child in children:
        child.hear()
    finish(*children)

    assert pool.available_memory() == pool.total_memory
    assert pool.queued() == 0
    assert pool.slab.words[Super.REBUILDS] == 0


def test_close_notifies_waiters_and_refuses_requests(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(8, 8)
    buffer = pool.allocate(8, math.inf)
    errors: list[ProducerClosedError] = []

    def wait() -> None:
        try:
            pool.allocate(8, math.inf)
        except ProducerClosedError as error:
            errors.append(error)

    with in_threads(wait, wait):
        wait_until(lambda: pool.queued() == 2)
        other = start(allocate, slab_name, 8, FOREVER_MS)
        wait_until(lambda: pool.queued() == 3)
        pool.close()

    assert len(errors) == 2
    assert pool.queued() == 1  # another process's pool is not closed
    with pytest.raises(ProducerClosedError):
        pool.allocate(8, MAX_BLOCK_MS)
    pool.deallocate(buffer)  # still works
    assert other.result().slot == buffer.slot


# --- its memory: owners in the slot headers, and counts --------------------------------------------------


@pytest.mark.parametrize("change", [{"slot": 2}, {"slot": 8}, {"slot": 1 << 63}, {"generation": 9}])
def test_a_wrong_handle_frees_nothing_and_the_others_are_freed(make_pool: MakePool, change: dict[str, int]) -> None:
    pool = make_pool(64, 8)
    right, wrong = pool.allocate(8, 0), pool.allocate(16, 0)

    handle = Buffer(**{"slot": wrong.slot, "slots": wrong.slots, "generation": wrong.generation} | change)
    assert not pool.is_taken(handle)

    with pytest.raises(IllegalStateError, match="1 of"):
        pool.deallocate(handle, right)

    assert pool.is_taken(wrong)
    assert pool.available_memory() == 48
    assert pool.slab.words[Super.REBUILDS] == 0


def chain_of(pool: BufferPool, buffer: Buffer) -> list[int]:
    return slots_of(pool.slab, buffer.slot)


def test_a_large_request_gets_adjacent_slots_if_possible(make_pool: MakePool) -> None:
    pool = make_pool(64, 8)
    small = [pool.allocate(8, 0) for _ in range(8)]
    pool.deallocate(small[1], small[3], small[4], small[6])

    adjacent = pool.allocate(16, 0)
    others = pool.allocate(16, 0)

    assert chain_of(pool, adjacent) == [3, 4]
    assert chain_of(pool, others) == [1, 6]
    assert pool.available_memory() == 0
    pool.deallocate(adjacent, others, *(small[number] for number in (0, 2, 5, 7)))
    assert chain_of(pool, pool.allocate(64, 0)) == list(range(8))


def test_memory_of_a_broken_chain_can_be_freed(make_pool: MakePool) -> None:
    pool = make_pool(64, 8)
    kept = [pool.allocate(8, 0) for _ in range(4)]
    pool.deallocate(kept[1])
    broken = pool.allocate(40, 0)
    assert chain_of(pool, broken) == [1, 4, 5, 6, 7]
    for link in (3, 5, 99, 0, 1 << 63):  # to another's, back into the chain, out of the slab, its end, anything
        pool.slab.words[pool.slab.geometry.header(5) + Slot.CHAIN] = link
        assert _core.places_of(pool.slab.core, broken.slot, 40) is None

    pool.deallocate(broken)

    assert pool.available_memory() == 40
    assert all(pool.is_taken(buffer) for buffer in (kept[0], kept[2], kept[3]))
    assert pool.allocate(40, 0).slots == 5


@pytest.mark.parametrize("wrong", [0, 5, 7, 8])
def test_reclaim_rebuilds_a_wrong_count(make_pool: MakePool, wrong: int) -> None:
    pool = make_pool(64, 8)
    kept = pool.allocate(16, 0)
    pool.slab.words[Super.FREE_SLOTS] = wrong

    assert pool.reclaim() == 0

    assert pool.available_memory() == 48
    assert pool.is_taken(kept)
    assert pool.allocate(48, 0).slots == 6


def test_a_too_high_free_count_allocates_nothing(make_pool: MakePool) -> None:
    pool = make_pool(16, 8)
    kept = [pool.allocate(8, 0) for _ in range(2)]
    pool.slab.words[Super.FREE_SLOTS] = 1

    with pytest.raises(BufferExhaustedError):
        pool.allocate(8, 0)

    assert all(map(pool.is_taken, kept))


@pytest.mark.parametrize(("memory", "slots"), [(64, 8), (71, 8), (63, 7), (7, 1), (0, 1)])
def test_memory_is_rounded_down_to_whole_slots_but_not_to_none(make_pool: MakePool, memory: int, slots: int) -> None:
    assert make_pool(memory, 8).total_memory == slots * 8
