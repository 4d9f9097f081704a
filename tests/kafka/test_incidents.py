"""Which failures to connect last as incidents, since when, and what ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from fake_broker import FakeBroker, silent
from fixture_types import MonkeyPatch

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.kafka import brokers as module
from shmaccum.kafka.brokers import Brokers
from shmaccum.kafka.journal import OwnJournal
from shmaccum.kafka.poller import monotonic_ms
from tools.kafka.ports import free_port
from tools.support.messages import API_VERSIONS


class Notebook(OwnJournal):
    """Holds the incidents that last: broker -> text, and when it began."""

    def __init__(self) -> None:
        self.lasting: dict[int | None, tuple[str, int]] = {}
        self._noted: list[tuple[int | None, str]] = []

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        if (node, text) not in self._noted:
            self._noted.append((node, text))
        if lasts:
            self.lasting[node] = (text, since_ms)
        return self._noted.index((node, text)) + 1

    def end(self, number: int) -> None:
        if number:
            node, text = self._noted[number - 1]
            if self.lasting.get(node, ("", 0))[0] == text:
                del self.lasting[node]


class Connections(Brokers):
    """Connects to loopback, to one bootstrap server that is down."""

    def __init__(self) -> None:
        self.notebook = Notebook()
        given = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "reconnect.backoff.ms": 20}
        super().__init__(ProducerConfig.parse(given), "client", lambda error: None, self.notebook)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "it does not come about"
            self.poller.wait(5)
            if monotonic_ms() >= self.next_check_ms:
                self.check(monotonic_ms())

    def connect(self, node: Node) -> None:
        self.until(lambda: self.ready(node, monotonic_ms()))

    def fail(self, node: Node, times: int) -> None:
        """Fail to connect this often."""
        self.until(lambda: not self.ready(node, monotonic_ms()) and self._broker(node).failures >= times)


@pytest.fixture
def here() -> Iterator[Connections]:
    brokers = Connections()
    yield brokers
    brokers.close()


def test_a_broker_of_the_cluster_that_is_down(fake: FakeBroker, here: Connections) -> None:
    """Other brokers do not replace it. Its incident begins with the first failure, and ends once it is connected."""
    here.connect(Node(1, "127.0.0.1", fake.port))
    port = free_port()
    down = Node(2, "127.0.0.1", port)
    here.fail(down, 1)
    (text, since_ms) = here.notebook.lasting[2]
    assert "Connection refused" in text
    assert abs(time.time() * 1000 - since_ms) < 10_000
    here.fail(down, 3)
    assert here.notebook.lasting == {2: (text, since_ms)}
    here.connect(Node(3, "127.0.0.1", fake.port))
    assert here.notebook.lasting == {2: (text, since_ms)}, "another broker's connection is not its"
    with FakeBroker(port):
        here.connect(down)
        assert here.notebook.lasting == {}
    here.fail(down, 2)
    assert here.notebook.lasting[2][1] > since_ms, "the next outage is another one"


def test_a_bootstrap_server_that_is_down(fake: FakeBroker, here: Connections) -> None:
    """It is needed only while nothing else is connected."""
    (bootstrap,) = here.bootstrap
    here.fail(bootstrap, 1)
    assert list(here.notebook.lasting) == [bootstrap.broker]
    here.connect(Node(1, "127.0.0.1", fake.port))
    assert here.notebook.lasting == {}
    here.fail(bootstrap, 1)
    assert here.notebook.lasting == {}


def test_a_connection_that_is_lost_is_no_lasting_incident(fake: FakeBroker, here: Connections) -> None:
    node = Node(1, "127.0.0.1", fake.port)
    here.connect(node)
    fake.cut()
    here.until(lambda: here._broker(node).failures)
    assert here.notebook.lasting == {}


def test_another_reason_replaces_the_first(fake: FakeBroker, here: Connections) -> None:
    port = free_port()
    node = Node(1, "127.0.0.1", port)
    here.fail(node, 1)
    since_ms = here.notebook.lasting[1][1]
    with FakeBroker(port) as broken:
        broken.serve = lambda connection: connection.close()  # type: ignore[method-assign]
        here.fail(node, 2)
        (text, still_since_ms) = here.notebook.lasting[1]
    assert "closed the connection" in text or "reset" in text
    assert still_since_ms == since_ms
    here.keep_only([])
    assert here.notebook.lasting == {}, "a broker that has left the cluster is none that is down"


def test_a_broker_that_nothing_needs_any_longer(fake: FakeBroker, here: Connections, monkeypatch: MonkeyPatch) -> None:
    """No attempt would show that it is back."""
    monkeypatch.setattr(module, "UNUSED_MS", 100)
    here.connect(Node(1, "127.0.0.1", fake.port))
    here.fail(Node(2, "127.0.0.1", free_port()), 1)
    assert list(here.notebook.lasting) == [2]
    here.until(lambda: not here.notebook.lasting)


def test_a_broker_that_nothing_needs_while_none_is_connected(here: Connections, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNUSED_MS", 100)
    here.fail(Node(2, "127.0.0.1", free_port()), 1)
    here.until(lambda: monotonic_ms() > here._brokers[2].retry_ms + 200)
    assert list(here.notebook.lasting) == [2], "nothing shows that the cluster is there at all"


def test_an_attempt_that_takes_long(fake: FakeBroker, here: Connections, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNUSED_MS", 100)
    here.connect(Node(1, "127.0.0.1", fake.port))
    port = free_port()
    down = Node(2, "127.0.0.1", port)
    here.fail(down, 1)
    with FakeBroker(port) as mute:
        mute.answers[API_VERSIONS] = silent
        here.until(lambda: here.ready(down, monotonic_ms()) or mute.requests)
        began = monotonic_ms()
        here.check_by(began + 300)
        here.until(lambda: monotonic_ms() > began + 400)
        assert list(here.notebook.lasting) == [2], "it is still needed, and not connected"
