"""How often a producer rings for its sender."""

from __future__ import annotations

import array
import fcntl
import termios
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from fixture_types import Produce
from producers import stopped_sender

from shmaccum import Producer
from shmaccum._core import Super


def send_record(producer: Producer, value: bytes, partition: int) -> None:
    producer.send("t", value, partition=partition)


def send_column(producer: Producer, value: bytes, partition: int) -> None:
    producer.send_batch("t", pa.RecordBatch.from_pydict({"value": [value], "partition": [partition]}))


Send = Callable[[Producer, bytes, int], None]

each_way = pytest.mark.parametrize("send", [send_record, send_column])


def rings(producer: Producer) -> int:
    """Return how many rings the sender has not answered yet."""
    count = array.array("i", [0])
    fcntl.ioctl(producer._slab.button.fifo.number, termios.FIONREAD, count)
    return count[0]


@each_way
def test_slow_sender_is_woken_once(produce: Produce, send: Send) -> None:
    """For every full batch it would be a system call each: on a busy machine, most of what a record costs."""
    producer = produce(num_partitions=1)
    producer.send("t", b"first").get(20)
    with stopped_sender(producer, asleep=True):
        before = rings(producer)
        for _ in range(40):
            send(producer, bytes(10_000), 0)
        assert rings(producer) <= before + 1
    assert producer.send("t", b"last").get(20).offset == 41


@each_way
def test_sender_that_wakes_in_time_is_not_woken_for_a_new_batch(produce: Produce, send: Send) -> None:
    """It has no use for the batch before that has lingered; for a full one it has."""
    producer = produce(num_partitions=5, linger_ms=60_000)
    producer.send("t", b"first", partition=0)
    producer.flush()
    words = producer._slab.words

    def rings_for(value: bytes, partition: int, sleep: int, wakes_ms: int) -> int:
        """Return how many rings a record brings in a sleep of the sender."""
        words[Super.SENDER_WAKES], words[Super.SENDER_ASLEEP] = wakes_ms, sleep
        before = rings(producer)
        send(producer, value, partition)
        return rings(producer) - before

    now_ms = time.monotonic_ns() // 1_000_000
    with stopped_sender(producer):
        assert rings_for(b"lingers", 1, sleep=1, wakes_ms=now_ms + 60_000) == 0
        assert rings_for(bytes(10_000), 1, sleep=1, wakes_ms=now_ms + 60_000) == 0
        assert rings_for(bytes(10_000), 1, sleep=1, wakes_ms=now_ms + 60_000) == 1  # full
        assert rings_for(b"of a sender that has died, perhaps", 2, sleep=2, wakes_ms=now_ms - 1) == 1
        assert rings_for(b"too late", 3, sleep=3, wakes_ms=now_ms + 600_000) == 1
        assert rings_for(b"nobody knows", 4, sleep=4, wakes_ms=0) == 1
    producer.flush()


def test_sender_is_woken_for_a_full_batch_behind_which_no_other_comes(produce: Produce) -> None:
    """The record that finds it full goes to another partition, so that it would wait for its linger.

    Here the core leaves that record to Python; its own code has a test beside it (``tests/core/test_send.py``).
    """
    producer = produce(num_partitions=5, linger_ms=60_000)
    words = producer._slab.words

    def rings_of_the_next(topic: str) -> int | None:
        """Fill a batch; return how many rings the next record brings, or None if it goes to the same partition."""
        first = producer.send(topic, bytes(1000))
        while (second := producer.send(topic, bytes(1000))).batch == first.batch:
            pass
        first.get(20)  # no batch is before the second one, so that it does not grow
        wakes_ms = time.monotonic_ns() // 1_000_000 + 50_000
        with stopped_sender(producer):
            for sleep in range(1, 100):
                words[Super.SENDER_WAKES], words[Super.SENDER_ASLEEP] = wakes_ms, sleep
                words[Super.GENERATION] += 1
                before = rings(producer)
                future = producer.send(topic, bytes(1000))
                if future.batch != second.batch:
                    break
                assert rings(producer) == before
            rung = rings(producer) - before
        producer.flush()
        return None if future.topic_partition == second.topic_partition else rung

    found = map(rings_of_the_next, "abcdefghij")  # the partitioner may choose the same partition again, by chance
    assert next(rung for rung in found if rung is not None) == 1
