"""Sending ready-made batches to a broker: our transport against other client libraries.

Each sends requests with one 16 KiB batch for each partition of a topic, up to five in flight. The libraries send what
their own clients send, copies included.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest as AioProduceRequest
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.producer import ProduceRequest

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.sender.kafka.kafka_transport import KafkaTransport
from tools.bench.harness import Figures, apart, broker, compared, print_table, take_turns, used_by
from tools.benchmark.cases.limits import full_batch
from tools.support.own_slab import now_ms

_TOPIC: Final = "bench-transport"
IN_FLIGHT: Final = 5
TIMEOUT_MS: Final = 30_000


class Load:
    """The requests of a measurement."""

    def __init__(self, servers: str, partitions: int, requests: int) -> None:
        self.servers = servers
        self.partitions = range(partitions)
        self.requests = requests
        self.payload = full_batch()

    def measure(self, send_all: Callable[[], None]) -> Figures:
        """Return the microseconds of a batch that sending all of it takes."""
        wall, user, system = used_by(send_all)
        seconds = {"CPU": user + system, "user": user, "system": system, "wall": wall}
        batches = self.requests * len(self.partitions)
        return {column: each / batches * 1e6 for column, each in seconds.items()}


def check(stored: bool) -> None:
    """Exit if something was not stored: the measurement is then meaningless."""
    if not stored:
        raise SystemExit("the broker did not store everything")


def ours(load: Load) -> Figures:
    settings = {"bootstrap.servers": load.servers, "shmaccum.name": "bench", "enable.idempotence": False}
    transport = KafkaTransport(ProducerConfig.parse(settings))
    transport.start()
    first = TopicPartition(_TOPIC, 0)
    transport.request_update([_TOPIC])
    while (node := transport.cluster().leader_for(first)) is None or not transport.ready(node, now_ms()):
        transport.poll(100, -1)
    batches = [
        ProduceBatch(TopicPartition(_TOPIC, partition), (load.payload,), 1, 2, -1, -1, -1, 1000, partition)
        for partition in load.partitions
    ]

    def send(requests: int) -> set[type[KafkaError]]:
        errors = set()
        sent = answered = 0
        while answered < requests * len(batches):
            while sent < requests and transport.ready(node, now_ms()):
                transport.send(node, batches, now_ms())
                sent += 1
            answers = transport.poll(1000, -1)
            errors |= {answer.error for answer in answers if answer.error is not None}
            answered += len(answers)
        return errors

    while send(1):  # the leader of a topic learns of it shortly after its creation
        time.sleep(0.1)
    figures = load.measure(lambda: check(not send(load.requests)))
    transport.close()
    return figures


def kafka_python(load: Load) -> Figures:
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, bootstrap_servers=load.servers)
    manager.bootstrap()
    connection = manager.get_connection(manager.cluster.brokers()[0].node_id)
    net.poll(future=connection.init_future)
    Topic = ProduceRequest.TopicProduceData
    payload = bytes(load.payload)
    answered: list[Any] = []

    def send_all() -> None:
        sent = 0
        while len(answered) < load.requests:
            while sent < load.requests and sent - len(answered) < IN_FLIGHT and not connection.paused:
                data = [Topic.PartitionProduceData(index=partition, records=payload) for partition in load.partitions]
                topics = [Topic(name=_TOPIC, partition_data=data)]
                request = ProduceRequest(max_version=12, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
                connection.send_request(request).add_both(answered.append)
                sent += 1
            net.poll(1000)

    figures = load.measure(send_all)
    errors = [
        part.error_code for answer in answered for topic in answer.responses for part in topic.partition_responses
    ]
    check(not any(errors))
    manager.close()
    return figures


def aiokafka(load: Load) -> Figures:
    async def connect() -> tuple[AIOKafkaClient, Any]:
        client = AIOKafkaClient(bootstrap_servers=load.servers)
        await client.bootstrap()
        return client, client.get_random_node()

    payload = bytes(load.payload)

    async def send_all(client: AIOKafkaClient, node: Any) -> None:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def send() -> None:
            async with limit:
                data = [(_TOPIC, [(partition, payload) for partition in load.partitions])]
                answer = await client.send(node, AioProduceRequest(None, -1, TIMEOUT_MS, data))
            check(all(part[1] == 0 for _, parts in answer.topics for part in parts))

        await asyncio.gather(*(send() for _ in range(load.requests)))

    with asyncio.Runner() as runner:
        client, node = runner.run(connect())
        figures = load.measure(lambda: runner.run(send_all(client, node)))
        runner.run(client.close())
    return figures


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=["sink", "apache"], default="apache")
    parser.add_argument("--partitions", type=int, default=4, help="batches in a request")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)


def run(options: argparse.Namespace) -> None:
    with broker(options.broker, [_TOPIC], options.partitions) as servers:
        load = Load(servers, options.partitions, options.requests)
        clients = {"shmaccum": ours, "kafka-python": kafka_python, "aiokafka": aiokafka}
        contestants = {name: partial(apart, client, load) for name, client in clients.items()}
        print_table("µs a batch", compared(take_turns(contestants, options.rounds)))
