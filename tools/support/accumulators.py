"""Both halves of a slab's accumulator in one process, which no program of shmaccum has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from shmaccum._core import FutureRecordMetadata, Rows
from shmaccum.accumulator.append.futures import NO_SIZES, DeliveryCallback, FutureColumnsMetadata, sizes_word
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.record_appender import Route, check_timestamp
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.accumulator_state import AccumulatorState
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import UnknownTopicOrPartitionError
from shmaccum.record.format import RecordFormat
from shmaccum.shm.slab import Slab


class RecordAppendResult(NamedTuple):
    """The items of an `AppendResult`, by name."""

    future: FutureRecordMetadata
    batch_is_full: bool
    new_batch_created: bool
    appended_bytes: int


class Accumulators:
    """Both halves, ``producer`` and ``sender``, over one state. The caller has attached the slab, and detaches it."""

    def __init__(self, slab: Slab, config: ProducerConfig) -> None:
        self.state: Final = AccumulatorState(slab, config)
        self.slab: Final[Slab] = slab
        self.pool: Final[BufferPool] = self.state.pool
        self.map: Final[PartitionMap] = self.state.map
        self.format: Final[RecordFormat] = self.state.format
        self.producer: Final = RecordAccumulator(self.state, config)
        self.sender: Final = SenderAccumulator(self.state, config)

    def append(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        callback: DeliveryCallback | None = None,
        max_block_ms: float = 60_000,
    ) -> RecordAppendResult:
        """Append a record that is not encoded yet, as `Producer.send` does."""
        if topic_partition not in self.map.queues:
            self.map.refresh()
        queue = self.map.queues.get(topic_partition)
        if queue is None:
            raise UnknownTopicOrPartitionError(f"{topic_partition} is not a partition that is known here")
        check_timestamp(timestamp)
        body = self.format.encode_body(key, value, headers)
        sizes = sizes_word(None if key is None else len(key), None if value is None else len(value))
        return self.append_to(queue, timestamp, body, callback, max_block_ms, None, sizes)

    def append_to(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
        route: Route | None = None,
        sizes: int = NO_SIZES,
    ) -> RecordAppendResult:
        """Append a record to a deque, as `RecordAccumulator.appending`."""
        call = self.producer.appending(queue, timestamp, body, callback, max_block_ms, route, sizes)
        return RecordAppendResult(*self.producer.block(call))

    def append_columns(
        self, queue: PartitionQueue, rows: Rows, future: FutureColumnsMetadata, max_block_ms: float
    ) -> None:
        """Append rows, as `ColumnAppender.appending`."""
        deadline_s = time.monotonic() + max_block_ms / 1000
        self.producer.block(self.producer.columns.appending(queue, rows, future, deadline_s))
