"""Topics that producers ask for: found, made, refused, grown."""

from __future__ import annotations

from pathlib import Path

import pytest
from splitting import T0, StartRun

from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaStorageError, NetworkError, SlabFullError, UnknownTopicOrPartitionError
from shmaccum.shm.layout import TopicState

U0 = TopicPartition("u", 0)


def test_a_topic_that_cannot_be_made(start_sender: StartRun, log_dir: Path) -> None:
    run = start_sender()
    in_the_way = log_dir / "t-0"  # behind t-1, which is made first
    in_the_way.write_bytes(b"")
    run.topic("t")
    entry = run.accumulator.map.topic("t")
    assert entry is not None
    assert (entry.state, entry.error) == (TopicState.FAILED, KafkaStorageError)
    in_the_way.unlink()
    run.topic("t")
    assert (entry.state, len(entry.queues)) == (TopicState.KNOWN, 2)


def test_a_topic_that_finds_no_room_in_the_slab(start_sender: StartRun, caplog: pytest.LogCaptureFixture) -> None:
    run = start_sender(num_partitions=4)
    run.topic("t")
    run.topic("u")
    entry = run.accumulator.map.topic("u")
    assert entry is not None
    assert (entry.state, entry.error) == (TopicState.FAILED, SlabFullError)
    assert "shmaccum.max.partitions" in caplog.text
    # The others go on.
    future = run.send(TopicPartition("t", 3))
    run.run(3)
    assert future.get(0).offset == 0


def test_nearly_full_tables_are_logged_once(start_sender: StartRun, caplog: pytest.LogCaptureFixture) -> None:
    run = start_sender(num_partitions=1, shmaccum_max_partitions=10, shmaccum_max_topics=20)
    for number in range(8):
        run.topic(f"t{number}")
    assert "of the slab's" not in caplog.text
    for number in range(8, 10):
        run.topic(f"t{number}")
    assert caplog.text.count("9 of the slab's 10 partitions are in use") == 1
    assert caplog.text.count("shmaccum.max.partitions") == 1
    assert "shmaccum.max.topics" not in caplog.text


def test_the_next_sender_knows_the_topics(start_sender: StartRun) -> None:
    """What the last one knew went with it: its successor asks about all topics of the slab at once."""
    run = start_sender()
    run.topic("t")
    run.topic("u")
    futures = [run.send(T0), run.send(U0)]
    run.resign()
    successor = start_sender()
    successor.run(3)
    assert successor.transport.updates[0] == {"t", "u"}
    assert [future.get(0).offset for future in futures] == [0, 0]


def test_a_sender_that_reaches_no_broker_keeps_the_partitions(
    start_sender: StartRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that starts in an outage knows nothing of the topics; producers go on to send to them."""
    run = start_sender()
    run.topic("t")
    run.resign()
    successor = start_sender()
    entry = successor.accumulator.map.topic("t")
    assert entry is not None

    def answer(cluster: Cluster) -> None:
        monkeypatch.setattr(successor.transport, "cluster", lambda: cluster)
        successor.run(2)
        successor.accumulator.map.refresh()

    monkeypatch.setattr(successor.transport, "request_update", lambda topics: None)
    answer(Cluster(topic_errors={"t": NetworkError}))
    assert (entry.error, len(entry.queues)) == (NetworkError, 2)
    assert "was deleted" not in caplog.text
    answer(Cluster(partition_counts={"t": 2}))
    assert (entry.state, entry.error, len(entry.queues)) == (TopicState.KNOWN, None, 2)
    answer(Cluster(topic_errors={"t": UnknownTopicOrPartitionError}))
    assert len(entry.queues) == 0
    assert "'t' was deleted" in caplog.text
