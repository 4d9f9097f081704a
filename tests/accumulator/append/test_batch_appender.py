"""Appended records come out unchanged, in the expected batches."""

from __future__ import annotations

from collections.abc import Callable

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
    decode,
    drain,
    first,
    queued,
    values_of,
)
from fixture_types import OpenAccumulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import in_threads

from shmaccum._core import Buffer
from shmaccum.accumulator.append.record_appender import GROWTH_SHARE
from shmaccum.accumulator.append.waits import Sender
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import (
    BufferExhaustedError,
    LockTimeoutError,
)
from shmaccum.shm.layout import SlotState
from tools.support.accumulators import Accumulators

datas = st.one_of(st.none(), st.binary(max_size=300), st.integers(900, 3000).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
records = st.lists(st.tuples(st.integers(0, 2**63 - 1), datas, datas, headers), max_size=20)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records)
def test_records_round_trip(
    accumulator: Accumulators, appended: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
) -> None:
    log = Log(accumulator)
    futures = []
    for record in appended:
        timestamp, key, value, header = record
        if accumulator.pool.available_memory() < 8 * BATCH_SIZE:
            log.take_all()
        futures.append(accumulator.append(TP0, timestamp, key, value, header).future)
    log.take_all()
    found = [tuple(record)[1:] for record in log.partitions.get(TP0, [])]
    assert found == appended
    assert [future.get(0).offset for future in futures] == list(range(len(appended)))
    assert [future.get(0).timestamp for future in futures] == [record[0] for record in appended]
    assert_empty(accumulator)


def test_timestamps_in_any_order(accumulator: Accumulators) -> None:
    """The base is the first record's, not the smallest; the largest is known without looking at the records."""
    for timestamp in (50, 40, 60, 0, 60, 2**63 - 1, 55):
        add(accumulator, TP0, timestamp=timestamp)
    (batch,) = drain(accumulator)
    assert (batch.base_timestamp, batch.max_timestamp, batch.record_count) == (50, 2**63 - 1, 7)
    assert [record.timestamp for record in decode(accumulator, batch)] == [50, 40, 60, 0, 60, 2**63 - 1, 55]


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
    assert (batch.state, batch.size, batch.buffer().slots) == (SlotState.CLOSED, BATCH_SIZE, 1)


# --- the second look ------------------------------------------------------------------------------------


def race(accumulator: Accumulators, meanwhile: Callable[[], object]) -> None:
    """Call ``meanwhile`` between the next allocation and its use, as a faster process would."""
    allocate = accumulator.pool.allocate

    def allocate_slowly(size: int, max_block_ms: float, taken: list[Buffer], *, most: int) -> Buffer:
        accumulator.pool.allocate = allocate  # type: ignore[method-assign]
        buffer = allocate(size, max_block_ms, taken, most=most)
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
    """What goes wrong between getting memory and using it costs no memory, and leaves nothing to wait for."""

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


# --- memory ---------------------------------------------------------------------------------------------


def test_no_memory(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(buffer_memory=2 * BATCH_SIZE)
    add(accumulator, TP0, HALF)
    add(accumulator, TP1, HALF)
    with pytest.raises(BufferExhaustedError):
        accumulator.append(TP0, 0, None, HALF, max_block_ms=20)
    # What needs no new memory is not concerned: the attempt closed the first batch, but not the other one.
    add(accumulator, TP1, b"small")
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP1) == [HALF, b"small"]
    accumulator.append(TP0, 0, None, HALF, max_block_ms=20)
    log.take_all()
    assert log.values(TP0) == [HALF, HALF]
    assert_empty(accumulator)


# --- what is counted ------------------------------------------------------------------------------------


def test_counters(accumulator: Accumulators) -> None:
    before = accumulator.slab.processes.info(accumulator.slab.me)
    values = [b"one", b"two", HALF, HALF, bytes(2 * BATCH_SIZE)]
    for value in values:
        add(accumulator, TP0, value)
    after = accumulator.slab.processes.info(accumulator.slab.me)
    batches = []
    while drained := drain(accumulator):
        batches += drained
    assert after.records - before.records == 5
    assert after.batches - before.batches == len(batches) == 3
    in_batches = sum(batch.size - accumulator.format.header_size for batch in batches)
    assert after.bytes - before.bytes == in_batches
    assert values_of(accumulator, batches) == values
    Log(accumulator).take(batches)


def test_who_waited_brings_a_growing_batch_what_others_can_spare(accumulate: OpenAccumulator) -> None:
    """Who finds room by then brings it, too, unless there is already more room than that."""
    slots, partitions = 512, 4
    accumulator = accumulate(buffer_memory=slots * BATCH_SIZE, batch_max_bytes=64 * BATCH_SIZE)
    share = slots // (GROWTH_SHARE * partitions)
    add(accumulator, TP0, HALF)
    assert len(drain(accumulator, now_ms=1 << 50)) == 1, "in flight: the next batch has to wait, and grows"
    add(accumulator, TP0, HALF)
    rest = accumulator.pool.allocate(accumulator.pool.available_memory(), 0)
    queue, body = accumulator.map.queues[TP0], accumulator.format.encode_body(None, HALF, ())
    calls = [accumulator.producer.appending(queue, 0, body, None, 1000) for _ in range(3)]
    waits = []
    for call in calls:
        assert isinstance(next(call), Sender)
        waits.append(call.send(None))
        assert waits[-1].size == share * BATCH_SIZE
    accumulator.pool.deallocate(rest)

    grown = []
    for call, wait in zip(calls, waits, strict=True):
        accumulator.pool.allocate(wait.size, 0, wait.taken)
        with pytest.raises(StopIteration):
            call.send(None)
        grown.append((slots - 1) - accumulator.pool.available_memory() // BATCH_SIZE)
    assert grown == [1 + share, 1 + 2 * share, 1 + 2 * share]
    assert queued(accumulator, TP0) == 1
