"""AsyncProducer with Apache Kafka."""

from __future__ import annotations

import asyncio

import uvloop
from brokers import consume_values
from fixture_types import Settings
from producers import kill_sender, wait_until_gone

from shmaccum import AsyncProducer
from tools.kafka import KafkaCluster


def test_two_loops_and_a_killed_sender_store_each_record_once(
    kafka: KafkaCluster, kafka_settings: Settings, slab_name: str, topic: str
) -> None:
    """In several loops, and over the death of the sender while acknowledgements are awaited."""
    kafka.admin.create_topic(topic)
    settings = kafka_settings(bootstrap_servers=kafka.bootstrap_servers, linger_ms=1)

    async def main(prefix: bytes) -> None:
        async with AsyncProducer(settings) as producer:
            futures = [await producer.send(topic, prefix + b"%d" % number) for number in range(100)]
            awaited = asyncio.gather(*futures)
            kill_sender(producer._producer)
            offsets = [metadata.offset for metadata in await awaited]
            assert len(set(offsets)) == 100
            assert (await producer.send_and_wait(topic, prefix + b"last", headers=[("a", b"b")])).offset >= 100

    asyncio.run(asyncio.wait_for(main(b"asyncio "), 60))
    uvloop.run(asyncio.wait_for(main(b"uvloop "), 60))
    found = [
        value
        for values in consume_values({"bootstrap.servers": kafka.bootstrap_servers}, topic).values()
        for value in values
    ]
    for prefix in (b"asyncio ", b"uvloop "):
        mine = [value for value in found if value and value.startswith(prefix)]
        assert mine == [*(prefix + b"%d" % number for number in range(100)), prefix + b"last"]
    wait_until_gone(slab_name)
