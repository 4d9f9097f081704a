"""A real Apache Kafka for the tests: fixtures, and what other people's clients write to it and find in it.

The fixtures are for everyone (``tests/conftest.py`` takes them in). ``kafka`` is one plain broker for the whole run:
its tests take a topic of their own each, and leave the broker as it was. Whoever hurts brokers takes a cluster of
their own from ``kafka_cluster``.

Where Apache Kafka cannot be had, its tests are skipped, with the reason; but where ``CI`` is in the environment
they fail.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from producers import PATIENCE_S, wait_until

from shmaccum.config import ProducerConfig
from shmaccum.transactions.administration import Transactions
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import deadline_after
from tools.kafka import Certificates, KafkaCluster, KafkaMissingError, ensure_kafka, make_certificates
from tools.kafka.jvm import java_command
from tools.kafka.settings import USERS
from tools.support.proxy import Proxy

MakeCluster = Callable[..., KafkaCluster]
"""The fixture ``kafka_cluster``."""

_numbers = itertools.count()


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    """Have Apache Kafka here, or skip the test and say why."""
    try:
        ensure_kafka()
    except KafkaMissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI is to have Apache Kafka: {missing}")
        pytest.skip(f"no Apache Kafka: {missing}")


@pytest.fixture(scope="session")
def kafka(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Return a cluster of one plain broker, which runs for all tests."""
    with KafkaCluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_cluster(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeCluster]:
    """Return ``kafka_cluster(nodes=3, sasl=True, ...)``: a cluster, not started, which goes with the module.

    The arguments are those of `KafkaCluster`.
    """
    with ExitStack() as clusters:

        def make(nodes: int = 1, **options: Any) -> KafkaCluster:
            cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"), nodes, **options)
            clusters.callback(cluster.stop)
            return cluster

        yield make


@contextmanager
def started_behind_proxy(cluster: KafkaCluster) -> Iterator[Proxy]:
    """Start a cluster of one broker, which its clients reach through the proxy alone, for the time of the block."""
    with Proxy(cluster.nodes[1].port) as proxy:
        cluster.nodes[1].advertised_port = proxy.port
        cluster.start()
        yield proxy


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return certificates for brokers and clients, by an authority of their own."""
    return make_certificates(tmp_path_factory.mktemp("certificates") / "tls")


@pytest.fixture
def topic() -> str:
    """Return the name of a topic that does not exist yet."""
    return f"topic-{os.getpid()}-{next(_numbers)}"


def make_delegation_token(cluster: KafkaCluster, user: str, directory: Path) -> tuple[str, str]:
    """Get a delegation token for a user of `USERS`, by Kafka's own tool; return its id and its HMAC."""
    file = directory / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{user}" password="{USERS[user]}";\n'
    )
    tool = ("org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", cluster.bootstrap_servers)
    command = java_command(*tool, "--command-config", str(file), "--create", "--max-life-time-period", "-1")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    token_id, token_hmac, *_ = done.stdout.splitlines()[-1].split()  # the one row of a table
    return token_id, token_hmac


def produce(settings: dict[str, Any], topic: str, values: Iterable[bytes], partition: int = 0) -> list[Message]:
    """Write records by confluent-kafka, and return them as they were acknowledged.

    Raises KafkaException: what a record came back with.
    """
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        delivered.append(message) if error is None else failed.append(error)

    producer = Producer({"message.timeout.ms": int(PATIENCE_S * 1000), "log_level": 0} | settings)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0, "records are neither delivered nor failed"
    if failed:
        raise KafkaException(failed[0])
    return delivered


def consume(settings: dict[str, Any], topic: str, first: Mapping[int, int] | None = None) -> dict[int, list[Message]]:
    """Read a topic to its end by confluent-kafka: the records of each partition, in order.

    ``first``: the offsets to begin with, by partition, if not 0.

    Raises KafkaException: what the cluster answers instead.
    """
    reading = {"group.id": "tests", "enable.partition.eof": True, "fetch.wait.max.ms": 10, "log_level": 0}
    consumer = Consumer(reading | settings)
    try:
        metadata = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        found: dict[int, list[Message]] = {partition: [] for partition in sorted(metadata.partitions)}
        consumer.assign([TopicPartition(topic, partition, (first or {}).get(partition, 0)) for partition in found])
        unfinished = set(found)
        while unfinished:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing comes from partitions {unfinished} of {topic}"
            error = message.error()
            if error is None:
                found[message.partition()].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def consume_values(settings: dict[str, Any], topic: str) -> dict[int, list[bytes | None]]:
    """Read a topic from its beginning to its end by confluent-kafka: the values of each partition, in order."""
    return {partition: [each.value() for each in records] for partition, records in consume(settings, topic).items()}


def wait_for_markers(bootstrap_servers: str) -> None:
    """Wait until every transaction that was ended can be seen to have ended.

    A coordinator answers EndTxn once the decision is in its log, and writes the markers into the partitions after that.
    """
    config = ProducerConfig.parse({"bootstrap.servers": bootstrap_servers})
    with BrokerClient(config) as client:
        transactions, deadline_ms = Transactions(client, config), deadline_after(PATIENCE_S * 1000)
        wait_until(lambda: not transactions.find("", ("PrepareCommit", "PrepareAbort"), deadline_ms))
