"""Timeouts name the configured limit, and what the cluster does meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, silent
from fixture_types import Produce, Settings
from producers import wait_until

from shmaccum import AsyncProducer, ProducerConfig
from shmaccum.errors import BufferExhaustedError, KafkaTimeoutError, NetworkError
from shmaccum.transactions.batch_committer import BatchCommitter
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.writer_id import Writer
from tools.support.messages import API_VERSIONS, PRODUCE

MAX_BLOCK_MS = 400
CONFIGURED = f"within the configured max blocking time {MAX_BLOCK_MS} ms"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Return the address of one that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_columns_and_calls_that_wait_for_memory_name_the_configured_time(
    fake: FakeBroker, kafka_settings: Settings, connect: Produce
) -> None:
    """Also the calls of an event loop that stand in line."""
    fake.answers[PRODUCE] = silent
    limits = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1500, "max_block_ms": MAX_BLOCK_MS}
    producer = connect(buffer_memory=64 << 10, **limits)
    with pytest.raises(BufferExhaustedError, match=CONFIGURED):
        producer.send_batch("t", pa.record_batch({"value": [bytes(15_000)] * 20, "partition": [0] * 20}))

    async def flood() -> list[object]:
        settings = kafka_settings(bootstrap_servers=fake.servers, buffer_memory=64 << 10, **limits)
        async with AsyncProducer(settings) as producer:
            sends = (producer.send("t", bytes(15_000), partition=0) for _ in range(40))
            return await asyncio.gather(*sends, return_exceptions=True)

    errors = [each for each in asyncio.run(flood()) if isinstance(each, BaseException)]
    assert len(errors) > 30
    assert [each for each in errors if CONFIGURED not in str(each)] == []


def test_silent_server_is_the_cause_of_a_timeout(
    silent_server: str, kafka_settings: Settings, make_producer: Produce
) -> None:
    """Of a sender's request, and of one to the coordinator of transactions, which the producer asks itself."""
    said = rf"broker {silent_server} has not answered our first request for .*Kafka listener"
    settings = kafka_settings(bootstrap_servers=silent_server, max_block_ms=1000)
    with pytest.raises(KafkaTimeoutError, match=said):
        make_producer(settings).send("t", b"v")
    with pytest.raises(KafkaTimeoutError, match=said):
        make_producer(settings | {"transactional.id": "a"}).init_transactions()


def test_web_server_is_the_cause_of_a_metadata_timeout(fake: FakeBroker, connect: Produce) -> None:
    fake.answers[API_VERSIONS] = lambda request: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with pytest.raises(KafkaTimeoutError, match="not a Kafka broker: it sent HTTP"):
        connect(max_block_ms=1000).send("t", b"v")


def test_frozen_broker_is_the_cause_of_a_timeout(fake: FakeBroker, connect: Produce) -> None:
    producer = connect(max_block_ms=1000)
    producer.send("t", b"v", partition=0).get(20)
    fake.pause()
    future = producer.send("t", b"v", partition=0)
    wait_until(lambda: "has not answered" in producer._slab.trouble(), "it is seen")
    said = rf"broker 1 at {fake.servers} has not answered for "
    with pytest.raises(KafkaTimeoutError, match=said):
        future.get(0.1)
    with pytest.raises(KafkaTimeoutError, match=said):
        producer.flush(0.1)
    fake.resume()
    future.get(20)
    assert "has not answered" not in producer._slab.trouble()


def test_broker_that_is_down_is_the_cause_of_a_transactions_timeout(fake: FakeBroker, connect: Produce) -> None:
    """Also where a driver of exactly-once writing asks."""
    producer = connect(transactional_id="a", max_block_ms=700)
    config = ProducerConfig.parse({"bootstrap.servers": fake.servers, "max.block.ms": 700})
    fake.stop()
    said = rf"NetworkError: connection to broker {fake.servers}: Connection refused"
    with pytest.raises(KafkaTimeoutError, match=said) as caught:
        producer.init_transactions()
    assert isinstance(caught.value.__cause__, KafkaTimeoutError | NetworkError)
    with BrokerClient(config) as client, pytest.raises(KafkaTimeoutError, match=said):
        BatchCommitter(client, config, Writer("a", "a-")).plan()
