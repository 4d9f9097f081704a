"""When batches that still take records may leave their deques: not always as soon as they may, where they are many.

Sending costs by the batch. A batch that leaves before it is full gives up the rest of its slot, and the next record of
its partition needs another one. With very many partitions that feeds on itself: all are sent as soon as they have
lingered, or somebody waits for memory, with a record or two; that keeps the sender busy, and memory short. So open
batches

* *rest* where sending them is what the sender is busy with: after a pass that took more than a few of them, those that
  have merely lingered wait three times as long as it took, so that they cost no more than about half of its time. It is
  not before the sender could not keep up with much more that this exceeds ``linger.ms``;
* leave only as far as there are free slots to take their places. While fewer than one in `_SHARE` of all slots are
  free, or somebody waits for memory, a node gets them only when it has answered those before, and as many as that
  share, or a few. It is these that free memory then: nobody waits for memory while nothing is under way, and no batch
  for longer than its node takes to answer.

Full batches, and those that were sent before, have nothing to gain, and are not held back.
"""

from __future__ import annotations

from typing import Final

from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import STATE_MASK, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

_FREE_SLOTS: Final = Super.FREE_SLOTS
_STATE: Final = Slot.STATE
_GENERATION: Final = Slot.GENERATION
_STATE_BITS: Final = STATE_MASK
_IN_FLIGHT: Final = int(SlotState.IN_FLIGHT)

_SHARE: Final = 8
A_FEW: Final = 100
"""Open batches that take no time to speak of."""
_REST: Final = 3
"""How long a rest is, of what the sending took; the answers take as long as a half of that."""
_LONGEST_REST_MS: Final = 50
"""The machine may have been busy with something else in between."""


class OpenBatchThrottle:
    """Says how many open batches may be sent to a node now. The sender's, in its one thread.

    Args:
        slab: whose memory may be short.
        pool: whether anybody waits for it.
    """

    def __init__(self, slab: Slab, pool: BufferPool) -> None:
        self._memory = slab.memory
        self._pool = pool
        self._slot_count = slab.geometry.slot_count
        self._least_free = max(1, self._slot_count // _SHARE)
        self._at_once = max(A_FEW, self._least_free)
        self._taken = 0
        self._rest_until_ms = 0.0
        self._last_taken: dict[int, tuple[int, int]] = {}
        """Node id -> slot and generation of the last open batch that was taken for it."""

    def room(self, node_id: int) -> int:
        """Return for how many open batches there is room in the requests to a node now.

        Where that is 0, an answer of the node is to come.
        """
        free = 0 if self._pool.is_exhausted() else self._memory.words[_FREE_SLOTS]
        if free >= self._least_free:
            return min(free, self._slot_count)
        return 0 if self._is_under_way(node_id) else self._at_once

    def take(self, node_id: int, count: int, last_slot: int) -> None:
        """Note that so many open batches are about to be taken for a request to a node."""
        words, header = self._memory.words, self._memory.headers_at + last_slot * self._memory.header_words
        self._last_taken[node_id] = last_slot, words[header + _GENERATION]
        self._taken += count

    def rest_ms(self, now_ms: float) -> float:
        """Return how long those that have merely lingered are still to rest; not more than 0 if they are not."""
        return self._rest_until_ms - now_ms

    def rest_after(self, began_ms: float, ended_ms: float) -> None:
        """Have open batches rest, if many of them were taken since the last call, and sent in this time."""
        if self._taken > A_FEW:
            self._rest_until_ms = ended_ms + min(_REST * (ended_ms - began_ms), _LONGEST_REST_MS)
        self._taken = 0

    def _is_under_way(self, node_id: int) -> bool:
        """Say whether the last open batch taken for a node is in flight: requests are answered in their order."""
        slot, generation = self._last_taken.get(node_id, (-1, 0))
        if slot < 0:
            return False
        words, header = self._memory.words, self._memory.headers_at + slot * self._memory.header_words
        is_in_flight = words[header + _STATE] & _STATE_BITS == _IN_FLIGHT
        return is_in_flight and words[header + _GENERATION] == generation
