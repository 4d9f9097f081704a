"""The waiter queue: processes that wait for memory, in order of arrival.

A ring of tickets, written under the pool's lock. Ticket *t* is cell ``t % WAITERS``; a cell holds the waiter and the
number of slots that it waits for, and is 0 once it has left. The first ticket still held is the *head*. It alone takes
memory, as soon as that number of slots is free, wherever they are. Slots that become free earlier stay free for it, so
it is not overtaken and does not starve.

If more slots are free than all tickets wait for, other requests take from the rest without a ticket. They overtake no
waiter, and a queue of waiters that only need a wake-up does not grow.

A process that finds a dead waiter at the head removes it. It also removes one that has not left by its deadline, which
is stopped or was interrupted while leaving, and would block all others. A waiter looks at least ten times a second, and
counts that in its cell. One that has not looked for a second is stopped, too, and is *passed over*: it keeps its place,
and is the head again from its next look on. A death can only leave a head that stands before empty cells, so the
rebuild moves the head. A cell is stored before the tail moves past it; passing over and looking are one store each.

A wake-up costs more than filling a slot, so the head is not woken for each free slot, but for *enough* of them. The
waiters adapt that number: it grows each time that one was woken, and shrinks when one waited in vain and looked
unwoken. A woken waiter is not woken again before it has looked. It can take long to run on a busy machine, and
meanwhile each process that frees slots would wake it again.
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
_WAITING_SINCE_MS: Final = Super.WAITING_SINCE_MS
_CELLS: Final = WAITERS
_CELL_WORDS: Final = WAITER_WORDS
_SLOTS: Final = Waiter.SLOTS
_LAST_TICKET: Final = MAX_COUNT
_INCARNATION: Final = OWNER_MASK << INCARNATION_SHIFT
_ENTRY: Final = OWNER_MASK << OWNER_SHIFT
_DEADLINE_SHIFT: Final = SLOTS_SHIFT
"""A cell is like a slot's state word: the same owner bits, and the deadline's seconds in place of the slots."""
_DEADLINE_MASK: Final = SLOTS_MASK
_FURTHEST_S: Final = _DEADLINE_MASK // 4
"""Deadlines are compared modulo 2**24 seconds; one further away than a quarter of that is stored as a quarter."""
_GRACE_S: Final = 1
_HELD: Final = 1
"""Bits of a cell's low byte. This one is always set, so that the cell of entry 0, incarnation 0 does not look empty."""
_PASSED_OVER: Final = 2
"""The holder does not look, and others are served before it."""
_LOOK: Final = 4
"""From this bit on: how often it has looked, modulo 64."""
_LOW_BYTE: Final = 0xFF
_MOST_AT_ONCE: Final = 32
"""Maximum of `Super.ENOUGH_SLOTS`: filling that many slots makes the cost of a wake-up small."""
_PART_AT_ONCE: Final = 8
"""Nor is it more than the slab's slots divided by this: the others keep the sender busy meanwhile."""
ABSENT_S: Final = 1.0
"""A waiter that has not looked for this long is passed over; a running waiter looks several times as often."""


