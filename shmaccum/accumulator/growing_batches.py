"""How many batches that still take records may leave their deques: not all, where memory is short.

A batch that leaves before it is full gives up the rest of its slot, and the next record of its partition needs another
one. Where open batches take most of the memory, as those of very many partitions do, to send them all at once for the
sake of those who wait for memory (Kafka's ``exhausted``) keeps it short: what comes back is taken by batches of a
record or two, which leave at once as well. Sending is the bottleneck then, and costs by the batch. So

* open batches leave only as long as there are free slots to take their places;
* while fewer than `_SHARE` of all slots are free, or somebody waits for memory, a node gets open batches only when it
  has answered those before, and as many as that share. That is what frees memory then: nobody waits for memory while
  nothing is under way, and no batch for longer than its node takes to answer.

Full batches, and those that were sent before, have nothing to gain, and are not held back.
"""

from __future__ import annotations

from typing import Final

from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import STATE_MASK, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

_SHARE: Final = 8
_REST: Final = 2
_WORTH_A_REST_MS: Final = 1.0


class GrowingBatches:
    """Says how many open batches may be sent to a node now. The sender's, in its one thread.

    Args:
        slab: whose memory may be short.
        pool: whether anybody waits for it.
    """

    def __init__(self, slab: Slab, pool: BufferPool) -> None:
        self._slab = slab
        self._words = slab.words
        self._pool = pool
        self._least = max(1, slab.geometry.slot_count // _SHARE)
        self._rest_until_ms = 0.0
        self._has_taken = False
        self._last_taken: dict[int, tuple[int, int]] = {}
        """Node id -> slot and generation of the last open batch that was taken for it."""

    def room(self, node_id: int) -> int:
        """Return how many open batches may be taken for a node now.

        Where that is 0, an answer of the node is to come.
        """
        free = 0 if self._pool.is_exhausted() else self._words[Super.FREE_SLOTS]
        if free >= self._least:
            return free
        return 0 if self._is_under_way(node_id) else self._least

    def take(self, node_id: int, slot: int) -> None:
        """Note the last open batch that is about to be taken for a request to a node."""
        generation = self._words[self._slab.geometry.header(slot) + Slot.GENERATION]
        self._last_taken[node_id] = slot, generation
        self._has_taken = True

    def rest_after(self, cost_ms: float, now_ms: float) -> None:
        """Let open batches grow for a while, if there were any among those that were just sent.

        Args:
            cost_ms: processor time that sending took.
            now_ms: when it ended.
        """
        if self._has_taken and cost_ms >= _WORTH_A_REST_MS:
            self._rest_until_ms = now_ms + _REST * cost_ms
        self._has_taken = False

    def rest_ms(self, now_ms: float) -> float:
        """Return how long those that only lingered are still to grow."""
        return self._rest_until_ms - now_ms

    def _is_under_way(self, node_id: int) -> bool:
        """Say whether the last open batch taken for a node is in flight: requests are answered in their order."""
        slot, generation = self._last_taken.get(node_id, (-1, 0))
        if slot < 0:
            return False
        words, header = self._words, self._slab.geometry.header(slot)
        is_in_flight = words[header + Slot.STATE] & STATE_MASK == SlotState.IN_FLIGHT
        return is_in_flight and words[header + Slot.GENERATION] == generation
