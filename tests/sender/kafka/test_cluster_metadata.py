"""Metadata requests: only for topics that are due, with a backoff while nothing changes."""

from __future__ import annotations

import math
import threading
import time
import uuid
from typing import Any

import pytest
from batches import make_batch
from fake_broker import FakeBroker, Request, produced
from wires import MakeWire, Wire, now_ms

from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import NetworkError, UnknownTopicOrPartitionError
from shmaccum.sender.kafka.cluster_metadata import REBOOTSTRAP_REQUIRED, TOPICS_A_REQUEST, Metadata
from tools.support import messages
from tools.support.messages import METADATA, PRODUCE

T0 = TopicPartition("t", 0)


class Asked:
    """Answers for every topic that is asked about, and keeps what was."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.requests: list[list[str]] = []
        self.changes: dict[str, Any] = {"partition_count": 1}
        self.answers = threading.Event()
        self.answers.set()
        broker.answers[METADATA] = self._answer

    def _answer(self, request: Request) -> Any:
        names = [topic.name for topic in request.asked.topics]
        self.requests.append(names)
        self.answers.wait()
        return self._broker.metadata(request, names=names, **self.changes)


@pytest.fixture
def asked(fake: FakeBroker) -> Asked:
    return Asked(fake)


def names(count: int, kind: str = "topic") -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


def ask(here: Wire, topics: list[str]) -> None:
    """Ask about topics, and wait for the answer."""
    here.transport.request_update(topics)
    here.until(lambda: not here.transport.cluster().pending)


def test_a_new_topic_is_asked_about_alone(asked: Asked, here: Wire) -> None:
    """And what is known of the others stays."""
    for name in names(20):
        ask(here, [name])
    assert asked.requests == [[name] for name in names(20)]
    assert here.transport.cluster().partition_counts == dict.fromkeys(names(20), 1)
    assert len(here.transport.cluster().leaders) == 20


def test_what_is_asked_for_meanwhile_goes_into_the_next_request(asked: Asked, here: Wire) -> None:
    here.connect(T0)
    asked.answers.clear()
    here.transport.request_update(["second"])
    here.until(lambda: len(asked.requests) == 2)
    for name in names(50):
        here.transport.request_update([name])
    here.transport.request_update(["second"])  # its answer is under way
    assert here.transport._metadata.due_ms() == math.inf
    asked.answers.set()
    here.until(lambda: not here.transport.cluster().pending)
    assert asked.requests[1] == ["second"]
    assert asked.requests[2] == names(50)
    assert len(asked.requests) == 3


def test_a_request_has_not_too_many_topics(asked: Asked, here: Wire) -> None:
    many = names(2 * TOPICS_A_REQUEST + 1)
    ask(here, many)
    assert [len(request) for request in asked.requests] == [TOPICS_A_REQUEST, TOPICS_A_REQUEST, 1]
    assert here.transport.cluster().partition_counts.keys() == set(many)


def test_a_snapshot_says_what_has_changed_since_another(asked: Asked, here: Wire) -> None:
    ask(here, names(10))
    before = here.transport.cluster()
    assert before.changed_since(None) is None
    ask(here, ["new"])
    ask(here, ["newer"])
    ask(here, names(5))  # nothing new of them
    after = here.transport.cluster()
    assert after.changed_since(before) == ["newer", "new"]
    assert after.changed_since(after) == []


def test_all_in_use_are_asked_about_when_they_are_old(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    here = wire(fake.servers, metadata_max_age_ms=100)
    ask(here, ["a"])
    ask(here, ["b"])
    here.until(lambda: len(asked.requests) >= 3)
    assert sorted(asked.requests[2]) == ["a", "b"]


def test_answers_without_news_are_asked_for_less_and_less_often(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    """KIP-580: however often the sender finds that it does not know enough."""
    here = wire(fake.servers, retry_backoff_ms=20, retry_backoff_max_ms=320)
    ask(here, ["t"])
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        here.transport.request_update(["t"])
        here.poll(5)
    # After 20, 20, 40, 80, 160, 320, 320, 320 ms; without growing waits it would be 75.
    assert 6 <= len(asked.requests) <= 12
    # What is new begins with short waits again.
    asked.changes["partition_count"] = 2
    here.until(lambda: here.transport.cluster().partition_counts == {"t": 2})
    count, began = len(asked.requests), time.monotonic()
    here.ask_until(lambda: len(asked.requests) > count)
    assert time.monotonic() - began < 0.25


# --- when to ask, by times that the test gives ----------------------------------------------------------


def metadata_of(**settings: int) -> Metadata:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Metadata(ProducerConfig.parse({"bootstrap.servers": "broker1:9092", **given}))


def answered(metadata: Metadata, now_ms: float) -> list[str]:
    """Ask at a time, and get the same answer as ever at once; return the topics of the request."""
    asked = [topic["name"] for topic in metadata.request(now_ms).values["topics"]]
    metadata.update(messages.metadata([(1, 9092)], [(name, 1) for name in asked]), now_ms)
    return asked


def test_a_new_topic_delays_no_round() -> None:
    metadata = metadata_of(metadata_max_age_ms=1000)
    for name, at_ms in (("a", 0), ("b", 900)):
        metadata.request_update([name], at_ms)
        assert answered(metadata, at_ms) == [name]
    assert metadata.due_ms() == 1000
    assert sorted(answered(metadata, 1000)) == ["a", "b"]
    assert metadata.due_ms() == 2000


def test_new_settings_hold_for_the_round_that_is_under_way() -> None:
    metadata = metadata_of(metadata_max_age_ms=100_000)
    metadata.request_update(["a"], 500)
    answered(metadata, 500)
    answered(metadata, 100_500)
    metadata.apply(ProducerConfig.parse({"bootstrap.servers": "broker1:9092", "metadata.max.age.ms": 1000}))
    assert metadata.due_ms() == 101_500


def test_doubts_without_news_are_looked_into_less_and_less_often_and_delay_no_round() -> None:
    metadata = metadata_of(metadata_max_age_ms=50, retry_backoff_ms=10, retry_backoff_max_ms=10_000)
    metadata.request_update(["a"], 0)
    answered(metadata, 0)
    answered(metadata, 50)
    waits, now_ms = [], 50.0
    for _ in range(6):
        metadata.doubt(now_ms)
        waits.append(metadata.due_ms() - now_ms)
        now_ms = metadata.due_ms()
        answered(metadata, now_ms)
    assert waits[0] < 15 < waits[2] < 30 < waits[3] < 50  # 10, 10, 20, 40, all by a fifth more or less
    assert waits[4] == pytest.approx(50)


def test_a_topic_in_use_is_not_forgotten() -> None:
    metadata = metadata_of(metadata_max_age_ms=1000, metadata_max_idle_ms=5000)
    metadata.request_update(["used", "idle"], 0)
    answered(metadata, 0)
    metadata.use("used", 4000)
    metadata.use("unknown", 4000)
    assert answered(metadata, 5000) == ["used"]
    assert metadata.cluster.partition_counts == {"used": 1}


# --- topics that come and go ----------------------------------------------------------------------------


def test_one_topic_that_waits_keeps_no_other(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    here = wire(fake.servers, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    asked.changes["error"] = UnknownTopicOrPartitionError.code
    ask(here, ["missing"])
    asked.changes["error"] = 0
    ask(here, ["new"])
    assert asked.requests == [["missing"], ["new"]]
    assert here.transport.cluster().topic_errors == {"missing": UnknownTopicOrPartitionError}


def test_a_topic_made_again_has_another_id_and_epochs_that_begin_anew(
    fake: FakeBroker, asked: Asked, wire: MakeWire
) -> None:
    """KIP-516, KIP-320: its old leaders' epochs are no reason to disbelieve the new ones."""
    first, second = uuid.UUID(int=5 << 64 | 7), uuid.UUID(int=9)
    here = wire(fake.servers, retry_backoff_ms=1)
    asked.changes |= {"topic_id": first, "partition_count": 6, "epoch": 30}
    ask(here, ["t"])
    assert here.transport.cluster().topic_ids == {"t": first.int}
    asked.changes |= {"topic_id": second, "partition_count": 2, "epoch": 0}
    ask(here, ["t"])
    cluster = here.transport.cluster()
    assert (cluster.topic_ids, cluster.partition_counts) == ({"t": second.int}, {"t": 2})
    assert cluster.leader_epochs == {TopicPartition("t", number): 0 for number in range(2)}
    assert cluster.leaders.keys() == cluster.leader_epochs.keys()


