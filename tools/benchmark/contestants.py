"""The measured producers, each used as its documentation advises.

Each imports its library when it is created: the tool forks the contestants, so it must have no producer and no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tools.benchmark.load import Load
from tools.benchmark.settings import Settings, for_aiokafka, for_confluent, for_kafka_python, for_shmaccum

OURS: Final = "shmaccum"
OUR_COLUMNS: Final = "shmaccum send_batch"
OUR_ASYNC: Final = "shmaccum AsyncProducer"
CONFLUENT: Final = "confluent-kafka"
CONFLUENT_DEFAULTS: Final = f"{CONFLUENT}, its own defaults"
KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"
JVM: Final = "Kafka's producer in a JVM"
"""A process of its own kind: `tools.benchmark.cases.jvm`."""
PEERS: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)

Told = Callable[[bool], None]
"""Called when a record's result is known, with whether it was acknowledged."""

_ANY_PARTITION: Final = -1
_POLL_EVERY: Final = 1000
"""Records between polls; without polling, delivered records continue to count against librdkafka's limit."""
_FULL_QUEUE_WAIT_S: Final = 0.01


class Client:
    """A producer. Not each reports on single records, by `send_one` and `poll`."""

    _producer: Any

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them; return how many were acknowledged, None if the load does not ask."""
        send, topic = self._producer.send, load.topic
        if load.keep:
            futures = [send(topic, value, key, None, partition) for value, key, partition in load.calls()]
            self._producer.flush()
            return sum(1 for future in futures if future.succeeded())
        for value, key, partition in load.calls():
            send(topic, value, key, None, partition)
        self._producer.flush()
        return None

    def send_one(self, topic: str, value: bytes, told: Told) -> None:
        """Send a record; `poll` calls ``told``."""
        raise NotImplementedError

    def poll(self, timeout_s: float) -> None:
        """Wait for a record's result, at most this long."""
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        """Wait for the results of all records."""
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class Records(Client):
    """shmaccum, record by record."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        from shmaccum import Producer

        self._producer = Producer({"bootstrap.servers": servers} | for_shmaccum(settings, name))

    def send_one(self, topic: str, value: bytes, told: Told) -> None:
        self._producer.send(topic, value, on_delivery=lambda error, _: told(error is None))


class Columns(Records):
    """shmaccum, an Arrow batch at a time."""

    def send(self, load: Load) -> int | None:
        futures = [(self._producer.send_batch(load.topic, batch), batch.num_rows) for batch in load.batches]
        self._producer.flush()
        acknowledged: int = sum(rows for future, rows in futures if future.is_done and future.exception() is None)
        return acknowledged


class KafkaPython(Client):
    """kafka-python: pure Python, with a thread of its own."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(bootstrap_servers=servers, **for_kafka_python(settings))


class Confluent(Client):
    """confluent-kafka: librdkafka behind a C extension, polled for delivery reports periodically."""

    def __init__(
        self,
        servers: str,
        settings: Settings,
        name: str,
        configure: Callable[[Settings], dict[str, Any]] = for_confluent,
    ) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": servers} | configure(settings))

    def send(self, load: Load) -> int | None:
        acknowledged = 0

        def count(error: object, _: object) -> None:
            nonlocal acknowledged
            acknowledged += error is None

        produce, poll, topic = self._producer.produce, self._producer.poll, load.topic
        on_delivery = count if load.keep else None
        until_poll = _POLL_EVERY
        for value, key, partition in load.calls(_ANY_PARTITION):
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery)
                    break
                except BufferError:
                    poll(_FULL_QUEUE_WAIT_S)
            until_poll -= 1
            if not until_poll:
                poll(0)
                until_poll = _POLL_EVERY
        self._producer.flush()
        return acknowledged if load.keep else None

    def send_one(self, topic: str, value: bytes, told: Told) -> None:
        self._producer.produce(topic, value, on_delivery=lambda error, _: told(error is None))

    def close(self) -> None:
        """Deliver what is left: there is no close."""
        self._producer.flush()


class Async(Client):
    """shmaccum's `AsyncProducer`, awaited for every record, in an event loop with nothing else to do."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        from shmaccum import AsyncProducer

        self._runner = asyncio.Runner()
        self._producer = AsyncProducer({"bootstrap.servers": servers} | for_shmaccum(settings, name))
        self._runner.run(self._producer.start())

    def send(self, load: Load) -> int | None:
        return self._runner.run(self._send(load))

    async def _send(self, load: Load) -> int | None:
        send, topic = self._producer.send, load.topic
        if load.keep:
            futures = [await send(topic, value, key, None, partition) for value, key, partition in load.calls()]
            await self._producer.flush()
            return sum(1 for future in futures if future.succeeded())
        for value, key, partition in load.calls():
            await send(topic, value, key, None, partition)
        await self._producer.flush()
        return None

    def close(self) -> None:
        self._runner.run(self._producer.close())
        self._runner.close()


class Aiokafka(Async):
    """aiokafka: pure Python with parts in Cython, used likewise."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(servers, settings))

    async def _start(self, servers: str, settings: Settings) -> None:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(bootstrap_servers=servers, **for_aiokafka(settings))
        await self._producer.start()

    async def _send(self, load: Load) -> int | None:
        send, topic = self._producer.send, load.topic
        if load.keep:
            futures = [await send(topic, value, key, partition) for value, key, partition in load.calls()]
            await self._producer.flush()
            return sum(1 for future in futures if future.done() and future.exception() is None)
        for value, key, partition in load.calls():
            await send(topic, value, key, partition)
        await self._producer.flush()
        return None

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


CLIENTS: Final[Mapping[str, Callable[[str, Settings, str], Client]]] = {
    OURS: Records,
    OUR_COLUMNS: Columns,
    OUR_ASYNC: Async,
    CONFLUENT: Confluent,
    # With librdkafka's own settings, such as batches of up to 1 MB and no idempotence, but silent.
    CONFLUENT_DEFAULTS: partial(Confluent, configure=lambda _: {"log_level": 0}),
    KAFKA_PYTHON: KafkaPython,
    AIOKAFKA: Aiokafka,
}
"""What makes a client of ``bootstrap.servers``, settings, and a name that all producers of a turn have: our slab's."""
