"""Interceptors: user code that sees each record and its outcome (KIP-42)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import IllegalStateError, ShmaccumError
from shmaccum.record.fields import Headers

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ProducerRecord:
    """A record as the user gave it (``org.apache.kafka.clients.producer.ProducerRecord``)."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Base of interceptors; any class with these methods works as well (``ProducerInterceptor``).

    They run in the process that sends. An exception that one raises is logged and has no other effect.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead; called before serializers and partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Observe a record that is acknowledged or has failed.

        Called once for each record that `on_send` has seen, including one that `Producer.send` refuses, and one whose
        `AsyncProducer.send` was cancelled, with a KafkaError.

        A method with a parameter ``headers`` also gets the record's headers, as the interceptors left them (KIP-512).
        By them it can recognize the record that it saw in `on_send`.

        Args:
            metadata: where the record was stored. After an error only the topic is certain: the partition is -1 unless
                the record named one, and all other fields are -1.
            error: why the record failed; None if it is acknowledged.
        """

    def close(self) -> None:
        """Release resources: the producer is closed, or its constructor failed."""


class Interceptors:
    """The interceptors of one producer, in order.

    If the constructor of one raises, those made before it are closed.
    """

    def __init__(self, classes: Iterable[Callable[..., Any]]) -> None:
        self._interceptors: list[Any] = []
        self._with_headers: list[bool] = []
        """For each, whether its ``on_acknowledgement`` takes the headers."""
        try:
            for kind in classes:
                self._interceptors.append(kind())
                self._with_headers.append(_takes_headers(self._interceptors[-1]))
        except BaseException:
            self.close()
            raise
        self._keeps_headers = any(self._with_headers)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all of them. Raises IllegalStateError: one of them returned None."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
            except Exception:
                logger.exception("%r raised in on_send; sending the record unchanged by it", interceptor)
                continue
            if changed is None:
                raise IllegalStateError(
                    f"{type(interceptor).__name__}.on_send returned None for a record of topic {record.topic!r}: "
                    "it must return the record to send"
                )
            record = changed
        return record

    def acknowledging(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> DeliveryCallback:
        """Return a callback that calls all interceptors, and then the user's callback."""
        refused = _refused(record.topic, record.partition)  # keeping the record itself would hold its memory too long
        headers = record.headers if self._keeps_headers else None

        def acknowledged(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            self._on_acknowledgement(refused if metadata is None else metadata, error, headers)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return acknowledged

    def on_send_error(self, topic: str, partition: int | None, error: Exception, headers: Headers | None) -> None:
        """Notify all interceptors of a record that `Producer.send` refuses (``ProducerInterceptors.onSendError``)."""
        self._on_acknowledgement(_refused(topic, partition), error, headers)

    def _on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers | None) -> None:
        for interceptor, with_headers in zip(self._interceptors, self._with_headers, strict=True):
            try:
                if with_headers:
                    interceptor.on_acknowledgement(metadata, error, headers=() if headers is None else headers)
                else:
                    interceptor.on_acknowledgement(metadata, error)
            except Exception:
                logger.exception("%r raised in on_acknowledgement", interceptor)

    def close(self) -> None:
        """Close all of them."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                logger.exception("%r raised in close", interceptor)


def _takes_headers(interceptor: Any) -> bool:
    try:
        return "headers" in inspect.signature(interceptor.on_acknowledgement).parameters
    except (AttributeError, TypeError, ValueError):  # its first call logs what is wrong, or it has no signature
        return False


def _refused(topic: str, partition: int | None) -> RecordMetadata:
    """Return the metadata of a record that is not stored."""
    return RecordMetadata(topic, -1 if partition is None else partition, -1, -1)
