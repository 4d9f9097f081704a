"""Where the bytes of a large batch are: chains of slots, and their byte ranges."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmaccum._core import Geometry, Slot
from shmaccum.shm.layout import SlotState
from shmaccum.shm.segment import SlabMemory

GEOMETRY = Geometry(16, 12, max_processes=1, max_topics=1, max_partitions=1)


def memory_with(slots: list[int]) -> tuple[SlabMemory, memoryview]:
    """Return a slab's memory in which these slots are a chain, and its words."""
    words = memoryview(bytearray(GEOMETRY.total_size)).cast("Q")
    for slot, following in zip(slots, [*slots[1:], -1], strict=True):
        words[GEOMETRY.header(slot) + Slot.CHAIN] = following + 1
    words[GEOMETRY.header(slots[0]) + Slot.STATE] = SlotState.CLOSED
    return SlabMemory(words, GEOMETRY), words


chains = st.lists(st.integers(0, 11), min_size=1, max_size=12, unique=True)


@given(chains, st.data())
def test_bytes_are_written_where_the_chain_leads_and_nowhere_else(slots: list[int], data: st.DataObject) -> None:
    memory, words = memory_with(slots)
    begin = data.draw(st.integers(0, 16 * len(slots) - 1), "begin")
    end = data.draw(st.integers(begin + 1, 16 * len(slots)), "end")
    written = bytes(range(1, 256))[: end - begin]
    before = bytes(words)
    assert memory.chain(slots[0], len(slots)) == slots
    places = memory.places(slots, begin, end)
    memory.write(places, written)
    expected = bytearray(before)
    for number, byte in enumerate(written, begin):
        expected[GEOMETRY.slot(slots[number // 16]) + number % 16] = byte
    assert bytes(words) == bytes(expected)
    assert all(stop != start for (_, stop), (start, _) in pairwise(places)), "adjacent is one"
    assert all(start < stop for start, stop in places)


def test_bytes_after_a_batchs_slots_are_an_error() -> None:
    memory, _ = memory_with([5, 6])
    with pytest.raises(ValueError, match="no bytes 8 to 33 in 2 slots of 16"):
        memory.places([5, 6], 8, 33)


HUGE = (1 << 64) - 1


def test_a_damaged_chain_has_only_its_first_slot() -> None:
    """It leads nowhere, back, into another batch, or out of the slab; or it has the wrong length."""
    memory, words = memory_with([1, 2, 5])
    words[GEOMETRY.header(7) + Slot.STATE] = SlotState.OPEN
    for count in (0, 4, 12, 13, 1 << 24, 1 << 63, HUGE):
        assert memory.chain(1, count) == [1]
    for link in (0, 1, 2, 3, 8, 13, HUGE):  # behind the last slot, a link is ignored
        words[GEOMETRY.header(5) + Slot.CHAIN] = link
        assert memory.chain(1, 3) == [1, 2, 5]
    for link in (0, 2, 3, 8, 13, 1 << 32, HUGE):
        words[GEOMETRY.header(2) + Slot.CHAIN] = link
        assert memory.chain(1, 3) == [1]
        assert memory.chain(1, 2) == [1, 2]
        assert memory.chain(1, 1) == [1]
