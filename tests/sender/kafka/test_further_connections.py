"""Further connections to a broker: only while requests wait for each other, and never needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from batches import make_batch
from fake_broker import FakeBroker, Request, produced
from wires import MakeWire, Wire, now_ms

from shmaccum.cluster import TopicPartition
from shmaccum.errors import NetworkError
from shmaccum.sender.kafka import kafka_transport
from tools.support.messages import API_VERSIONS, METADATA, PRODUCE
from tools.support.proxy import PATIENCE_S

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOST = 1000
"""Bytes of a request."""
BATCHES = make_batch([b"x" * MOST], to=T0), make_batch([b"x" * MOST], to=T1)


class Load:
    """A broker that answers no Produce request before `over`, and a transport."""

    def __init__(self, fake: FakeBroker, wire: MakeWire, partition_count: int = 2, **settings: Any) -> None:
        self.fake = fake
        self.partition_count = partition_count
        fake.answers[METADATA] = partial(fake.metadata, partition_count=partition_count)
        self.over = threading.Event()
        self.opened_before = 0
        fake.answers[PRODUCE] = self._answer
        self.here: Wire = wire(fake.servers, max_request_size=MOST, **settings)

    def _answer(self, request: Request) -> Any:
        self.over.wait()
        (topic,) = request.asked.topic_data
        return produced(*((partition.index, 0) for partition in topic.partition_data))

    def begin(self) -> None:
        """Send two requests to the broker, over one connection."""
        for batch in BATCHES:
            self.here.send(batch)
            self.opened_before = self.opened_before or len(self.fake.connections)

    def opened(self) -> int:
        """Return how many connections were opened since the first request."""
        return len(self.fake.connections) - self.opened_before

    def connections(self) -> list[int]:
        """Return the number of each partition's connection."""
        cluster = self.here.transport.cluster()
        leaders = [cluster.leader_for(TopicPartition("t", each)) for each in range(self.partition_count)]
        return [-1 if leader is None else leader.id >> 32 for leader in leaders]

    def until_divided(self, over: int = 2) -> None:
        self.here.until(lambda: len(set(self.connections())) == over)


MakeLoad = Callable[..., Load]


@pytest.fixture
def make_load(fake: FakeBroker, wire: MakeWire) -> Iterator[MakeLoad]:
    made: list[Load] = []

    def make(**settings: Any) -> Load:
        made.append(Load(fake, wire, **settings))
        return made[-1]

    yield make
    for each in made:
        each.over.set()


def _late(answer: Callable[[Request], Any], request: Request) -> Any:
    time.sleep(0.002)
    return answer(request)


@pytest.fixture
def load(make_load: MakeLoad) -> Load:
    return make_load()


def test_partitions_are_divided_once_requests_wait(load: Load) -> None:
    load.here.send(BATCHES[0])
    load.here.poll(0)
    assert load.connections() == [0, 0], "one request waits for nothing"
    load.begin()
    load.until_divided()
    for batch in BATCHES:
        load.here.send(batch)
    assert load.opened() == 1
    load.here.until(lambda: len(load.fake.of(PRODUCE)) == 2)
    load.over.set()
    assert [answer.error for answer in load.here.take(5)] == [None] * 5


def test_they_are_united_when_it_is_over(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_transport, "_LOADED_MS", 300)
    load.begin()
    load.until_divided()
    load.over.set()
    load.here.take(2)
    load.here.until(lambda: load.connections() == [0, 0])
    load.here.until(lambda: len(load.here.transport.cluster().nodes) == 1)


def test_a_transaction_has_one_of_them(load: Load) -> None:
    """Else the broker would answer NETWORK_EXCEPTION to the first of two requests."""
    load.begin()
    load.until_divided()
    cluster = load.here.transport.cluster()
    leaders = [{cluster.leader_for(each, lane) for each in (T0, T1)} for lane in (1, 2, 3)]
    assert leaders == [{cluster.nodes[1 << 32 | 1]}, {cluster.nodes[1]}, {cluster.nodes[1 << 32 | 1]}]


def test_a_near_broker_has_two(make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_transport, "_FAR_MS", 1000 * PATIENCE_S)  # however busy this computer is
    load = make_load(partition_count=20)
    load.begin()
    load.until_divided()
    load.here.poll()
    assert load.opened() == 1


def test_a_far_broker_has_one_for_each_partition_up_to_16(fake: FakeBroker, make_load: MakeLoad) -> None:
    load = make_load(partition_count=20)
    for api, answer in list(fake.answers.items()):
        fake.answers[api] = partial(_late, answer)
    load.begin()
    load.until_divided(over=16)
    assert load.opened() == 15


def test_as_many_as_a_broker_allows(make_load: MakeLoad) -> None:
    load = make_load(partition_count=5, shmaccum_connections_per_broker=5)
    load.begin()
    load.fake.most_connections = len(load.fake.connections) + 2
    load.until_divided(over=3)
    load.over.set()
    assert [answer.error for answer in load.here.take(2)] == [None, None]


def test_they_are_divided_also_after_the_first_was_lost(load: Load) -> None:
    load.begin()
    load.fake.cut()
    assert [answer.error for answer in load.here.take(2)] == [NetworkError] * 2
    load.begin()
    load.until_divided()


@pytest.mark.parametrize("settings", [{"shmaccum_connections_per_broker": 1}, {"acks": "0"}])
def test_one_is_enough(make_load: MakeLoad, settings: dict[str, Any]) -> None:
    load = make_load(enable_idempotence=False, **settings)
    load.begin()
    for _ in range(5):
        load.here.poll(20)
    assert (load.connections(), load.opened()) == ([0, 0], 0)


def test_a_broker_that_allows_no_further_one_keeps_the_first(load: Load) -> None:
    def answer(request: Request) -> Any:
        raise EOFError

    load.here.connect(T0)
    load.fake.answers[API_VERSIONS] = answer
    load.begin()
    load.here.until(load.opened)
    load.here.poll()
    assert load.connections() == [0, 0]
    load.over.set()
    assert [answer.error for answer in load.here.take(2)] == [None, None]


def test_without_the_further_one_all_is_sent_over_the_first(load: Load) -> None:
    load.begin()
    load.until_divided()
    (moved,) = [batch for batch in BATCHES if load.connections()[batch.topic_partition.partition] == 1]

    def close(request: Request) -> Any:
        raise EOFError

    load.over.set()
    load.here.take(2)
    load.fake.answers[PRODUCE] = close
    (answer,) = load.here.ask(moved)
    assert answer.error is NetworkError
    leader = load.here.leader(moved.topic_partition)
    assert not load.here.transport.ready(leader, now_ms())
    assert load.connections() == [0, 0]
