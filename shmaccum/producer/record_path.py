"""The path of one record from `Producer.send` into the slab.

`shmaccum._core.RecordPath` sends a record that no Python code has to see, and that has nothing to wait for. This module
does the rest: interceptors, serializers, headers, transactions, waits and errors. It writes no shared word itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmaccum import _core, errors
from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.futures import DeliveryCallback, sizes_word
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.record_appender import Route
from shmaccum.accumulator.append.waits import Waits
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import check_topic
from shmaccum.config import ProducerConfig
from shmaccum.producer.destinations import Destinations
from shmaccum.producer.partitioner import StickyPartitioner, partition_for_key
from shmaccum.producer.refusals import Refusals
from shmaccum.producer.serialization import Serializers, checked_timestamp
from shmaccum.record.fields import Headers

if TYPE_CHECKING:  # imported only for transactions and interceptors
    from shmaccum.producer.interceptors import Interceptors
    from shmaccum.transactions.manager import TransactionManager
    from shmaccum.transactions.transaction import Transaction


logger = logging.getLogger(__name__)


class CallGuard(_core.CallGuard):
    """``with guard: ...`` around a call of an open producer."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._slab = accumulator.state.slab

    def check_open(self) -> None:
        """Raise ProducerClosedError if the producer has been closed."""
        if self.closed:
            raise errors.ProducerClosedError("Cannot perform operation after producer has been closed.")

    def clean_up(self, error: BaseException) -> None:
        """Clean up after an error or interrupt: release slots and flushes; raise a better error if there is one.

        Raises:
            ProducerClosedError: the error came from the detached slab, because another thread closed the producer.
            SlabDamagedError: it came from damage in the slab.
        """
        if not self.closed:
            self._accumulator.clean_up()
        if self.closed and isinstance(error, errors.IllegalStateError | ValueError | IndexError | OSError):
            raise errors.ProducerClosedError("The producer has been closed meanwhile.") from error
        damage = self._slab.explain(error)
        if damage is not None:
            raise damage from error

    def __enter__(self) -> None:
        self.check_open()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.clean_up(error)


class Sending:
    """A record to send: as `Producer.send` got it, then as `RecordPath.prepare` made it.

    Attributes:
        callback: the interceptors' and `on_delivery`.
        body: from the format's ``encode_body``, if there are headers.
    """

    __slots__ = (
        *("topic", "value", "key", "headers", "partition", "timestamp_ms", "on_delivery", "transaction"),
        *("callback", "body"),
    )

    def __init__(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
        transaction: Transaction | None = None,
    ) -> None:
        self.topic, self.value, self.key, self.headers = topic, value, key, headers
        self.partition, self.timestamp_ms = partition, timestamp_ms
        self.on_delivery, self.transaction = on_delivery, transaction
        self.callback: DeliveryCallback | None = None
        self.body: bytes | None = None


