"""The waiter queue: who waits for memory, in order of arrival, over all processes.

A ring of tickets. Ticket *t* is cell ``t % WAITERS``; a cell says who waits, and for how many slots, and is 0 once they
have left. The first ticket still held is the *head*: it alone takes memory, as soon as that number of slots is free,
wherever they are. Slots that become free before that stay free for it, so it is not overtaken and does not starve. The
caller holds the pool's lock.

Where more slots are free than all tickets wait for, other requests take of the rest without a ticket: they overtake no
waiter, and a queue of waiters that only wait to be woken does not grow.

A dead waiter is removed by whoever finds it at the head, and so is one that has not left by its deadline: it is
stopped, or was interrupted in leaving, and everybody else would wait for it. One that lives and has not looked for a
second (a waiter looks ten times a second or more, and counts it in its cell) is stopped, too: it is *passed over*. It
keeps its place, and is the head again from its next look on. After a death all there is to rebuild is the head, which
may stand before cells that are empty: a cell is stored before the tail moves past it, and passing over and looking are
one store each.

Waking up costs more than filling a slot, so the head is not woken for every slot that becomes free, but for *enough* of
them. How many that is, the waiters find out: more each time that a waiter was woken, and less where one waited for them
in vain and looked by itself. And who has been woken is not woken again before it has looked: until it runs, which can
take it long on a busy machine, whoever frees more slots would wake it for each of them.
"""

from __future__ import annotations

from typing import Final

from shmaccum.shm.layout import (
    INCARNATION_SHIFT,
    OWNER_MASK,
    OWNER_SHIFT,
    SLOTS_MASK,
    SLOTS_SHIFT,
    WAITER_WORDS,
    WAITERS,
    Geometry,
    Super,
    Waiter,
)
from shmaccum.shm.memory import SlabMemory
from shmaccum.shm.validation import MAX_COUNT, damaged

_HEAD: Final = Super.WAITER_HEAD
_TAIL: Final = Super.WAITER_TAIL
_ENOUGH: Final = Super.ENOUGH_SLOTS
_CELLS: Final = WAITERS
_CELL_WORDS: Final = WAITER_WORDS
_SLOTS: Final = Waiter.SLOTS
_LAST_TICKET: Final = MAX_COUNT
_INCARNATION: Final = OWNER_MASK << INCARNATION_SHIFT
_ENTRY: Final = OWNER_MASK << OWNER_SHIFT
_DEADLINE_SHIFT: Final = SLOTS_SHIFT
"""A cell has its owner where a slot's state word has it, and the deadline's seconds where that has its slots."""
_DEADLINE_MASK: Final = SLOTS_MASK
_FURTHEST_S: Final = _DEADLINE_MASK // 4
"""Deadlines are compared on a circle of 2**24 seconds; one that is further away than a quarter of it is no nearer."""
_GRACE_S: Final = 1
_HELD: Final = 1
"""Bits of a cell's low byte. Always set, which keeps the cell of entry 0, incarnation 0 from looking empty."""
_PASSED_OVER: Final = 2
"""The holder does not look, and others are served before it."""
_LOOK: Final = 4
"""From this bit on: how often it has looked, modulo 64."""
_LOW_BYTE: Final = 0xFF
_MOST_AT_ONCE: Final = 32
"""Slots that are ever waited for at once: by then a wake-up is a small part of what filling them takes."""
_PART_AT_ONCE: Final = 8
"""And never more than one of so many slots: the others keep the sender busy meanwhile."""
ABSENT_S: Final = 1.0
"""After how long without a look a waiter is passed over: several times as long as any that runs goes without."""


