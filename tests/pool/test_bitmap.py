"""The free-list bitmap against a plain set of numbers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shmaccum.pool.bitmap import FreeBitmap
from shmaccum.shm.layout import WORD, Geometry, Super
from shmaccum.shm.memory import SlabMemory


def first_fit(free: set[int], count: int, slots: int) -> int:
    """Return the lowest slot from which ``count`` are free, -1 if there is none: the slow and plain way."""
    for first in range(slots - count + 1):
        if free.issuperset(range(first, first + count)):
            return first
    return -1


class BitmapMachine(RuleBasedStateMachine):
    """Takes and gives runs as the pool does, in a bitmap and in a set."""

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
        self.runs: list[tuple[int, int]] = []

    @rule(data=st.data())
    def take_what_is_found(self, data: st.DataObject) -> None:
        count = data.draw(st.one_of(st.integers(1, 4), st.integers(1, self.slots)), "count")
        first = self.bitmap.find(count)
        assert first == first_fit(self.free, count, self.slots)
        if first >= 0:
            self.bitmap.take(first, count)
            self.free -= set(range(first, first + count))
            self.runs.append((first, count))

    @rule(most=st.integers(1, 70))
    def take_as_many_as_are_adjacent_in_a_word(self, most: int) -> None:
        first, count = self.bitmap.find_some(most)
        assert first == first_fit(self.free, 1, self.slots)
        if first < 0:
            assert count == 0
        else:
            adjacent = next(n for n in range(1, 65) if first + n not in self.free or (first + n) % 64 == 0)
            assert count == min(most, adjacent)
            self.bitmap.take(first, count)
            self.free -= set(range(first, first + count))
            self.runs.append((first, count))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def give_some_back(self, data: st.DataObject) -> None:
        runs = data.draw(st.lists(st.sampled_from(self.runs), unique=True, max_size=4), "runs")
        for first, count in runs:
            self.bitmap.give(first, count)
            self.free |= set(range(first, first + count))
            self.runs.remove((first, count))

    @rule()
    def look_for_more_than_there_is(self) -> None:
        assert self.bitmap.find(self.slots + 1) == -1
        assert self.bitmap.find(len(self.free) + 1) == -1

    @rule(garbage=st.binary(min_size=1, max_size=8))
    def rebuild_after_a_death(self, garbage: bytes) -> None:
        size = self.end - self.start
        self.memory[self.start : self.end] = (garbage * (size // len(garbage) + 1))[:size]
        self.words[Super.FREE_SLOTS] = 12345
        self.bitmap.rebuild(self.runs)

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
TestBitmap.settings = settings(max_examples=60, stateful_step_count=40)


def bitmap_of(slots: int, taken: list[tuple[int, int]]) -> FreeBitmap:
    geometry = Geometry(8, slots, max_processes=1, max_topics=1, max_partitions=1)
    memory = memoryview(bytearray(geometry.total_size))
    bitmap = FreeBitmap(memory, SlabMemory(memory.cast("Q"), geometry), geometry)
    bitmap.rebuild(taken)
    return bitmap


def test_the_lowest_run_that_is_long_enough_is_found() -> None:
    bitmap = bitmap_of(20, [(0, 1), (3, 1), (7, 2), (19, 1)])  # free: 1-2, 4-6, 9-18

    assert [bitmap.find(count) for count in (1, 2, 3, 4, 10, 11)] == [1, 1, 4, 9, 9, -1]


def test_free_slots_that_are_not_adjacent_are_no_run() -> None:
    bitmap = bitmap_of(9, [(slot, 1) for slot in range(1, 9, 2)])

    assert bitmap.find(1) == 0
    assert bitmap.find(2) == -1


def test_a_run_may_cross_bytes_and_words_and_end_at_the_end() -> None:
    bitmap = bitmap_of(131, [(0, 60)])

    assert bitmap.find(71) == 60
    bitmap.take(60, 71)
    assert bitmap.find(1) == -1
