"""The slots of a slab, taken and given back.

Every step of a slot from or to FREE is taken here, under the pool's lock, header first: the bitmap and the counts
follow, and are rebuilt from the headers when somebody dies in between.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from shmaccum.errors import SlabDamagedError
from shmaccum.pool.bitmap import FreeBitmap
from shmaccum.shm.layout import RUN_MASK, RUN_SHIFT, STATE_MASK, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

_FREE: Final = int(SlotState.FREE)
_ALLOCATED: Final = int(SlotState.ALLOCATED)
_STATE: Final = Slot.STATE
_GENERATION: Final = Slot.GENERATION
_STATE_BITS: Final = STATE_MASK
_RUN_SHIFT: Final = RUN_SHIFT
_RUN_BITS: Final = RUN_MASK
_PEAK_SLOTS: Final = Super.PEAK_SLOTS
_TOUCHED_SLOTS: Final = Super.TOUCHED_SLOTS


class Buffer:
    """Memory from the pool: a run of adjacent slots.

    Attributes:
        slot: the first one.
        slots: how many.
        generation: the slot's since this very allocation: an old handle of a slot in new hands is told apart.
    """

    __slots__ = ("generation", "slot", "slots")

    def __init__(self, slot: int, slots: int, generation: int) -> None:
        self.slot = slot
        self.slots = slots
        self.generation = generation

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buffer):
            return NotImplemented
        return self.slot == other.slot and self.slots == other.slots and self.generation == other.generation

    def __hash__(self) -> int:
        return hash((self.slot, self.generation))

    def __reduce__(self) -> tuple[type[Buffer], tuple[int, int, int]]:
        return Buffer, (self.slot, self.slots, self.generation)  # another process may give it back

    def __repr__(self) -> str:
        return f"Buffer(slot={self.slot}, slots={self.slots}, generation={self.generation})"


class Slots:
    """The slots of one slab. The caller holds the pool's lock, but for `free_count` and what looks at a single one."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._memory = slab.memory
        self._slot_count = slab.geometry.slot_count
        self._bitmap = FreeBitmap(slab.buffer, slab.memory, slab.geometry)

    def free_count(self) -> int:
        """Return how many are free."""
        return self._bitmap.free_count()

    def take(self, count: int, taken: list[Buffer], most: int = 1) -> None:
        """Take runs of ``count`` slots, as many as there are and at most ``most``.

        Each is noted in ``taken`` before it is taken.

        Raises:
            SlabDamagedError: the bitmap is not as the headers are.
        """
        words = self._memory.words
        owner = self._slab.owner_tag
        state = owner | count << _RUN_SHIFT | _ALLOCATED
        while most:
            if count == 1:
                first, runs = self._bitmap.find_some(most)
            else:
                first, runs = self._bitmap.find(count), 1
            if first < 0:
                return
            end = first + runs * count
            if end > self._slot_count:
                raise self._wrong_bitmap(first, end)
            for slot in range(first, first + runs):  # it is one run, or each of them is one slot
                header = self._header(slot)
                if words[header + _STATE] & _STATE_BITS:
                    raise self._wrong_bitmap(first, end)
                generation = words[header + _GENERATION] + 1
                words[header + _GENERATION] = generation
                taken.append(Buffer(slot, count, generation))
                words[header + _STATE] = state
            self._bitmap.take(first, end - first)
            self._note_use(end)
            most -= runs

    def give(self, buffers: Iterable[Buffer]) -> int:
        """Free memory that is taken; return how many of the buffers were."""
        words = self._memory.words
        given = 0
        for buffer in buffers:
            if self.is_taken(buffer):
                words[self._header(buffer.slot) + _STATE] = _FREE
                self._bitmap.give(buffer.slot, buffer.slots)
                given += 1
        return given

    def is_taken(self, buffer: Buffer) -> bool:
        """Say whether this very memory is still taken."""
        memory, header = self._memory, self._header(buffer.slot)
        state = memory.words[header + _STATE]
        is_taken = state & _STATE_BITS != _FREE and state >> _RUN_SHIFT & _RUN_BITS == buffer.slots
        return is_taken and memory.words[header + _GENERATION] == buffer.generation

    def _header(self, slot: int) -> int:
        """Return the word index of a slot's header."""
        return self._memory.headers_at + slot * self._memory.header_words

    def _note_use(self, end: int) -> None:
        """Keep the statistics, now that slots up to ``end`` have been taken."""
        words = self._memory.words
        used = self._slot_count - self._bitmap.free_count()
        peak, touched = words[_PEAK_SLOTS], words[_TOUCHED_SLOTS]
        if used > peak:
            words[_PEAK_SLOTS] = used
        if end > touched:
            words[_TOUCHED_SLOTS] = end

    def _wrong_bitmap(self, first: int, end: int) -> SlabDamagedError:
        """The headers are right: the error has the next one who takes the lock make the bitmap anew."""
        return self._slab.damaged(f"its bitmap says that slots {first} to {end - 1} are free")

    # --- after a death ------------------------------------------------------------------------------

    def reclaim(self) -> int:
        """Free what dead processes took and never used; return how many slots.

        Should the count be wrong, it is mended: nobody else would ever find out.
        """
        runs = self._runs()
        dead = self._free_dead(runs)
        for first, count in dead:
            self._bitmap.give(first, count)
        reclaimed = _slots_in(dead)
        if self.free_count() != self._slot_count - _slots_in(runs) + reclaimed:
            self.rebuild()
        return reclaimed

    def rebuild(self) -> None:
        """Make bitmap and count anew from the headers; reclaim on the way."""
        runs = self._runs()
        dead = set(self._free_dead(runs))
        self._bitmap.rebuild([run for run in runs if run not in dead])

    def _runs(self) -> list[tuple[int, int]]:
        """Return all the runs that are taken, by the headers."""
        states = self._slab.headers[:, Slot.STATE]
        firsts = np.flatnonzero(states & np.uint64(STATE_MASK))
        counts = (states[firsts] >> np.uint64(RUN_SHIFT)) & np.uint64(RUN_MASK)
        return list(zip(firsts.tolist(), counts.tolist(), strict=True))

    def _free_dead(self, runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Free, in the headers, the runs that dead processes took and never used; return them."""
        words, slab = self._memory.words, self._slab
        dead = []
        for first, count in runs:
            state_at = self._header(first) + _STATE
            state = words[state_at]
            if state & STATE_MASK != SlotState.ALLOCATED or slab.owner_is_alive(state):
                continue
            # It may have put the slot into a deque, which needs another lock, before it died.
            if words[state_at] == state:
                words[state_at] = _FREE
                words[Super.RECLAIMED_SLOTS] += count
                dead.append((first, count))
        return dead


def _slots_in(runs: Iterable[tuple[int, int]]) -> int:
    return sum(count for _, count in runs)
