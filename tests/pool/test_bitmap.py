"""The free-list bitmap against a plain set of numbers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shmaccum.pool.bitmap import FreeBitmap
from shmaccum.shm.layout import WORD, Geometry, Super
from shmaccum.shm.memory import SlabMemory


def fit(free: set[int], count: int, slots: int) -> list[int]:
    """Return the slots to take, none if there are too few: a simple, slow model."""
    for first in range(slots - count + 1):
        if free.issuperset(range(first, first + count)):
            return list(range(first, first + count))
    return sorted(free)[:count] if len(free) >= count else []


class BitmapMachine(RuleBasedStateMachine):
    """Takes and gives slots as the pool does, in a bitmap and in a set."""

    @initialize(slots=st.one_of(st.integers(1, 200), st.sampled_from([63, 64, 65, 7, 8, 9, 2048, 2049])))
    def make(self, slots: int) -> None:
        geometry = Geometry(8, slots, max_processes=1, max_topics=1, max_partitions=1)
        self.memory = memoryview(bytearray(geometry.slots))
        self.start, self.end = geometry.bitmap, geometry.bitmap + geometry.bitmap_size
        self.memory[: self.start] = b"\x00" * self.start
        self.memory[self.end :] = b"\xee" * (geometry.slots - self.end)
        self.words = self.memory.cast("Q")
        self.slots = slots
        self.bitmap = FreeBitmap(self.memory, SlabMemory(self.words, geometry), geometry)
        self.bitmap.rebuild([])
        self.free = set(range(slots))
        self.taken: list[list[int]] = []

    @rule(data=st.data())
    def take_what_is_found(self, data: st.DataObject) -> None:
        count = data.draw(st.one_of(st.integers(1, 4), st.integers(1, self.slots)), "count")
        slots = self.bitmap.find(count)
        assert slots == fit(self.free, count, self.slots)
        for slot in slots:
            self.bitmap.take(slot, 1)
        if slots:
            self.free -= set(slots)
            self.taken.append(slots)

    @rule(most=st.integers(1, 70))
    def take_as_many_as_are_adjacent_in_a_word(self, most: int) -> None:
        first, count = self.bitmap.find_some(most)
        assert first == min(self.free, default=-1)
        if first < 0:
            assert count == 0
        else:
            adjacent = next(n for n in range(1, 65) if first + n not in self.free or (first + n) % 64 == 0)
            assert count == min(most, adjacent)
            self.bitmap.take(first, count)
            slots = list(range(first, first + count))
            self.free -= set(slots)
            self.taken.append(slots)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), at_once=st.booleans())
    def give_some_back(self, data: st.DataObject, at_once: bool) -> None:
        given = data.draw(st.lists(st.sampled_from(self.taken), unique_by=id, max_size=4), "given")
        for slots in given:
            if at_once and slots == list(range(slots[0], slots[0] + len(slots))):
                self.bitmap.give(slots[0], len(slots))
            else:
                for slot in slots:
                    self.bitmap.give(slot, 1)
            self.free |= set(slots)
            self.taken.remove(slots)

    @rule()
    def look_for_more_than_there_is(self) -> None:
        assert self.bitmap.find(self.slots + 1) == []
        assert self.bitmap.find(len(self.free) + 1) == []

    @rule(garbage=st.binary(min_size=1, max_size=8))
    def rebuild_after_a_death(self, garbage: bytes) -> None:
        size = self.end - self.start
        self.memory[self.start : self.end] = (garbage * (size // len(garbage) + 1))[:size]
        self.words[Super.FREE_SLOTS] = 12345
        self.bitmap.rebuild([slot for slots in self.taken for slot in slots])

    @invariant()
    def bits_and_count_agree_with_the_set(self) -> None:
        if hasattr(self, "free"):
            bits = int.from_bytes(self.memory[self.start : self.end], "little")
            assert bits == sum(1 << slot for slot in self.free)
            assert self.words[Super.FREE_SLOTS] == len(self.free)

    @invariant()
    def nothing_is_written_beyond_the_bitmap(self) -> None:
        if hasattr(self, "free"):
            assert set(self.memory[self.end :]) <= {0xEE}
            assert not any(self.words[Super.FREE_SLOTS + 1 : self.start // WORD])


TestBitmap = BitmapMachine.TestCase
TestBitmap.settings = settings(max_examples=30, stateful_step_count=40)


def bitmap_of(slots: int, taken: list[int]) -> FreeBitmap:
    geometry = Geometry(8, slots, max_processes=1, max_topics=1, max_partitions=1)
    memory = memoryview(bytearray(geometry.total_size))
    bitmap = FreeBitmap(memory, SlabMemory(memory.cast("Q"), geometry), geometry)
    bitmap.rebuild(taken)
    return bitmap


def test_the_lowest_adjacent_slots_are_found() -> None:
    bitmap = bitmap_of(20, [0, 3, 7, 8, 19])  # free: 1-2, 4-6, 9-18

    assert [bitmap.find(count)[0] for count in (1, 2, 3, 4, 10)] == [1, 1, 4, 9, 9]


def test_without_enough_adjacent_slots_the_lowest_are_found() -> None:
    bitmap = bitmap_of(200, list(range(1, 200, 2)))

    assert bitmap.find(1) == [0]
    assert bitmap.find(2) == [0, 2]
    assert bitmap.find(100) == list(range(0, 200, 2))
    assert bitmap.find(101) == []


def test_adjacent_slots_can_cross_bytes_and_words() -> None:
    bitmap = bitmap_of(131, list(range(60)))

    assert bitmap.find(71) == list(range(60, 131))
    bitmap.take(60, 71)
    assert bitmap.find(1) == []