class WaiterQueue:
    """The waiter queue of one slab.

    Methods that read its ends raise a SlabDamagedError if these are damaged.
    """

    def __init__(self, name: str, memory: SlabMemory, geometry: Geometry) -> None:
        self._name = name
        self._memory = memory
        self._geometry = geometry
        self._cells_at = geometry.waiter(0)
        self._most_at_once = max(1, min(_MOST_AT_ONCE, geometry.slot_count // _PART_AT_ONCE))
        self._last_seen = (-1, 0, 0.0)
        """A ticket, its cell, and since when this process has seen that value; used under the lock."""
        self._woken_ticket = -1
        self._woken_cell = 0
        """A ticket and its cell when this process last chose to wake its holder; used under the lock."""

    def __len__(self) -> int:
        """Return the number of waiters."""
        return len(self.tickets())

    def is_empty(self) -> bool:
        """Return whether no process waits; two reads, without the lock."""
        words = self._memory.words
        return words[_HEAD] == words[_TAIL]

    def spare(self, free_slots: int) -> int:
        """Return how many slots would be free after all waiters, except those passed over, are served."""
        head, tail = ends(self._name, self._memory.words)
        for ticket in range(head, tail):
            cell = self._cell(ticket)
            if cell & (_HELD | _PASSED_OVER) == _HELD:
                wanted = self._wanted(ticket)
                if wanted >= free_slots:
                    return 0
                free_slots -= wanted
        return free_slots

    def join(self, owner_tag: int, now_s: float, timeout_s: float, slots: int = 1) -> int:
        """Draw a ticket for a process; return -1 while the ring is full.

        Args:
            owner_tag: of the process.
            now_s: monotonic seconds.
            timeout_s: seconds from now after which it will have left the queue.
            slots: how many it waits for.
        """
        words = self._memory.words
        deadline = int(now_s + min(timeout_s, _FURTHEST_S)) + _GRACE_S & _DEADLINE_MASK
        head, ticket = ends(self._name, words)
        if ticket - head >= _CELLS:
            return -1
        at = self._at(ticket)
        if head == ticket:
            words[_WAITING_SINCE_MS] = int(now_s * 1000)
        words[at + _SLOTS] = slots
        words[at] = owner_tag | deadline << _DEADLINE_SHIFT | _HELD
        words[_TAIL] = ticket + 1
        return ticket  # no call since the store: an interrupt before the caller has the ticket would leak it

    def leave(self, ticket: int) -> None:
        """Return a ticket, unless it was removed; the head moves to the next ticket still held."""
        words = self._memory.words
        head, _ = ends(self._name, words)
        if ticket < head:
            return
        words[self._at(ticket)] = 0
        self.move_on()

    def move_on(self) -> None:
        """Move the head to the first ticket still held; also all there is to rebuild after a death."""
        words = self._memory.words
        head, tail = ends(self._name, words)
        while head < tail and not self._cell(head):
            head += 1
        words[_HEAD] = head

    def head(self) -> int:
        """Return the ticket to serve next, -1 if there is none that is not passed over."""
        head, tail = ends(self._name, self._memory.words)
        for ticket in range(head, tail):
            if self._cell(ticket) & (_HELD | _PASSED_OVER) == _HELD:
                return ticket
        return -1

    def is_enough(self, free_slots: int) -> bool:
        """Return whether this number of free slots is enough to wake the head."""
        enough = self._memory.words[_ENOUGH]
        return free_slots >= enough

    def to_be_woken(self, free_slots: int) -> int:
        """Return the process entry to wake at this number of free slots, -1 for none.

        It is the head's, if the slots are enough, and as many as it waits for, and it has looked since this process
        last chose it. If that wake-up is lost, the head wakes when its slice runs out.
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
        """Adapt the number of slots to wake at: raise it after a wake-up, lower it after a vain wait."""
        words = self._memory.words
        enough = words[_ENOUGH]
        words[_ENOUGH] = min(2 * enough or 1, self._most_at_once) if was_woken else enough // 2

    def tickets(self) -> list[int]:
        """Return the held tickets in order, including those passed over."""
        return tickets(self._name, self._memory.words, self._geometry)

    def look(self, ticket: int) -> None:
        """Count a look of a ticket's holder, at each of its wake-ups; it is no longer passed over."""
        words = self._memory.words
        first, cell = words[_HEAD], self._cell(ticket)
        if ticket >= first and cell & _HELD:
            looked = (cell & _LOW_BYTE & ~_PASSED_OVER) + _LOOK & _LOW_BYTE
            words[self._at(ticket)] = cell & ~_LOW_BYTE | looked

    def is_absent(self, ticket: int, now_s: float) -> bool:
        """Return whether this process has seen no look of a ticket's holder for `ABSENT_S`."""
        cell = self._cell(ticket)
        seen, as_it_was, since_s = self._last_seen
        if (seen, as_it_was) != (ticket, cell):
            self._last_seen = (ticket, cell, now_s)
            return False
        return now_s - since_s > ABSENT_S

    def pass_over(self, ticket: int) -> None:
        """Serve others before a ticket's holder, until it looks again."""
        words = self._memory.words
        words[self._at(ticket)] = self._cell(ticket) | _PASSED_OVER

    def is_passed_over(self, ticket: int) -> bool:
        """Return whether others are served before a ticket's holder."""
        return self._cell(ticket) & _PASSED_OVER != 0

    def owner_tag(self, ticket: int) -> int:
        """Return the owner tag of a ticket's holder, 0 if it has left."""
        return self._cell(ticket) & (_INCARNATION | _ENTRY)

    def is_overdue(self, ticket: int, now_s: float) -> bool:
        """Return whether a ticket's holder should have left the queue by ``now_s``, in monotonic seconds."""
        deadline = self._cell(ticket) >> _DEADLINE_SHIFT & _DEADLINE_MASK
        return 0 < (int(now_s) - deadline & _DEADLINE_MASK) < _DEADLINE_MASK // 2

    def owner_entry(self, ticket: int) -> int:
        """Return the process table entry of a ticket's holder."""
        return self._cell(ticket) >> OWNER_SHIFT & OWNER_MASK

    def _at(self, ticket: int) -> int:
        """Return the word index of a ticket's cell."""
        return self._cells_at + ticket % _CELLS * _CELL_WORDS

    def _cell(self, ticket: int) -> int:
        """Return the first word of a ticket's cell, 0 if its holder has left."""
        return self._memory.words[self._at(ticket)]

    def _wanted(self, ticket: int) -> int:
        """Return how many slots a ticket's holder waits for."""
        return self._memory.words[self._at(ticket) + _SLOTS]


def tickets(name: str, words: memoryview, geometry: Geometry) -> list[int]:
    """Return the held tickets of a slab in order, including those passed over.

    It only reads, so observers can call it without the lock.

    Args:
        name: the slab's.
        words: all of its memory.
        geometry: its layout.
    """
    cells_at = geometry.waiter(0)
    head, tail = ends(name, words)
    return [ticket for ticket in range(head, tail) if words[cells_at + ticket % _CELLS * _CELL_WORDS]]


def ends(name: str, words: memoryview) -> tuple[int, int]:
    """Return the first ticket and the next one to draw; with or without the lock.

    All loops over the queue run between the two, so damaged words cannot make one longer than the ring.

    Raises:
        SlabDamagedError: they are further apart than the ring, in the wrong order, or no tickets.
    """
    before, tail, head = words[_HEAD], words[_TAIL], words[_HEAD]
    # Without the lock the head can move meanwhile; when the tail was read, it was between the two reads of it.
    if head > tail:
        head = tail
    if before > tail or tail > _LAST_TICKET or tail - head > _CELLS:
        raise damaged(name, f"its waiter queue begins at ticket {before} and ends at {tail}, of {_CELLS}")
    return head, tail
