"""Compression in the producers: what they close is compressed when the sender comes, and it need not wait for that."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from accumulators import (
    BATCH_SIZE,
    CLUSTER,
    NODE0,
    TP0,
    TP1,
    UNLIMITED,
    Log,
    add,
    as_sent,
    assert_empty,
    drain,
    first,
    queued,
)
from faults import before, stop, stopped_with
from fixture_types import OpenAccumulator
from record_batches import DECODERS
from runs import in_threads
from slab_helpers import close_open

from shmaccum._core import SEALING_TIMEOUT_MS, Process, Slot
from shmaccum.accumulator.append.batch_compressor import BatchCompressor
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import BufferExhaustedError
from shmaccum.record.columns.bodies import ColumnBodies
from shmaccum.record.compression import CompressionType
from shmaccum.shm.layout import SlotState
from tools.support.accumulators import Accumulators

NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
THIRD = b"all work and no play " * (BATCH_SIZE // 72)
"""Three records of this make a batch, with little room left."""


def noise(size: int) -> bytes:
    """Return bytes that no compression makes smaller."""
    return random.Random(size).randbytes(size)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def append_batch(accumulator: Accumulators, value: bytes = THIRD, records: int = 3) -> list[bytes]:
    """Append what fills one batch and begins the next; return the values of the first."""
    values = [b"%d: " % number + value for number in range(records + 1)]
    for each in values:
        accumulator.append(TP0, 5, None, each)
    return values[:-1]


def drain_first(accumulator: Accumulators) -> RecordBatch:
    """Drain the first batch of a partition as a sender does once all claims have expired."""
    return drain(accumulator, now_ms() + SEALING_TIMEOUT_MS)[0]


def word(accumulator: Accumulators, slot: int, number: int) -> int:
    return int(accumulator.slab.words[accumulator.slab.geometry.header(slot) + number])


def compressed_here(accumulator: Accumulators) -> int:
    """Return how many batches this process has compressed."""
    slab = accumulator.slab
    return int(slab.words[slab.geometry.process(slab.me) + Process.COMPRESSED])


def append_and_claim(accumulator: Accumulators, *values: bytes) -> None:
    """Append records; close their batch and claim it for compression."""
    for value in values:
        add(accumulator, TP0, value)
    queue = accumulator.map.queues[TP0]
    slot = close_open(accumulator.slab, queue)
    header = accumulator.slab.geometry.header(slot)
    since_ms = accumulator.slab.words[header + Slot.SEALING] = time.monotonic_ns() // 1_000_000
    generation = accumulator.slab.words[header + Slot.GENERATION]
    accumulator.producer.compressor.add(queue, slot, generation, since_ms)


def append_claim_and_compress(accumulator: Accumulators) -> None:
    append_and_claim(accumulator, *[THIRD] * 3)
    accumulator.producer.compressor.compress_claimed()


@contextmanager
def stopped_at(text: str, action: Callable[[], object]) -> Iterator[int]:
    """Have a child act, and stop in the middle of compressing; it goes on, to its end, behind the block."""
    pid = os.fork()
    if not pid:
        before(BatchCompressor._compress_in_place, text, stop)
        action()
        os._exit(0)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)
        status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL)


# --- what is compressed -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_closed_batch_is_compressed_in_place(accumulate: OpenAccumulator, codec: CompressionType) -> None:
    accumulator = accumulate(compression_type=str(codec))
    values = append_batch(accumulator)
    assert queued(accumulator, TP0) == 2
    (batch,) = drain(accumulator, now_ms())  # the sender has nothing to wait for
    assert (batch.compression, batch.record_count) == (codec, 3)
    assert batch.stored_size < batch.size // 2
    assert batch.size > 3 * len(THIRD)  # what it was, for the statistics
    for decode in DECODERS:
        records = decode(as_sent(accumulator, batch, 70))
        found = [(record.offset, record.timestamp, record.value) for record in records]
        assert found == [(70 + number, 5, value) for number, value in enumerate(values)], decode.__name__
    assert word(accumulator, batch.slot, Slot.REDO) == 0
    assert compressed_here(accumulator) == 1


def test_open_batch_is_not_compressed(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="zstd")
    add(accumulator, TP0, THIRD)
    (batch,) = drain(accumulator)
    assert (batch.compression, batch.stored_size) == (None, batch.size)


@pytest.mark.parametrize("settings", [{"compression_type": "none"}, {"message_format_version": "0.10.2"}])
def test_no_claim_without_compression_or_in_old_formats(accumulate: OpenAccumulator, settings: dict[str, str]) -> None:
    """Without compression, or in the old formats, nothing is claimed, and no memory is taken for it."""
    accumulator = accumulate(**{"compression_type": "gzip"} | settings)
    values = append_batch(accumulator, THIRD + bytes(20))
    batch = first(accumulator, TP0)
    assert (batch.state, batch.compression, batch.sealing_since_ms) == (SlotState.CLOSED, None, 0)
    assert accumulator.slab.geometry.redo_size == 0
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0)[:3] == values


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_incompressible_batch_stays_uncompressed(accumulate: OpenAccumulator, codec: CompressionType) -> None:
    """And the sender does not try it again."""
    accumulator = accumulate(compression_type=str(codec))
    values = append_batch(accumulator, noise(900), 1)
    (batch,) = drain(accumulator, now_ms())
    assert (batch.compression, batch.stored_size) == (NONE, batch.size)
    for decode in DECODERS:
        assert [record.value for record in decode(as_sent(accumulator, batch))] == values, decode.__name__


@pytest.mark.parametrize("size", [BATCH_SIZE, 3 * BATCH_SIZE, 8 * BATCH_SIZE])
@pytest.mark.parametrize("compressible", [True, False])
def test_large_record_is_compressed_before_it_is_placed(
    accumulate: OpenAccumulator, size: int, compressible: bool
) -> None:
    accumulator = accumulate(compression_type="lz4")
    value = bytes(size) if compressible else noise(size)
    add(accumulator, TP0, value)
    batch = first(accumulator, TP0)
    assert batch.sealing_since_ms == 0
    assert batch.compression is (LZ4 if compressible else NONE)
    assert batch.size > size
    assert (batch.stored_size < size // 10) == compressible
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0) == [value]
    assert_empty(accumulator)


def test_all_batches_of_columns_but_the_last_are_compressed(accumulate: OpenAccumulator) -> None:
    """And the batch that was open before."""
    accumulator = accumulate(compression_type="zstd", buffer_memory=40 * BATCH_SIZE)
    add(accumulator, TP0, b"first")
    values = [b"%d " % number + THIRD for number in range(20)] + [bytes(2 * BATCH_SIZE), b"last"]
    bodies = ColumnBodies(accumulator.format, None, pa.array(values, pa.binary()), None, 0)
    future = FutureColumnsMetadata(len(values), accumulator.producer.pending)
    accumulator.append_columns(accumulator.map.queues[TP0], bodies, future, 1000)
    log = Log(accumulator)
    compressions = []
    while batches := drain(accumulator, now_ms()):
        compressions += [batch.compression for batch in batches]
        log.take(batches)
    assert len(compressions) > 7
    assert compressions == [ZSTD] * (len(compressions) - 1) + [None]
    assert log.values(TP0) == [b"first", *values]
    assert_empty(accumulator)


def test_request_size_counts_compressed_bytes(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="gzip")
    for partition in (TP0, TP1):
        for number in range(4):
            add(accumulator, partition, b"%d" % number + THIRD)
    drained = accumulator.sender.drain(CLUSTER, [NODE0], BATCH_SIZE, now_ms())[0]
    assert len(drained) == 2
    assert sum(batch.size for batch in drained) > BATCH_SIZE
    assert sum(batch.stored_size for batch in drained) < BATCH_SIZE
    Log(accumulator).take(drained)


def test_compression_precedes_the_wait_for_memory(accumulate: OpenAccumulator) -> None:
    """Producers wait for memory when there is most to send: the time is put to use."""
    accumulator = accumulate(compression_type="lz4", buffer_memory=BATCH_SIZE)
    for _ in range(3):
        add(accumulator, TP0, THIRD)
    with pytest.raises(BufferExhaustedError):
        accumulator.append(TP0, 0, None, THIRD, max_block_ms=0)
    (batch,) = drain(accumulator, now_ms())
    assert batch.compression is LZ4
    Log(accumulator).take([batch])


def test_retried_batch_is_still_compressed(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="snappy", retry_backoff_ms=0)
    values = append_batch(accumulator)
    (batch,) = drain(accumulator, now_ms())
    accumulator.sender.reenqueue(batch, now_ms())
    (again,) = drain(accumulator, now_ms() + 1)
    assert again.slot == batch.slot
    log = Log(accumulator)
    log.take([again])
    assert log.values(TP0) == values


def test_reused_slot_has_no_trace_of_compression(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="zstd", buffer_memory=2 * BATCH_SIZE)
    log = Log(accumulator)
    expected: list[bytes] = []
    for _ in range(5):
        expected += append_batch(accumulator)
        expected.append(b"3: " + THIRD)
        log.take_all(now_ms() + SEALING_TIMEOUT_MS)
    assert log.values(TP0) == expected
    assert_empty(accumulator)


# --- the sender and the claim -----------------------------------------------------------------------


def test_sender_waits_for_a_claim(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="zstd", linger_ms=100_000, delivery_timeout_ms=200_000)
    with stopped_at("stored, compressed =", lambda: append_batch(accumulator)):
        batch = first(accumulator, TP0)
        since = batch.sealing_since_ms
        assert 0 < since <= now_ms()
        just_before, then = since + SEALING_TIMEOUT_MS - 1, since + SEALING_TIMEOUT_MS
        assert accumulator.sender.ready(CLUSTER, since) == (set(), SEALING_TIMEOUT_MS, set())
        assert accumulator.sender.ready(CLUSTER, just_before) == (set(), 1, set())
        assert accumulator.sender.drain(CLUSTER, [NODE0], UNLIMITED, just_before) == {0: []}
        assert accumulator.sender.ready(CLUSTER, then).ready_nodes == {NODE0}
        (taken,) = drain(accumulator, then)
        assert taken.slot == batch.slot
        assert taken.compression is None
        as_taken = b"".join(taken.memory())
    # The producer has gone on by now, and found that it comes too late.
    assert taken.compression is None
    assert b"".join(taken.memory()) == as_taken
    log = Log(accumulator)
    log.take([taken])
    log.take_all()
    assert len(log.values(TP0)) == 4


def test_claim_is_void_once_the_batch_was_drained(accumulate: OpenAccumulator) -> None:
    """It may be in the middle of being sent again: no claim outlives the first time."""
    accumulator = accumulate(compression_type="zstd", retry_backoff_ms=0)
    with stopped_at("stored, compressed =", lambda: append_batch(accumulator)):
        batch = drain_first(accumulator)
        accumulator.sender.reenqueue(batch, now_ms())
    assert batch.state == SlotState.CLOSED
    assert batch.compression is None


def test_claim_is_void_when_another_process_claims_the_slot(accumulate: OpenAccumulator) -> None:
    """Even one of the same millisecond."""
    accumulator = accumulate(compression_type="zstd", buffer_memory=BATCH_SIZE)
    log = Log(accumulator)
    with stopped_at("stored, compressed =", lambda: append_claim_and_compress(accumulator)):
        batch = first(accumulator, TP0)
        since, header = batch.sealing_since_ms, accumulator.slab.geometry.header(batch.slot)
        log.take([drain_first(accumulator)])
        append_and_claim(accumulator, *[THIRD[::-1]] * 3)
        accumulator.slab.words[header + Slot.SEALING] = since
    log.take_all(now_ms() + SEALING_TIMEOUT_MS)
    assert log.values(TP0) == [THIRD] * 3 + [THIRD[::-1]] * 3


@pytest.mark.parametrize("text", ["records =", "if (self._words[header", "with contextlib.suppress"])
def test_claim_is_void_when_the_slot_has_another_batch(accumulate: OpenAccumulator, text: str) -> None:
    accumulator = accumulate(compression_type="gzip", buffer_memory=BATCH_SIZE)
    with stopped_at(text, lambda: append_claim_and_compress(accumulator)):
        log = Log(accumulator)
        log.take([drain_first(accumulator)])
        for _ in range(3):
            add(accumulator, TP0, THIRD[::-1])
        batch = first(accumulator, TP0)
        body = b"".join(batch.memory())
    assert b"".join(batch.memory()) == body
    assert (batch.compression, batch.state) == (None, SlotState.OPEN)
    log.take_all()
    assert log.values(TP0) == [THIRD] * 3 + [THIRD[::-1]] * 3


def test_claim_of_a_dead_producer_expires(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="zstd")
    with stopped_at("stored, compressed =", lambda: append_batch(accumulator)) as pid:
        os.kill(pid, signal.SIGKILL)
    batch = first(accumulator, TP0)
    assert accumulator.sender.ready(CLUSTER, batch.sealing_since_ms + SEALING_TIMEOUT_MS).ready_nodes == {NODE0}
    log = Log(accumulator)
    log.take_all(now_ms() + SEALING_TIMEOUT_MS)
    assert [value[:2] for value in log.values(TP0) if value] == [b"0:", b"1:", b"2:"]
    accumulator.slab.reap_dead()
    accumulator.pool.reclaim()
    assert_empty(accumulator)


def test_append_does_not_fail_when_a_stopped_process_blocks_compression(accumulate: OpenAccumulator) -> None:
    """The record is in already, or may be: `append` does not fail over what is only a preference."""
    accumulator = accumulate(compression_type="zstd")
    append_and_claim(accumulator, THIRD)
    with stopped_with(accumulator.map.queues[TP0].lock):
        assert accumulator.producer.compressor.compress_claimed()
        assert first(accumulator, TP0).compression is None
    log = Log(accumulator)
    log.take([drain_first(accumulator)])
    assert log.values(TP0) == [THIRD]


def test_claimed_batch_does_not_wake_the_sender(accumulate: OpenAccumulator) -> None:
    """An append says that there is a full batch, but not while that is being compressed."""
    accumulator, other = accumulate(compression_type="zstd"), accumulate(compression_type="zstd")
    append_and_claim(accumulator, THIRD)
    assert other.append(TP0, 0, None, b"")[1:3] == (False, True)
    assert other.append(TP0, 0, None, b"")[1:3] == (False, False)
    accumulator.producer.compressor.compress_claimed()
    assert other.append(TP0, 0, None, b"")[1:3] == (True, False)


# --- threads and forks ------------------------------------------------------------------------------


def test_forked_child_ignores_claims_of_its_parent(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(compression_type="zstd")
    compressor = accumulator.producer.compressor
    append_and_claim(accumulator, THIRD)
    pid = os.fork()
    if not pid:
        found = compressor.compress_claimed()
        values = append_batch(accumulator)  # it works on without its parent
        os._exit(found or len(values) != 3)
    assert os.waitpid(pid, 0)[1] == 0
    assert compressor.compress_claimed()
    assert not compressor.compress_claimed()
    log = Log(accumulator)
    compressions = []
    while batches := drain(accumulator, now_ms() + SEALING_TIMEOUT_MS):
        compressions += [batch.compression for batch in batches]
        log.take(batches)
    assert compressions == [ZSTD, ZSTD, None]
    assert len(log.values(TP0)) == 5


def test_threads_compress_batches_of_each_other(accumulate: OpenAccumulator) -> None:
    """They close each other's batches, and compress what any of them has closed."""
    accumulator = accumulate(compression_type="lz4", buffer_memory=1000 * BATCH_SIZE)
    threads, count = 6, 300

    def run(thread: int) -> None:
        for number in range(count):
            value = b"%d:%d:" % (thread, number) + THIRD[: number % 200]
            accumulator.append((TP0, TP1)[number % 2], 0, None, value)

    in_threads(threads, run)
    log = Log(accumulator)
    log.take_all(now_ms() + SEALING_TIMEOUT_MS)
    for parity, partition in enumerate((TP0, TP1)):
        for thread_number in range(threads):
            prefix = b"%d:" % thread_number
            mine = [value for value in log.values(partition) if value and value.startswith(prefix)]
            assert [int(value.split(b":")[1]) for value in mine] == list(range(parity, count, 2))
    assert compressed_here(accumulator) > 100
    assert_empty(accumulator)
