"""The path of one record from `Producer.send` into the slab.

Every record runs through it, so this half of the `Producer` is short and compiled; rarer work lives elsewhere. It
writes no shared word itself: `shmaccum.accumulator.append` does, and says under which lock.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from shmaccum._compiled import COMPILED
from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.cluster import check_topic
from shmaccum.config import ProducerConfig
from shmaccum.errors import IllegalStateError, KafkaError, ProducerClosedError, RecordTooLargeError, ShmaccumError
from shmaccum.producer.adaptive_partitioning import PartitionLoads
from shmaccum.producer.interceptors import Interceptors, ProducerRecord
from shmaccum.producer.metadata import ProducerMetadata
from shmaccum.producer.partitioner import StickyPartitioner, partition_for_key
from shmaccum.producer.serialization import Serializer, checked_timestamp
from shmaccum.record.fields import Headers
from shmaccum.shm.layout import Super

compiled: Final = COMPILED
"""Whether the code that every record runs through is compiled (see ``setup.py``) or plain Python."""

_SENDER_ASLEEP: Final = Super.SENDER_ASLEEP

logger = logging.getLogger(__name__)


class RecordSending:
    """The part of `Producer` that sends single records.

    Args:
        config: the producer's.
        accumulator: of its slab.
        interceptors: the producer's.
    """

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator, interceptors: Interceptors) -> None:
        self._closed = True
        self.config = config
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._has_interceptors = bool(interceptors)
        state = accumulator.state
        self._slab = state.slab
        self._memory = state.slab.memory
        self._map = state.map
        self._metadata = ProducerMetadata(accumulator, config)
        self._sticky: dict[str, StickyPartitioner] = {}
        self._rung = 0
        """The last sleep of the sender that this producer ended: pressing the doorbell again would be wasted."""
        self._linger_ms = config.linger_ms
        self._max_block_ms = config.max_block_ms
        self._ignore_keys = config.partitioner_ignore_keys
        self._has_key_serializer = config.key_serializer is not None
        self._has_value_serializer = config.value_serializer is not None
        self._key_serializer = Serializer("key", config.key_serializer)
        self._value_serializer = Serializer("value", config.value_serializer)
        self._fast = accumulator.records.fast
        self._encode_body = state.format.encode_body
        self._max_record_size = min(config.max_request_size, state.pool.total_memory)
        overhead = state.format.header_size + state.format.record_overhead_max
        self._max_body_size = self._max_record_size - overhead

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> FutureRecordMetadata:
        """Send a record. On return it is accepted: it will be acknowledged, or its error reported.

        Args:
            topic: the topic; created on first use where the cluster does that.
            value: what ``value.serializer`` takes; without one, bytes or text, or None (a tombstone).
            key: what ``key.serializer`` takes; without one, bytes or text, or None.
            headers: pairs of name and value, or a dict; a value is bytes, text or None.
            partition: its number; by default from the key's hash or, without a key, the sticky partition.
            timestamp_ms: milliseconds since the epoch; by default, now.
            on_delivery: called with (error, None) or (None, metadata) when the record is complete. It runs in this
                process, in the thread that next sends, polls, flushes or waits.

        Returns:
            Its future, with the methods of kafka-python's.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            LockTimeoutError: a stopped process held a lock for ``max.block.ms``; names the process.
            SlabDamagedError: the shared memory is damaged.
            RecordTooLargeError: the record is larger than ``max.request.size``, or than the slab.
            InvalidTopicError, UnknownTopicOrPartitionError, SerializationError, InvalidTimestampError: an argument.
            IllegalArgumentError: the partition is negative.
            IllegalStateError: an interceptor's ``on_send`` returned None.
            ProducerClosedError: the producer has been closed.
            SenderError: there was no sender, and none could be started.

        Like Kafka's producer, it calls ``on_delivery`` before it raises an error that is an ``ApiException`` there
        (`KafkaError.is_api`): both are about the same record. Interceptors see every error.

        After an error the record is not accepted, and will not be sent. The exception is an interrupt, such as
        KeyboardInterrupt from a signal handler: it can arrive after the record is accepted and before `send` returns.
        """
        if self._closed:
            self._check_open()
        callback = on_delivery
        try:  # as in `_settling`, without another call
            if self._has_interceptors:
                record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
                topic, value, key, headers = record.topic, record.value, record.key, record.headers
                partition, timestamp_ms = record.partition, record.timestamp_ms
                callback = self._interceptors.acknowledging(record, on_delivery)
            # First, because max.block.ms does not count the time of serializers.
            if (key is not None and type(key) is not bytes) or self._has_key_serializer:
                key = self._key_serializer.serialize(topic, key)
            if (value is not None and type(value) is not bytes) or self._has_value_serializer:
                value = self._value_serializer.serialize(topic, value)
            future = self._append(topic, value, key, headers, partition, timestamp_ms, callback)
        except BaseException as error:
            self._refuse(error, topic, partition, on_delivery)
            raise
        return future

    # A separate method: compiled, it has C variables, which a method that users call cannot have.
    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> FutureRecordMetadata:
        """Append a record with serialized key and value, and wake the sender if it needs that."""
        if type(topic) is not str:
            check_topic(topic)  # an unhashable one would raise a TypeError in the map
        entry = self._map.current(topic)
        started = 0.0  # no wait so far
        if entry is None or not entry.queues:
            started = time.monotonic()
            entry = self._metadata.topic(topic, started)
        queues = entry.queues  # read once: another thread can find that the topic has shrunk or is gone
        while not queues:
            started = started or time.monotonic()
            entry = self._metadata.topic(topic, started)
            queues = entry.queues
        fast = self._fast
        if fast is not None and not headers:
            body = fast.encode_body(key, value)
        else:
            body = self._encode_body(key, value, headers or ())
        if len(body) > self._max_body_size:
            raise self._too_large(topic, len(body))
        sticky = None
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(queues):
                started = started or time.monotonic()
                queues = self._metadata.queues_with(entry, partition, started)
            number = partition
        elif key is None or self._ignore_keys:
            sticky = self._sticky.get(topic) or self._sticky_partitioner(entry)
            number = sticky.partition
            if number >= len(queues):
                number = sticky.within(len(queues))
        else:
            number = partition_for_key(key, len(queues))
        sizes = 0 if value is None else len(value) + 1  # as in `FutureRecordMetadata`
        if key is not None:
            sizes |= (len(key) + 1) << 32
        if timestamp_ms is not None:
            timestamp = checked_timestamp(timestamp_ms)
        else:
            timestamp = fast.now_ms() if fast is not None else time.time_ns() // 1_000_000
        future, batch_is_full, new_batch_created, appended_bytes = self._accumulator.append(
            queues[number],
            timestamp,
            body,
            on_delivery,
            self._max_block_ms if not started else self._max_block_ms - (time.monotonic() - started) * 1000,
            sticky,
            sizes,
        )
        try:  # The record is accepted: after an error from here the caller would send it twice.
            if sticky is not None:
                sticky.note_appended(appended_bytes)
            if new_batch_created or batch_is_full:
                asleep = self._memory.words[_SENDER_ASLEEP]
                if asleep and asleep != self._rung and (batch_is_full or self._is_button_needed()):
                    self._rung = self._slab.button.press()
        except (IllegalStateError, ValueError, IndexError):
            if not self._closed:
                raise
            # Another thread has closed the producer meanwhile: the sender finds the batch without a wake-up.
        return future

    def _is_button_needed(self) -> bool:
        """Return whether a sleeping sender must be woken to see a new batch when it has lingered."""
        now_ms = time.monotonic_ns() // 1_000_000
        return self._slab.button.is_needed_by(now_ms + self._linger_ms, now_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosedError("Cannot perform operation after producer has been closed.")

    def _settle(self, error: BaseException) -> None:
        """Clean up after an error or interrupt: release locks, slots and flushes; raise a better error if there is one.

        Raises:
            ProducerClosedError: the error came from the detached slab, because another thread closed the producer.
            SlabDamagedError: it came from damage in the slab.
        """
        self._slab.settle()
        if not self._closed:
            self._accumulator.settle()
        if self._closed and isinstance(error, IllegalStateError | ValueError | IndexError | OSError):
            raise ProducerClosedError("The producer has been closed meanwhile.") from error
        damage = self._slab.explain(error)
        if damage is not None:
            raise damage from error

    def _refuse(
        self, error: BaseException, topic: str, partition: int | None, on_delivery: DeliveryCallback | None
    ) -> None:
        """Clean up after an error of `send`; notify callback and interceptors (``KafkaProducer.doSend``).

        They get no interrupt, because the record can be accepted. Raises as `_settle`.
        """
        try:
            self._settle(error)
        except ShmaccumError as instead:
            self._call_refused(instead, topic, partition, on_delivery)
            raise
        if isinstance(error, Exception):
            self._call_refused(error, topic, partition, on_delivery)

    def _call_refused(
        self, error: Exception, topic: str, partition: int | None, on_delivery: DeliveryCallback | None
    ) -> None:
        if on_delivery is not None and isinstance(error, KafkaError) and error.is_api:
            try:
                on_delivery(error, None)
            except Exception:
                logger.exception("a delivery callback for a record of topic %r raised", topic)
        self._interceptors.on_send_error(topic, partition, error)

    def _too_large(self, topic: str, body_size: int) -> RecordTooLargeError:
        """Return Kafka's error (``KafkaProducer.ensureValidRecordSize``), with the same upper bound of the size."""
        what = "max.request.size" if self._max_record_size == self.config.max_request_size else "buffer.memory"
        size = body_size + self._max_record_size - self._max_body_size
        return RecordTooLargeError(
            f"The record for topic {topic!r} is {size} bytes when serialized which is larger than "
            f"{self._max_record_size}, which is the value of {what}"
        )

    def _sticky_partitioner(self, entry: TopicEntry) -> StickyPartitioner:
        """Return a topic's sticky partitioner, created on first use."""
        loads = PartitionLoads(
            self._slab,
            entry,
            adaptive=self.config.partitioner_adaptive_partitioning_enable,
            availability_timeout_ms=self.config.partitioner_availability_timeout_ms,
        )
        return self._sticky.setdefault(entry.name, StickyPartitioner(entry, self.config.batch_size, loads.choose))
