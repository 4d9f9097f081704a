"""Batches that grow while their partition has others before them, sent by a real sender."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from processes import wait_until
from senders import HandRun, counter, read_values
from splitting import SLOT, T0, T1, StartRun, batches_of, send_columns

from shmaccum._core import Partition, Super
from shmaccum.cluster import TopicPartition
from shmaccum.errors import BufferExhaustedError

MAX_BYTES = 8 * SLOT


@pytest.fixture
def run(start_run: StartRun) -> HandRun:
    return start_run(batch_max_bytes=MAX_BYTES, buffer_memory=32 * SLOT, shmaccum_checksum="append")


def values(count: int, size: int = SLOT // 3) -> list[bytes]:
    return [b"%d " % number + bytes([number % 256]) * size for number in range(count)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_rows_that_have_to_wait_are_in_large_batches(start_run: StartRun, log_dir: Path, compression: str) -> None:
    """The first batch has nothing before it, so it does not grow."""
    run = start_run(batch_max_bytes=MAX_BYTES, buffer_memory=40 * SLOT, compression_type=compression)
    queue = run.accumulator.map.queues[T0]
    sent = values(30)
    for begin, end in ((0, 6), (6, 30)):
        send_columns(run, sent[begin:end])
    assert len(queue) == 3
    run.run(8)
    assert read_values(log_dir, "t", 0) == sent
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_grown_batch_arrives_whole(start_run: StartRun, log_dir: Path, codec: str) -> None:
    run = start_run(
        compression_type=codec,
        batch_max_bytes=128 * SLOT,
        buffer_memory=512 * SLOT,
        max_request_size=128 * SLOT,
        shmaccum_checksum="append",
    )
    sent = values(700)
    futures = [run.send(T0, value) for value in sent]
    futures.append(run.send(T1))
    run.run_until(lambda: counter(run, Super.RECORDS_SENT) == 701)
    run.accumulator.producer.pending.poll()
    assert [future.get(0).offset for future in futures] == [*range(700), 0]
    assert read_values(log_dir, "t", 0) == sent
    batches = batches_of(log_dir)
    assert {str(batch.compression) for batch in batches} == {codec}
    assert max(batch.record_count for batch in batches) > 300
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_records_that_are_larger_than_a_full_batch_share_batches_that_wait(
    start_run: StartRun, log_dir: Path, compression: str
) -> None:
    run = start_run(batch_max_bytes=MAX_BYTES, buffer_memory=40 * SLOT, compression_type=compression)
    sent = values(12, 2 * SLOT)
    for value in sent:
        run.send(T0, value)
    assert len(run.accumulator.map.queues[T0]) == 5, "one that need not wait, and four of three"
    run.run_until(lambda: counter(run, Super.RECORDS_SENT) == 12)
    assert read_values(log_dir, "t", 0) == sent
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory


def test_what_a_topic_takes_is_learned_and_kept(run: HandRun, log_dir: Path, start_run: StartRun) -> None:
    run.transport.largest = 2 * SLOT
    sent = values(40)
    for value in sent:
        run.send(T0, value)
    run.run_until(lambda: counter(run, Super.RECORDS_SENT) == 40)
    assert read_values(log_dir, "t", 0) == sent
    learned = run.slab.words[run.slab.geometry.partition(0) + Partition.MAX_BYTES]
    assert SLOT <= learned <= 2 * SLOT
    split = counter(run, Super.BATCHES_SPLIT)
    for value in sent:
        run.send(T0, value)
    send_columns(run, sent[:12])
    run.run_until(lambda: counter(run, Super.RECORDS_SENT) == 92)
    assert counter(run, Super.BATCHES_SPLIT) == split, "no batch grows beyond it"


def test_who_waits_for_memory_gives_it_to_the_batch_that_waits(run: HandRun, log_dir: Path) -> None:
    sent = values(5)
    for value in sent[:4]:
        run.send(T0, value)
    pool, queue = run.accumulator.pool, run.accumulator.map.queues[T0]
    held = [pool.allocate(SLOT, 0) for _ in range(pool.available_memory() // SLOT)]
    with pytest.raises(BufferExhaustedError):
        run.send(T0, sent[4])
    assert len(queue) == 2
    waiting = threading.Thread(target=lambda: run.accumulator.append(T0, 0, None, sent[4], max_block_ms=30_000))
    waiting.start()
    wait_until(lambda: run.slab.words[Super.WAITER_TAIL] > run.slab.words[Super.WAITER_HEAD], "it waits")
    pool.deallocate(held.pop())
    waiting.join(30)
    assert len(queue) == 2, "there is no third batch"
    pool.deallocate(*held)
    run.run(4)
    assert read_values(log_dir, "t", 0) == sent
    assert pool.available_memory() == pool.total_memory


def test_who_waits_for_memory_needs_none_once_another_has_brought_room(run: HandRun, log_dir: Path) -> None:
    """One slot is freed, and two calls wait for one each, for the same batch."""
    sent = values(6)
    for value in sent[:4]:
        run.send(T0, value)
    pool = run.accumulator.pool
    held = [pool.allocate(SLOT, 0) for _ in range(pool.available_memory() // SLOT)]
    waiting = [
        threading.Thread(target=lambda value=value: run.accumulator.append(T0, 0, None, value, max_block_ms=30_000))
        for value in sent[4:]
    ]
    for number, thread in enumerate(waiting, start=1):
        thread.start()
        wait_until(lambda number=number: pool.queued() == number, "it waits")
    pool.deallocate(held.pop())
    for thread in waiting:
        thread.join(30)
    assert pool.available_memory() == 0
    pool.deallocate(*held)
    run.run(4)
    assert sorted(read_values(log_dir, "t", 0)) == sorted(sent)


SLOT_SIZE = 16384


def test_a_batch_takes_memory_as_it_gets_records(start_run: StartRun, log_dir: Path) -> None:
    """In a tenth of the memory that batches of this size would need, and a record may be larger than a slot."""
    run = start_run(
        num_partitions=6, batch_size=1 << 20, buffer_memory=2 << 20, linger_ms=10_000, shmaccum_checksum="append",
        shmaccum_slot_size=SLOT_SIZE,
    )  # fmt: skip
    sent: dict[int, list[bytes]] = {partition: [] for partition in range(6)}
    for size in (10, 5_000, 3 * SLOT_SIZE, 20, 2 * SLOT_SIZE, 9_000):
        for partition, values_of in sent.items():
            values_of.append(bytes([partition]) * size)
            run.send(TopicPartition("t", partition), values_of[-1])
    queues = run.accumulator.map.queues
    assert {len(queues[TopicPartition("t", partition)]) for partition in sent} == {1}
    run.run(1)
    assert counter(run, Super.RECORDS_SENT) == 0, "they linger"
    run.accumulator.producer.pending.begin_flush(run)
    run.run_until(lambda: counter(run, Super.RECORDS_SENT) == 36)
    assert {partition: read_values(log_dir, "t", partition) for partition in sent} == sent
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory
