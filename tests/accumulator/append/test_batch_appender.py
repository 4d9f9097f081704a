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
    drain,
    first,
    queued,
)
from fixture_types import OpenAccumulator
from runs import in_threads

from shmaccum._core import Buffer
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import (
    LockTimeoutError,
)
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
    assert (batch.state, batch.size, batch.buffer().slots) == (SlotState.CLOSED, BATCH_SIZE, 1)


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
