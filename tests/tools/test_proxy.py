"""The proxy applies the faults that a test sets, and no others, to the connection of another library's client."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from brokers import consume_values, produce, started_behind_proxy
from confluent_kafka import KafkaException
from fixture_types import MakeCluster

from tools.kafka import KafkaCluster
from tools.support.messages import PRODUCE
from tools.support.proxy import Proxy

VALUES = [f"value {number}".encode() for number in range(100)]
ONE_BATCH = {"linger.ms": 10_000}
"""A flush does not wait for it."""
PLAIN = ONE_BATCH | {"enable.idempotence": False}

Stored = Callable[[], list[bytes | None]]


class Behind(NamedTuple):
    """A broker that its clients reach through a proxy, and only so."""

    proxy: Proxy
    cluster: KafkaCluster

    def settings(self, **more: Any) -> dict[str, Any]:
        names = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.cluster.bootstrap_servers} | names


@pytest.fixture(scope="module")
def behind(kafka_cluster: MakeCluster) -> Iterator[Behind]:
    cluster = kafka_cluster()
    with started_behind_proxy(cluster) as proxy:
        yield Behind(proxy, cluster)


@pytest.fixture
def stored(behind: Behind, topic: str) -> Stored:
    """Create the topic, and return a function that says what is stored in it, read past the proxy."""
    behind.cluster.admin.create_topic(topic)
    settings = {"bootstrap.servers": behind.cluster.internal_servers}
    return lambda: consume_values(settings, topic)[0]


def has_ended(connection: socket.socket) -> bool:
    """Wait until a connection has data or ends; return whether it ended."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("after", [0, 3, 500])
def test_a_cut_request_is_none_to_the_broker(behind: Behind, topic: str, stored: Stored, after: int) -> None:
    cut = behind.proxy.cut_request(PRODUCE, after)
    with pytest.raises(KafkaException):
        produce(behind.settings() | PLAIN | {"retries": 0}, topic, VALUES)
    assert cut.happened == 1
    assert stored() == []
    too_short = behind.proxy.cut_request(PRODUCE, after=1 << 20)
    produce(behind.settings() | PLAIN, topic, VALUES)
    assert not too_short.happened
    assert stored() == VALUES


def test_listens_to_requests_and_their_answers(behind: Behind, topic: str, stored: Stored) -> None:
    with behind.proxy.listen(PRODUCE) as listening:
        for value in VALUES[:2]:
            produce(behind.settings() | PLAIN, topic, [value])
    assert stored() == VALUES[:2]
    assert consume_values(behind.settings(), topic) == {0: VALUES[:2]}
    first, second = listening.answers
    assert listening.requests[0] <= first.at_s <= listening.requests[1] <= second.at_s
    assert all(topic.encode() in answer.frame for answer in listening.answers)


def test_a_window_of_bytes_in_each_delay() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        proxy = stack.enter_context(Proxy(server.getsockname()[1], delay_s=0.1, window=1000))
        client = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        broker = stack.enter_context(server.accept()[0])
        sent_s = time.monotonic()
        client.sendall(b"x" * 3000)
        assert len(broker.recv(3000, socket.MSG_WAITALL)) == 3000
        assert time.monotonic() >= sent_s + 0.2


def test_bytes_that_come_back_later() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        proxy = stack.enter_context(Proxy(server.getsockname()[1], delay_s=0.1))
        client = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        broker = stack.enter_context(server.accept()[0])
        client.sendall(b"\xff" * 3)
        assert broker.recv(10) == b"\xff" * 3
        sent_s = time.monotonic()
        broker.sendall(b"yes")
        assert client.recv(10) == b"yes"
        assert time.monotonic() >= sent_s + 0.1
        proxy.cut()
        assert has_ended(client)
        assert has_ended(broker)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))
