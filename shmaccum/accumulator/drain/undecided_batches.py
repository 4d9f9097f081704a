"""The batches that the broker refused as out of order, and can have all the same.

An undecided batch is IN_FLIGHT in the slab, and in no deque. That it is undecided, only the sender's memory shows. So a
death loses nothing: the next sender sends the batch again, and asks again.
"""

from __future__ import annotations

from shmaccum.accumulator.state.record_batch import RecordBatch


class UndecidedBatches:
    """The undecided batches of all partitions.

    Attributes:
        count: number of them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.count = 0
        self._of: dict[int, list[RecordBatch]] = {}
        """By partition entry, in order."""

    def add(self, batch: RecordBatch) -> None:
        """Add a batch; it follows the others of its partition."""
        self._of.setdefault(batch.partition, []).append(batch)
        self.count += 1

    def take(self, entry: int) -> list[RecordBatch]:
        """Return those of a partition, in order, and forget them."""
        batches = self._of.pop(entry, [])
        self.count -= len(batches)
        return batches

    def number_of(self, entry: int) -> int:
        """Return how many a partition has."""
        return len(self._of.get(entry, ())) if self.count else 0

    def has(self, batch: RecordBatch) -> bool:
        """Return whether a batch is undecided."""
        return any(each.slot == batch.slot for each in self._of.get(batch.partition, ()))

    def partitions(self) -> list[int]:
        """Return the entries of the partitions that have any."""
        return list(self._of)
