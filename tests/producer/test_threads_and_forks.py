"""One producer of many threads, and of a process and its forked children."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Link, Produce, Settings, Start
from producers import in_the_way, sender_starts
from runs import in_threads, threads
from senders import read_topic, read_values

from shmaccum import Producer
from shmaccum._core import Process
from shmaccum.errors import DeadOwnerError, IllegalStateError, KafkaTimeoutError, ProducerClosedError
from shmaccum.shm.layout import Role


def test_threads(produce: Produce, log_dir: Path) -> None:
    """All records are there, in order for each thread and partition; each callback came once."""
    producer = produce(buffer_memory=128 << 10, batch_size=4096, max_request_size=32 << 10)
    senders, count = 8, 400
    told: list[Any] = []

    def run(sender: int) -> None:
        for number in range(count):
            value = b"%d:%d:" % (sender, number) + bytes(number % 100)
            producer.send(
                "t", value, b"key of %d" % sender, on_delivery=lambda error, _, it=value: told.append(error or it)
            )

    in_threads(senders, run)
    producer.flush(20)
    stored = [record.value for records in read_topic(log_dir, "t").values() for record in records]
    for values in (stored, told):
        for sender in range(senders):
            mine = [value.split(b":") for value in values if value.startswith(b"%d:" % sender)]
            assert [int(number) for _, number, _ in mine] == list(range(count))


def test_a_flush_waits_for_callbacks_in_other_threads(join: Produce, topic: str) -> None:
    """As Kafka's, also for a thread with a producer of its own; but a flush in a callback waits for none."""
    mine, other, told = join(), join(), list[str]()
    begun, goes_on = threading.Event(), threading.Event()

    def first(error: object, metadata: object) -> None:
        begun.set()
        assert goes_on.wait(10)
        other.flush()
        told.append("first")

    def flush(_: int) -> None:
        other.send(topic, b"1", partition=0, on_delivery=first)
        other.flush()

    with threads(1, flush):
        assert begun.wait(10)
        mine.send(topic, b"2", partition=0, on_delivery=lambda error, metadata: told.append("second")).get(10)
        with pytest.raises(KafkaTimeoutError, match="another thread still runs callbacks"):
            mine.flush(0.01)
        goes_on.set()
        mine.flush()
        assert told == ["first", "second"]


def test_threads_that_all_send_first(produce: Produce, log_dir: Path) -> None:
    """None of them sees the topic half: every record goes where its key says."""
    producer = produce(num_partitions=100)
    together = threading.Barrier(6)

    def run(_: int) -> None:
        together.wait()
        producer.send("t", b"value", b"the same key")

    in_threads(6, run)
    producer.flush(20)
    assert sorted(len(records) for records in read_topic(log_dir, "t").values())[-2:] == [0, 6]


def send_until_closed(producer: Producer, topic: str, begun: threading.Event, thread: int = 0) -> int:
    """Send numbers, until the producer's close refuses one; return how many were accepted."""
    for number in itertools.count():
        try:
            producer.send(topic, b"%d" % number, partition=0)
        except ProducerClosedError:
            return number
        begun.set()
    raise AssertionError


def test_one_thread_closes_while_another_sends(join: Produce, kept_log: Path, topic: str) -> None:
    """What was sent before is delivered; who comes later is refused."""
    producer, begun = join(), threading.Event()
    producer.partitions_for(topic)
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send_until_closed, producer, topic, begun)
        begun.wait(10)
        producer.close(20)
    values = read_values(kept_log, topic)
    assert values == [b"%d" % number for number in range(len(values))]
    assert len(values) >= sending.result()


def close_again_and_again(link: Link, settings: dict[str, object], topic: str, rounds: int) -> None:
    """Make producers, and close them while two threads send, which must learn of that and of nothing else."""
    sys.setswitchinterval(1e-5)
    for _ in range(rounds):
        producer, begun = Producer(settings), threading.Event()
        with threads(2, partial(send_until_closed, producer, topic, begun)):
            begun.wait(20)
            producer.close(0)


def test_the_slab_goes_away_under_the_hands_of_threads(join: Produce, start: Start, kept: Settings, topic: str) -> None:
    """Whatever they are about when their process leaves it: they get the error that says so, and all goes on."""
    producer = join()
    producer.partitions_for(topic)
    rebuilds = producer.metrics()["slab-metrics"]["rebuild-total"]
    start(close_again_and_again, kept(), topic, 100).result()
    assert producer.send(topic, b"value", partition=1).get(20).offset == 0
    assert producer.metrics()["slab-metrics"]["rebuild-total"] == rebuilds


