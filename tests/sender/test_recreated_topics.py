"""A topic that is deleted, or deleted and made again: what the sender and the producers do about it."""

from __future__ import annotations

import pytest
from broker_model import SLOT, TIMEOUT_MS, BrokerRun, ClusterModel, StartBrokerRun, sent

from shmaccum.cluster import TopicPartition
from shmaccum.errors import DeliveryTimeoutError, NotEnoughReplicasError
from shmaccum.shm.layout import TopicState

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def cluster() -> ClusterModel:
    return ClusterModel("t", 3)


@pytest.fixture
def run(start_broker_run: StartBrokerRun) -> BrokerRun:
    """A sender, each of whose partitions has a record."""
    run = start_broker_run()
    for partition in run.cluster.partitions:
        run.send(partition, b"before")
    run.go_on()
    run.transport.sent.clear()
    return run


def values(run: BrokerRun, partition: TopicPartition) -> list[bytes]:
    return run.cluster.partitions[partition].values


def test_a_smaller_topic_is_adopted(run: BrokerRun, caplog: pytest.LogCaptureFixture) -> None:
    entry = run.accumulator.map.topics["t"]
    run.cluster.remake(1, seen=True)
    run.step()
    assert (entry.state, len(entry.queues)) == (TopicState.KNOWN, 1)
    assert "topic 't' was made again: it had 3 partitions and now has 1" in caplog.text
    future = run.send(T0, b"after")
    run.go_on()
    assert (future.get(0).offset, values(run, T0)) == (0, [b"after"])


def test_a_topic_that_grows_is_the_same(run: BrokerRun, caplog: pytest.LogCaptureFixture) -> None:
    """Its logs know the producer: what is sent to them goes on with their numbers."""
    run.cluster.grow()
    run.step()
    assert len(run.accumulator.map.topics["t"].queues) == 4
    run.send(T0, b"after")
    run.go_on()
    assert sent(run, T0) == [(0, 1)]
    assert "was made again" not in caplog.text


def test_a_topic_that_gets_an_id_is_the_same(
    cluster: ClusterModel, start_broker_run: StartBrokerRun, caplog: pytest.LogCaptureFixture
) -> None:
    """By an upgrade of brokers before Kafka 2.8."""
    cluster.topic_id = 0
    cluster.publish()
    run = start_broker_run()
    run.send(T0, b"before")
    run.go_on()
    cluster.topic_id = 1
    cluster.publish()
    run.step()
    assert run.accumulator.map.topics["t"].topic_id == 1
    run.send(T0, b"after")
    run.go_on()
    assert sent(run, T0) == [(0, 0), (0, 1)]
    assert "was made again" not in caplog.text


def test_the_log_of_a_topic_made_again_gets_numbers_from_0(run: BrokerRun) -> None:
    """It knows no producer: so the first batch is sent alone, and cannot be stored behind the next one."""
    run.cluster.remake(3, seen=True)
    run.step()
    run.cluster.partitions[T0].refuse = [NotEnoughReplicasError]
    futures = [run.send(T0, b"%d" % number + bytes(SLOT // 2)) for number in range(3)]
    run.step(4)
    assert sent(run, T0) == [(1, 0)]
    run.go_on()
    assert [value.rstrip(b"\0") for value in values(run, T0)] == [b"0", b"1", b"2"]
    assert [future.get(0).offset for future in futures] == [0, 1, 2]


def test_a_batch_that_may_be_in_the_new_log_keeps_its_number(run: BrokerRun) -> None:
    """Stored there, and the answer lost; then the topic is found to be another. It must not be stored twice."""
    run.cluster.remake(3)
    future = run.send(T0, b"once")
    run.step(2)
    run.transport.store(0)
    run.transport.drop(0)
    run.cluster.publish()
    run.step(2)
    run.go_on()
    assert (values(run, T0), future.get(0).offset) == ([b"once"], 0)
    later = [run.send(T0, b"%d" % number + bytes(SLOT // 2)) for number in range(3)]
    run.go_on()
    assert [future.get(0).offset for future in later] == [1, 2, 3]


def test_a_death_before_the_new_id_is_stored(run: BrokerRun, start_broker_run: StartBrokerRun) -> None:
    """The next sender finds out again."""
    run.cluster.remake(3)
    following = start_broker_run()
    following.step()
    assert following.accumulator.map.topics["t"].topic_id == 2
    following.send(T0, b"after")
    following.step(2)
    assert sent(following, T0) == [(1, 0)]
    following.go_on()


def test_what_is_queued_for_a_partition_that_is_gone_expires_and_says_why(run: BrokerRun) -> None:
    run.transport.reachable.clear()
    future = run.send(T2, b"lost")
    run.step(2)
    run.cluster.remake(1)
    run.transport.reachable |= {0, 1}
    run.cluster.publish()
    run.step(3)
    assert not future.is_done
    assert run.transport.updates[-1] == {"t"}  # the topic may grow again
    run.step(after_ms=TIMEOUT_MS)
    with pytest.raises(DeliveryTimeoutError, match=r"t-2: .*'t' was deleted and recreated, and has only 1 part"):
        future.get(0)


def test_a_topic_that_grows_again_gets_what_is_queued(run: BrokerRun) -> None:
    run.cluster.remake(1)
    future = run.send(T2, b"kept")
    run.cluster.publish()
    run.step(2)
    run.cluster.remake(3, seen=True)
    run.step(2)
    run.go_on()
    assert future.get(0).offset == 0


def test_a_topic_that_is_gone(run: BrokerRun) -> None:
    entry = run.accumulator.map.topics["t"]
    future = run.send(T1, b"lost")
    run.cluster.remake(0, seen=True)
    run.step(2)
    assert (entry.state, entry.queues) == (TopicState.FAILED, ())
    run.step(after_ms=TIMEOUT_MS)
    with pytest.raises(DeliveryTimeoutError, match="topic 't' is gone: UnknownTopicOrPartitionError"):
        future.get(0)
    run.cluster.remake(2, seen=True)
    run.step()
    assert (entry.state, len(entry.queues)) == (TopicState.KNOWN, 2)


def test_a_new_leader_is_tried_at_once(start_broker_run: StartBrokerRun, cluster: ClusterModel) -> None:
    """Its batch backs off from the old one (KIP-951); from the new one it does, too."""
    waits = {"retry_backoff_ms": 3000, "retry_backoff_max_ms": 3000, "request_timeout_ms": 30_000}
    run = start_broker_run(**waits, delivery_timeout_ms=120_000)
    cluster.move(T0)
    future = run.send(T0, b"value")
    run.step(2)
    run.transport.answer(0)
    run.step(2)  # the answer, and what the cluster says now
    assert len(sent(run, T0)) == 2
    cluster.partitions[T0].refuse = [NotEnoughReplicasError]
    run.transport.answer(1)
    run.step(2, after_ms=2000)
    assert sent(run, T0) == []
    run.step(2, after_ms=2000)
    run.go_on()
    assert future.get(0).offset == 0
