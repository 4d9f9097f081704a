"""Apache Kafka's ``RecordAccumulatorTest``, scenario by scenario and by name.

What Kafka does with threads is done with processes. Without a counterpart are:

* ``testIdempotenceWithOldMagic``: the combination is refused with the configuration (``tests/config/test_rules.py``).
* ``testRecordsDrainedWhenTransactionCompleting``: docs/inside/transactions.md.
* ``testFlush``: ``tests/producer/test_producer.py``, `test_flush_does_not_wait_for_linger`.
* ``testStressfulSituation``: ``tests/sender/test_process.py``, `test_killed_while_producers_go_on`.
* ``testSplitAndReenqueue``, ``testSplitBatchOffAccumulator``, ``testSplitFrequency``: a batch that is too large for a
  broker is not split into new batches but sent in pieces (``tests/sender/test_batch_splitter.py``).
* ``testStickyBatches``, ``testUniformBuiltInPartitioner``, ``testBuiltInPartitionerFractionalBatches``,
  ``testAdaptiveBuiltInPartitioner``: the producer chooses the partition (``tests/producer/test_partitioner.py``,
  ``tests/producer/test_adaptive_partitioning.py``).
* ``testExponentialRetryBackoff`` and ``...LeaderChange``: ``tests/core/test_ready.py``, and by the sender's loop in
  ``tests/sender/test_response_handler.py``, `test_back_off`.
* the parts of ``testReadyAndDrainWhenABatchIsBeingRetried`` where a new leader epoch ends the back-off (KIP-951):
  ``tests/sender/test_recreated_topics.py``, ``test_a_new_leader_is_tried_at_once``.

``testAbortIncompleteBatches`` and ``testAbortUnsentBatches`` are one here: what is in flight is the sender's. Part of
another test are ``testMutedPartitions`` and ``testPartialDrain`` (`test_drain_batches`),
``testDrainWithANodeThatDoesntHostAnyPartitions`` (`test_unknown_leaders`),
``testReadyAndDrainWhenABatchIsBeingRetried`` (`test_retry_backoff`) and
``testSoonToExpireBatchesArePickedUpForExpiry`` (`test_expired_batches_retry`).
"""

from __future__ import annotations

import pytest
from accumulators import (
    BATCH_SIZE,
    CLUSTER,
    KEY,
    NODE0,
    NODE1,
    TP0,
    TP1,
    TP2,
    TP3,
    UNLIMITED,
    VALUE,
    Log,
    Sent,
    add,
    assert_empty,
    cluster_of,
    created_ms,
    decode,
    drain,
    first,
    partition_of,
    queued,
)
from faults import interrupted_by_alarm
from fixture_types import OpenAccumulator

from shmaccum import errors
from shmaccum._core import Partition, Process
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.shm.layout import SlotState
from tools.support.accumulators import Accumulators


def fill_a_batch(accumulator: Accumulators, to: TopicPartition) -> int:
    """Append to a partition until nothing more fits its first batch; return how many records that one has."""
    count = 0
    while queued(accumulator, to) < 2:
        count += 1
        add(accumulator, to)
    return count - 1


def drained_partitions(drained: list[RecordBatch], accumulator: Accumulators) -> list[TopicPartition]:
    return [partition_of(accumulator, batch) for batch in drained]


# --- what is drained, and in which order ------------------------------------------------------------