class RecordPath(_core.RecordPath):
    """What `send` works with, for one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        destinations: Destinations,
        interceptors: Interceptors | None,
        serializers: Serializers,
        guard: CallGuard,
        has_sender: Callable[[], bool],
        transactions: TransactionManager | None = None,
    ) -> None:
        state = accumulator.state
        self._guard = guard
        self._transactions = transactions
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._slab = state.slab
        self._destinations = destinations
        self._map = destinations.map
        self._refusals = Refusals(state.slab, destinations.map)
        self.counts_timeouts = True
        """Whether `send` counts its timeouts as refused; a caller that tries again counts the last one itself."""
        self.is_record_by_record = bool(interceptors or config.key_serializer or config.value_serializer)
        """Whether serializers or interceptors have to see each record."""
        self._serializers = serializers
        self.has_sender = has_sender
        self.free_unused = accumulator.records.free_unused
        self.encode_body = state.format.encode_body
        super().__init__(
            accumulator.records.core,
            guard,
            accumulator.pending,
            max(0, destinations.max_body_size),  # max.request.size can be less than a batch's header
            destinations.ignore_keys,
            not self.is_record_by_record and transactions is None,
            bool(interceptors),
            serializers,
            transactions,
            destinations.map,
        )

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that a call which begins now belongs to; None without a ``transactional.id``."""
        return None if self._transactions is None else self._transactions.current

    # --- sending ------------------------------------------------------------------------------------

    def send(self, *fields: Any) -> FutureRecordMetadata:
        """Send a record, as `Producer.send`, with the fields of a `Sending`; by default, in the open transaction."""
        self._guard.check_open()
        record = Sending(*fields)
        record.transaction = record.transaction or self.transaction
        try:
            self.prepare(record)
            return self._append_prepared(record)
        except BaseException as error:
            self.refuse_prepared(error, record)
            raise

    def send_serialized(self, *fields: Any) -> FutureRecordMetadata:
        """Send a serialized record that has to wait; the core cleans up after an error."""
        return self._append_prepared(self.serialized(Sending(*fields)))

    def serialized(self, record: Sending) -> Sending:
        """Return a record whose key and value are serialized, prepared; no interceptor has to see it."""
        record.callback = record.on_delivery
        if record.headers:
            record.body = self.encode_body(record.key, record.value, record.headers)
        return record

    def _append_prepared(self, record: Sending) -> FutureRecordMetadata:
        future = self.try_append(record)
        return self._accumulator.block(self.appending(record)) if future is None else future

    def send_in(self, transaction: Transaction | None, *fields: Any) -> FutureRecordMetadata:
        """Send a record in the transaction that was open when its call began: `transaction` then."""
        future: FutureRecordMetadata | None = self.try_send(*fields)
        return self.send(*fields, transaction) if future is None else future

    def prepare(self, record: Sending) -> None:
        """Let interceptors and serializers see a record."""
        on_delivery = record.callback = record.on_delivery
        if self._interceptors is not None:
            from shmaccum.producer.interceptors import ProducerRecord

            given = ProducerRecord(
                record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
            )
            changed = self._interceptors.on_send(given)
            record.topic, record.value, record.key = changed.topic, changed.value, changed.key
            record.headers, record.partition = changed.headers, changed.partition
            record.timestamp_ms = changed.timestamp_ms
            record.callback = self._interceptors.acknowledging(changed, on_delivery)
        if on_delivery is not None and not callable(on_delivery):
            raise errors.IllegalArgumentError(
                f"on_delivery must be callable with (error, metadata), not {type(on_delivery).__name__}: "
                f"{on_delivery!r}"
            )
        # Before the append, because max.block.ms does not count the time of serializers.
        record.key = self._serializers.key.serialize(record.topic, record.key)
        record.value = self._serializers.value.serialize(record.topic, record.value)
        if record.headers:
            record.body = self.encode_body(record.key, record.value, record.headers)

    def try_append(self, record: Sending) -> FutureRecordMetadata | None:
        """Append a record that is prepared, if there is nothing to wait for; wake the sender if it needs that."""
        self._accumulator.pending.poll()
        transaction = record.transaction
        return self.append(  # type: ignore[no-any-return]
            record.topic,
            record.value,
            record.key,
            record.body,
            record.partition,
            record.timestamp_ms,
            record.callback,
            None if transaction is None else transaction.destinations,
        )

    def appending(self, record: Sending, started: float = 0.0) -> Waits[FutureRecordMetadata]:
        """Append a prepared record that has to wait, or needs a new batch, or whose topic is not known yet.

        ``started`` are the monotonic seconds when the call began to wait; 0 if it has not.
        """
        topic, key, value, partition = record.topic, record.key, record.value, record.partition
        if type(topic) is not str:
            check_topic(topic)  # an unhashable one would raise a TypeError in the map
        entry = self._map.current(topic)
        generation = self._map.generation  # before the deques: they are as new, or newer
        # The deques are read once: another thread can find that the topic has shrunk or is gone.
        if entry is None or not (queues := entry.queues):
            started = started or time.monotonic()
            entry, queues = yield from self._destinations.topic(topic, started)
        body = self.encode_body(key, value, ()) if record.body is None else record.body
        if len(body) > self._destinations.max_body_size:
            raise self._destinations.too_large(topic, len(body))
        sticky = None
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(queues):
                started = started or time.monotonic()
                queues = yield from self._destinations.queues_with(entry, partition, started)
            number = partition
        elif key is None or self._destinations.ignore_keys:
            sticky = self._destinations.sticky_partitioner(entry)
            number = sticky.within(len(queues))
        else:
            number = partition_for_key(key, len(queues))
        given = record.timestamp_ms
        timestamp = time.time_ns() // 1_000_000 if given is None else checked_timestamp(given)
        queue = queues[number]
        route: Route | None = sticky
        transaction = record.transaction
        if transaction is None:
            self._learn(generation, entry, queues, sticky)
        else:
            queue = transaction.queue(queue)
            route = None if sticky is None else transaction.route(sticky)
            transaction.learn(generation, entry.name, len(queues), number, queue, sticky)
        max_block_ms = self._destinations.max_block_ms
        future, batch_is_full, new_batch_created, appended_bytes = yield from self._accumulator.appending(
            queue,
            timestamp,
            body,
            record.callback,
            max_block_ms - (time.monotonic() - started) * 1000 if started else max_block_ms,
            route,
            sizes_word(None if key is None else len(key), None if value is None else len(value)),
        )
        is_over = sticky is not None and sticky.note(appended_bytes)
        wakes = new_batch_created or batch_is_full
        self.appended(sticky if is_over else None, batch_is_full if wakes else None)
        return future

    def _learn(
        self, generation: int, entry: TopicEntry, queues: tuple[PartitionQueue, ...], sticky: StickyPartitioner | None
    ) -> None:
        """Let the next records of a topic be appended without a question."""
        known = self.known(entry.name)
        if known is None or known.generation != generation or known.sticky is not (sticky or known.sticky):
            sticky = sticky or self._destinations.sticky.get(entry.name)
            destination = _core.Destination(generation, len(queues), sticky)
            for number, queue in enumerate(queues):
                destination.lead(number, queue.entry)
            self.lead(entry.name, destination)

    # --- what the core asks for ---------------------------------------------------------------------

    def appended(self, sticky: StickyPartitioner | None, batch_is_full: bool | None) -> None:
        """Switch a sticky partition, if one is given; wake the sender for a full batch or a new one, if there is any.

        The record is accepted: after an error from here the caller would send it twice.
        """
        try:
            if sticky is not None:
                sticky.switch()
            if batch_is_full is not None:
                self._accumulator.records.wake(batch_is_full)
        except (errors.IllegalStateError, ValueError, IndexError):
            if not self._guard.closed:
                raise
            # Another thread has closed the producer meanwhile: the sender finds the batch without a wake-up.

    # --- errors -------------------------------------------------------------------------------------

    def refuse_prepared(self, error: BaseException, record: Sending) -> None:
        """Clean up after an error of `send`, as `refuse`."""
        self.refuse(error, record.topic, record.partition, record.on_delivery, record.headers, record.transaction)

    def note_cancelled(self, record: Sending) -> None:
        """Notify interceptors of a record whose `send` was cancelled: unlike after an interrupt, it is not accepted."""
        if self._interceptors is not None:
            error = errors.KafkaError("the call of send was cancelled")
            self._interceptors.on_send_error(record.topic, record.partition, error, record.headers)

    def refuse(
        self,
        error: BaseException,
        topic: str,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        headers: Headers | None,
        transaction: Transaction | None = None,
    ) -> None:
        """Clean up after an error of `send`; notify callback and interceptors (``KafkaProducer.doSend``).

        They get no interrupt, because the record can be accepted. Raises as `CallGuard.clean_up`.
        """
        if self._transactions is not None and transaction is not None and isinstance(error, errors.KafkaError):
            self._transactions.refused(error, transaction)

        def notify(error: Exception) -> None:
            if on_delivery is not None and isinstance(error, errors.KafkaError) and error.is_api:
                try:
                    on_delivery(error, None)
                except Exception:
                    logger.exception("a delivery callback for a record of topic %r raised", topic)
            if self._interceptors is not None:
                self._interceptors.on_send_error(topic, partition, error, headers)

        try:
            self._guard.clean_up(error)
        except errors.ShmaccumError as instead:
            notify(instead)
            raise
        if isinstance(error, Exception):
            if self.counts_timeouts or not isinstance(error, errors.KafkaTimeoutError):
                self.count_refusal(topic, error)
            notify(error)

    def count_refusal(self, topic: object, error: Exception) -> None:
        """Count a call that failed before acceptance, for monitoring: see `Refusals`."""
        if self._guard.closed or isinstance(error, errors.ProducerClosedError | errors.SlabDamagedError):
            return
        try:
            self._refusals.count(topic, error)
        except (errors.ShmaccumError, ValueError, IndexError) as failed:
            # Another thread has closed the producer, or the slab is damaged: the caller gets its own error.
            logger.debug("a refused record of topic %r is not counted: %s", topic, failed)
