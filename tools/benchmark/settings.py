"""The settings that are the same for all contestants, and what each of them calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MEBIBYTE = 1 << 20
SENDER_IDLE_MS = 100
"""Our sender is to be gone soon after a turn."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a producer is told. Sizes are bytes.

    The defaults are those of Kafka 4's own producer, which are also ours. ``buffer_memory`` bounds what is not
    acknowledged yet; kafka-python 3 and aiokafka have no such bound.
    """

    acks: str = "all"
    linger_ms: int = 5
    batch_size: int = 16 * 1024
    compression: str = "none"
    idempotence: bool = True
    in_flight: int = 5
    buffer_memory: int = 32 * MEBIBYTE
    max_request_size: int = MEBIBYTE


def by_kafkas_names(settings: Settings) -> dict[str, Any]:
    """Return the settings as Kafka's own producer and Spark's sink call them."""
    return {
        "acks": settings.acks,
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_size,
        "compression.type": settings.compression,
        "enable.idempotence": settings.idempotence,
        "max.in.flight.requests.per.connection": settings.in_flight,
        "buffer.memory": settings.buffer_memory,
        "max.request.size": settings.max_request_size,
    }


def for_shmaccum(settings: Settings, name: str) -> dict[str, Any]:
    """Return the settings as shmaccum calls them, with a slab of this name."""
    return by_kafkas_names(settings) | {"shmaccum.name": name, "sender.idle.ms": SENDER_IDLE_MS}


def for_confluent(settings: Settings) -> dict[str, Any]:
    """Return the settings as librdkafka calls them.

    Its bounds on *numbers* of records are lifted, since the others have none; keys are hashed by murmur2, as all others
    do it.
    """
    return {
        "acks": settings.acks,
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_size,
        "batch.num.messages": 1_000_000,
        "compression.type": settings.compression,
        "enable.idempotence": settings.idempotence,
        "max.in.flight.requests.per.connection": settings.in_flight,
        "queue.buffering.max.kbytes": settings.buffer_memory // 1024,
        "queue.buffering.max.messages": 0,
        "message.max.bytes": settings.max_request_size,
        "partitioner": "murmur2_random",
        "log_level": 0,
    }


def for_kafka_python(settings: Settings) -> dict[str, Any]:
    """Return the settings as kafka-python calls them."""
    return {
        "acks": settings.acks,
        "linger_ms": settings.linger_ms,
        "batch_size": settings.batch_size,
        "compression_type": None if settings.compression == "none" else settings.compression,
        "enable_idempotence": settings.idempotence,
        "max_in_flight_requests_per_connection": settings.in_flight,
        "max_request_size": settings.max_request_size,
    }


def for_aiokafka(settings: Settings) -> dict[str, Any]:
    """Return the settings as aiokafka calls them; it has one request in flight for a broker and no setting for that."""
    return {
        "acks": settings.acks,
        "linger_ms": settings.linger_ms,
        "max_batch_size": settings.batch_size,
        "compression_type": None if settings.compression == "none" else settings.compression,
        "enable_idempotence": settings.idempotence,
        "max_request_size": settings.max_request_size,
    }


def difference(settings: Settings) -> dict[str, Any]:
    """Return what is not as by default, by Kafka's names."""
    default = by_kafkas_names(Settings())
    return {name: value for name, value in by_kafkas_names(settings).items() if value != default[name]}
