"""confluent-kafka's ``Producer``, over the shared slab.

Callbacks run in `Producer.poll` and `Producer.flush`, in the thread that calls them, and nowhere else.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from shmaccum import _core, errors
from shmaccum._core import Message
from shmaccum.compat.confluent.arguments import DeliveryCallback, as_bytes, as_int, check_batch, header_list
from shmaccum.compat.confluent.errors import KafkaException, kafka_error, new_error, raising_kafka_exceptions
from shmaccum.compat.confluent.parking import PAUSE_S, Parking, Produced
from shmaccum.compat.confluent.settings import Translated, translate
from shmaccum.compat.confluent.transactions import TransactionalCalls
from shmaccum.producer.destinations import is_metadata_timeout, wait_for_topic
from shmaccum.producer.producer import Producer as SharedProducer
from shmaccum.producer.producer import no_pickle

if TYPE_CHECKING:
    from shmaccum.compat.confluent.metadata import ClusterMetadata
    from shmaccum.transactions.transaction import Transaction

PARTITION_UA: Final = -1
"""librdkafka's "no partition given"."""
_SLICE_S: Final = 0.5
"""Longest wait at once: callbacks of complete messages do not wait for the others."""
_LOOK_S: Final = 0.1
"""How often `poll` looks for a living sender though no message is complete."""
_TROUBLE_CHECK_S: Final = 1.0
"""How often the sender's troubles are looked at, for ``error_cb``."""


_ASYNCHRONOUS: Final = (errors.TopicAuthorizationError, errors.InvalidTopicError, errors.UnknownTopicOrPartitionError)
"""Errors of a topic that librdkafka finds after ``produce`` has returned: they are reported, not raised."""


