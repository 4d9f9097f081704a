"""What the calls of confluent-kafka's ``Producer`` do, over the shared slab."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from shmaccum import _core, errors
from shmaccum._core import Message
from shmaccum.compat.confluent.arguments import DeliveryCallback, as_bytes, as_int, header_list
from shmaccum.compat.confluent.errors import KafkaException, kafka_error, new_error, raising_kafka_exceptions
from shmaccum.compat.confluent.parking import PAUSE_S, Parking, Produced
from shmaccum.compat.confluent.settings import Translated
from shmaccum.producer.destinations import is_metadata_timeout, wait_for_topic
from shmaccum.producer.producer import Producer

if TYPE_CHECKING:
    from shmaccum.compat.confluent.metadata import ClusterMetadata
    from shmaccum.compat.confluent.statistics import Statistics
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


class Calls(_core.PollingCalls):
    """The calls of one producer, in a separate object, so that subclasses of the producer can use any name.

    Attributes:
        producer: sends; None before `open` and after `close`.
        parking: the messages whose topics are not known yet.
        serializers: those that were built for a SerializingProducer, to be closed with it.
    """

    producer: Producer | None = None
    serializers: list[Any]
    _closer = 0
    """Thread that closes it: from then on, it alone can produce, in callbacks. Else `close` could wait forever."""

    def open(self, translated: Translated) -> None:
        """Take calls. Raises ShmaccumError: the slab cannot be used."""
        self._translated = translated
        own = translated.config
        timeout_s = own.delivery_timeout_ms / 1000
        self.parking = Parking(self._send, self._is_accepted, self._failed, timeout_s)
        self._last_trouble: object = None
        self._trouble_check = 0.0
        self._statistics: Statistics | None = None
        if translated.stats_cb is not None and translated.statistics_ms:
            from shmaccum.compat.confluent.statistics import Statistics  # with json, for those who ask for it

            self._statistics = Statistics(translated.statistics_ms)
        self._is_transactional = bool(own.transactional_id)
        self.producer = Producer(own)
        self.producer._records.counts_timeouts = False  # most are tried again: `parking`
        self._open_path(
            _core.Reports(kafka_error, translated.only_errors),
            self.producer._records,
            self.parking.topics,
            translated.partitioner,
            translated.on_delivery,
            header_list,
            translated.max_messages,
        )
        _made.add(self)

    def opened(self) -> Producer:
        """Return the open producer. Raises RuntimeError: it is closed."""
        producer = self.producer  # another thread can close it
        if producer is None:
            raise RuntimeError("Producer has been closed")
        return producer

    # --- producing ----------------------------------------------------------------------------------

    def produce(
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
        """Send a message, as `Producer.produce` of confluent-kafka does; in the open transaction, if none is given."""
        producer = self.opened()
        if self._closer not in (0, threading.get_ident()):
            raise RuntimeError("Producer has been closed")
        if self._is_transactional and transaction is None:
            transaction = producer._records.transaction  # first: what follows can wait
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        key, value = as_bytes("key", key), as_bytes("value", value)
        partition = PARTITION_UA if partition is None else as_int("partition", partition)
        timestamp = as_int("timestamp", timestamp)
        headers = header_list(headers)
        if self.reports.waiting >= self._translated.max_messages:
            raise BufferError("Local: Queue full")
        message = Message(self.reports, topic, key, value, headers, callback or self._translated.on_delivery)
        try:
            self._send_in_order(producer, Produced(message, partition, timestamp, transaction))
        except BaseException as error:
            self._refused(message, partition, error)

    def _number(self, topic: str, key: bytes | None, partition: int) -> int | None:
        """Return the partition to ask for; None for any one. Raises KafkaTimeoutError: the topic is not known yet."""
        partitioner = self._translated.partitioner
        if partition < PARTITION_UA:
            raise errors.UnknownTopicOrPartitionError(f"{topic} has no partition {partition}")
        if partition != PARTITION_UA:
            return partition
        if not key and partitioner(key, 1) is None:
            return None
        return partitioner(key, len(self.opened().partitions_for(topic)))

    def _send_in_order(self, producer: Producer, message: Produced) -> None:
        """Send a message, behind those of its topic that wait; it waits, too, if its topic is not known soon."""
        topic = message.delivery.topic()
        if topic in self.parking.topics:
            with self.parking.sending(message):
                self.parking.add(message)
            self.parking.retry()
            return
        with self.parking.sending(message):
            try:
                self._send(message)
            except errors.KafkaTimeoutError as error:
                if not is_metadata_timeout(error) or self._is_transactional:
                    raise
                try:
                    wait_for_topic(producer, topic, self._translated.topic_wait_s)
                except errors.KafkaTimeoutError:
                    self.parking.add(message)
                else:
                    self._send(message)

    def _send(self, message: Produced) -> None:
        """Send a message. Raises ShmaccumError: it is refused; by a KafkaTimeoutError, its topic is not known yet."""
        producer = self.opened()
        delivery, partition, timestamp, transaction = message
        topic, key = delivery.topic(), delivery.key()
        if not delivery.is_pending or delivery.future is not None:
            return  # it has been purged, or an interrupt came after it was accepted
        number = self._number(topic, key, partition)
        delivery.thread = threading.get_ident()
        try:
            delivery.future = producer._records.send_in(
                transaction, topic, delivery.value(), key, delivery.headers(), number, timestamp or None, delivery
            )
        except errors.KafkaTimeoutError as error:
            if is_metadata_timeout(error) and number is not None and number not in producer.partitions_for(topic):
                raise errors.UnknownTopicOrPartitionError(f"{topic} has no partition {number}") from error
            raise

    def _is_accepted(self, message: Produced) -> bool:
        """Return whether the slab has accepted a message, or it has been purged, after an interrupt of sending it."""
        callbacks = self.opened()._accumulator.pending.contributions.callbacks
        return not message.delivery.is_pending or message.delivery in callbacks.in_flight(self.reports)

    def _refused(self, message: Message, partition: int, error: BaseException) -> None:
        """Raise or report why a message was refused, as librdkafka does."""
        self._count_refusal(message, error)
        is_unknown_partition = isinstance(error, errors.UnknownTopicOrPartitionError) and partition != PARTITION_UA
        if isinstance(error, _ASYNCHRONOUS) and not self._is_transactional and not is_unknown_partition:
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

    def _count_refusal(self, message: Message, error: BaseException) -> None:
        """Count a message that was not accepted in time; `send` counts those that fail at once."""
        if self.producer is not None and isinstance(error, errors.KafkaTimeoutError):
            self.producer._records.count_refusal(message.topic(), error)

    def _failed(self, message: Produced, error: errors.ShmaccumError) -> None:
        """Report a message that was parked, and cannot be sent."""
        self._count_refusal(message.delivery, error)
        if is_metadata_timeout(error):
            producer = self.opened()
            error = producer._destinations.timed_out(message.delivery.topic(), producer.config.delivery_timeout_ms)
            is_unknown = isinstance(error.__cause__, errors.UnknownTopicOrPartitionError)
            error = (errors.UnknownTopicOrPartitionError if is_unknown else errors.DeliveryTimeoutError)(str(error))
        if isinstance(error, errors.UnknownTopicOrPartitionError) and message.partition != PARTITION_UA:
            message.delivery.report(new_error("_UNKNOWN_PARTITION", f"Local: Unknown partition: {error}"))
        else:
            message.delivery.report(kafka_error(error))

    # --- reports ------------------------------------------------------------------------------------

    def unreported(self) -> int:
        """Return the number of messages that are not reported."""
        return 0 if self.producer is None else self.reports.waiting

    def _poll(self, timeout: float | None) -> int:
        """Poll where there is more to do than to call callbacks."""
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            remaining = _SLICE_S if deadline is None else deadline - time.monotonic()
            served = self.serve(0.0)
            if served or remaining <= 0:
                return served
            with raising_kafka_exceptions():
                self.opened().poll(min(remaining, PAUSE_S if self.parking else _SLICE_S))

    def flush(self, timeout: float | None) -> int:
        """Wait until all messages are reported, up to ``timeout`` s; return how many are not."""
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        self.opened()
        while True:
            remaining = _SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            self.parking.retry(flushes=True)
            try:
                with raising_kafka_exceptions():
                    self.opened().flush(min(remaining, _SLICE_S))
            except KafkaException as error:
                if not isinstance(error.__cause__, errors.KafkaTimeoutError):
                    raise
            self.serve(0.0)
            left = self.unreported()
            if left <= self.parking.interrupted() or remaining == 0:
                return left
            # Another thread can be between a completion and its report.
            self.serve(min(remaining, PAUSE_S) if self.parking else 0.001)

    def serve(self, timeout_s: float) -> int:
        """Send parked messages whose topics are known by now, and run callbacks; return how many were reported."""
        producer = self.opened()
        if self.parking.topics:
            self.parking.retry()
        now = time.monotonic()
        if timeout_s or producer._accumulator.pending.contributions.has_news or now >= self.next_look:
            self.next_look = now + _LOOK_S
            with raising_kafka_exceptions():
                producer.poll(timeout_s)
        if self._translated.error_cb is not None:
            self._look_for_trouble(self._translated.error_cb)
        if self._statistics is not None and self._translated.stats_cb is not None:
            with raising_kafka_exceptions():
                document = self._statistics.due(producer, self.reports.waiting, self._translated.max_messages)
            if document:
                self._translated.stats_cb(document)
        return self.reports.serve()

    def _look_for_trouble(self, error_cb: Callable[..., Any]) -> None:
        """Call ``error_cb`` with a trouble of the sender that is new to this producer."""
        now = time.monotonic()
        if now < self._trouble_check:
            return
        self._trouble_check = now + _TROUBLE_CHECK_S
        with raising_kafka_exceptions():
            current = self.opened().incidents.current()
        trouble = None if current is None else (current.error, current.text, current.first_ms)
        if current is not None and trouble != self._last_trouble:
            self._last_trouble = trouble
            error_cb(kafka_error(current.error(str(current))))

    def purge(self, in_queue: bool, in_flight: bool) -> None:
        """Report messages as purged."""
        callbacks = self.opened()._accumulator.pending.contributions.callbacks
        if in_queue:
            for parked in self.parking.take():
                parked.delivery.report(new_error("_PURGE_QUEUE", "Local: Purged in queue"))
        if in_queue and in_flight:
            error = new_error("_PURGE_INFLIGHT", "Local: Purged in flight: the record can still be stored")
            for message in callbacks.in_flight(self.reports):
                message.report(error)

    def close(self) -> None:
        """Abort an open transaction, flush, run the callbacks, and leave the slab; or wait until another thread has."""
        while self._closer not in (0, threading.get_ident()) and self.producer is not None:
            time.sleep(PAUSE_S)
        producer = self.producer
        if producer is not None:
            self._closer = threading.get_ident()
            self._close_path()
            try:
                if producer.config.transactional_id:
                    with raising_kafka_exceptions():
                        producer.close()
                else:
                    self.flush(None)
                    producer.close()
                self.reports.serve()
            except RuntimeError:
                if self.producer is not None:  # else a signal's handler has closed it meanwhile
                    raise
                self.reports.serve()  # of the message that was under way when the handler came
            finally:
                try:
                    producer.close(0)
                finally:
                    self.producer = None

    def metadata(self, topics: list[str] | None, timeout: float | None) -> ClusterMetadata:
        """Ask a broker for topics, None for all; the time limit is 60 s if ``timeout`` is none, or negative."""
        from shmaccum.compat.confluent.metadata import cluster_metadata  # with the protocol, which takes memory

        config = self.opened().config
        if config.transport != "kafka":
            raise KafkaException(new_error("_NOT_IMPLEMENTED", f"transport {config.transport} has no brokers to ask"))
        with raising_kafka_exceptions():
            return cluster_metadata(config, topics, 60.0 if timeout is None or timeout < 0 else timeout)


_made: weakref.WeakSet[Calls] = weakref.WeakSet()


def _forget_parents() -> None:
    """In a forked child: drop the parent's reports, as their futures are; no thread of it closes a producer."""
    for calls in list(_made):
        calls._closer = 0
        calls.reports.clear()
        calls.parking.clear()


os.register_at_fork(after_in_child=_forget_parents)
