# cython: binding=True
# `Producer` makes a method of `send`, which only a bound function can be.
"""The path of one record from `Producer.send` into the slab.

Every record runs through it, so it is short and compiled; rarer work lives elsewhere. It writes no shared word itself:
`shmaccum.accumulator.append` does, and says under which lock.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from shmaccum._compiled import COMPILED
from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.record_appender import Route
from shmaccum.cluster import check_topic
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    LockTimeoutError,
    ProducerClosedError,
    ShmaccumError,
    SlabDamagedError,
)
from shmaccum.pool.loop_memory import LockHeld, TurnOver, WouldWait
from shmaccum.producer.call_guard import CallGuard
from shmaccum.producer.destinations import Destinations
from shmaccum.producer.interceptors import Interceptors, ProducerRecord
from shmaccum.producer.partitioner import partition_for_key
from shmaccum.producer.refusals import Refusals
from shmaccum.producer.serialization import Serializers, checked_timestamp
from shmaccum.record.fields import Headers
from shmaccum.shm.layout import Super

if TYPE_CHECKING:  # imported only for transactions
    from shmaccum.transactions.manager import TransactionManager
    from shmaccum.transactions.transaction import Transaction

compiled: Final = COMPILED
"""Whether the code that every record runs through is compiled (see ``setup.py``) or plain Python."""

_SENDER_ASLEEP: Final = Super.SENDER_ASLEEP
_ARGUMENTS: Final = 7
"""Items of `WouldWait.call` before the record is serialized; after that, the interceptors' callback is one more."""

logger = logging.getLogger(__name__)


class RecordPath:
    """What `send` works with, for one producer.

    Args:
        config: the producer's.
        accumulator: of its slab.
        destinations: the producer's.
        interceptors: the producer's.
        serializers: the producer's.
        guard: the producer's.
        transactions: the producer's; None without.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        destinations: Destinations,
        interceptors: Interceptors,
        serializers: Serializers,
        guard: CallGuard,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._guard = guard
        self._transactions = transactions
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._has_interceptors = bool(interceptors)
        state = accumulator.state
        self._slab = state.slab
        self._memory = state.slab.memory
        self._destinations = destinations
        self._map = destinations.map
        self._sticky = destinations.sticky
        self._ignore_keys = destinations.ignore_keys
        self._max_block_ms = destinations.max_block_ms
        self._max_body_size = destinations.max_body_size
        self._refusals = Refusals(state.slab, destinations.map)
        self.counts_timeouts = True
        """Whether `send` counts its timeouts as refused; a caller that tries again counts the last one itself."""
        self._rung = 0
        """The last sleep of the sender that this producer ended: pressing the doorbell again would be wasted."""
        self.never_waits = False
        """Whether a lock that a stopped process holds ends a call with `LockHeld`."""
        self.burst = 0
        """For `send_now`: how many more calls before the event loop gets its turn."""
        self._linger_ms = config.linger_ms
        self._has_key_serializer = config.key_serializer is not None
        self._has_value_serializer = config.value_serializer is not None
        self._key_serializer = serializers.key
        self._value_serializer = serializers.value
        self._fast = accumulator.records.fast
        self._encode_body = state.format.encode_body

    @property
    def is_record_by_record(self) -> bool:
        """Whether serializers or interceptors have to see each record."""
        return self._has_interceptors or self._has_key_serializer or self._has_value_serializer

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that a call which begins now belongs to; None without a ``transactional.id``."""
        return None if self._transactions is None else self._transactions.current

    def is_button_needed(self) -> bool:
        """Return whether a sleeping sender must be woken to see a new batch when it has lingered."""
        now_ms = time.monotonic_ns() // 1_000_000
        return self._slab.button.is_needed_by(now_ms + self._linger_ms, now_ms)

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

        They get no interrupt, because the record can be accepted. Raises as `CallGuard.settle`.
        """
        if self._transactions is not None and transaction is not None and isinstance(error, KafkaError):
            self._transactions.refused(error, transaction)
        try:
            self._guard.settle(error)
        except ShmaccumError as instead:
            self._notify(instead, topic, partition, on_delivery, headers)
            raise
        if isinstance(error, Exception):
            if self.counts_timeouts or not isinstance(error, KafkaTimeoutError):
                self.count_refusal(topic, error)
            self._notify(error, topic, partition, on_delivery, headers)

    def count_refusal(self, topic: object, error: Exception) -> None:
        """Count a call that failed before acceptance, for monitoring: see `Refusals`."""
        if self._guard.closed or isinstance(error, ProducerClosedError | SlabDamagedError):
            return
        try:
            self._refusals.count(topic, error)
        except (ShmaccumError, ValueError, IndexError) as failed:
            # Another thread has closed the producer, or the slab is damaged: the caller gets its own error.
            logger.debug("a refused record of topic %r is not counted: %s", topic, failed)

    def _notify(
        self,
        error: Exception,
        topic: str,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        headers: Headers | None,
    ) -> None:
        if on_delivery is not None and isinstance(error, KafkaError) and error.is_api:
            try:
                on_delivery(error, None)
            except Exception:
                logger.exception("a delivery callback for a record of topic %r raised", topic)
        self._interceptors.on_send_error(topic, partition, error, headers)


class _HasRecordPath(Protocol):
    """A producer, as `send` needs it."""

    _records: RecordPath


# `Producer` has it as a method.
def send(
    self: _HasRecordPath,
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
        self: the producer.
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
        IllegalArgumentError: the partition is negative, or ``on_delivery`` cannot be called.
        IllegalStateError: an interceptor's ``on_send`` returned None.
        ProducerClosedError: the producer has been closed.
        SenderError: there was no sender, and none could be started.

    With a ``transactional.id`` it also raises IllegalStateError outside of a transaction, and the error of one that
    has failed. The record belongs to the transaction that is open when `send` is called. If another thread ends that
    one while the call waits, it raises IllegalStateError.

    Like Kafka's producer, it calls ``on_delivery`` before it raises an error that is an ``ApiException`` there
    (`KafkaError.is_api`): both are about the same record. Interceptors see every error.

    After an error the record is not accepted, and will not be sent. The exception is an interrupt, such as
    KeyboardInterrupt from a signal handler: it can arrive after the record is accepted and before `send` returns.
    """
    return _send(self._records, None, topic, value, key, headers, partition, timestamp_ms, on_delivery)