class Producer(_core.PollingProducer, TransactionalCalls):
    """A producer with confluent-kafka's methods.

    Theirs has no other attributes, and calls no method that a subclass can replace. So what is not theirs is named
    ``_shm_...``: names such as ``_poll`` or ``_producer`` are for subclasses.

    Args:
        config: librdkafka's settings. Our own, such as ``shmaccum.name``, can be among them.
        settings: further ones.

    Raises:
        KafkaException: a setting is unknown, refused or wrong, or the slab cannot be used.
        TypeError: there are no settings.
    """

    _shm_producer: SharedProducer | None = None
    """None before the constructor and after `close`."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        if (config is None and not settings) or not isinstance(config, Mapping | None):
            raise TypeError("expected configuration dict")
        with raising_kafka_exceptions():
            self._shm_translated: Translated = translate({**(config or {}), **settings})
            own = self._shm_translated.config
            timeout_s = own.delivery_timeout_ms / 1000
            self._shm_parking = Parking(self._shm_send, self._shm_is_accepted, self._shm_failed, timeout_s)
            self._shm_last_trouble: object = None
            self._shm_trouble_check = 0.0
            self._shm_is_transactional = bool(own.transactional_id)
            self._shm_producer = SharedProducer(own)
            self._shm_producer._records.counts_timeouts = False  # most are tried again: `_shm_parking`
            self._shm_open_path(
                _core.Reports(kafka_error, self._shm_translated.only_errors),
                self._shm_producer._records,
                self._shm_parking.topics,
                self._shm_translated.partitioner,
                self._shm_translated.on_delivery,
                header_list,
                self._shm_translated.max_messages,
            )
        _made.add(self)

    def __del__(self) -> None:
        """Drop the reports that were not asked for: the garbage collector does not see that they lead back here."""
        if self._shm_reports is not None:
            self._shm_reports.clear()

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def _shm_open(self) -> SharedProducer:
        producer = self._shm_producer  # another thread can close it
        if producer is None:
            raise RuntimeError("Producer has been closed")
        return producer

    # --- producing ----------------------------------------------------------------------------------

    def _shm_produce(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        callback: DeliveryCallback | None,
        timestamp: int = 0,
        headers: Any = None,
        transaction: Transaction | None = None,
    ) -> None:
        producer = self._shm_open()
        if self._shm_is_transactional and transaction is None:
            transaction = producer._records.transaction  # first: what follows can wait
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        key, value = as_bytes("key", key), as_bytes("value", value)
        partition = PARTITION_UA if partition is None else as_int("partition", partition)
        timestamp = as_int("timestamp", timestamp)
        headers = header_list(headers)
        if self._shm_reports.waiting >= self._shm_translated.max_messages:
            raise BufferError("Local: Queue full")
        message = Message(self._shm_reports, topic, key, value, headers, callback or self._shm_translated.on_delivery)
        try:
            self._shm_send_in_order(producer, Produced(message, partition, timestamp, transaction))
        except BaseException as error:
            self._shm_refused(message, partition, error)

    def _shm_number(self, topic: str, key: bytes | None, partition: int) -> int | None:
        """Return the partition to ask for; None for any one. Raises KafkaTimeoutError: the topic is not known yet."""
        partitioner = self._shm_translated.partitioner
        if partition < PARTITION_UA:
            raise errors.UnknownTopicOrPartitionError(f"{topic} has no partition {partition}")
        if partition != PARTITION_UA:
            return partition
        if not key and partitioner(key, 1) is None:
            return None
        return partitioner(key, len(self._shm_open().partitions_for(topic)))

    def _shm_send_in_order(self, producer: SharedProducer, message: Produced) -> None:
        """Send a message, behind those of its topic that wait; it waits, too, if its topic is not known soon."""
        topic = message.delivery.topic()
        if topic in self._shm_parking.topics:
            self._shm_parking.add(message)
            self._shm_parking.retry()
            return
        try:
            self._shm_send(message)
        except errors.KafkaTimeoutError as error:
            if not is_metadata_timeout(error) or self._shm_is_transactional:
                raise
            try:
                wait_for_topic(producer, topic, self._shm_translated.topic_wait_s)
            except errors.KafkaTimeoutError:
                self._shm_parking.add(message)
            else:
                self._shm_send(message)

    def _shm_send(self, message: Produced) -> None:
        """Send a message. Raises ShmaccumError: it is refused; by a KafkaTimeoutError, its topic is not known yet."""
        producer = self._shm_open()
        delivery, partition, timestamp, transaction = message
        topic, key = delivery.topic(), delivery.key()
        if not delivery.is_pending or delivery.future is not None:
            return  # it has been purged, or an interrupt came after it was accepted
        number = self._shm_number(topic, key, partition)
        delivery.thread = threading.get_ident()
        try:
            delivery.future = producer._records.send_in(
                transaction, topic, delivery.value(), key, delivery.headers(), number, timestamp or None, delivery
            )
        except errors.KafkaTimeoutError as error:
            if is_metadata_timeout(error) and number is not None and number not in producer.partitions_for(topic):
                raise errors.UnknownTopicOrPartitionError(f"{topic} has no partition {number}") from error
            raise

    def _shm_is_accepted(self, message: Produced) -> bool:
        """Return whether the slab has accepted a message, or it has been purged, after an interrupt of sending it."""
        callbacks = self._shm_open()._accumulator.pending.contributions.callbacks
        return not message.delivery.is_pending or message.delivery in callbacks.in_flight(self._shm_reports)

    def _shm_refused(self, message: Message, partition: int, error: BaseException) -> None:
        """Raise or report why a message was refused, as librdkafka does."""
        self._shm_count_refusal(message, error)
        is_unknown_partition = isinstance(error, errors.UnknownTopicOrPartitionError) and partition != PARTITION_UA
        if isinstance(error, _ASYNCHRONOUS) and not self._shm_is_transactional and not is_unknown_partition:
            message.report(kafka_error(error))
            return
        message.drop()
        if isinstance(error, errors.BufferExhaustedError):
            raise BufferError("Local: Queue full") from error
        if isinstance(error, errors.SerializationError):
            raise TypeError(str(error)) from error
        if is_unknown_partition:
            raise KafkaException(new_error("_UNKNOWN_PARTITION", f"Local: Unknown partition: {error}")) from error
        if not isinstance(error, errors.ShmaccumError):
            raise error
        with raising_kafka_exceptions():
            raise error

    def _shm_count_refusal(self, message: Message, error: BaseException) -> None:
        """Count a message that was not accepted in time; `send` counts those that fail at once."""
        if self._shm_producer is not None and isinstance(error, errors.KafkaTimeoutError):
            self._shm_producer._records.count_refusal(message.topic(), error)

    def _shm_failed(self, message: Produced, error: errors.ShmaccumError) -> None:
        """Report a message that was parked, and cannot be sent."""
        self._shm_count_refusal(message.delivery, error)
        if is_metadata_timeout(error):
            producer = self._shm_open()
            error = producer._destinations.timed_out(message.delivery.topic(), producer.config.delivery_timeout_ms)
            is_unknown = isinstance(error.__cause__, errors.UnknownTopicOrPartitionError)
            error = (errors.UnknownTopicOrPartitionError if is_unknown else errors.DeliveryTimeoutError)(str(error))
        if isinstance(error, errors.UnknownTopicOrPartitionError) and message.partition != PARTITION_UA:
            message.delivery.report(new_error("_UNKNOWN_PARTITION", f"Local: Unknown partition: {error}"))
        else:
            message.delivery.report(kafka_error(error))

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = PARTITION_UA,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Send several messages; return how many were accepted. The others get their KafkaError as ``_error``.

        A message is a dict with ``value``, ``key``, ``partition``, ``headers`` and ``callback``, all optional.

        Raises:
            TypeError: an argument or a message has the wrong type: then none is sent.
            NotImplementedError: a message has a ``timestamp``.
        """
        self._shm_open()
        check_batch(topic, messages, partition)
        accepted = 0
        for message in messages:
            try:
                self._shm_produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    message.get("callback") or on_delivery or callback,
                    headers=message.get("headers"),
                )
                accepted += 1
            except BufferError:
                message["_error"] = new_error("_QUEUE_FULL", "Local: Queue full")
            except KafkaException as error:
                message["_error"] = error.args[0]
        return accepted

    # --- reports ------------------------------------------------------------------------------------

    def _shm_poll(self, timeout: float | None) -> int:
        """Poll where there is more to do than to call callbacks: `poll`."""
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            remaining = _SLICE_S if deadline is None else deadline - time.monotonic()
            served = self._shm_serve(0.0)
            if served or remaining <= 0:
                return served
            with raising_kafka_exceptions():
                self._shm_open().poll(min(remaining, PAUSE_S if self._shm_parking else _SLICE_S))

    def flush(self, timeout: float | None = -1) -> int:
        """Send everything at once, and wait until all messages are reported, up to ``timeout`` s.

        Returns:
            How many are not reported.
        """
        return self._shm_flush(timeout)

    def _shm_flush(self, timeout: float | None) -> int:
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        self._shm_open()
        while True:
            remaining = _SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                with raising_kafka_exceptions():
                    self._shm_open().flush(min(remaining, _SLICE_S))
            except KafkaException as error:
                if not isinstance(error.__cause__, errors.KafkaTimeoutError):
                    raise
            self._shm_serve(0.0)
            left = Producer.__len__(self)
            if not left or remaining == 0:
                return left
            # Another thread can be between a completion and its report.
            self._shm_serve(min(remaining, PAUSE_S) if self._shm_parking else 0.001)

    def _shm_serve(self, timeout_s: float) -> int:
        producer = self._shm_open()
        if self._shm_parking.topics:
            self._shm_parking.retry()
        now = time.monotonic()
        if timeout_s or producer._accumulator.pending.contributions.has_news or now >= self._shm_next_look:
            self._shm_next_look = now + _LOOK_S
            with raising_kafka_exceptions():
                producer.poll(timeout_s)
        if self._shm_translated.error_cb is not None:
            self._shm_look_for_trouble(self._shm_translated.error_cb)
        return self._shm_reports.serve()

    def _shm_look_for_trouble(self, error_cb: Callable[..., Any]) -> None:
        """Call ``error_cb`` with a trouble of the sender that is new to this producer."""
        now = time.monotonic()
        if now < self._shm_trouble_check:
            return
        self._shm_trouble_check = now + _TROUBLE_CHECK_S
        current = self._shm_open().incidents.current()
        trouble = None if current is None else (current.error, current.text, current.first_ms)
        if current is not None and trouble != self._shm_last_trouble:
            self._shm_last_trouble = trouble
            error_cb(kafka_error(current.error(str(current))))

    def __len__(self) -> int:
        return 0 if self._shm_producer is None else self._shm_reports.waiting

    def __bool__(self) -> bool:
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Report messages as purged, in the next `poll` or `flush`.

        Args:
            in_queue: those that wait for their topic. They are not sent any more.
            in_flight: those that the slab has accepted, but only together with ``in_queue``, since some of them are not
                sent yet. They cannot be taken back and are still stored, as librdkafka's can be.
            blocking: has no effect.
        """
        callbacks = self._shm_open()._accumulator.pending.contributions.callbacks
        if in_queue:
            for parked in self._shm_parking.take():
                parked.delivery.report(new_error("_PURGE_QUEUE", "Local: Purged in queue"))
        if in_queue and in_flight:
            error = new_error("_PURGE_INFLIGHT", "Local: Purged in flight: the record can still be stored")
            for message in callbacks.in_flight(self._shm_reports):
                message.report(error)

    def close(self) -> bool:
        """Abort an open transaction, flush, run the callbacks, and leave the slab. Returns True."""
        producer = self._shm_producer
        if producer is not None:
            try:
                if producer.config.transactional_id:
                    with raising_kafka_exceptions():
                        producer.close()
                else:
                    self._shm_flush(None)
                    producer.close()
                self._shm_reports.serve()
            finally:
                producer.close(0)
                self._shm_producer = None
                self._shm_close_path()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        Producer.close(self)  # not a subclass's, as there

    # --- the cluster --------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Ask a broker for one topic, or all; the time limit is 60 s if ``timeout`` is negative.

        Raises KafkaException: no broker answered in time, or the cluster refuses us.
        """
        return self._shm_metadata(None if topic is None else [topic], timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id, with the arguments and errors of `list_topics`."""
        return self._shm_metadata([], timeout).cluster_id

    def _shm_metadata(self, topics: list[str] | None, timeout: float) -> ClusterMetadata:
        from shmaccum.compat.confluent.metadata import cluster_metadata  # with the protocol, which takes memory

        config = self._shm_open().config
        if config.transport != "kafka":
            raise KafkaException(new_error("_NOT_IMPLEMENTED", f"transport {config.transport} has no brokers to ask"))
        with raising_kafka_exceptions():
            return cluster_metadata(config, topics, 60.0 if timeout is None or timeout < 0 else timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refuse: the credentials belong to the slab, which other programs use, too."""
        raise KafkaException(
            new_error("_NOT_IMPLEMENTED", "the credentials belong to the slab: make a producer with the new ones")
        )


_made: weakref.WeakSet[Producer] = weakref.WeakSet()


def _forget_parents() -> None:
    """In a forked child: drop the parent's reports, as their futures are."""
    for producer in list(_made):
        producer._shm_reports.clear()
        producer._shm_parking.clear()


os.register_at_fork(after_in_child=_forget_parents)