class WaiterQueue:
    """The waiter queue of one slab.

    What says who waits raises a SlabDamagedError where its ends cannot be right.
    """

    def __init__(self, name: str, memory: SlabMemory, geometry: Geometry) -> None:
        self._name = name
        self._memory = memory
        self._geometry = geometry
        self._cells_at = geometry.waiter(0)
        self._most_at_once = max(1, min(_MOST_AT_ONCE, geometry.slot_count // _PART_AT_ONCE))
        self._last_seen = (-1, 0, 0.0)
        """A ticket and its cell, and since when the cell has been seen so; by this process, under the lock."""
        self._woken_ticket = -1
        self._woken_cell = 0
        """A ticket and its cell, as they were when this process last said to wake its holder; under the lock."""

    def __len__(self) -> int:
        """Number of waiters."""
        return len(self.tickets())

    def is_empty(self) -> bool:
        """Say whether nobody waits: two reads, for those who ask without the lock."""
        words = self._memory.words
        return words[_HEAD] == words[_TAIL]

    def spare(self, free_slots: int) -> int:
        """Return how many free slots are left once every waiter that is not passed over is served."""
        head, tail = ends(self._name, self._memory.words)
        for ticket in range(head, tail):
            cell = self._cell(ticket)
            if cell & (_HELD | _PASSED_OVER) == _HELD:
                wanted = self._wanted(ticket)
                if wanted >= free_slots:
                    return 0
                free_slots -= wanted
        return free_slots

    def join(self, owner_tag: int, now_s: float, patience_s: float, slots: int = 1) -> int:
        """Draw a ticket for the process that the tag names; -1 while the ring is full.

        Args:
            owner_tag: who waits.
            now_s: monotonic seconds.
            patience_s: seconds from now after which it will have left the queue.
            slots: how many it waits for.
        """
        words = self._memory.words
        deadline = int(now_s + min(patience_s, _FURTHEST_S)) + _GRACE_S & _DEADLINE_MASK
        head, ticket = ends(self._name, words)
        if ticket - head >= _CELLS:
            return -1
        at = self._at(ticket)
        words[at + _SLOTS] = slots
        words[at] = owner_tag | deadline << _DEADLINE_SHIFT | _HELD
        words[_TAIL] = ticket + 1
        return ticket  # without a call since the store: no interrupt comes before the caller knows of it

    def leave(self, ticket: int) -> None:
        """Give a ticket back, if it has not been taken away; the head moves on to the next one that is still held."""
        words = self._memory.words
        head, _ = ends(self._name, words)
        if ticket < head:
            return
        words[self._at(ticket)] = 0
        self.move_on()

    def move_on(self) -> None:
        """Move the head on to the first ticket that is still held: the end of `leave`, and all there is to rebuild."""
        words = self._memory.words
        head, tail = ends(self._name, words)
        while head < tail and not self._cell(head):
            head += 1
        words[_HEAD] = head

    def head(self) -> int:
        """Return the ticket that is served next, -1 where nobody waits who is not passed over."""
        head, tail = ends(self._name, self._memory.words)
        for ticket in range(head, tail):
            if self._cell(ticket) & (_HELD | _PASSED_OVER) == _HELD:
                return ticket
        return -1

    def is_enough(self, free_slots: int) -> bool:
        """Say whether to wake the head now that so many slots are free."""
        enough = self._memory.words[_ENOUGH]
        return free_slots >= enough

    def to_be_woken(self, free_slots: int) -> int:
        """Return the process entry to wake now that so many slots are free, -1 for none.

        That is the head's, if they are enough, also for what it waits for, and it has looked since it was last named
        here. A wake-up that comes to nothing costs it no more than a nap.
        """
        if self.is_empty() or not self.is_enough(free_slots):
            return -1
        ticket = self.head()
        if ticket < 0 or self._wanted(ticket) > free_slots:
            return -1
        cell = self._cell(ticket)
        if ticket == self._woken_ticket and cell == self._woken_cell:
            return -1
        self._woken_ticket, self._woken_cell = ticket, cell
        return self.owner_entry(ticket)

    def learn(self, *, was_woken: bool) -> None:
        """Have later ones wait for more at once after a wake-up, and for less after a wait that was in vain."""
        words = self._memory.words
        enough = words[_ENOUGH]
        words[_ENOUGH] = min(2 * enough or 1, self._most_at_once) if was_woken else enough // 2

    def tickets(self) -> list[int]:
        """Return the tickets that are held, in their order, those that are passed over among them."""
        return tickets(self._name, self._memory.words, self._geometry)

    def look(self, ticket: int) -> None:
        """Show that a ticket's holder is there, as often as it wakes up; it is passed over no more."""
        words = self._memory.words
        first, cell = words[_HEAD], self._cell(ticket)
        if ticket >= first and cell & _HELD:
            looked = (cell & _LOW_BYTE & ~_PASSED_OVER) + _LOOK & _LOW_BYTE
            words[self._at(ticket)] = cell & ~_LOW_BYTE | looked

    def is_absent(self, ticket: int, now_s: float) -> bool:
        """Say whether a ticket's holder has not looked for `ABSENT_S`, as far as this process has been watching it."""
        cell = self._cell(ticket)
        seen, as_it_was, since_s = self._last_seen
        if (seen, as_it_was) != (ticket, cell):
            self._last_seen = (ticket, cell, now_s)
            return False
        return now_s - since_s > ABSENT_S

    def pass_over(self, ticket: int) -> None:
        """Have others be served before a ticket's holder, until it looks again."""
        words = self._memory.words
        words[self._at(ticket)] = self._cell(ticket) | _PASSED_OVER

    def is_passed_over(self, ticket: int) -> bool:
        """Say whether others are served before a ticket's holder."""
        return self._cell(ticket) & _PASSED_OVER != 0

    def owner_tag(self, ticket: int) -> int:
        """Return who holds a ticket, 0 if nobody does any more."""
        return self._cell(ticket) & (_INCARNATION | _ENTRY)

    def is_overdue(self, ticket: int, now_s: float) -> bool:
        """Say whether a ticket's holder should have left the queue by now, in monotonic seconds."""
        deadline = self._cell(ticket) >> _DEADLINE_SHIFT & _DEADLINE_MASK
        return 0 < (int(now_s) - deadline & _DEADLINE_MASK) < _DEADLINE_MASK // 2

    def owner_entry(self, ticket: int) -> int:
        """Return the process table entry of a ticket's holder."""
        return self._cell(ticket) >> OWNER_SHIFT & OWNER_MASK

    def _at(self, ticket: int) -> int:
        """Return the word index of a ticket's cell."""
        return self._cells_at + ticket % _CELLS * _CELL_WORDS

    def _cell(self, ticket: int) -> int:
        """Return the first word of a ticket's cell: who holds it, 0 if it has left."""
        return self._memory.words[self._at(ticket)]

    def _wanted(self, ticket: int) -> int:
        """Return how many slots a ticket's holder waits for."""
        return self._memory.words[self._at(ticket) + _SLOTS]


def tickets(name: str, words: memoryview, geometry: Geometry) -> list[int]:
    """Return the tickets of a slab that are held, in their order, those that are passed over among them.

    For all who look, also those who may only read.

    Args:
        name: the slab's.
        words: all of its memory.
        geometry: its layout.
    """
    cells_at = geometry.waiter(0)
    head, tail = ends(name, words)
    return [ticket for ticket in range(head, tail) if words[cells_at + ticket % _CELLS * _CELL_WORDS]]


def ends(name: str, words: memoryview) -> tuple[int, int]:
    """Return the first ticket and the next one to be drawn; under the lock, or from outside.

    All walks over the queue are between the two, and so none is longer than the ring, whatever its words say.

    Raises:
        SlabDamagedError: they are further apart than that, the wrong way round, or no tickets.
    """
    before, tail, head = words[_HEAD], words[_TAIL], words[_HEAD]
    # Without the lock the head may move meanwhile; at the moment of the tail it was between the two.
    if head > tail:
        head = tail
    if before > tail or tail > _LAST_TICKET or tail - head > _CELLS:
        raise damaged(name, f"its waiter queue begins at ticket {before} and ends at {tail}, of {_CELLS}")
    return head, tail