def send_in(
    path: RecordPath,
    transaction: Transaction | None,
    topic: str,
    value: Any,
    key: Any,
    headers: Headers | None,
    partition: int | None,
    timestamp_ms: int | None,
    on_delivery: DeliveryCallback | None,
) -> FutureRecordMetadata:
    """Do as `send`, for a call that began in a transaction: `RecordPath.transaction` at that time."""
    return _send(path, transaction, topic, value, key, headers, partition, timestamp_ms, on_delivery)


def send_now(
    path: RecordPath | None,
    topic: str,
    value: Any,
    key: Any,
    headers: Headers | None,
    partition: int | None,
    timestamp_ms: int | None,
    on_delivery: DeliveryCallback | None,
) -> FutureRecordMetadata:
    """Do as `send` if that needs no wait. For a path that never waits: its accumulator and metadata raise instead.

    Raises:
        IllegalStateError: there is no path yet.
        WouldWait: it would wait, or the event loop has other work to do; `resume` goes on.
    """
    if path is None:
        raise IllegalStateError("the AsyncProducer is not started: use `async with`, or `await producer.start()`")
    if path.burst <= 0:
        turn = TurnOver("other tasks of the event loop are due")
        turn.call = topic, value, key, headers, partition, timestamp_ms, on_delivery
        raise turn
    path.burst -= 1
    return _send(path, None, topic, value, key, headers, partition, timestamp_ms, on_delivery)


def resume(path: RecordPath, wait: WouldWait) -> FutureRecordMetadata:
    """Go on with a call of `send_now` after its wait.

    Raises:
        WouldWait: it has to wait again.
    """
    call = wait.call
    if len(call) == _ARGUMENTS:
        topic, value, key, headers, partition, timestamp_ms, on_delivery = call
        return _send(path, None, topic, value, key, headers, partition, timestamp_ms, on_delivery)
    topic, value, key, headers, partition, timestamp_ms, on_delivery, callback = call
    try:
        return _append(path, None, topic, value, key, headers, partition, timestamp_ms, callback)
    except WouldWait as again:
        again.call = call
        raise
    except BaseException as error:
        if path.never_waits and isinstance(error, LockTimeoutError):
            raise LockHeld(error, call) from error
        path.refuse(error, topic, partition, on_delivery, headers)
        raise