def test_a_topic_that_is_gone_has_no_partitions(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    here = wire(fake.servers, retry_backoff_ms=1)
    ask(here, ["t", "u"])
    asked.changes["error"] = UnknownTopicOrPartitionError.code
    ask(here, ["t"])
    cluster = here.transport.cluster()
    assert cluster.topic_errors == {"t": UnknownTopicOrPartitionError}
    assert (cluster.partition_counts, cluster.leaders.keys()) == ({"u": 1}, {TopicPartition("u", 0)})


def test_rebootstrap_required(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    """KIP-1102: REBOOTSTRAP_REQUIRED has the sender begin again from bootstrap.servers."""
    with FakeBroker() as other:
        here = wire(f"{fake.servers},{other.servers}", retry_backoff_ms=1)
        Asked(other).changes = {"brokers": [(2, other)], "leader": 2, "epoch": 9}
        asked.changes["brokers"] = [(1, fake)]
        other.answers[METADATA], at_first = fake.answers[METADATA], other.answers[METADATA]
        ask(here, ["t"])
        assert here.transport.cluster().leader_for(T0).id == 1
        other.answers[METADATA] = at_first
        asked.changes["top_level_error"] = REBOOTSTRAP_REQUIRED
        here.ask_until(lambda: (leader := here.transport.cluster().leader_for(T0)) is not None and leader.id == 2)


@pytest.mark.parametrize(
    ("error", "settings", "least_ms"),
    [(REBOOTSTRAP_REQUIRED, {"retry_backoff_max_ms": 80}, [20, 40, 80, 80]), (0, {"metadata_max_age_ms": 0}, [20] * 4)],
)
def test_rebootstraps_and_refreshes_back_off(
    fake: FakeBroker, asked: Asked, wire: MakeWire, error: int, settings: dict[str, int], least_ms: list[int]
) -> None:
    """However often REBOOTSTRAP_REQUIRED is the answer: each request waits twice as long as the one before it.

    The time at which the fake broker reads one is late by what its thread waited: that and the jitter may be 40%.
    """
    here = wire(fake.servers, retry_backoff_ms=20, **settings)
    asked.changes["top_level_error"] = error
    here.ask_until(lambda: len(asked.requests) >= 5)
    came = [request.came for request in fake.of(METADATA)]
    assert came[4] - came[0] >= 0.6 * sum(least_ms) / 1000
    assert len(fake.connections) <= len(asked.requests) + 1


def test_a_trigger_of_0_ms_still_rebootstraps(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    here = wire(fake.servers, metadata_recovery_rebootstrap_trigger_ms=0)
    ask(here, ["t"])
    assert here.transport.cluster().partition_counts == {"t": 1}


def test_no_rebootstrap_without_the_strategy(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    here = wire(fake.servers, retry_backoff_ms=1, metadata_recovery_strategy="none")
    here.connect(T0)
    asked.changes["top_level_error"] = REBOOTSTRAP_REQUIRED
    before, connections = here.transport.cluster(), len(fake.connections)
    count = len(asked.requests)
    here.ask_until(lambda: len(asked.requests) >= count + 3)
    assert here.transport.cluster() is before
    assert len(fake.connections) == connections
    assert here.transport._metadata.rebootstrap_ms() == math.inf


def test_rebootstrap_when_no_broker_answers(fake: FakeBroker, asked: Asked, wire: MakeWire) -> None:
    """Connected, and silent: bootstrap.servers are asked again after metadata.recovery.rebootstrap.trigger.ms."""
    with FakeBroker() as silent:
        silent.answers[METADATA] = lambda request: None
        silent.answers[PRODUCE] = lambda request: None
        here = wire(fake.servers, retry_backoff_ms=1, metadata_recovery_rebootstrap_trigger_ms=300)
        asked.changes["brokers"] = [(1, silent)]
        node = here.connect(T0)
        assert (node.id, node.port) == (1, silent.port)
        here.transport.send(node, [make_batch([b"x"], to=T0)], now_ms())
        asked.changes["brokers"] = [(1, fake)]
        count, began = len(asked.requests), time.monotonic()
        here.ask_until(lambda: len(asked.requests) > count)
        assert time.monotonic() - began > 0.25
        here.until(lambda: (leader := here.transport.cluster().leader_for(T0)) is not None and leader.port == fake.port)
        assert here.take(1)[0].error is NetworkError
        fake.answers[PRODUCE] = lambda request: produced((0, 0))
        (answer,) = here.ask(make_batch([b"x"], to=T0))
        assert answer.error is None
