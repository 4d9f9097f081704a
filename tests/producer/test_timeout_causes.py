"""Timeouts name the configured limit, and what the cluster does meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, silent
from fixture_types import Produce, Settings
from producers import wait_until, wait_until_gone

from shmaccum import AsyncProducer, ProducerConfig
from shmaccum.compat import confluent
from shmaccum.errors import BufferExhaustedError, KafkaTimeoutError, NetworkError
from shmaccum.transactions.batch_committer import BatchCommitter
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.writer_id import Writer
from tools.support.messages import API_VERSIONS, PRODUCE

MAX_BLOCK_MS = 400
SMALL = {
    "buffer_memory": 64 << 10,
    "max_block_ms": MAX_BLOCK_MS,
    "delivery_timeout_ms": 2000,
    "request_timeout_ms": 1500,
}
CONFIGURED = f"within the configured max blocking time {MAX_BLOCK_MS} ms"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# --- the configured limit ---------------------------------------------------------------------------------


def test_columns_that_wait_for_memory_name_the_configured_time(
    fake: FakeBroker, kafka_settings: Settings, make_producer: Produce
) -> None:
    fake.answers[PRODUCE] = silent
    producer = make_producer(kafka_settings(bootstrap_servers=fake.servers, **SMALL))
    rows = pa.record_batch({"value": [bytes(15_000)] * 20, "partition": [0] * 20})
    with pytest.raises(BufferExhaustedError, match=CONFIGURED):
        producer.send_batch("t", rows)


def test_calls_in_a_line_for_memory_name_the_configured_time(
    fake: FakeBroker, kafka_settings: Settings, slab_name: str
) -> None:
    fake.answers[PRODUCE] = silent

    async def flood() -> list[BaseException]:
        producer = AsyncProducer(kafka_settings(bootstrap_servers=fake.servers, **SMALL))
        async with producer:
            sends = (producer.send("t", bytes(15_000), partition=0) for _ in range(40))
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
        return [each for each in outcomes if isinstance(each, BaseException)]

    errors = asyncio.run(flood())
    assert len(errors) > 30
    assert [each for each in errors if CONFIGURED not in str(each)] == []
    wait_until_gone(slab_name)


def test_confluent_names_the_time_that_it_waited_for_a_topic(slab_name: str, silent_port: int) -> None:
    errors: list[str] = []
    producer = confluent.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{silent_port}",
            "message.timeout.ms": 700,
            "shmaccum.name": slab_name,
            "sender.idle.ms": 100,
        }
    )
    producer.produce("t", b"v", on_delivery=lambda error, message: errors.append(error.str()))
    wait_until(lambda: producer.poll(0.05) > 0, "the message times out")
    assert "not present in metadata after 700 ms" in errors[0]
    assert f"127.0.0.1:{silent_port}" in errors[0]
    producer.close()
    wait_until_gone(slab_name)


# --- a cluster that does not answer -----------------------------------------------------------------------


def test_silent_port_is_the_cause_of_a_metadata_timeout(
    silent_port: int, kafka_settings: Settings, make_producer: Produce
) -> None:
    settings = kafka_settings(bootstrap_servers=f"127.0.0.1:{silent_port}", max_block_ms=1000)
    said = rf"broker 127\.0\.0\.1:{silent_port} has not answered our first request for .*Kafka listener"
    with pytest.raises(KafkaTimeoutError, match=said):
        make_producer(settings).send("t", b"v")


def test_web_server_is_the_cause_of_a_metadata_timeout(
    fake: FakeBroker, kafka_settings: Settings, make_producer: Produce
) -> None:
    fake.answers[API_VERSIONS] = lambda request: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    settings = kafka_settings(bootstrap_servers=fake.servers, max_block_ms=1000)
    with pytest.raises(KafkaTimeoutError, match="not a Kafka broker: it sent HTTP"):
        make_producer(settings).send("t", b"v")


def test_frozen_broker_is_the_cause_of_a_timeout(
    fake: FakeBroker, kafka_settings: Settings, make_producer: Produce
) -> None:
    producer = make_producer(kafka_settings(bootstrap_servers=fake.servers, max_block_ms=1000))
    producer.send("t", b"v", partition=0).get(20)
    fake.pause()
    future = producer.send("t", b"v", partition=0)
    wait_until(lambda: fake.port and "has not answered" in producer._slab.trouble(), "it is seen")
    said = rf"broker 1 at 127\.0\.0\.1:{fake.port} has not answered for "
    with pytest.raises(KafkaTimeoutError, match=said):
        future.get(0.1)
    with pytest.raises(KafkaTimeoutError, match=said):
        producer.flush(0.1)
    fake.resume()
    future.get(20)
    assert "has not answered" not in producer._slab.trouble()


# --- transactions, whose coordinators the producer asks itself ---------------------------------------------


def transactional(kafka_settings: Settings, address: str) -> dict[str, object]:
    return kafka_settings(bootstrap_servers=address, transactional_id="a", max_block_ms=700)


def test_transactions_name_a_broker_that_is_down(
    fake: FakeBroker, kafka_settings: Settings, make_producer: Produce
) -> None:
    producer = make_producer(transactional(kafka_settings, fake.servers))
    fake.stop()
    said = rf"NetworkError: connection to broker 127\.0\.0\.1:{fake.port}: Connection refused"
    with pytest.raises(KafkaTimeoutError, match=said) as caught:
        producer.init_transactions()
    assert isinstance(caught.value.__cause__, KafkaTimeoutError | NetworkError)


def test_transactions_name_a_silent_port(silent_port: int, kafka_settings: Settings, make_producer: Produce) -> None:
    producer = make_producer(transactional(kafka_settings, f"127.0.0.1:{silent_port}"))
    said = rf"broker 127\.0\.0\.1:{silent_port} has not answered our first request"
    with pytest.raises(KafkaTimeoutError, match=said):
        producer.init_transactions()


def test_exactly_once_names_a_broker_that_is_down(fake: FakeBroker) -> None:
    config = ProducerConfig.parse({"bootstrap.servers": fake.servers, "max.block.ms": 700})
    fake.stop()
    said = rf"NetworkError: connection to broker 127\.0\.0\.1:{fake.port}: Connection refused"
    with BrokerClient(config) as client, pytest.raises(KafkaTimeoutError, match=said):
        BatchCommitter(client, config, Writer("a", "a-")).plan()
