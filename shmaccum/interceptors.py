"""Interceptors: user code that sees every record before it is sent, and every acknowledgement (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shmaccum.accumulator.futures import DeliveryCallback
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import ShmaccumError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ProducerRecord:
    """A record as the user gave it (``org.apache.kafka.clients.producer.ProducerRecord``)."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Base of interceptors; a class with these methods will do as well (``ProducerInterceptor``).

    Both run in the process that sends. What they raise is logged, and changes nothing.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead; called before serializers and partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ShmaccumError | None) -> None:
        """Take note of a record that is acknowledged (metadata) or given up (error)."""

    def close(self) -> None:
        """Let go of everything; the producer is closed."""


class Interceptors:
    """The interceptors of one producer, in order."""

    def __init__(self, classes: Iterable[Callable[..., Any]]) -> None:
        self._interceptors = [kind() for kind in classes]

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all of them."""
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                logger.exception("%r raised in on_send; going on with the record as it was", interceptor)
        return record

    def acknowledging(self, on_delivery: DeliveryCallback | None) -> DeliveryCallback:
        """Return a callback that tells all of them, and then the user's."""

        def acknowledged(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            for interceptor in self._interceptors:
                try:
                    interceptor.on_acknowledgement(metadata, error)
                except Exception:
                    logger.exception("%r raised in on_acknowledgement", interceptor)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return acknowledged

    def close(self) -> None:
        """Close all of them."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                logger.exception("%r raised in close", interceptor)
