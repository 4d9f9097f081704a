"""Where one producer's records can go: topics with their partitions' deques, sticky partitioners, and limits.

The paths of records and of columns share it, so both come to a partition's deque in the same way. All of it is private
to the process.
"""

from __future__ import annotations

from typing import Final

from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.config import ProducerConfig
from shmaccum.errors import RecordTooLargeError
from shmaccum.producer.adaptive_partitioning import PartitionLoads
from shmaccum.producer.metadata import ProducerMetadata
from shmaccum.producer.partitioner import StickyPartitioner


class Destinations:
    """The topics that one producer sends to. Threads may share it.

    Attributes:
        metadata: waits for topics that are not known, or have too few partitions.
        sticky: the sticky partitioners by topic, of those topics that needed one.
        max_body_size: most bytes of a record's body.
    """

    def __init__(self, accumulator: RecordAccumulator, config: ProducerConfig) -> None:
        state = accumulator.state
        self.map: Final = state.map
        self.metadata: Final = ProducerMetadata(accumulator, config)
        self.sticky: Final[dict[str, StickyPartitioner]] = {}
        self.ignore_keys: Final = config.partitioner_ignore_keys
        self.max_block_ms: Final = config.max_block_ms
        self._config = config
        self._slab = state.slab
        self._max_record_size = min(config.max_request_size, state.pool.total_memory)
        self._overhead = state.format.header_size + state.format.record_overhead_max
        self.max_body_size: Final = self._max_record_size - self._overhead

    def sticky_partitioner(self, topic: TopicEntry) -> StickyPartitioner:
        """Return a topic's sticky partitioner, created on first use."""
        sticky = self.sticky.get(topic.name)
        if sticky is None:
            loads = PartitionLoads(
                self._slab,
                topic,
                adaptive=self._config.partitioner_adaptive_partitioning_enable,
                availability_timeout_ms=self._config.partitioner_availability_timeout_ms,
            )
            new = StickyPartitioner(topic, max(1, self._config.batch_size), loads.choose)
            sticky = self.sticky.setdefault(topic.name, new)
        return sticky

    def too_large(self, topic: str, body_size: int) -> RecordTooLargeError:
        """Return Kafka's error (``KafkaProducer.ensureValidRecordSize``), with the same upper bound of the size."""
        what = "max.request.size" if self._max_record_size == self._config.max_request_size else "buffer.memory"
        return RecordTooLargeError(
            f"The record for topic {topic!r} is {body_size + self._overhead} bytes when serialized which is larger "
            f"than {self._max_record_size}, which is the value of {what}"
        )
