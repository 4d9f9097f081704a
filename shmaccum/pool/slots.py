"""The slots of a slab, taken and given back.

Every step of a slot from or to FREE is taken here, under the pool's lock, header first: the bitmap and the counts
follow, and are rebuilt from the headers when somebody dies in between.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from shmaccum.errors import SlabDamagedError
from shmaccum.pool.bitmap import FreeBitmap
from shmaccum.shm.layout import RUN_MASK, RUN_SHIFT, STATE_MASK, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

_FREE: Final = int(SlotState.FREE)


class Buffer(NamedTuple):
    """Memory from the pool: a run of adjacent slots."""

    slot: int
    """The first one."""
    slots: int
    """How many."""
    generation: int
    """The slot's generation since this very allocation: an old handle of a slot in new hands is told apart."""


class Slots:
    """The slots of one slab. The caller holds the pool's lock, but for `buffer_at`."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._words = slab.words
        self._geometry = slab.geometry
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._bitmap = FreeBitmap(slab.buffer, slab.words, slab.geometry)

    @property
    def free(self) -> int:
        """How many are free."""
        return self._words[Super.FREE_SLOTS]

    def take(self, count: int, taken: list[Buffer], most: int = 1) -> None:
        """Take runs of ``count`` slots, as many as there are and at most ``most``.

        Each is noted in ``taken`` before it is taken.

        Raises:
            SlabDamagedError: the bitmap is not as the headers are.
        """
        words = self._words
        state = SlotState.ALLOCATED | self._slab.owner_tag | count << RUN_SHIFT
        while most:
            first, runs = self._bitmap.find_run(most) if count == 1 else (self._bitmap.find(count), 1)
            if first < 0:
                return
            end = first + runs * count
            if end > self._geometry.slot_count:
                raise self._wrong_bitmap(first, end)
            for slot in range(first, end, count):
                header = self._headers_at + slot * self._header_words
                if words[header + Slot.STATE] & STATE_MASK:
                    raise self._wrong_bitmap(first, end)
                generation = words[header + Slot.GENERATION] + 1
                words[header + Slot.GENERATION] = generation
                taken.append(Buffer(slot, count, generation))
                words[header + Slot.STATE] = state
            self._bitmap.take(first, end - first)
            used = self._geometry.slot_count - words[Super.FREE_SLOTS]
            if used > words[Super.PEAK_SLOTS]:
                words[Super.PEAK_SLOTS] = used
            if end > words[Super.TOUCHED_SLOTS]:
                words[Super.TOUCHED_SLOTS] = end
            most -= runs

    def give(self, buffers: Iterable[Buffer]) -> int:
        """Free memory that is taken; return how many of the buffers were."""
        words = self._words
        taken: list[tuple[int, int]] = []
        for slot, slots, generation in buffers:
            header = self._headers_at + slot * self._header_words
            state = words[header + Slot.STATE]
            is_taken = state & STATE_MASK and state >> RUN_SHIFT & RUN_MASK == slots
            if is_taken and words[header + Slot.GENERATION] == generation:
                words[header + Slot.STATE] = _FREE
                taken.append((slot, slots))
        self._bitmap.give(taken)
        return len(taken)

    def buffer_at(self, slot: int) -> Buffer | None:
        """Return the memory that begins at a slot as it is taken now, None where it is free."""
        words = self._words
        header = self._headers_at + slot * self._header_words
        state = words[header + Slot.STATE]
        if state & STATE_MASK == _FREE:
            return None
        return Buffer(slot, state >> RUN_SHIFT & RUN_MASK, words[header + Slot.GENERATION])

    def _wrong_bitmap(self, first: int, end: int) -> SlabDamagedError:
        """The headers are right: the error has the next one who takes the lock make the bitmap anew."""
        return self._slab.damaged(f"its bitmap says that slots {first} to {end - 1} are free")

    # --- after a death ------------------------------------------------------------------------------

    def reclaim(self) -> int:
        """Free what dead processes took and never used; return how many slots."""
        dead = self._free_dead(self._runs())
        self._bitmap.give(dead)
        return sum(count for _, count in dead)

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
        words, slab = self._words, self._slab
        dead = []
        for first, count in runs:
            state_at = self._headers_at + first * self._header_words + Slot.STATE
            state = words[state_at]
            if state & STATE_MASK != SlotState.ALLOCATED or slab.owner_is_alive(state):
                continue
            # It may have put the slot into a deque, which needs another lock, before it died.
            if words[state_at] == state:
                words[state_at] = _FREE
                words[Super.RECLAIMED_SLOTS] += count
                dead.append((first, count))
        return dead
