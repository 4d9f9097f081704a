"""Measures sending ready-made batches to a broker: our transport against other client libraries.

Run ``python -m tools.bench_transport HOST:PORT [--partitions 4] [--requests 2000]``.

It sends requests with one 16 KiB batch for each partition of a topic, up to five in flight. It reports processor time
(user and system) per batch. It creates the topic if it is missing, and leaves it. The libraries send what their own
clients send, copies included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest as AioProduceRequest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.producer import ProduceRequest

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import record_format
from shmaccum.sender.kafka.kafka_transport import KafkaTransport

BATCH_SIZE: Final = 16 * 1024
IN_FLIGHT: Final = 5
TIMEOUT_MS: Final = 30_000


def make_batch() -> memoryview:
    """Return a sealed batch with as many records as fit `BATCH_SIZE`."""
    form = record_format(2)
    body = form.encode_body(b"key", bytes(100), ())
    records: list[bytes] = []
    size = form.header_size
    while size + len(record := form.encode_record(len(records), 1000, 1000, body)) <= BATCH_SIZE:
        records.append(record)
        size += len(record)
    return form.seal(
        memoryview(bytearray(form.header_size) + b"".join(records)),
        record_count=len(records),
        base_timestamp=1000,
        max_timestamp=1000,
        compression=CompressionType.NONE,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


class Load:
    """The requests of a measurement."""

    def __init__(self, servers: str, topic: str, partitions: int, requests: int) -> None:
        self.servers = servers
        self.topic = topic
        self.partitions = range(partitions)
        self.requests = requests
        self.payload = make_batch()

    def measure(self, name: str, send_all: Callable[[], None]) -> None:
        """Print the cost of sending all of it."""
        before, begun = os.times(), time.perf_counter()
        send_all()
        after, batches = os.times(), self.requests * len(self.partitions)
        user, system, wall = after.user - before.user, after.system - before.system, time.perf_counter() - begun
        each = [f"{seconds / batches * 1e6:6.1f}" for seconds in (user + system, user, system, wall)]
        print(f"{name:12} {each[0]} µs a batch: {each[1]} user, {each[2]} system; {each[3]} µs of wall time")


def check(stored: bool) -> None:
    """Exit if something was not stored: the measurement is then meaningless."""
    if not stored:
        raise SystemExit("the broker did not store everything")


def ours(load: Load) -> None:
    settings = {"bootstrap.servers": load.servers, "shmaccum.name": "bench", "enable.idempotence": False}
    transport = KafkaTransport(ProducerConfig.parse(settings))
    transport.start()
    first = TopicPartition(load.topic, 0)
    transport.request_update([load.topic])
    while (node := transport.cluster().leader_for(first)) is None or not transport.ready(node, _now_ms()):
        transport.poll(100, -1)
    batches = [
        ProduceBatch(TopicPartition(load.topic, partition), (load.payload,), 1, 2, -1, -1, -1, 1000, partition)
        for partition in load.partitions
    ]

    def send(requests: int) -> set[type[KafkaError]]:
        errors = set()
        sent = answered = 0
        while answered < requests * len(batches):
            while sent < requests and transport.ready(node, _now_ms()):
                transport.send(node, batches, _now_ms())
                sent += 1
            answers = transport.poll(1000, -1)
            errors |= {answer.error for answer in answers if answer.error is not None}
            answered += len(answers)
        return errors

    while send(1):  # the leader of a topic learns of it shortly after its creation
        time.sleep(0.1)
    load.measure("shmaccum", lambda: check(not send(load.requests)))
    transport.close()


def kafka_python(load: Load) -> None:
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, bootstrap_servers=load.servers)
    manager.bootstrap()
    # It cannot negotiate versions with librdkafka's mock, so it only works with Apache Kafka.
    connection = manager.get_connection(manager.cluster.brokers()[0].node_id)
    net.poll(future=connection.init_future)
    Topic = ProduceRequest.TopicProduceData
    payload = bytes(load.payload)
    answered: list[Any] = []

    def send() -> None:
        data = [Topic.PartitionProduceData(index=partition, records=payload) for partition in load.partitions]
        request = ProduceRequest(
            max_version=12, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[Topic(name=load.topic, partition_data=data)]
        )
        connection.send_request(request).add_both(answered.append)

    def send_all() -> None:
        sent = 0
        while len(answered) < load.requests:
            while sent < load.requests and sent - len(answered) < IN_FLIGHT and not connection.paused:
                send()
                sent += 1
            net.poll(1000)

    load.measure("kafka-python", send_all)
    errors = [
        part.error_code for answer in answered for topic in answer.responses for part in topic.partition_responses
    ]
    assert not any(errors)
    manager.close()


def aiokafka(load: Load) -> None:
    async def connect() -> tuple[AIOKafkaClient, Any]:
        client = AIOKafkaClient(bootstrap_servers=load.servers)
        await client.bootstrap()
        return client, client.get_random_node()

    payload = bytes(load.payload)

    async def send_all(client: AIOKafkaClient, node: Any) -> None:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def send() -> None:
            async with limit:
                data = [(load.topic, [(partition, payload) for partition in load.partitions])]
                answer = await client.send(node, AioProduceRequest(None, -1, TIMEOUT_MS, data))
            check(all(part[1] == 0 for _, parts in answer.topics for part in parts))

        await asyncio.gather(*(send() for _ in range(load.requests)))

    with asyncio.Runner() as runner:
        client, node = runner.run(connect())
        load.measure("aiokafka", lambda: runner.run(send_all(client, node)))
        runner.run(client.close())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_transport",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("servers", metavar="HOST:PORT", help="of a cluster of one broker")
    parser.add_argument("--partitions", type=int, default=4, help="batches in a request")
    parser.add_argument("--requests", type=int, default=2000)
    arguments = parser.parse_args()
    topic = f"bench-transport-{arguments.partitions}"
    admin = AdminClient({"bootstrap.servers": arguments.servers})
    made = admin.create_topics([NewTopic(topic, arguments.partitions)])
    with suppress(TimeoutError):  # librdkafka's mock creates topics on its own, with four partitions
        made[topic].exception(5)  # the topic can exist already
    load = Load(arguments.servers, topic, arguments.partitions, arguments.requests)
    for client in (ours, kafka_python, aiokafka):
        client(load)


if __name__ == "__main__":
    main()
