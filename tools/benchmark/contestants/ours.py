"""shmaccum: record by record, in an event loop too, and column by column."""

from __future__ import annotations

import asyncio

from shmaccum import AsyncProducer, Producer
from tools.benchmark.contestants.base import Told
from tools.benchmark.load import Load
from tools.benchmark.settings import Settings, for_shmaccum


class RecordsClient:
    """Calls `Producer.send` for every record."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers} | for_shmaccum(settings, name))

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them (`Client`)."""
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
        """Send a record (`PacedClient`)."""
        self._producer.send(topic, value, on_delivery=lambda error, _: told(error is None))

    def poll(self, timeout_s: float) -> None:
        """Wait for a record's result."""
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        """Wait for the results of all records."""
        self._producer.flush()

    def close(self) -> None:
        """Close it."""
        self._producer.close()


class AsyncClient:
    """Awaits `AsyncProducer.send` for every record, in an event loop with nothing else to do."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._runner = asyncio.Runner()
        self._producer = AsyncProducer({"bootstrap.servers": servers} | for_shmaccum(settings, name))
        self._runner.run(self._producer.start())

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them (`Client`)."""
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
        """Close it."""
        self._runner.run(self._producer.close())
        self._runner.close()


class ColumnsClient:
    """Calls `Producer.send_batch` for every Arrow batch."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers} | for_shmaccum(settings, name))

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them (`Client`)."""
        futures = [(self._producer.send_batch(load.topic, batch), batch.num_rows) for batch in load.batches]
        self._producer.flush()
        acknowledged: int = sum(rows for future, rows in futures if future.is_done and future.exception() is None)
        return acknowledged

    def close(self) -> None:
        """Close it."""
        self._producer.close()
