"""Limits how many open batches are sent before they are full.

Sending costs by the batch. An open batch that leaves early wastes the rest of its slot, and its partition's next record
needs another one. With thousands of partitions that feeds on itself: batches of one or two records keep the sender busy
and memory short. So two rules hold open batches back:

* *Rest*: after a pass that took more than `A_FEW` open batches, those that have merely lingered wait three times as
  long as the pass took. They then cost at most about half of the sender's time. This exceeds ``linger.ms`` only when
  the sender could hardly keep up with more.
* *Room*: open batches leave only as far as free slots can replace them. Memory is short while fewer than 1/`_SHARE` of
  all slots are free, or a producer waits for memory. A node then gets open batches only after it has answered the last
  ones, and at most that share, or `A_FEW`. They free memory: no producer waits for memory while nothing is in flight,
  and no batch for longer than its node takes to answer.

Full batches and retries gain nothing by waiting, and are not held back. The state is private to the sender's one
thread; it reads FREE_SLOTS and slot headers without a lock, as hints, and writes no shared word. A new sender begins
without a rest.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from shmaccum._core import STATE_MASK, Slot, Super
from shmaccum.shm.layout import SlotState
from shmaccum.shm.slab import Slab

_FREE_SLOTS: Final = Super.FREE_SLOTS
_SHARE: Final = 8
A_FEW: Final = 100
"""Open batches whose sending takes negligible time."""
_REST: Final = 3
"""Length of a rest, in times of the sending; handling the responses takes half as long as the sending."""
_LONGEST_REST_MS: Final = 50
"""Bound: the sender's processor may have run something else during the pass."""


class OpenBatchThrottle:
    """Returns how many open batches may be sent to a node now. Used by the sender's one thread.

    Args:
        slab: whose memory can be short.
        returning: slots of batches that are answered, and wait for a lock to be put back.

    Attributes:
        rest_until_ms: until when batches that have merely lingered rest.
    """

    def __init__(self, slab: Slab, returning: Container[int]) -> None:
        self._words = slab.words
        self._returning = returning
        self._geometry = slab.geometry
        self._is_exhausted = slab.pool.is_exhausted
        self._slot_count = slab.geometry.slot_count
        self._least_free = max(1, self._slot_count // _SHARE)
        self._at_once = max(A_FEW, self._least_free)
        self._taken = 0
        self.rest_until_ms = 0.0
        self._last_taken: dict[int, tuple[int, int]] = {}
        """Node id -> slot and generation of the last open batch taken for it."""

    def room(self, node_id: int) -> int:
        """Return how many open batches may go into requests to a node now.

        0 only while a response of the node is outstanding.
        """
        free = 0 if self._is_exhausted() else self._words[_FREE_SLOTS]
        if free >= self._least_free:
            return min(free, self._slot_count)
        return 0 if self._is_under_way(node_id) else self._at_once

    def take(self, node_id: int, count: int, last_slot: int) -> None:
        """Note that ``count`` open batches are about to be taken for a request to a node."""
        header = self._geometry.header(last_slot)
        self._last_taken[node_id] = last_slot, self._words[header + Slot.GENERATION]
        self._taken += count

    def rest_after(self, began_ms: float, ended_ms: float) -> None:
        """Start a rest if the pass between these times took more than `A_FEW` open batches."""
        if self._taken > A_FEW:
            self.rest_until_ms = ended_ms + min(_REST * (ended_ms - began_ms), _LONGEST_REST_MS)
        self._taken = 0

    def _is_under_way(self, node_id: int) -> bool:
        """Return whether the last open batch taken for a node has no answer yet: nodes answer in order."""
        slot, generation = self._last_taken.get(node_id, (-1, 0))
        if slot < 0 or slot in self._returning:
            return False
        words, header = self._words, self._geometry.header(slot)
        is_in_flight = words[header + Slot.STATE] & STATE_MASK == SlotState.IN_FLIGHT
        return is_in_flight and words[header + Slot.GENERATION] == generation
