"""Damage in the slab: a damaged batch fails alone; producers get the error if no sender can serve."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from producers import Settings, kill_sender, sender_pid, settings_of, stop_sender, wait_until
from senders import HandRun, read_values

from shmaccum import Producer
from shmaccum._core import COMMIT_SIZE_SHIFT, Partition, Process, Slot, Super
from shmaccum.cluster import TopicPartition
from shmaccum.errors import CorruptRecordError, SenderError, SlabDamagedError, SlabNotFoundError
from shmaccum.shm.lifecycle import destroy

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def header_of(run: HandRun, to: TopicPartition) -> int:
    batch = run.accumulator.map.queues[to].first()
    assert batch is not None
    return run.slab.geometry.header(batch.slot)


WRONG: dict[str, tuple[int, int]] = {
    "more bytes than its slot has": (Slot.COMMIT, 1 << 30 << COMMIT_SIZE_SHIFT | 1 << 1),
    "no bytes at all": (Slot.COMMIT, 0),
    "no records": (Slot.COMMIT, 100 << COMMIT_SIZE_SHIFT),
    "a time that no batch has": (Slot.BASE_TIMESTAMP, (1 << 64) - 1),
    "no slots": (Slot.SLOTS, 0),
    "as many slots as wrap around to one slot's bytes": (Slot.SLOTS, (1 << 61) + 1),
    "all bits set in its number of slots": (Slot.SLOTS, (1 << 64) - 1),
    "more records complete than there are": (Slot.COMPLETED, 9),
    "a compression that there is not": (Slot.LINGER, 7),
}


@pytest.mark.parametrize("what", WRONG)
def test_damaged_batch_fails_alone(run: HandRun, log_dir: Path, caplog: pytest.LogCaptureFixture, what: str) -> None:
    word, value = WRONG[what]
    damaged = run.accumulator.append(T0, 1, None, b"damaged").future
    sound = run.accumulator.append(T1, 1, None, b"sound").future
    run.slab.words[header_of(run, T0) + word] = value
    with caplog.at_level(logging.ERROR):
        run.run(3)
    run.accumulator.producer.pending.poll()
    assert isinstance(damaged.exception(), CorruptRecordError)
    assert sound.get(0).offset == 0
    assert "is damaged" in caplog.text
    after = run.accumulator.append(T0, 1, None, b"after").future
    run.run(4)
    run.accumulator.producer.pending.poll()
    assert after.get(0).offset == 0
    assert (read_values(log_dir, "t", 0), read_values(log_dir, "t", 1)) == ([b"after"], [b"sound"])
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory


def test_a_slab_whose_damage_came_since_the_attach_is_not_recovered(run: HandRun) -> None:
    word = run.slab.geometry.process(run.slab.me) + Process.RING_HEAD
    head, run.slab.words[word] = run.slab.words[word], (1 << 64) - 1
    with pytest.raises(SlabDamagedError, match=f"process entry {run.slab.me}"):
        run.accumulator.sender.recover()
    run.slab.words[word] = head


@pytest.mark.parametrize("link", [0, 1, 3, 99, (1 << 64) - 1])
def test_record_with_a_damaged_chain_fails_alone(run: HandRun, link: int) -> None:
    """By an end too early, a link to another's slot or into the chain itself, or out of the slab."""
    pool = run.accumulator.pool
    sound = run.accumulator.append(T1, 1, None, b"sound").future
    damaged = run.accumulator.append(T0, 1, None, bytes(3 * pool.poolable_size)).future
    assert header_of(run, T0) == run.slab.geometry.header(1)
    run.slab.words[run.slab.geometry.header(3) + Slot.CHAIN] = link
    run.run(3)
    run.accumulator.producer.pending.poll()
    assert isinstance(damaged.exception(), CorruptRecordError)
    assert sound.get(0).offset == 0
    assert pool.available_memory() == pool.total_memory
    after = run.accumulator.append(T0, 1, None, bytes(3 * pool.poolable_size)).future
    run.run(4)
    run.accumulator.producer.pending.poll()
    assert after.get(0).offset == 0


def test_erased_leader_is_stored_again(run: HandRun) -> None:
    """The cluster's snapshot has it; else the partition would wait for a new snapshot until its batches expire."""
    run.run(2)
    future = run.accumulator.append(T0, 1, None, b"value").future
    run.slab.words[run.slab.geometry.partition(0) + Partition.LEADER] = 0
    run.run(3)
    run.accumulator.producer.pending.poll()
    assert future.get(0).offset == 0