# A separate function: compiled, it has C variables, which a function that users call cannot have.
def _send(
    path: RecordPath,
    transaction: Transaction | None,
    topic: str,
    value: Any,
    key: Any,
    headers: Headers | None,
    partition: int | None,
    timestamp_ms: int | None,
    on_delivery: DeliveryCallback | None,
) -> FutureRecordMetadata:
    """Serialize and append a record, in the open transaction by default, and wake the sender if it needs that."""
    if path._guard.closed:
        path._guard.check_open()
    if path._transactions is not None and transaction is None:
        transaction = path._transactions.current
    callback = on_delivery
    try:  # as in `CallGuard`, without another call
        if path._has_interceptors:
            record = path._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
            topic, value, key, headers = record.topic, record.value, record.key, record.headers
            partition, timestamp_ms = record.partition, record.timestamp_ms
            callback = path._interceptors.acknowledging(record, on_delivery)
        if on_delivery is not None and not callable(on_delivery):
            raise IllegalArgumentError(
                f"on_delivery must be callable with (error, metadata), not {type(on_delivery).__name__}: "
                f"{on_delivery!r}"
            )
        # First, because max.block.ms does not count the time of serializers.
        if (key is not None and type(key) is not bytes) or path._has_key_serializer:
            key = path._key_serializer.serialize(topic, key)
        if (value is not None and type(value) is not bytes) or path._has_value_serializer:
            value = path._value_serializer.serialize(topic, value)
        return _append(path, transaction, topic, value, key, headers, partition, timestamp_ms, callback)
    except WouldWait as wait:
        wait.call = topic, value, key, headers, partition, timestamp_ms, on_delivery, callback
        raise
    except BaseException as error:
        if path.never_waits and isinstance(error, LockTimeoutError):
            call = topic, value, key, headers, partition, timestamp_ms, on_delivery, callback
            raise LockHeld(error, call) from error
        path.refuse(error, topic, partition, on_delivery, headers, transaction)
        raise


def _append(
    path: RecordPath,
    transaction: Transaction | None,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Headers | None,
    partition: int | None,
    timestamp_ms: int | None,
    callback: DeliveryCallback | None,
) -> FutureRecordMetadata:
    """Append a serialized record."""
    if type(topic) is not str:
        check_topic(topic)  # an unhashable one would raise a TypeError in the map
    started = 0.0  # no wait so far
    entry = path._map.current(topic)
    # The deques are read once: another thread can find that the topic has shrunk or is gone.
    if entry is None or not (queues := entry.queues):
        started = time.monotonic()
        entry, queues = path._destinations.metadata.topic(topic, started)
    fast = path._fast
    if fast is not None and not headers:
        body = fast.encode_body(key, value)
    else:
        body = path._encode_body(key, value, headers or ())
    if len(body) > path._max_body_size:
        raise path._destinations.too_large(topic, len(body))
    sticky = None
    if partition is not None:
        if type(partition) is not int or not 0 <= partition < len(queues):
            started = started or time.monotonic()
            queues = path._destinations.metadata.queues_with(entry, partition, started)
        number = partition
    elif key is None or path._ignore_keys:
        sticky = path._sticky.get(topic) or path._destinations.sticky_partitioner(entry)
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
    queue = queues[number]
    route: Route | None = sticky
    if transaction is not None:
        queue = transaction.queue(queue)
        route = None if sticky is None else transaction.route(sticky)
    future, batch_is_full, new_batch_created, appended_bytes = path._accumulator.append(
        queue,
        timestamp,
        body,
        callback,
        path._max_block_ms if not started else path._max_block_ms - (time.monotonic() - started) * 1000,
        route,
        sizes,
    )
    try:  # The record is accepted: after an error from here the caller would send it twice.
        if sticky is not None:
            sticky.note_appended(appended_bytes)
        if new_batch_created or batch_is_full:
            asleep = path._memory.words[_SENDER_ASLEEP]
            if asleep and asleep != path._rung and (batch_is_full or path.is_button_needed()):
                path._rung = path._slab.button.press()
    except (IllegalStateError, ValueError, IndexError):
        if not path._guard.closed:
            raise
        # Another thread has closed the producer meanwhile: the sender finds the batch without a wake-up.
    return future
