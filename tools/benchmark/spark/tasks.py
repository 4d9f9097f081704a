"""Peers' code in Spark's Python workers, as a user writes it for `foreachPartition`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

_POLL_EVERY: Final = 1000
_FULL_QUEUE_WAIT_S: Final = 0.01

_kept: dict[str, Any] = {}
"""Servers -> the producer that this worker keeps, if any."""


def by_confluent(kept: bool, settings: Mapping[str, Any], topic: str, rows: Iterable[Any]) -> None:
    """Send rows with confluent-kafka, by a producer for this task only, or one that the worker keeps between tasks."""
    from confluent_kafka import Producer

    servers = settings["bootstrap.servers"]
    producer = _kept.get(servers) if kept else None
    if producer is None:
        producer = Producer(dict(settings))
    if kept:
        _kept[servers] = producer
    failed = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    until_poll = _POLL_EVERY
    for row in rows:
        while True:
            try:
                producer.produce(topic, row.value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(_FULL_QUEUE_WAIT_S)
        until_poll -= 1
        if not until_poll:
            producer.poll(0)
            until_poll = _POLL_EVERY
    producer.flush()
    if failed:
        raise RuntimeError(f"{len(failed)} rows were not delivered: {failed[0]}")


def by_kafka_python(settings: Mapping[str, Any], topic: str, rows: Iterable[Any]) -> None:
    """Send rows with kafka-python and a producer for this task only."""
    from kafka import KafkaProducer

    failed: list[BaseException] = []
    producer = KafkaProducer(**settings)
    for row in rows:
        producer.send(topic, row.value.encode()).add_errback(failed.append)
    producer.close()
    if failed:
        raise RuntimeError(f"{len(failed)} rows were not delivered: {failed[0]}")


def look_at(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Discard Arrow batches, to measure their transfer alone."""
    for _ in batches:
        pass
    yield from ()
