"""Appended records and columns come out unchanged, in the expected batches."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from accumulators import (
    BATCH_SIZE,
    HALF,
    KEY,
    TP0,
    TP1,
    VALUE,
    Log,
    add,
    assert_empty,
    drain,
    first,
    queued,
)
from columns import append_columns
from faults import interrupted_by_alarm
from fixture_types import OpenAccumulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import in_threads as beside
from processes import wait_until
from runs import in_threads

from shmaccum._core import Buffer
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import TopicPartition
from shmaccum.errors import LockTimeoutError, ProducerClosedError, SerializationError
from shmaccum.record.columns import ColumnBodies
from shmaccum.shm.layout import SlotState
from tools.support.accumulators import Accumulators


def fitting_value(accumulator: Accumulators) -> bytes:
    """Return a value with which the next record fills the open batch of partition 0 to its last byte."""
    batch = first(accumulator, TP0)
    for size in range(BATCH_SIZE):
        body = accumulator.format.encode_body(None, bytes(size), ())
        record = accumulator.format.encode_record(batch.record_count, 0, 0, body)
        if batch.size + len(record) == BATCH_SIZE:
            return bytes(size)
    raise AssertionError


def test_batch_full_to_the_last_byte(accumulator: Accumulators) -> None:
    add(accumulator, TP0)
    value = fitting_value(accumulator)
    result = accumulator.append(TP0, 0, None, value)
    assert (result.batch_is_full, result.new_batch_created) == (True, False)
    assert queued(accumulator, TP0) == 1
    result = accumulator.append(TP0, 0, None, VALUE)
    assert (result.batch_is_full, result.new_batch_created) == (True, True)
    log = Log(accumulator)
    assert log.take(drain(accumulator)) == 1
    assert log.values(TP0) == [VALUE, value]


def test_first_record_that_fills_its_batch(accumulator: Accumulators) -> None:
    overhead = accumulator.format.header_size + len(
        accumulator.format.encode_record(0, 0, 0, accumulator.format.encode_body(None, bytes(900), ()))
    )
    result = accumulator.append(TP0, 0, None, bytes(BATCH_SIZE - overhead + 900))
    assert (result.batch_is_full, result.new_batch_created) == (True, True)
    batch = first(accumulator, TP0)
    assert (batch.state, batch.size, batch.buffer().slots) == (SlotState.OPEN, BATCH_SIZE, 1)


def race(accumulator: Accumulators, meanwhile: Callable[[], object]) -> None:
    """Call ``meanwhile`` between the next allocation and its use, as a faster process would."""
    allocate = accumulator.pool.allocate

    def allocate_slowly(*args: Any, **options: Any) -> Any:
        accumulator.pool.allocate = allocate  # type: ignore[method-assign]
        buffer = allocate(*args, **options)
        meanwhile()
        return buffer

    accumulator.pool.allocate = allocate_slowly  # type: ignore[method-assign]


@pytest.mark.parametrize(("filler", "batches"), [(b"", 1), (HALF, 2)])
def test_two_processes_open_a_batch_at_once(accumulate: OpenAccumulator, filler: bytes, batches: int) -> None:
    """The slower one appends to the batch of the quicker one, and gives its memory back; unless that has no room."""
    slow, quick = accumulate(), accumulate()
    race(slow, lambda: add(quick, TP0, filler + b"quick"))
    result = slow.append(TP0, 0, KEY, filler + b"slow")
    assert (result.batch_is_full, result.new_batch_created) == ((False, False) if batches == 1 else (True, True))
    assert queued(slow, TP0) == batches
    assert slow.pool.available_memory() == slow.pool.total_memory - batches * BATCH_SIZE
    log = Log(slow)
    log.take_all()
    assert log.values(TP0) == [filler + b"quick", filler + b"slow"]
    assert result.future.get(0).offset == 1
    assert_empty(slow)


def test_error_after_the_allocation_frees_the_slot(accumulator: Accumulators) -> None:

    class Route:
        """Raises as it is asked for the second time, when there is memory."""

        asked = 0

        def reroute(self, queue: PartitionQueue) -> PartitionQueue:
            self.asked += 1
            if self.asked == 2:
                assert accumulator.pool.available_memory() == accumulator.pool.total_memory - BATCH_SIZE
                raise OSError("no good")
            return queue

    body = accumulator.format.encode_body(KEY, VALUE, ())
    with pytest.raises(OSError, match="no good"):
        accumulator.append_to(accumulator.map.queues[TP0], 0, body, None, 1000, Route())
    accumulator.producer.flush(0)
    assert_empty(accumulator)


def test_a_record_that_waits_for_memory_learns_of_a_close(accumulator: Accumulators) -> None:
    add(accumulator, TP0)
    pool = accumulator.pool
    held = [pool.allocate(BATCH_SIZE, 0) for _ in range(pool.available_memory() // BATCH_SIZE)]

    def append(_: int) -> None:
        with pytest.raises(ProducerClosedError):
            accumulator.append(TP0, 0, KEY, HALF + HALF, max_block_ms=60_000)

    def close(_: int) -> None:
        wait_until(lambda: pool.queued() == 1, "a call waits")
        accumulator.producer.close()

    in_threads(2, lambda number: (append, close)[number](number))
    pool.deallocate(*held)


def test_append_in_the_middle_of_another_keeps_its_slot(accumulator: Accumulators) -> None:
    """A signal handler that appends, and fails, does not free what the interrupted append has allocated."""

    def handle() -> None:
        add(accumulator, TP1, b"handler")
        accumulator.producer.clean_up()
        assert accumulator.pool.available_memory() == accumulator.pool.total_memory - 2 * BATCH_SIZE

    race(accumulator, handle)
    add(accumulator, TP0, b"interrupted")
    log = Log(accumulator)
    log.take_all()
    assert (log.values(TP0), log.values(TP1)) == ([b"interrupted"], [b"handler"])
    assert_empty(accumulator)


def test_slot_that_a_thread_could_not_free_is_freed_by_another(accumulator: Accumulators) -> None:
    pool, deallocate = accumulator.pool, accumulator.pool.deallocate

    def fail() -> None:
        raise OSError("no good")

    def time_out(*buffers: Buffer) -> None:
        pool.deallocate = deallocate  # type: ignore[method-assign]
        raise LockTimeoutError("a stopped process has the lock")

    def append(_: int) -> None:
        with pytest.raises(OSError, match="no good"):
            add(accumulator, TP0)

    race(accumulator, fail)
    pool.deallocate = time_out  # type: ignore[method-assign]
    in_threads(1, append)
    assert pool.available_memory() == pool.total_memory - BATCH_SIZE
    add(accumulator, TP1)
    assert pool.available_memory() == pool.total_memory - BATCH_SIZE
    Log(accumulator).take_all()
    assert_empty(accumulator)


# --- columns: the bytes and the order of single records, despite concurrent appends -------------------

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

header_lists = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)


def append_rows(accumulator: Accumulators, to: TopicPartition, rows: list[Row]) -> FutureColumnsMetadata:
    future = FutureColumnsMetadata(len(rows), accumulator.producer.pending)
    bodies = ColumnBodies(
        accumulator.format,
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array([row[2] for row in rows], pa.binary()),
        pa.array([[{"key": key, "value": value} for key, value in row[3]] for row in rows], HEADERS),
        np.array([row[0] for row in rows], np.int64),
    )
    accumulator.append_columns(accumulator.map.queues[to], bodies.rows(0, len(rows)), future, 1000)
    return future


small_tables = st.lists(
    st.tuples(st.integers(0, 2**63 - 1), *[st.one_of(st.none(), st.binary(max_size=20))] * 2, header_lists),
    min_size=1,
    max_size=9,
)


@pytest.mark.parametrize("version", ["0.10.2", "3.0-IV1"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=small_tables)
def test_columns_and_records_give_the_same_bytes(accumulate: OpenAccumulator, version: str, rows: list[Row]) -> None:
    """The batch is the very same one as that of the records one by one, but for the moment of its creation."""
    accumulator = accumulate(message_format_version=version)
    if version != "3.0-IV1":
        rows = [(timestamp, key, value, []) for timestamp, key, value, _ in rows]
    for timestamp, key, value, headers in rows:
        accumulator.append(TP0, timestamp, key, value, headers)
    append_rows(accumulator, TP1, rows)
    one_by_one, at_once = drain(accumulator)
    start = accumulator.format.header_size
    assert b"".join(one_by_one.memory())[start:] == b"".join(at_once.memory())[start:]
    for name in ("size", "record_count", "base_timestamp", "max_timestamp", "state"):
        assert getattr(one_by_one, name) == getattr(at_once, name), name
    Log(accumulator).take([one_by_one, at_once])


def test_rows_go_behind_those_of_others(accumulate: OpenAccumulator) -> None:
    """Into open batches of other processes, too; so rows of one append can have others between them."""
    accumulator, other = accumulate(), accumulate()
    queue, future = accumulator.map.queues[TP0], FutureColumnsMetadata(3, accumulator.producer.pending)
    add(other, TP0, b"before")
    rows = ColumnBodies(accumulator.format, None, pa.array([b"one", b"two", b"three"]), None, 0).rows
    accumulator.append_columns(queue, rows(0, 2), future, 1000)
    add(other, TP0, b"between")
    accumulator.append_columns(queue, rows(2, 3), future, 1000)
    assert queued(accumulator, TP0) == 1
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0) == [b"before", b"one", b"two", b"between", b"three"]
    assert future.get(0).offsets.tolist() == [1, 2, 4]
    assert_empty(accumulator)


def test_many_rows_of_many_sizes(accumulate: OpenAccumulator) -> None:
    """They fill batches, take several slots, and wait for memory that another thread makes free."""
    accumulator = accumulate(buffer_memory=20 * BATCH_SIZE)
    values = [b"%d" % number + bytes(number % 50 * 10) for number in range(400)]
    values[100:102] = [b"large" * BATCH_SIZE, b"another" * BATCH_SIZE]
    log = Log(accumulator)
    is_over = threading.Event()

    def drain_on() -> None:
        while not is_over.wait(0.001):
            log.take_all()

    with beside(drain_on):
        future = append_columns(accumulator, TP0, values, 10_000)
        is_over.set()
    log.take_all()
    assert log.values(TP0) == values
    assert future.get(0).offsets.tolist() == list(range(400))
    assert_empty(accumulator)


def test_rows_whose_memory_changes_are_refused_from_there_on(accumulator: Accumulators) -> None:
    """Those before are accepted, and the error says which."""
    offsets = np.array([0, 3, 6, 9], np.int32)
    column = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdefghi")])
    rows = ColumnBodies(accumulator.format, None, column, None, 0).rows(0, 3)
    offsets[3] = 7
    future = FutureColumnsMetadata(3, accumulator.producer.pending)
    with pytest.raises(SerializationError, match="changed") as refused, future.reporting():
        accumulator.append_columns(accumulator.map.queues[TP0], rows, future, 1000)
    assert refused.value.accepted is future
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0) == [b"abc", b"def"]
    assert future.rows.tolist() == [0, 1]
    assert future.get(0).offsets.tolist() == [0, 1, -1]
    assert_empty(accumulator)


def test_interrupted_append_keeps_batches_whole(accumulate: OpenAccumulator) -> None:
    """What is in is in whole, the sender sees it at once, and no flush waits for what is not."""
    accumulator = accumulate(buffer_memory=64 * BATCH_SIZE)
    values = [b"%d" % number + HALF for number in range(40)]
    chance = random.Random(1)

    with interrupted_by_alarm() as set_alarm:
        for _ in range(50):
            with contextlib.suppress(KeyboardInterrupt):
                set_alarm(chance.uniform(1e-5, 1e-3))
                append_columns(accumulator, TP0, values)
                while True:
                    time.sleep(1)
            log = Log(accumulator)
            log.take_all()
            found = log.values(TP0)
            assert found == values[: len(found)]
            accumulator.producer.flush(0)
            assert accumulator.pool.available_memory() == accumulator.pool.total_memory
    assert_empty(accumulator)
