"""One partition's deque of batches, as one process sees it. Its sections are `shmaccum._core.PartitionDeques`."""

from __future__ import annotations

from shmaccum._core import LEASE_SHIFT, Lane, Partition
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import TopicPartition
from shmaccum.errors import IllegalStateError, ProducerFencedError
from shmaccum.shm.layout import lane_error
from shmaccum.shm.slab import Slab


class PartitionQueue:
    """The deque of one partition entry, as one process sees it.

    Attributes:
        entry: of the partition.
        topic_partition: its name.
        lane: its lane's entry + 1; 0 outside of transactions.
        lock: guards the deque.
        lane_at: word index of the lane, if this object accepts records only for one transaction in it; else 0.
        lease_generation: the generation that the lane must have.
    """

    __slots__ = ("_at", "_slab", "_words", "entry", "lane", "lane_at", "lease_generation", "lock", "topic_partition")

    def __init__(self, slab: Slab, entry: int, topic_partition: TopicPartition, lane: int = 0) -> None:
        self.entry = entry
        self.topic_partition = topic_partition
        self.lane = lane
        self.lane_at = 0
        self.lease_generation = 0
        self.lock = slab.stripe(entry)
        self._slab = slab
        self._words = slab.words
        self._at = slab.geometry.partition(entry)

    def __len__(self) -> int:
        """Number of batches in the deque."""
        return int(self._words[self._at + Partition.QUEUED])

    def lease(self, lane_at: int, generation: int) -> None:
        """Accept records, through this object, only while the lane at an index of the slab has this generation."""
        self.lane_at = lane_at
        self.lease_generation = generation

    def check_lease(self) -> None:
        """Check that the lane takes records of this lease and transaction.

        The sender closes a lane before it acquires the deque's lock to empty it, so no record comes behind it.

        Raises:
            ProducerFencedError: the lane was leased again.
            KafkaError: a batch of the transaction has failed with this error.
            IllegalStateError: another thread has ended the transaction.
        """
        words, at = self._words, self.lane_at
        newer = words[at + Lane.GENERATION] ^ self.lease_generation
        if newer >> LEASE_SHIFT:
            raise ProducerFencedError(
                f"no record of this transaction is accepted for {self.topic_partition} any more: another producer of "
                "this host has the same transactional.id"
            )
        if newer or not words[at + Lane.PRODUCER_ID]:
            raise IllegalStateError(
                f"no record is accepted for {self.topic_partition}: the transaction in which it was sent has ended"
            )
        failed = words[at + Lane.ERROR]
        if failed:
            error = lane_error(failed)
            raise error(f"{self.topic_partition}: a batch of the transaction failed, so abort it: {error.meaning()}")

    def first(self) -> RecordBatch | None:
        """Return the batch at the front."""
        head = self._words[self._at + Partition.HEAD]
        return RecordBatch(self._slab.core, head - 1) if head else None
