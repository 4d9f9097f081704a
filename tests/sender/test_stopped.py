"""A producer that is stopped with a lock: the sender does without what it guards, and does that when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import stopped_with
from senders import HandRun, read_values
from splitting import SLOT, StartRun

from shmaccum._core import LOCK_POOL, LOCK_STRIPES, STRIPES, Buffer, FutureRecordMetadata, Super
from shmaccum.accumulator.drain import deferral
from shmaccum.cluster import TopicPartition
from shmaccum.errors import DeliveryTimeoutError, NetworkError
from shmaccum.shm.locks import SlabLock

T0, T1, T16 = (TopicPartition("t", number) for number in (0, 1, STRIPES))
"""The first and the last share a stripe."""


MANY: dict[str, int] = {"num_partitions": STRIPES + 1, "shmaccum_max_processes": 8, "shmaccum_max_partitions": 40}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip a lock for less long, so that a sender soon finds that it is free."""
    monkeypatch.setattr(deferral, "RETRY_MS", 300)


@pytest.fixture
def run(start_sender: StartRun) -> HandRun:
    run = start_sender(**MANY)
    run.topic("t")
    return run


def send_refused(run: HandRun) -> FutureRecordMetadata:
    """Send a batch that the broker refuses for now; its answer is held."""
    run.transport.refuse = {T0: NetworkError}
    run.transport.held = True
    future = run.send(T0, b"first")
    run.run()
    assert len(run.transport.sent) == 1
    run.transport.refuse = {}
    return future


def run_until_done(run: HandRun, *futures: FutureRecordMetadata, after_ms: int = 1_000) -> None:
    def done() -> bool:
        run.accumulator.producer.pending.poll()
        return all(future.is_done for future in futures)

    run.run_until(done, after_ms)


def stripe(run: HandRun, of: TopicPartition) -> SlabLock:
    return run.accumulator.map.queues[of].lock


def test_the_other_partitions_are_served(run: HandRun, log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    held_up = [run.send(T0, b"a"), run.send(T16, b"a")]

    with stopped_with(stripe(run, T0)) as pid:
        for number in range(10):
            run_until_done(run, run.send(T1, b"%d" % number))
        run.transport.asked.clear()
        run.run(2)
        assert 0 < max(run.transport.asked) <= deferral.RETRY_MS, "it does not spin meanwhile"
        assert not any(future.is_done for future in held_up)
        assert list(run.accumulator.sender.deferral.until_ms) == [LOCK_STRIPES]
        # It is waited for once, and not once for every partition and pass.
        assert len(caplog.messages) < 10
        assert f"process {pid} holds it" in caplog.messages[0]

    run_until_done(run, *held_up)
    assert read_values(log_dir, "t", 1) == [b"%d" % number for number in range(10)]
    assert read_values(log_dir, "t", 0) == read_values(log_dir, "t", STRIPES) == [b"a"]
    assert run.accumulator.sender.deferral.held_up() == []


def test_a_batch_that_is_to_be_sent_again_waits_for_its_place(run: HandRun, log_dir: Path) -> None:
    futures = [send_refused(run), run.send(T0, b"second")]
    run.transport.held = False

    with stopped_with(stripe(run, T0)):
        run_until_done(run, run.send(T1, b"other"))
        assert run.slab.words[Super.BATCHES_RETRIED] == 1
        assert not futures[0].is_done

    run_until_done(run, *futures)
    assert read_values(log_dir, "t", 0) == [b"first", b"second"]


def test_open_batches_leave_though_memory_is_short_and_one_waits_for_its_place(run: HandRun) -> None:
    """It has its answer: no other one of its node is held back until a batch comes back from there."""
    first = send_refused(run)
    run.transport.held = False
    other = run.send(T1, b"other")
    memory: list[Buffer] = []
    while run.slab.pool.free_slots:
        run.slab.pool.allocate(memory, 1)

    with stopped_with(stripe(run, T0)):
        run_until_done(run, other)
        assert other.get(0).offset == 0
        assert not first.is_done

    run_until_done(run, first)
    run.slab.pool.free(*memory)


def test_a_sender_that_takes_over_puts_back_what_it_can(start_sender: StartRun, run: HandRun, log_dir: Path) -> None:
    run.transport.held = True
    futures = [run.send(T0, b"a"), run.send(T1, b"a")]
    run.run()
    assert len(run.transport.sent) == 2
    futures.append(run.send(T0, b"b"))
    run.resign()
    successor = start_sender(begin=False, **MANY)

    with stopped_with(stripe(run, T0)):
        successor.begin()
        run_until_done(successor, futures[1])
        assert not futures[0].is_done

    run_until_done(successor, *futures)
    assert read_values(log_dir, "t", 0) == [b"a", b"b"]
    assert read_values(log_dir, "t", 1) == [b"a"]


def test_sigterm_ends_a_sender_after_delivery_timeout(start_sender: StartRun, caplog: pytest.LogCaptureFixture) -> None:
    """The stopped process would keep it as long as it is stopped."""
    run = start_sender(**MANY, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=1000)
    run.topic("t")
    future = run.send(T0)

    with stopped_with(stripe(run, T0)):
        run.sender.stop()
        run.sender.run()
        assert not future.is_done
        assert run.slab.undelivered() == (1, 1)
    assert "left 1 records in 1 batches to the next sender" in caplog.text
    run_until_done(run, future)  # as the next sender does


def test_deferred_batches_expire_once_the_lock_is_free(run: HandRun) -> None:
    futures = [send_refused(run), run.send(T0, b"queued")]
    run.transport.refuse = {T0: NetworkError}
    run.transport.held = False

    with stopped_with(stripe(run, T0)):
        run_until_done(run, run.send(T1, b"other"))
        run.run(3, after_ms=61_000)
        assert run.accumulator.sender.abort_incomplete_batches(NetworkError) == []
        run.accumulator.producer.pending.poll()
        assert not any(future.is_done for future in futures)

    run_until_done(run, *futures, after_ms=62_000)
    assert {type(future.exception()) for future in futures} == {DeliveryTimeoutError}
    assert run.accumulator.pool.available_memory() == 16 * SLOT


def test_memory_is_freed_once_the_pool_lock_is_free(run: HandRun) -> None:
    for number in range(3):
        run.send(T0, b"%d" % number)
    first = run.send(T1, b"a")

    with stopped_with(run.slab.pool_lock):
        run_until_done(run, first, run.send(T1, b"b"))
        assert list(run.accumulator.sender.deferral.until_ms) == [LOCK_POOL]
        run.run(3)
        assert run.accumulator.pool.available_memory() < 16 * SLOT

    run.run_until(lambda: run.accumulator.pool.available_memory() == 16 * SLOT)


def test_topic_gets_its_partitions_once_the_tables_lock_is_free(run: HandRun) -> None:
    entry = run.accumulator.map.request("u")

    with stopped_with(run.slab.tables_lock):
        run_until_done(run, run.send(T0, b"a"))
        assert entry.answers == 0

    run.run_until(lambda: entry.answers == 1)
    run.accumulator.map.refresh()
    assert len(entry.queues) == STRIPES + 1
