"""Which partition a record goes to, where nobody said: Kafka's choice (``BuiltInPartitioner``).

A record with a key goes where the murmur2 hash of its key says. One without goes to the partition of the moment:
uniform sticky partitioning (KIP-794) stays with a partition until about a batch of bytes has gone there, so that
batches fill up, and then has another one chosen (see `partition_load`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shmaccum.record.murmur2 import partition_for_key


class StickyPartitioner:
    """The partition of the moment of one topic.

    Threads may share it: one that loses a race between its reads and its stores counts a few bytes wrongly, which
    only moves the moment of the next switch.

    Args:
        sticky_bytes: bytes after which to switch (``batch.size``).
        choose: returns so many partitions to go on with.

    Attributes:
        partition: that of the moment.
    """

    def __init__(self, sticky_bytes: int, choose: Callable[[int], Sequence[int]]) -> None:
        self._sticky_bytes = sticky_bytes
        self._choose = choose
        self._produced = 0
        self.partition = choose(1)[0]

    @property
    def remaining(self) -> int:
        """Bytes that may still go to the partition of the moment before it is time for another."""
        return max(0, self._sticky_bytes - self._produced)

    def note_appended(self, size: int, new_batch: bool) -> None:
        """Count the bytes of a record that went to the partition of the moment; perhaps switch for the next.

        A switch waits for the end of a batch, lest it leaves one half-filled, but not for more than another batch.
        """
        self._produced += size
        if self._produced >= self._sticky_bytes and (new_batch or self._produced >= 2 * self._sticky_bytes):
            self._produced = 0
            self.partition = self._choose(1)[0]

    def spread(self, size: int) -> dict[int, int]:
        """Count so many bytes at once, and say how many of them go to which partition.

        Each has as many as if it had been chosen for a batch of bytes at a time. But it has them in one piece, in
        which batches fill up one behind the other.
        """
        first = min(size, self.remaining)
        shares = {self.partition: first}
        if first == size:
            self._produced += size
            return shares
        full, rest = divmod(size - first, self._sticky_bytes)
        *chosen, last = self._choose(full + 1)
        for partition in chosen:
            shares[partition] = shares.get(partition, 0) + self._sticky_bytes
        shares[last] = shares.get(last, 0) + rest
        self.partition = last
        self._produced = rest
        return shares


__all__ = ["StickyPartitioner", "partition_for_key"]
