"""Completions of the parts of a split batch: which processes get them, and which are not waited for."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from senders import HandRun, counter, read_values
from slab_helpers import close_open
from splitting import (
    SLOTS,
    T0,
    StartRun,
    assert_all_free,
    check_sequences,
    config_of,
    deliver,
    numbered,
    offsets_of,
    send,
    send_columns,
)

from shmaccum._core import PARTS_IN_FLIGHT, FutureRecordMetadata, Process, Super
from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.errors import DeliveryTimeoutError, InvalidRecordError, KafkaTimeoutError, NetworkError
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators


def append_some(link: Connection, name: str, log_dir: str, numbers: list[int]) -> list[object]:
    """Append records with these numbers, one each time that the test says so; return what became of them."""
    config = config_of(name, Path(log_dir))
    slab = attach_for(config)
    accumulator = Accumulators(slab, config)
    futures = []
    for number in numbers:
        link.recv()
        futures.append(accumulator.append(T0, 0, None, numbered(20)[number]).future)
        link.send("appended")
    accumulator.producer.flush(30)
    outcomes: list[object] = [type(each.exception()) if each.failed() else each.get(0).offset for each in futures]
    detach(slab)
    return outcomes


def test_several_processes_share_the_batch(run: HandRun, log_dir: Path, slab_name: str, start: Start) -> None:
    """Each hears of its own records, whatever becomes of those of the others."""
    run.transport.largest = 250
    run.transport.is_invalid = lambda value: value in (numbered(20)[4], numbered(20)[10])
    children = [start(append_some, slab_name, str(log_dir), list(range(first, 20, 3))) for first in range(3)]
    for number in range(20):
        children[number % 3].tell()
        assert children[number % 3].hear() == "appended"
    deliver(run)
    offsets = {value: offset for offset, value in enumerate(read_values(log_dir, "t"))}
    assert len(offsets) == 18
    for first, child in enumerate(children):
        expected = [offsets.get(numbered(20)[number], InvalidRecordError) for number in range(first, 20, 3)]
        assert child.result() == expected
    assert len(run.transport.sent) > 5
    assert_all_free(run)


def test_columns(run: HandRun, log_dir: Path) -> None:
    """Rows of one call, in several batches, some of which are sent in parts and some of whose rows are given up."""
    values = numbered(120, 25)
    send(run, [b"first"])
    future = send_columns(run, values, 1000)
    run.transport.largest = 300
    run.run_until(lambda: len(run.transport.sent) > 8)
    with pytest.raises(KafkaTimeoutError, match=rf"{run.slab.undelivered()[1]} of 120 rows"):
        future.get(0)
    deliver(run)
    found = future.get(0)
    assert found.offsets.tolist() == list(range(1, 121))
    assert read_values(log_dir, "t") == [b"first", *values]


def test_ring_without_room_defers_the_next_parts(run: HandRun, log_dir: Path) -> None:
    """Its completion ring never overflows: without room, the next parts wait until it has popped completions."""
    room = SLOTS + PARTS_IN_FLIGHT
    ring = run.slab.geometry.process(run.slab.me)
    futures: list[FutureRecordMetadata] = []
    run.transport.largest = 75  # one record
    for _ in range(4):
        futures += send(run, [b"%d" % (number % 10) for number in range(100)])
        close_open(run.slab, run.accumulator.map.queues[T0])
    unread: list[int] = []

    def look() -> bool:
        unread.append(counter(run, ring + Process.RING_TAIL) - counter(run, ring + Process.RING_HEAD))
        return unread[-20:] == [unread[-1]] * 20

    run.run_until(look)
    assert room - SLOTS <= max(unread) <= room
    assert not futures[-1].is_done
    run.run_until(lambda: run.accumulator.producer.pending.poll() or run.slab.undelivered() == (0, 0))
    assert offsets_of(futures) == list(range(400))
    check_sequences(log_dir)
    assert_all_free(run)


def test_a_producer_that_died_is_not_waited_for(run: HandRun, log_dir: Path, slab_name: str, start: Start) -> None:
    child = start(append_some, slab_name, str(log_dir), [0])
    child.tell()
    assert child.hear() == "appended"
    futures = send(run, [b"%d" % (number % 10) for number in range(99)])
    child.kill()
    run.transport.largest = 90
    run.run_until(lambda: run.accumulator.producer.pending.poll() or run.slab.undelivered() == (0, 0))
    assert offsets_of(futures) == list(range(1, 100))


def test_only_what_fails_of_a_dead_producers_batch_is_lost(
    run: HandRun, log_dir: Path, slab_name: str, start: Start
) -> None:
    values = numbered(20)
    child = start(append_some, slab_name, str(log_dir), [0, 1, 2, 3])
    for _ in range(4):
        child.tell()
        assert child.hear() == "appended"
    child.kill()
    run.transport.is_invalid = lambda value: value == values[1]
    deliver(run)
    assert read_values(log_dir, "t") == [values[0], *values[2:4]]
    assert counter(run, Super.RECORDS_LOST) == 1


@pytest.mark.parametrize("stored", [True, False])
def test_rest_of_a_split_batch_expires_while_a_part_is_in_flight(
    start_run: StartRun, log_dir: Path, stored: bool
) -> None:
    """The slot, from which nothing is sent any more, is free once that is answered, and the partition goes on."""
    run = start_run(delivery_timeout_ms=2000)
    run.transport.largest = 200
    futures = send(run, numbered(20))
    run.run_until(lambda: run.accumulator.producer.pending.poll() or futures[0].is_done, after_ms=100)
    done = sum(future.is_done for future in futures)
    run.transport.held = True
    if not stored:
        run.transport.refuse[T0] = NetworkError
    run.run(1, after_ms=100)
    run.run(1, after_ms=5000)
    run.accumulator.producer.pending.poll()
    assert offsets_of(futures[:done]) == list(range(done))
    assert all(isinstance(future.exception(), DeliveryTimeoutError) for future in futures[done:])
    assert run.accumulator.pool.available_memory() < run.accumulator.pool.total_memory
    run.transport.held = False
    run.transport.refuse.clear()
    run.run(1, after_ms=100)
    assert_all_free(run)
    again = send(run, [b"again"])
    deliver(run)
    assert again[0].succeeded()
    assert read_values(log_dir, "t") == [*numbered(20)[: done * 2 if stored else done], b"again"]
