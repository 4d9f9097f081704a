"""The settings for all contestants, and each library's names for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MEBIBYTE = 1 << 20
SENDER_IDLE_MS = 100
"""Our sender must exit soon after a turn."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A producer's settings, by Kafka's names with underscores for dots. Sizes are bytes.

    The defaults are those of Kafka 4's own producer, which are also ours. ``buffer_memory`` bounds the records that are
    not acknowledged yet; kafka-python 3 and aiokafka have no such bound.
    """

    acks: str = "all"
    linger_ms: int = 5
    batch_size: int = 16 * 1024
    compression_type: str = "none"
    enable_idempotence: bool = True
    max_in_flight_requests_per_connection: int = 5
    buffer_memory: int = 32 * MEBIBYTE
    max_request_size: int = MEBIBYTE


def by_kafkas_names(settings: Settings) -> dict[str, Any]:
    """Return the settings by the names of Kafka's own producer and Spark's sink."""
    return {name.replace("_", "."): value for name, value in asdict(settings).items()}


def difference(settings: Settings) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by Kafka's names."""
    default = by_kafkas_names(Settings())
    return {name: value for name, value in by_kafkas_names(settings).items() if value != default[name]}


def for_shmaccum(settings: Settings, name: str) -> dict[str, Any]:
    return by_kafkas_names(settings) | {"shmaccum.name": name, "sender.idle.ms": SENDER_IDLE_MS}


def for_confluent(settings: Settings) -> dict[str, Any]:
    """Return the settings by librdkafka's names.

    Its bounds on *numbers* of records are lifted, because the others have none; keys are hashed with murmur2, as in all
    others.
    """
    shared = by_kafkas_names(settings)
    del shared["buffer.memory"], shared["max.request.size"]
    return shared | {
        "batch.num.messages": 1_000_000,
        "queue.buffering.max.kbytes": settings.buffer_memory // 1024,
        "queue.buffering.max.messages": 0,
        "message.max.bytes": settings.max_request_size,
        "partitioner": "murmur2_random",
        "log_level": 0,
    }


def for_kafka_python(settings: Settings) -> dict[str, Any]:
    named = asdict(settings)
    del named["buffer_memory"]
    return named | {"compression_type": None if settings.compression_type == "none" else settings.compression_type}


def for_aiokafka(settings: Settings) -> dict[str, Any]:
    """Return the settings by aiokafka's names; it has one request in flight per broker and no setting for that."""
    named = for_kafka_python(settings)
    del named["max_in_flight_requests_per_connection"]
    return named | {"max_batch_size": named.pop("batch_size")}
