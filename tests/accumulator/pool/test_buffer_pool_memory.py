"""The memory of the BufferPool: owners in the slot headers, sizes of allocations, and counts."""

from __future__ import annotations

import pytest
from pools import MakePool

from shmaccum._core import Buffer, Slot, Super
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.errors import BufferExhaustedError, IllegalStateError


def test_memory_is_freed_once(make_pool: MakePool) -> None:
    pool = make_pool(16, 8)
    buffer = pool.allocate(8, 0)
    pool.deallocate(buffer)

    with pytest.raises(IllegalStateError, match="not allocated"):
        pool.deallocate(buffer)

    assert pool.available_memory() == 16
    again = pool.allocate(8, 0)
    assert (again.slot, again.generation) == (buffer.slot, buffer.generation + 1)
    with pytest.raises(IllegalStateError):
        pool.deallocate(buffer)
    assert pool.is_taken(again)
    with pytest.raises(IllegalStateError):
        pool.deallocate(again, again)
    assert pool.available_memory() == 16


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
    return pool.slab.memory.chain(buffer.slot, buffer.slots)


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
        assert chain_of(pool, broken) == [1]

    pool.deallocate(broken)

    assert pool.available_memory() == 40
    assert all(pool.is_taken(buffer) for buffer in (kept[0], kept[2], kept[3]))
    assert pool.allocate(40, 0).slots == 5


def test_several_buffers_are_allocated_at_once_if_free(make_pool: MakePool) -> None:
    pool = make_pool(64, 8)
    kept = [pool.allocate(8, 0) for _ in range(8)]
    pool.deallocate(kept[1], kept[3], kept[4])
    taken: list[Buffer] = []

    assert pool.allocate(8, 0, taken, most=2) == taken[0]
    assert [buffer.slot for buffer in taken] == [1, 3]
    more: list[Buffer] = []
    pool.allocate(8, 0, more, most=5)
    assert [buffer.slot for buffer in more] == [4]
    assert pool.available_memory() == 0
    with pytest.raises(BufferExhaustedError):
        pool.allocate(8, 0, [], most=5)

    pool.deallocate(*taken, *more)
    assert pool.available_memory() == 24
    pairs: list[Buffer] = []
    pool.allocate(16, 0, pairs, most=3)
    assert [(buffer.slot, buffer.slots) for buffer in pairs] == [(3, 2)]


@pytest.mark.parametrize(("size", "slots"), [(0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3), (64, 8)])
def test_memory_comes_in_whole_slots(make_pool: MakePool, size: int, slots: int) -> None:
    assert make_pool(64, 8).allocate(size, 0).slots == slots


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
    kept: list[Buffer] = []
    pool.allocate(8, 0, kept, most=2)
    pool.slab.words[Super.FREE_SLOTS] = 1

    with pytest.raises(BufferExhaustedError):
        pool.allocate(8, 0)

    assert all(map(pool.is_taken, kept))


@pytest.mark.parametrize(("memory", "slots"), [(64, 8), (71, 8), (63, 7), (7, 1), (0, 1)])
def test_memory_is_rounded_down_to_whole_slots_but_not_to_none(make_pool: MakePool, memory: int, slots: int) -> None:
    assert make_pool(memory, 8).total_memory == slots * 8
