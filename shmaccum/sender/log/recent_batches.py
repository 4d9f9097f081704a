"""Recognises resent batches of idempotent producers (KIP-98).

As a broker's ``ProducerStateManager`` it keeps the last five batches of a producer, the most that can be in flight for
one partition.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

BATCHES_KEPT: Final = 5
"""Batches remembered per producer (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""

PRODUCERS_KEPT: Final = 1000
"""Producers remembered per partition. A slab has one producer id, and one slab at a time writes to a log."""


class StoredBatch(NamedTuple):
    """Identity of a producer's batch, and its base offset."""

    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int


class RecentBatches:
    """The last batches of the producers that wrote last to one partition."""

    def __init__(self) -> None:
        self._by_producer: OrderedDict[int, deque[StoredBatch]] = OrderedDict()

    def add(self, producer_id: int, batch: StoredBatch) -> None:
        """Remember a batch that was appended after all others."""
        batches = self._by_producer.get(producer_id)
        if batches is None:
            if len(self._by_producer) >= PRODUCERS_KEPT:
                self._by_producer.popitem(last=False)
            batches = self._by_producer[producer_id] = deque(maxlen=BATCHES_KEPT)
        else:
            self._by_producer.move_to_end(producer_id)
        batches.append(batch)

    def extend(self, newer: RecentBatches) -> None:
        """Remember the batches of ``newer``, which are all later than those here."""
        for producer_id, batches in newer._by_producer.items():
            for batch in batches:
                self.add(producer_id, batch)

    def find(self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int) -> int | None:
        """Return the base offset of a batch that the log holds already; None for a new one, or one without an id."""
        for batch in self._by_producer.get(producer_id, ()):
            if (
                batch.base_sequence == base_sequence
                and batch.producer_epoch == producer_epoch
                and batch.record_count == record_count
            ):
                return batch.base_offset
        return None

    def is_complete(self) -> bool:
        """Return whether older batches would change nothing: each producer has five, and there is one at least."""
        counts = [len(batches) for batches in self._by_producer.values()]
        return bool(counts) and min(counts) == BATCHES_KEPT
