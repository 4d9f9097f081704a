"""A process of the slab that is stopped with a lock: the others wait for as long as they said, and say for whom."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from faults import stopped_with
from fixture_types import Produce
from producers import sender_pid, stop_sender, wait_until_gone
from senders import read_values

from shmaccum import Producer
from shmaccum._core import Geometry
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaTimeoutError, LockTimeoutError
from shmaccum.observe.report import report
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.locks import MIN_TIMEOUT_S


@pytest.fixture
def producer(produce: Produce) -> Producer:
    """Return a producer of a known topic, and from now on wait for a lock no longer than a second."""
    producer = produce()
    producer.send("t", b"known", partition=2)
    producer.flush(30)
    producer._slab.lock_timeout_s = MIN_TIMEOUT_S
    return producer


def stripe(producer: Producer, partition: int) -> int:
    return producer._accumulator.state.map.queues[TopicPartition("t", partition)].lock.number


def test_send_names_the_stopped_holder_of_a_partition_lock(producer: Producer, log_dir: Path) -> None:
    slab = producer._slab
    with stopped_with(slab.locks[stripe(producer, 0)]) as pid:
        with pytest.raises(LockTimeoutError, match=f"process {pid} holds it; is it stopped") as caught:
            producer.send("t", b"a", partition=0)
        assert isinstance(caught.value, KafkaTimeoutError)
        assert producer.send("t", b"b", partition=1).get(30).offset == 0
        producer.poll(0)
        assert producer.metrics()["producer-metrics"]["incomplete-batches"] == 0
        assert producer.partitions_for("t") == {0, 1, 2}

    assert producer.send("t", b"c", partition=0).get(30).offset == 0
    assert read_values(log_dir, "t", 0) == [b"c"]


def test_send_names_the_stopped_holder_of_the_pool_and_tables_lock(producer: Producer) -> None:
    with stopped_with(producer._slab.pool_lock) as pid:
        with pytest.raises(LockTimeoutError, match=f"process {pid} holds it"):
            producer.send("t", b"a", partition=0)
        assert producer.metrics()["producer-metrics"]["waiting-threads"] == 0
    with stopped_with(producer._slab.tables_lock) as pid:
        with pytest.raises(LockTimeoutError, match=f"process {pid} holds it"):
            producer.send("another", b"a")
        with pytest.raises(LockTimeoutError, match=f"process {pid} holds it"):
            producer.partitions_for("yet.another")
        assert producer.partitions_for("t") == {0, 1, 2}, "a look at what is known takes no lock"
        assert producer.send("t", b"b", partition=0).get(30).offset == 0


def test_flush_and_close_honour_timeouts_with_a_stopped_process(
    produce: Produce, log_dir: Path, slab_name: str
) -> None:
    producer = produce()
    producer.partitions_for("t")
    stop_sender(producer)
    producer.send("t", b"a", partition=0)
    with stopped_with(producer._slab.locks[stripe(producer, 0)]):
        os.kill(sender_pid(producer), signal.SIGCONT)
        producer.poll(0.01)
        with pytest.raises(KafkaTimeoutError):
            producer.flush(0.2)
        with pytest.raises(KafkaTimeoutError):
            producer.close(0.2)

    wait_until_gone(slab_name)
    assert read_values(log_dir, "t", 0) == [b"a"]


def test_status_waits_for_no_stopped_process(producer: Producer, slab_name: str) -> None:
    slab = producer._slab
    with stopped_with(slab.pool_lock), stopped_with(slab.tables_lock), stopped_with(slab.lock_file.lifecycle()):
        seen = report(slab_name)
    assert seen.memory.waiting_threads == 0
    assert [topic.name for topic in seen.topics] == ["t"]


def test_close_past_a_process_stopped_during_close(slab_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = Geometry(64, 8, max_processes=4, max_topics=4, max_partitions=4)
    slab = attach(slab_name, geometry)
    lifecycle = slab.lock_file.lifecycle
    with stopped_with(slab.lock_file.lifecycle()) as pid:
        monkeypatch.setattr(slab.lock_file, "lifecycle", partial(lifecycle, 0.1))
        with pytest.raises(LockTimeoutError, match=f"process {pid} has been attaching or detaching"):
            detach(slab)

    again = attach(slab_name, geometry)  # makes a new one where a producer of another test has removed the empty slab
    again.reap_dead()
    assert list(again.processes.in_use()) == [again.me]
    detach(again)