def test_drain_batches(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(buffer_memory=20 * BATCH_SIZE)

    def drained(max_size: int) -> list[TopicPartition]:
        return drained_partitions(drain(accumulator, max_size=max_size), accumulator)

    for partition in (TP0, TP1, TP2, TP3):
        add(accumulator, partition)
    # A request is full after one batch, and the next one begins with the partition that found no room.
    assert drained(1) == [TP0, TP2]
    add(accumulator, TP0)
    add(accumulator, TP2)
    assert drained(1) == [TP1, TP3]
    assert drained(1) == [TP0, TP2]
    for partition in (TP1, TP2, TP3):
        add(accumulator, partition)
    accumulator.sender.mute(accumulator.map.queues[TP3].entry)
    assert drained(1) == [TP1, TP2]
    for partition in (TP0, TP1, TP2):
        add(accumulator, partition)
    accumulator.sender.unmute(accumulator.map.queues[TP3].entry)
    assert sorted(drained(UNLIMITED)) == [TP0, TP1, TP2, TP3]


def test_full(accumulator: Accumulators) -> None:
    results = [accumulator.append(TP0, 0, KEY, VALUE)]
    while not results[-1].batch_is_full:
        assert queued(accumulator, TP0) == 1
        assert not accumulator.sender.ready(CLUSTER, created_ms(accumulator, TP0)).ready_nodes
        results.append(accumulator.append(TP0, 0, KEY, VALUE))
    # The last one did not fit: the first batch is closed and ready, and a second one has been opened.
    assert [result.new_batch_created for result in results] == [True] + [False] * (len(results) - 2) + [True]
    assert queued(accumulator, TP0) == 2
    full = first(accumulator, TP0)
    assert full.state == SlotState.CLOSED
    assert BATCH_SIZE - len(KEY + VALUE) - 20 < full.size <= BATCH_SIZE
    assert accumulator.sender.ready(CLUSTER, created_ms(accumulator, TP0)).ready_nodes == {NODE0}

    (drained,) = drain(accumulator)
    assert decode(accumulator, drained) == [Sent(offset, 0, KEY, VALUE, []) for offset in range(len(results) - 1)]
    assert queued(accumulator, TP0) == 1


@pytest.mark.parametrize("version", ["3.0-IV1", "0.10.2"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_append_large(accumulate: OpenAccumulator, version: str, compression: str) -> None:
    """``testAppendLargeCompressed``, ``...NonCompressed``, and both of them for the old message format."""
    accumulator = accumulate(linger_ms=0, message_format_version=version, compression_type=compression)
    value = bytes(2 * BATCH_SIZE)
    result = accumulator.append(TP0, 7, KEY, value)
    assert (result.batch_is_full, result.new_batch_created) == (True, True)
    assert accumulator.sender.ready(CLUSTER, created_ms(accumulator, TP0)).ready_nodes == {NODE0}
    assert accumulator.pool.available_memory() == accumulator.pool.total_memory - 3 * BATCH_SIZE
    accumulator.append(TP0, 8, KEY, VALUE)  # there is room behind it, in its last slot
    accumulator.append(TP0, 9, KEY, value)
    assert queued(accumulator, TP0) == 2
    (large,) = drain(accumulator)
    assert decode(accumulator, large) == [Sent(0, 7, KEY, value, []), Sent(1, 8, KEY, VALUE, [])]


def test_linger(accumulator: Accumulators) -> None:
    """Also ``testNextReadyCheckDelay``."""
    assert accumulator.sender.ready(CLUSTER, 0).next_ready_check_delay_ms == float("inf")
    add(accumulator, TP0)
    now = created_ms(accumulator, TP0)
    result = accumulator.sender.ready(CLUSTER, now)
    assert (result.ready_nodes, result.next_ready_check_delay_ms) == (set(), 10)
    assert not accumulator.sender.ready(CLUSTER, now + 9).ready_nodes

    # Another node's partition, later: the first one's time is up sooner.
    add(accumulator, TP2)
    assert accumulator.sender.ready(CLUSTER, now + 5).next_ready_check_delay_ms == 5

    # Something to be sent at once does not hide when the others' time is up.
    fill_a_batch(accumulator, TP1)
    result = accumulator.sender.ready(CLUSTER, now + 5)
    assert result.ready_nodes == {NODE0}
    assert 5 <= result.next_ready_check_delay_ms <= 10
    last = max(created_ms(accumulator, partition) for partition in (TP0, TP2))
    assert accumulator.sender.ready(CLUSTER, last + 10).ready_nodes == {NODE0, NODE1}


def test_retry_backoff(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(linger_ms=100, retry_backoff_ms=1000, retry_backoff_max_ms=10_000)
    add(accumulator, TP0)
    (batch,) = drain(accumulator, created_ms(accumulator, TP0) + 101)
    add(accumulator, TP1)
    now = created_ms(accumulator, TP1) + 101
    accumulator.sender.reenqueue(batch, now)

    # One partition backs off, the other one does not.
    assert accumulator.sender.ready(CLUSTER, now).ready_nodes == {NODE0}
    assert [partition_of(accumulator, each) for each in drain(accumulator, now)] == [TP1]
    accumulator.producer.pending.begin_flush("flush")  # not even that ends the backoff
    assert not accumulator.sender.ready(CLUSTER, batch.last_attempt_ms + 799).ready_nodes
    assert not drain(accumulator, batch.last_attempt_ms + 799)

    now = batch.last_attempt_ms + 1200
    assert accumulator.sender.ready(CLUSTER, now).ready_nodes == {NODE0}
    assert [partition_of(accumulator, each) for each in drain(accumulator, now)] == [TP0]


def test_unknown_leaders(accumulator: Accumulators) -> None:
    add(accumulator, TP0)
    add(accumulator, TP1)
    later = created_ms(accumulator, TP1) + 10
    result = accumulator.sender.ready(cluster_of(None, 0), later)
    assert (result.ready_nodes, result.unknown_leader_topics) == ({NODE0}, {"test"})
    assert [partition_of(accumulator, each) for each in drain(accumulator, cluster=cluster_of(None, 0))] == [TP1]
    # No hurry on account of those who have no leader: news of one is an event of its own.
    assert accumulator.sender.ready(cluster_of(None, 0), later).next_ready_check_delay_ms == float("inf")
    result = accumulator.sender.ready(cluster_of(1, 0), later)
    assert (result.ready_nodes, result.unknown_leader_topics) == ({NODE1}, set())
    assert accumulator.sender.drain(cluster_of(0, 0), NODE1, UNLIMITED, later) == []


# --- flush --------------------------------------------------------------------------------------------


def test_await_flush_complete(accumulator: Accumulators) -> None:
    """An interrupted flush is over: it does not keep everybody's batches from lingering."""
    future = accumulator.append(TP0, 0, KEY, VALUE).future
    now = created_ms(accumulator, TP0)
    ready = []
    with interrupted_by_alarm() as set_alarm:

        def look() -> None:
            ready.append(accumulator.sender.ready(CLUSTER, now).ready_nodes)
            set_alarm(0.02)

        accumulator.producer.pending.while_waiting = look
        with pytest.raises(KeyboardInterrupt):
            accumulator.producer.flush()
    assert ready[0] == {NODE0}
    assert not accumulator.sender.ready(CLUSTER, now).ready_nodes
    assert not future.is_done
    Log(accumulator).take_all()
    assert future.get(0).offset == 0


def test_call_that_fails_in_the_middle_of_a_flush_does_not_end_it(accumulator: Accumulators) -> None:
    """A signal handler's call cleans up behind itself only."""
    add(accumulator, TP0)
    flushing = accumulator.slab.geometry.process(accumulator.slab.me) + Process.FLUSHING
    seen = []

    def handle() -> None:
        with pytest.raises(errors.KafkaTimeoutError):
            accumulator.producer.flush(0)
        accumulator.producer.clean_up()
        seen.append(accumulator.slab.words[flushing])
        Log(accumulator).take_all()

    accumulator.producer.pending.while_waiting = handle
    accumulator.producer.flush(60)
    assert (seen, accumulator.slab.words[flushing]) == ([1], 0)


def test_flush_ignores_later_records(accumulator: Accumulators) -> None:
    add(accumulator, TP0)
    (batch,) = drain(accumulator)

    def append_and_deliver_the_first() -> None:
        add(accumulator, TP0)
        Log(accumulator).take([batch])

    accumulator.producer.pending.while_waiting = append_and_deliver_the_first
    accumulator.producer.flush(60)
    assert queued(accumulator, TP0) == 1
    with pytest.raises(errors.KafkaTimeoutError):
        accumulator.producer.flush(0)


# --- giving up ----------------------------------------------------------------------------------------


def test_abort_incomplete_batches(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(buffer_memory=64 * BATCH_SIZE, linger_ms=100_000, delivery_timeout_ms=200_000)
    told: list[tuple[errors.ShmaccumError | None, RecordMetadata | None]] = []
    partitions = (TP0, TP1, TP2)
    for number in range(300):
        accumulator.append(partitions[number % 3], 0, KEY, VALUE, (), lambda *what: told.append(what))
    drained = drain(accumulator)
    in_flight = sum(batch.record_count for batch in drained)
    assert 0 < in_flight < 300
    outcomes = accumulator.sender.abort_incomplete_batches(errors.IllegalStateError)
    assert sum(1 for _ in outcomes) > 0
    accumulator.producer.pending.poll()
    assert len(told) == 300 - in_flight
    assert all(isinstance(error, errors.IllegalStateError) and metadata is None for error, metadata in told)
    assert [queued(accumulator, partition) for partition in partitions] == [0, 0, 0]
    Log(accumulator).take(drained)
    accumulator.producer.pending.poll()
    assert [error for error, _ in told[-in_flight:]] == [None] * in_flight
    assert_empty(accumulator)


@pytest.mark.parametrize(("delivery_timeout_ms", "muted"), [(3200, False), (3200, True), (2**31 - 1, False)])
def test_expired_batch_single(accumulate: OpenAccumulator, delivery_timeout_ms: int, muted: bool) -> None:
    """Also ``testExpiredBatchSingleMaxValue``."""
    accumulator = accumulate(linger_ms=300, delivery_timeout_ms=delivery_timeout_ms)
    future = accumulator.append(TP0, 0, KEY, VALUE).future
    created = created_ms(accumulator, TP0)
    assert not accumulator.sender.ready(CLUSTER, created).ready_nodes
    assert accumulator.sender.ready(CLUSTER, created + 300).ready_nodes == {NODE0}
    assert accumulator.sender.abort_expired_batches(created + 300) == []
    if muted:
        accumulator.sender.mute(accumulator.map.queues[TP0].entry)
    assert accumulator.sender.abort_expired_batches(created + delivery_timeout_ms - 1) == []
    (expired,) = accumulator.sender.abort_expired_batches(created + delivery_timeout_ms)
    assert expired.error is errors.DeliveryTimeoutError
    assert not accumulator.sender.ready(CLUSTER, created + delivery_timeout_ms).ready_nodes
    with pytest.raises(errors.DeliveryTimeoutError, match="test-0"):
        future.get(0)
    assert_empty(accumulator)


def test_expired_batches_retry(accumulator: Accumulators) -> None:
    """A batch's time runs from its creation, over all retries."""
    future = accumulator.append(TP0, 0, KEY, VALUE).future
    created = created_ms(accumulator, TP0)
    (batch,) = drain(accumulator, created + 3000)
    assert accumulator.sender.abort_expired_batches(created + 3000) == []
    accumulator.sender.reenqueue(batch, created + 3100)
    assert accumulator.sender.ready(CLUSTER, created + 3100).ready_nodes == set()
    assert accumulator.sender.expirer.next_expiry_ms == created + 3200
    assert accumulator.sender.abort_expired_batches(created + 3199) == []
    assert len(accumulator.sender.abort_expired_batches(created + 3200)) == 1
    with pytest.raises(errors.DeliveryTimeoutError):
        future.get(0)


# --- order and identity -------------------------------------------------------------------------------


def test_reenqueued_batch_is_closed(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(linger_ms=0, retry_backoff_ms=0, retry_backoff_max_ms=0)
    add(accumulator, TP0, b"before")
    (batch,) = drain(accumulator)
    accumulator.sender.reenqueue(batch, 0)
    result = accumulator.append(TP0, 0, KEY, b"after")
    assert result.new_batch_created
    assert queued(accumulator, TP0) == 2
    log = Log(accumulator)
    log.take_all()
    assert log.values(TP0) == [b"before", b"after"]


def test_sequence_numbers_wrap(accumulate: OpenAccumulator) -> None:
    """``DefaultRecordBatch.incrementSequence``: after 2^31 - 1 comes 0."""
    accumulator = accumulate(enable_idempotence=True, linger_ms=0)
    accumulator.sender.sequences.use_producer_id(1, 0)
    at = accumulator.slab.geometry.partition(accumulator.map.queues[TP0].entry)
    for word in (Partition.NEXT_SEQUENCE, Partition.ACKED_SEQUENCE):
        accumulator.slab.words[at + word] = 2**31 - 2
    for expected in (2**31 - 2, 1, 2):
        for _ in range(3 if expected > 2 else 1):
            add(accumulator, TP0)
        (batch,) = drain(accumulator)
        assert (batch.base_sequence, batch.producer_epoch) == (expected, 0)
        Log(accumulator).take([batch])
