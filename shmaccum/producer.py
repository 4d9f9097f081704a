"""The Producer: what a user imports.

It is a thin layer: it serializes, picks the partition, waits for a topic's metadata, and appends to the slab that
all the producers of a host with the same settings share. The one sender process of that slab does the rest.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from shmaccum.accumulator.futures import DeliveryCallback, FutureColumnsMetadata, FutureRecordMetadata
from shmaccum.accumulator.partition_map import TopicEntry
from shmaccum.accumulator.record_accumulator import RecordAccumulator, slab_geometry
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    IllegalStateError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from shmaccum.interceptors import Interceptors, ProducerRecord
from shmaccum.metadata import ProducerMetadata
from shmaccum.metrics import slab_metrics
from shmaccum.partition_load import PartitionLoads
from shmaccum.partitioner import StickyPartitioner, partition_for_key
from shmaccum.sender.process import ensure_sender
from shmaccum.serialization import checked_timestamp, serialize
from shmaccum.shm.layout import Process, Role
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.locks import is_reentrant

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | None]]
Params = ParamSpec("Params")
Result = TypeVar("Result")


def _settling(
    method: Callable[Concatenate[Producer, Params], Result],
) -> Callable[Concatenate[Producer, Params], Result]:
    """Make a method that cleans up behind itself when it ends by an error."""

    @wraps(method)
    def settled(self: Producer, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            self._settle(error)
            raise

    return settled


class Producer:
    """A Kafka producer whose batches, memory and sender are shared by all the processes of the host.

    Any number of threads may use it. In a forked child it goes on by itself, as a new process of the slab; futures
    made before the fork are the parent's. Closed by `close`, or as a context manager; a record that `send` has
    taken is delivered even if the process is killed right after.

    Args:
        config: settings by Kafka's names (see docs/configuration.md), or a `ProducerConfig`.

    Raises:
        ConfigError: a setting is unknown, has a wrong value, or contradicts another.
        SlabError: the slab cannot be made or used; says why.
        SenderError: there was no sender, and none could be started.
    """

    def __init__(self, config: Mapping[str, object] | ProducerConfig) -> None:
        self._closed = True
        self._closing = threading.RLock()  # the same thread may come again, after an interrupt
        self.config = config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config)
        self._max_block_ms = self.config.max_block_ms
        self._max_request_size = self.config.max_request_size
        self._ignore_keys = self.config.partitioner_ignore_keys
        self._key_serializer = self.config.key_serializer
        self._value_serializer = self.config.value_serializer
        self._interceptors = Interceptors(self.config.interceptor_classes)
        self._sticky: dict[str, StickyPartitioner] = {}
        uid = os.geteuid()
        self._slab = attach(self.config.slab_name(uid), slab_geometry(self.config), self.config.slab_digest(uid))
        self._attached: list[None] = [None]
        try:
            with self._slab.telling_of_damage():
                self._accumulator = RecordAccumulator(self._slab, self.config)
            self._map = self._accumulator.map
            self._metadata = ProducerMetadata(self._accumulator, self.config)
            self._encode_body = self._accumulator.format.encode_body
            self._append = self._accumulator.appender.append
            self._max_record_size = min(self._max_request_size, self._accumulator.pool.total_memory)
            overhead = self._accumulator.format.header_size + self._accumulator.format.record_overhead_max
            self._max_body_size = self._max_record_size - overhead
            self._ensure_sender = partial(ensure_sender, self._slab, self.config)
            self._accumulator.appender.before_new_batch = self._ensure_sender
            self._accumulator.acks.while_waiting = self._ensure_sender
            self._accumulator.pool.while_waiting = self._ensure_sender
            self._slab.be_patient(self._max_block_ms / 1000)
            self._slab.add_role(Role.PRODUCER)
            self._ensure_sender()
        except BaseException:
            detach(self._slab, self._attached)
            raise
        self._closed = False

    def __repr__(self) -> str:
        return f"<Producer {self.config.client_id!r} of slab {self._slab.name!r}{', closed' if self._closed else ''}>"

    # --- sending ------------------------------------------------------------------------------------

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
        """Take a record. It is in shared memory on return, and will be delivered or its error reported.

        Args:
            topic: where to; made on first use where the cluster does that.
            value: what ``value.serializer`` takes; without one, bytes or text, or None (a tombstone).
            key: what ``key.serializer`` takes; without one, bytes or text, or None.
            headers: names and values.
            partition: where to; by default, where the key's hash says, or the partition of the moment.
            timestamp_ms: milliseconds since the epoch; by default, now.
            on_delivery: called with (error, None) or (None, metadata) when the record is done: in this process,
                in whichever thread next sends, polls, flushes or waits.

        Returns:
            Its future, with the methods of kafka-python's.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
            BufferExhaustedError: there was no memory within ``max.block.ms``.
            LockTimeoutError: a process that is stopped was in the way for ``max.block.ms``; says which.
            SlabDamagedError: the shared memory is damaged.
            RecordTooLargeError: the record is larger than ``max.request.size``, or than the slab.
            InvalidTopicError, UnknownTopicOrPartitionError, SerializationError, InvalidTimestampError: as they say.
            ProducerClosedError: the producer has been closed.
            SenderError: there was no sender, and none could be started.

        After an error the record is not taken, and will not be delivered. Only of what a signal's handler raises
        (KeyboardInterrupt, say) that cannot be known: it may come when the record is in and its future not returned.
        """
        try:  # as `_settling` does, but without another call
            self._check_open()
            if self._interceptors:
                record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
                topic, value, key, headers = record.topic, record.value, record.key, record.headers
                partition, timestamp_ms = record.partition, record.timestamp_ms
                on_delivery = self._interceptors.acknowledging(on_delivery)
            # First, because max.block.ms does not count what a serializer takes.
            key_bytes = serialize("key", self._key_serializer, key)
            value_bytes = serialize("value", self._value_serializer, value)
            started = time.monotonic()
            self._map.refresh()
            entry = self._map.topics.get(topic)
            if entry is None or not entry.queues:
                entry = self._metadata.topic(topic, started)
            body = self._encode_body(key_bytes, value_bytes, headers or ())
            if len(body) > self._max_body_size:
                raise self._too_large(topic, len(body))
            sticky = None
            if partition is None:
                if key_bytes is None or self._ignore_keys:
                    sticky = self._sticky.get(topic) or self._sticky_partitioner(entry)
                    partition = sticky.partition
                else:
                    partition = partition_for_key(key_bytes, len(entry.queues))
            else:
                self._metadata.check_partition(entry, partition, started)
            future, batch_is_full, new_batch_created = self._append(
                entry.queues[partition],
                time.time_ns() // 1_000_000 if timestamp_ms is None else checked_timestamp(timestamp_ms),
                body,
                on_delivery,
                self._max_block_ms - (time.monotonic() - started) * 1000,
            )
        except BaseException as error:
            self._settle(error)
            raise
        try:  # The record is taken: no error any more, or a caller who tries again would send it twice.
            if sticky is not None:
                sticky.note_appended(len(body), new_batch=new_batch_created)
            if new_batch_created or batch_is_full:
                self._slab.rope.pull()
        except (IllegalStateError, ValueError):
            if not self._closed:
                raise
            # Another thread has closed the producer meanwhile: the sender looks by itself what was left behind.
        return future

    @_settling
    def send_batch(self, topic: str, batch: pa.RecordBatch) -> FutureColumnsMetadata:
        """Take all rows of an Arrow batch, vectorised: no Python runs per row.

        Args:
            topic: where to.
            batch: columns ``key`` and ``value`` (binary or string), ``partition`` (integer), ``headers``
                (list<struct<key: string, value: binary>>) and ``timestamp`` (a timestamp, or integer milliseconds
                since the epoch), all of them optional; a null is as if it were not given.

        Returns:
            One future for all rows.

        Raises:
            SerializationError: a column is unknown or of the wrong type, or serializers or interceptors are set,
                which work record by record.
            KafkaError: as `send`; if memory ran out half-way, or there was no sender any more, the rows before are in
                and will be delivered.
        """
        from shmaccum.columns import partition_columns

        self._check_open()
        self._ensure_sender()
        if self._interceptors or self._key_serializer or self._value_serializer:
            raise SerializationError(
                "send_batch takes columns of bytes or text as they are; a producer with key.serializer, "
                "value.serializer or interceptor.classes sends record by record"
            )
        started = time.monotonic()
        entry = self._metadata.topic(topic, started)
        parts = partition_columns(
            batch,
            self._accumulator.format,
            len(entry.queues),
            self._sticky.get(topic) or self._sticky_partitioner(entry),
            ignore_keys=self._ignore_keys,
            max_body_size=self._max_body_size,
        )
        for partition in parts:
            self._metadata.check_partition(entry, partition, started)
        future = FutureColumnsMetadata(batch.num_rows, self._accumulator.acks)
        for partition, part in parts.items():
            remaining_ms = self._max_block_ms - (time.monotonic() - started) * 1000
            self._accumulator.append_columns(TopicPartition(topic, partition), part, future, remaining_ms)
        self._slab.rope.pull()
        return future

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosedError("Cannot perform operation after producer has been closed.")

    def _settle(self, error: BaseException) -> None:
        """Leave no lock behind, wherever a KeyboardInterrupt cut a call short; say so if it was another thread's close.

        Raises:
            ProducerClosedError: the error came of the slab's having been detached.
            SlabDamagedError: it came of what is in the slab.
        """
        self._slab.settle()
        if not self._closed:
            self._accumulator.settle()
        if self._closed and isinstance(error, IllegalStateError | ValueError | OSError):
            raise ProducerClosedError("The producer has been closed meanwhile.") from error
        damage = self._slab.explain(error)
        if damage is not None:
            raise damage from error

    def _too_large(self, topic: str, body_size: int) -> RecordTooLargeError:
        """``KafkaProducer.ensureValidRecordSize``, by the same upper bound of a record's size."""
        what = "max.request.size" if self._max_record_size == self._max_request_size else "buffer.memory"
        size = body_size + self._max_record_size - self._max_body_size
        return RecordTooLargeError(
            f"The record for topic {topic!r} is {size} bytes when serialized which is larger than "
            f"{self._max_record_size}, which is the value of {what}"
        )

    # --- metadata -----------------------------------------------------------------------------------

    @_settling
    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
        """
        self._check_open()
        return set(range(len(self._metadata.topic(topic, time.monotonic()).queues)))

    def _sticky_partitioner(self, entry: TopicEntry) -> StickyPartitioner:
        """Return a topic's first partitioner."""
        loads = PartitionLoads(
            self._slab,
            entry,
            adaptive=self.config.partitioner_adaptive_partitioning_enable,
            availability_timeout_ms=self.config.partitioner_availability_timeout_ms,
            linger_ms=self.config.linger_ms,
        )
        return self._sticky.setdefault(entry.name, StickyPartitioner(self.config.batch_size, loads.choose))

    # --- waiting ------------------------------------------------------------------------------------

    @_settling
    def poll(self, timeout: float = 0.0) -> None:
        """Resolve the futures, and run the callbacks, of what is done; wait for something up to ``timeout`` s.

        Raises:
            SenderError: something is under way, but there was no sender, and none could be started.
        """
        self._check_open()
        acks = self._accumulator.acks
        acks.check_process()
        if acks.incomplete():
            self._ensure_sender()
        if timeout > 0:
            waiting = len(acks.incomplete())
            acks.wait_until(lambda: len(acks.incomplete()) < waiting, timeout)
        acks.poll()

    @_settling
    def flush(self, timeout: float | None = None) -> None:
        """Send what there is at once, and wait until all records sent before are acknowledged or given up.

        Args:
            timeout: seconds; by default as long as it takes (``delivery.timeout.ms`` bounds that).

        Raises:
            KafkaTimeoutError: some are neither after ``timeout``; they stay in the slab and are sent on.
            SenderError: there was no sender any more, and none could be started; the next one goes on with them.
        """
        self._check_open()
        self._accumulator.acks.check_process()
        self._accumulator.begin_flush()
        self._accumulator.await_flush_completion(timeout)

    @_settling
    def close(self, timeout: float | None = None) -> None:
        """Flush, and leave the slab. Closing twice does nothing; after an interrupt, it ends what that cut short.

        Args:
            timeout: seconds to wait for what is under way; 0 not at all. What is not acknowledged by then stays
                in the slab and is delivered, but this producer does not hear of it.

        Raises:
            KafkaTimeoutError: something was not acknowledged within ``timeout`` (and that was not 0).
            SenderError: there was no sender any more, and none could be started; the next one goes on with it.
        """
        if not self._attached or (self._closed and is_reentrant()):
            return  # closed, or called by a callback of the flush below
        if self._closing.acquire(blocking=False):
            try:
                self._close(timeout)
            finally:
                self._closing.release()

    def _close(self, timeout: float | None) -> None:
        self._closed = True
        try:
            self._accumulator.close()
            self._accumulator.acks.check_process()
            if timeout != 0:
                self._accumulator.begin_flush()
                self._accumulator.await_flush_completion(timeout)
        finally:
            try:
                self._interceptors.close()
                self._slab.settle()
                self._accumulator.settle()
            finally:
                detach(self._slab, self._attached)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by Kafka's names: this producer's, and those of the slab that all share."""
        self._check_open()
        self._accumulator.acks.check_process()
        words, geometry = self._slab.words, self._slab.geometry
        process = geometry.process(self._slab.me)
        pool = self._accumulator.pool
        return {
            "producer-metrics": {
                "record-append-total": words[process + Process.RECORDS],
                "byte-append-total": words[process + Process.BYTES],
                "batch-create-total": words[process + Process.BATCHES],
                "bufferpool-wait-ratio": pool.wait_ratio(),
                "bufferpool-wait-time-ns-total": words[process + Process.WAIT_NS],
                "buffer-exhausted-total": words[process + Process.EXHAUSTED],
                "waiting-threads": pool.queued(),
                "incomplete-batches": len(self._accumulator.acks.incomplete()),
            },
            "slab-metrics": slab_metrics(words, geometry),
        }
