"""Allocates and frees the slots of a slab.

Every step of a slot from or to FREE happens here, under the pool's lock, header first. Bitmap and counts follow, and
are rebuilt from the headers after a death in between.

A request for several slots gets a *chain*: any free slots, linked by the CHAIN words of their headers. The links are
stored first. The state of the first slot, which includes their number, is stored last and commits the chain. A death
before that leaves links that are not in use, since a slot that is FREE, or alone, has no chain. The slots after the
first stay FREE by their own headers, so one store also frees the whole chain. Links are written under the pool's lock,
and stay until their slots are part of another chain.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shmaccum.errors import SlabDamagedError
from shmaccum.later import np
from shmaccum.pool.bitmap import FreeBitmap
from shmaccum.shm.layout import SLOTS_MASK, SLOTS_SHIFT, STATE_MASK, Slot, SlotState, Super, slots_of, state_of
from shmaccum.shm.slab import Slab

_FREE: Final = int(SlotState.FREE)
_ALLOCATED: Final = int(SlotState.ALLOCATED)
_STATE: Final = Slot.STATE
_GENERATION: Final = Slot.GENERATION
_STATE_BITS: Final = STATE_MASK
_CHAIN: Final = Slot.CHAIN
_SLOTS_SHIFT: Final = SLOTS_SHIFT
_SLOTS_BITS: Final = SLOTS_MASK
_PEAK_SLOTS: Final = Super.PEAK_SLOTS
_TOUCHED_SLOTS: Final = Super.TOUCHED_SLOTS


class Buffer:
    """Memory from the pool: a slot, or a chain of them.

    Attributes:
        slot: the first one.
        slots: how many.
        generation: the slot's at this allocation; it differs in handles of earlier ones.
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
        return Buffer, (self.slot, self.slots, self.generation)  # another process can free it

    def __repr__(self) -> str:
        return f"Buffer(slot={self.slot}, slots={self.slots}, generation={self.generation})"