def test_close_ends_the_waits_of_threads(join: Produce, kept_log: Path, topic: str) -> None:
    """Who waits for an answer that will not be heard any more learns so at once."""
    producer = join()
    producer.partitions_for(topic)

    def wait(number: int) -> None:
        with pytest.raises(IllegalStateError):
            futures[number].get(60)

    with in_the_way(kept_log / f"{topic}-0"):
        futures = [producer.send(topic, b"value", partition=0) for _ in range(2)]
        with threads(2, wait):
            while not producer._slab.wakeup.waiting:
                pass
            producer.close(0)


# --- forks ----------------------------------------------------------------------------------------------


def test_fork(join: Produce, start: Start, kept_log: Path, topic: str) -> None:
    """The child sends with its own table entry; the parent's futures stay the parent's."""
    producer = join(linger_ms=50)
    starts = sender_starts(producer)
    producer.partitions_for(topic)
    told: list[Any] = []
    future = producer.send(topic, b"parent", partition=0, on_delivery=lambda *what: told.append(what))

    def use_inherited(link: Link) -> tuple[int, int]:
        with pytest.raises(DeadOwnerError, match=f"process {os.getppid()}"):
            future.get(0)
        producer.poll()
        assert producer.metrics()["producer-metrics"]["incomplete-batches"] == 0
        mine = producer.send(topic, b"child", partition=0)
        link.send("sent")
        entry = producer._slab.me
        assert producer._slab.processes.info(entry).roles == Role.PRODUCER
        offset = mine.get(20).offset
        producer.close()
        return offset, entry

    child = start(use_inherited, how="fork")
    assert child.hear() == "sent"
    assert future.get(20).offset == 0
    offset, entry = child.result()
    assert (offset, len(told)) == (1, 1)
    assert entry != producer._slab.me
    assert sender_starts(producer) == starts
    assert producer.send(topic, b"parent again", partition=0).get(20).offset == 2
    assert read_values(kept_log, topic) == [b"parent", b"child", b"parent again"]


def test_a_child_makes_a_producer_beside_its_parents(
    join: Produce, start: Start, kept: Settings, kept_log: Path, topic: str
) -> None:
    """Under its own table entry: else it reads its parent's completions, and loses its own."""
    producer = join(linger_ms=50)
    assert producer.send(topic, b"parent", partition=0).get(20).offset == 0

    def use_another(link: Link) -> tuple[int, int]:
        told: list[Any] = []
        with Producer(kept(linger_ms=50)) as another:
            future = another.send(topic, b"child", partition=0, on_delivery=lambda *what: told.append(what))
            another.flush(20)
            slab = another._slab
            assert told, "flush did not wait for the record"
            assert slab.words[slab.geometry.process(slab.me) + Process.RING_HEAD] > 0
            return future.get(1).offset, slab.me

    offset, entry = start(use_another, how="fork").result()
    assert offset == 1
    assert entry != producer._slab.me
    assert producer.send(topic, b"parent again", partition=0).get(20).offset == 2
    assert read_values(kept_log, topic) == [b"parent", b"child", b"parent again"]


def test_a_child_of_a_child(join: Produce, start: Start, kept_log: Path, topic: str) -> None:
    """As with Spark's daemon, which forks workers that never saw the slab's making."""
    producer = join()
    producer.partitions_for(topic)

    def send_from_grandchild(link: Link) -> int:
        if pid := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        producer.send(topic, b"grandchild", partition=0)
        producer.flush(20)
        os._exit(7)

    assert start(send_from_grandchild, how="fork").result() == 7
    assert read_values(kept_log, topic) == [b"grandchild"]


def test_the_parent_leaves_and_the_child_stays(produce: Produce, start: Start, log_dir: Path) -> None:
    """The sender serves as long as anybody is there, and the last one out cleans up."""
    producer = produce()
    producer.partitions_for("t")

    def send_late(link: Link) -> int:
        producer.poll()  # takes the child's place in the slab
        link.send("ready")
        link.recv()
        offset = producer.send("t", b"late", partition=0).get(20).offset
        producer.close()
        return offset

    child = start(send_late, how="fork").ready()
    producer.close()
    assert child.finish() == 0
    assert read_values(log_dir, "t") == [b"late"]
