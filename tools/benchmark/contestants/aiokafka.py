"""aiokafka: pure Python with parts in Cython, for asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer

from tools.benchmark.load import Load
from tools.benchmark.settings import Settings, for_aiokafka


class AiokafkaClient:
    """Awaits `send` for every record, in an event loop with nothing else to do."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._runner = asyncio.Runner()
        self._producer: Any = self._runner.run(_started(servers, settings))

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them (`Client`)."""
        acknowledged: int | None = self._runner.run(self._send(load))
        return acknowledged

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
        """Close it."""
        self._runner.run(self._producer.stop())
        self._runner.close()


async def _started(servers: str, settings: Settings) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=servers, **for_aiokafka(settings))
    await producer.start()
    return producer