class Slots:
    """The slots of one slab. Callers hold the pool's lock, except for `free_count` and `is_taken`."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._memory = slab.memory
        self._slot_count = slab.geometry.slot_count
        self._bitmap = FreeBitmap(slab.buffer, slab.memory, slab.geometry)

    def free_count(self) -> int:
        """Return how many slots are free."""
        return self._bitmap.free_count()

    def take(self, count: int, taken: list[Buffer], most: int = 1) -> None:
        """Take ``count`` slots as often as they are free, at most ``most`` times.

        Each buffer is added to ``taken`` before it is taken, so that an interrupt in between leaks none.

        Raises:
            SlabDamagedError: the bitmap contradicts the headers.
        """
        if count > 1:
            while most and self._take_chain(count, taken):
                most -= 1
            return
        words = self._memory.words
        owner = self._slab.owner_tag
        state = owner | 1 << _SLOTS_SHIFT | _ALLOCATED
        while most:
            first, found = self._bitmap.find_some(most)
            if first < 0:
                return
            end = first + found
            if end > self._slot_count:
                raise self._wrong_bitmap(end - 1)
            for slot in range(first, end):
                header = self._header(slot)
                if words[header + _STATE] & _STATE_BITS:
                    raise self._wrong_bitmap(slot)
                generation = words[header + _GENERATION] + 1
                words[header + _GENERATION] = generation
                taken.append(Buffer(slot, 1, generation))
                words[header + _STATE] = state
            self._bitmap.take(first, found)
            self._note_use(end)
            most -= found

    def _take_chain(self, count: int, taken: list[Buffer]) -> bool:
        """Take ``count`` slots as one chain; return False if fewer are free."""
        words = self._memory.words
        slots = self._bitmap.find(count)
        if not slots:
            return False
        last = slots[count - 1]
        if last >= self._slot_count:
            raise self._wrong_bitmap(last)
        following = 0
        for slot in reversed(slots):
            header = self._header(slot)
            if words[header + _STATE] & _STATE_BITS:
                raise self._wrong_bitmap(slot)
            words[header + _CHAIN] = following
            following = slot + 1
        first = following - 1
        header = self._header(first)
        generation = words[header + _GENERATION] + 1
        words[header + _GENERATION] = generation
        taken.append(Buffer(first, count, generation))
        words[header + _STATE] = self._slab.owner_tag | count << _SLOTS_SHIFT | _ALLOCATED
        if last - first == count - 1:
            self._bitmap.take(first, count)
        else:
            for slot in slots:
                self._bitmap.take(slot, 1)
        self._note_use(last + 1)
        return True

    def give(self, buffers: Iterable[Buffer]) -> int:
        """Free the buffers that are taken; return how many that were."""
        words = self._memory.words
        given = 0
        for buffer in buffers:
            if self.is_taken(buffer):
                words[self._header(buffer.slot) + _STATE] = _FREE
                if buffer.slots == 1:
                    self._bitmap.give(buffer.slot, 1)
                else:
                    self._give_chain(buffer.slot, buffer.slots)
                given += 1
        return given

    def _give_chain(self, first: int, count: int) -> None:
        """Mark the slots of a just freed chain in the bitmap."""
        slots = self._memory.chain(first, count)
        for slot in slots:
            self._bitmap.give(slot, 1)
        if len(slots) != count:  # damaged: only the headers of all batches show which slots are free
            self.rebuild()

    def is_taken(self, buffer: Buffer) -> bool:
        """Return whether this allocation still exists."""
        memory, header = self._memory, self._header(buffer.slot)
        state = memory.words[header + _STATE]
        is_taken = state & _STATE_BITS != _FREE and state >> _SLOTS_SHIFT & _SLOTS_BITS == buffer.slots
        return is_taken and memory.words[header + _GENERATION] == buffer.generation

    def _header(self, slot: int) -> int:
        """Return the word index of a slot's header."""
        return self._memory.headers_at + slot * self._memory.header_words

    def _note_use(self, end: int) -> None:
        """Update the statistics after slots below ``end`` have been taken."""
        words = self._memory.words
        free = self._bitmap.free_count()
        used = self._slot_count - free if free < self._slot_count else 0
        peak, touched = words[_PEAK_SLOTS], words[_TOUCHED_SLOTS]
        if used > peak:
            words[_PEAK_SLOTS] = used
        if end > touched:
            words[_TOUCHED_SLOTS] = end

    def _wrong_bitmap(self, slot: int) -> SlabDamagedError:
        """Return the error; raised under the lock, it makes the next holder rebuild the bitmap from the headers."""
        return self._slab.damaged(f"its bitmap says that slot {slot} is free, of {self._slot_count}")

    # --- after a death ------------------------------------------------------------------------------

    def reclaim(self) -> int:
        """Free the slots that dead processes took and never used; return how many.

        It also rebuilds a wrong count, which no other code would notice.
        """
        taken = self._taken()
        dead = self._free_dead(taken)
        for first, count in dead:
            for slot in self._slots_of(first, count):
                self._bitmap.give(slot, 1)
        reclaimed = _slots_in(dead)
        if self.free_count() != self._slot_count - _slots_in(taken) + reclaimed:
            self.rebuild()
        return reclaimed

    def rebuild(self) -> None:
        """Rebuild bitmap and count from the headers, and reclaim dead processes' slots."""
        taken = self._taken()
        dead = set(self._free_dead(taken))
        self._bitmap.rebuild([slot for each in taken if each not in dead for slot in self._slots_of(*each)])

    def _taken(self) -> list[tuple[int, int]]:
        """Return all allocations by the headers: first slot, and number of slots."""
        states = self._slab.headers[:, Slot.STATE]
        firsts = np.flatnonzero(state_of(states))
        counts = slots_of(states[firsts])
        return list(zip(firsts.tolist(), counts.tolist(), strict=True))

    def _slots_of(self, first: int, count: int) -> list[int]:
        return [first] if count == 1 else self._memory.chain(first, count)

    def _free_dead(self, taken: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Free, in the headers, what dead processes took and never used; return these allocations."""
        words, slab = self._memory.words, self._slab
        dead = []
        for first, count in taken:
            state_at = self._header(first) + _STATE
            state = words[state_at]
            if state_of(state) != SlotState.ALLOCATED or slab.owner_is_alive(state):
                continue
            # Read again: before its death, it can have put the slot into a deque, under another lock.
            if words[state_at] == state:
                words[state_at] = _FREE
                words[Super.RECLAIMED_SLOTS] += count
                dead.append((first, count))
        return dead


def _slots_in(taken: Iterable[tuple[int, int]]) -> int:
    return sum(count for _, count in taken)