def test_producers_get_the_reason_why_no_sender_serves(settings: Settings, tmp_path: Path) -> None:
    log_file = tmp_path / "sender.log"
    producer = Producer(settings(sender_log_file=str(log_file)))
    producer.send("t", b"first").get(30)
    kill_sender(producer)
    damaged = producer._slab.geometry.process(9) + Process.FLUSHING
    producer._slab.words[damaged] = (1 << 64) - 1
    said = "is damaged: word FLUSHING of process entry 9 is 18446744073709551615"
    for _ in range(2):
        with pytest.raises(SenderError, match=said):
            producer.send("t", bytes(30_000), partition=0)
    assert said in log_file.read_text()
    producer._slab.words[damaged] = 0
    producer.close(30)


def send_on_over_damage(link: Connection, name: str, log_dir: Path) -> None:
    """Report the sender's pid, flip a bit of the waiter queue's head, and send until an error comes."""
    producer = Producer(settings_of(name, log_dir, buffer_memory=1 << 16, linger_ms=0))
    producer.send("t", b"first").get(30)
    link.send(sender_pid(producer))
    link.recv()
    producer._slab.words[Super.WAITER_HEAD] ^= 1 << 63
    try:
        while True:
            producer.send("t", bytes(5000), partition=0)
    except (SlabDamagedError, SenderError) as error:
        link.send(str(error))
    os._exit(0)


def test_a_flipped_bit_hangs_neither_producers_nor_the_sender(start: Start, slab_name: str, tmp_path: Path) -> None:
    """Bit 63 of the waiter queue's head: reckoned with sign, the queue has as many tickets as there are numbers."""
    producer = start(send_on_over_damage, slab_name, tmp_path / "log")
    sender = producer.hear()
    began_s = time.monotonic()
    producer.tell(None)
    try:
        assert re.search("waiter queue|WAITER_HEAD", producer.hear())
        wait_until(lambda: not is_running(sender), "the sender ends")
        assert time.monotonic() - began_s < 5
    finally:
        if is_running(sender):
            os.kill(sender, signal.SIGKILL)
            wait_until(lambda: not is_running(sender), "the sender is killed")
        producer.join()
        with contextlib.suppress(SlabNotFoundError):  # the last process can have removed it
            destroy(slab_name, force=True)


BLOCKED: list[Callable[[Producer, int], tuple[int, int]]] = [
    lambda producer, entry: (partition_at(producer, entry) + Partition.HELD, 1),
    lambda producer, entry: (partition_at(producer, entry) + Partition.MUTED, 1),
    lambda producer, entry: (partition_at(producer, entry) + Partition.IN_FLIGHT, 9),
    lambda producer, entry: (partition_at(producer, entry) + Partition.HEAD, 0),
    lambda producer, entry: (first_header(producer, entry) + Slot.NEXT, 0),
]
"""Damage after which no event makes a partition's batches ready: word, and its value."""


def partition_at(producer: Producer, entry: int) -> int:
    """Return the word index of a partition of the slab's only topic."""
    return producer._slab.geometry.partition(entry)


def first_header(producer: Producer, entry: int) -> int:
    slab = producer._slab
    return slab.geometry.header(slab.words[partition_at(producer, entry) + Partition.HEAD] - 1)


def test_sigterm_ends_a_sender_whose_batches_are_blocked_by_damage(
    settings: Settings, log_dir: Path, tmp_path: Path
) -> None:
    """It names what it leaves; the next sender delivers that."""
    log_file = tmp_path / "sender.log"
    partitions = range(len(BLOCKED))
    given = settings(sender_log_file=str(log_file), delivery_timeout_ms=100_000, num_partitions=len(BLOCKED))
    with Producer(given) as producer:
        for partition in partitions:
            producer.send("t", b"first", partition=partition).get(30)
        sender = sender_pid(producer)
        stop_sender(producer)
        values = [b"%d" % number * 5000 for number in range(8)]
        futures = [producer.send("t", value, partition=partition) for value in values for partition in partitions]
        for entry, damage in enumerate(BLOCKED):
            word, value = damage(producer, entry)
            producer._slab.words[word] = value
        os.kill(sender, signal.SIGTERM)
        os.kill(sender, signal.SIGCONT)
        wait_until(lambda: not is_running(sender), "the sender ends")
        assert "no batch can become ready" in log_file.read_text()
        producer.flush(30)
        assert all(future.succeeded() for future in futures)
    for partition in partitions:
        assert read_values(log_dir, "t", partition) == [b"first", *values]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
