"""Any free slots serve a request, after any allocations, frees and deaths."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from killpoints import interrupt_after

from shmaccum.errors import SlabDamagedError
from shmaccum.pool import bitmap, slots
from shmaccum.pool.slots import Buffer, Slots
from shmaccum.shm.layout import INCARNATION_SHIFT, OWNER_SHIFT, WORD, Geometry, Super
from shmaccum.shm.memory import SlabMemory

LIVING, DYING = 1 << OWNER_SHIFT, 2 << OWNER_SHIFT
SLOT_SIZE = 16


class PoolMachine(RuleBasedStateMachine):
    """Allocates and frees as under a lock; after a death, the lock is taken over and everything is rebuilt.

    A death is an error before any line of the code: earlier stores stay. The compiled form has no lines, so no deaths.
    """

    @initialize(slot_count=st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 130])))
    def make(self, slot_count: int) -> None:
        geometry = Geometry(SLOT_SIZE, slot_count, max_processes=1, max_topics=1, max_partitions=1)
        self.slot_count = slot_count
        self.buffer = memoryview(bytearray(geometry.total_size))
        words = self.buffer.cast("Q")
        start = geometry.headers // WORD
        table = words[start : start + slot_count * geometry.slot_words]
        slab = SimpleNamespace(
            buffer=self.buffer,
            geometry=geometry,
            memory=SlabMemory(words, geometry),
            headers=np.frombuffer(table, np.uint64).reshape(slot_count, geometry.slot_words),
            owner_tag=LIVING,
            owner_is_alive=lambda state: state >> OWNER_SHIFT & 0xFFFF == LIVING >> OWNER_SHIFT,
            damaged=lambda what: SlabDamagedError(what),
        )
        assert LIVING >> INCARNATION_SHIFT == 0
        self.words, self.slab, self.pool = words, slab, Slots(slab)  # type: ignore[arg-type]
        self.pool.rebuild()
        self.held: list[tuple[Buffer, bytes]] = []
        self.mark = 0

    def free(self) -> int:
        return self.slot_count - sum(buffer.slots for buffer, _ in self.held)

    def places(self, buffer: Buffer) -> list[tuple[int, int]]:
        chain = self.slab.memory.chain(buffer.slot, buffer.slots)
        assert len(set(chain)) == buffer.slots
        places: list[tuple[int, int]] = self.slab.memory.places(chain, 0, buffer.slots * SLOT_SIZE)
        return places

    def hold(self, buffer: Buffer) -> None:
        self.mark = self.mark % 255 + 1
        data = bytes([self.mark]) * (buffer.slots * SLOT_SIZE)
        self.slab.memory.write(self.places(buffer), data)
        self.held.append((buffer, data))

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        count = data.draw(st.one_of(st.integers(1, 5), st.integers(1, self.slot_count + 1)), "count")
        taken: list[Buffer] = []
        self.pool.take(count, taken)
        assert [buffer.slots for buffer in taken] == ([count] if count <= self.free() else [])
        for buffer in taken:
            self.hold(buffer)

    @rule(most=st.integers(1, 70))
    def take_single_ones(self, most: int) -> None:
        taken: list[Buffer] = []
        self.pool.take(1, taken, most)
        assert len(taken) == min(most, self.free())
        for buffer in taken:
            self.hold(buffer)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        buffer, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1), "which"))
        assert self.pool.give([buffer]) == 1
        assert self.pool.give([buffer]) == 0

    @precondition(lambda self: len(self.held) > 1)
    @rule()
    def give_every_other_one(self) -> None:
        self.pool.give([buffer for buffer, _ in self.held[::2]])
        del self.held[::2]

    @rule(count=st.integers(1, 5), most=st.integers(1, 3), lines=st.integers(0, 80))
    def die_over_taking(self, count: int, most: int, lines: int) -> None:
        self.slab.owner_tag = DYING
        interrupt_after(lines, lambda: self.pool.take(count, [], most), slots, bitmap)
        self.slab.owner_tag = LIVING
        self.pool.rebuild()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), lines=st.integers(0, 40))
    def die_over_giving(self, data: st.DataObject, lines: int) -> None:
        given = data.draw(st.lists(st.sampled_from([each for each, _ in self.held]), unique=True), "given")
        interrupt_after(lines, lambda: self.pool.give(given), slots, bitmap)
        self.pool.rebuild()
        self.held = [each for each in self.held if self.pool.is_taken(each[0])]

    @rule(count=st.integers(1, 5), lines=st.integers(0, 80))
    def die_and_be_cleaned_up_after(self, count: int, lines: int) -> None:
        """A rebuild finds memory that was taken and not used."""
        self.slab.owner_tag = DYING
        self.pool.take(count, [], 2)
        self.slab.owner_tag = LIVING
        if interrupt_after(lines, self.pool.reclaim, slots, bitmap):
            self.pool.rebuild()

    @invariant()
    def as_many_slots_as_are_free_serve_a_request(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert self.pool.free_count() == self.words[Super.FREE_SLOTS] == self.free()
        taken: list[Buffer] = []
        for count in (self.free(), self.free() // 2):
            if count:
                self.pool.take(count, taken)
                assert [buffer.slots for buffer in taken] == [count]
                self.slab.memory.write(self.places(taken[0]), bytes(count * SLOT_SIZE))
                self.pool.give([taken.pop()])

    @invariant()
    def what_is_held_is_nobody_elses(self) -> None:
        if hasattr(self, "pool"):
            for buffer, data in self.held:
                assert b"".join(self.buffer[begin:end] for begin, end in self.places(buffer)) == data


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=20, stateful_step_count=30)
