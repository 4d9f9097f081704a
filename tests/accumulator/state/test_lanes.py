"""Lanes: who holds one, what its deques accept, what the sender drops, and a death at every line."""

from __future__ import annotations

import time
from array import array
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from accumulators import TP0, TP1, Log
from faults import die
from fixture_types import OpenAccumulator
from killpoints import die_before, die_in, lines_here

from shmaccum._core import LEASE_SHIFT, FutureRecordMetadata, Lane
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.append.waits import TURN_OVER, Waits
from shmaccum.accumulator.state import lanes
from shmaccum.accumulator.state.lanes import LaneLease, LaneTable
from shmaccum.cluster import TopicPartition
from shmaccum.errors import (
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortedError,
)
from shmaccum.record.columns import ColumnBodies
from tools.support.accumulators import Accumulators
from tools.support.locks import held


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Accumulators:
    """An accumulator whose batches have sequence numbers."""
    return accumulate(enable_idempotence=True)


@pytest.fixture
def table(accumulator: Accumulators) -> LaneTable:
    """The lanes of an accumulator whose sender has a producer id."""
    accumulator.sender.sequences.use_producer_id(1, 0)
    return LaneTable(accumulator.slab, accumulator.map)


def append(accumulator: Accumulators, lease: LaneLease, to: TopicPartition, value: bytes) -> FutureRecordMetadata:
    queue = lease.queue(accumulator.map.queues[to])
    body = accumulator.format.encode_body(None, value, ())
    return accumulator.append_to(queue, 0, body, None, 1000)[0]


def opened(table: LaneTable, name: str = "orders", epoch: int = 3) -> LaneLease:
    lease = table.lease(name)
    lease.open(9, epoch, 2)
    return lease


def test_a_lease_fences_the_one_before_it(accumulator: Accumulators, table: LaneTable) -> None:
    older = opened(table)
    append(accumulator, older, TP0, b"first")
    newer = table.lease("orders")
    assert not older.is_valid
    with pytest.raises(ProducerFencedError):
        append(accumulator, older, TP0, b"late")
    with pytest.raises(ProducerFencedError):
        older.open(9, 4, 2)
    older.close()
    older.release()
    newer.open(9, 4, 2)
    assert newer.is_valid


@pytest.mark.parametrize("leases", [(1 << 23) - 1, (1 << 24) - 1])
def test_leases_are_without_end(accumulator: Accumulators, table: LaneTable, leases: int) -> None:
    """Half of the word, and all of it: a host with short programs gets there."""
    older = opened(table)
    accumulator.slab.words[accumulator.slab.geometry.lane(0) + Lane.GENERATION] = leases << LEASE_SHIFT
    newer = opened(table)
    assert (older.is_valid, newer.is_valid) == (False, True)
    append(accumulator, newer, TP0, b"value")
    newer.end_transaction()
    accumulator.slab.check()


def test_columns_cut_short_by_the_end_of_their_transaction_stay_in_it(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(enable_idempotence=True, buffer_memory=32 << 20)
    lease = opened(LaneTable(accumulator.slab, accumulator.map))
    queue = lease.queue(accumulator.map.queues[TP0])
    values = [bytes(accumulator.slab.geometry.slot_size // 2)] * 20_000
    rows = ColumnBodies(accumulator.format, None, pa.array(values, pa.binary()), None, 0).rows(0, len(values))
    future = FutureColumnsMetadata(len(values), accumulator.producer.pending)
    queued: list[int] = []

    def cut_short() -> Waits[None]:
        for wait in accumulator.producer.columns.appending(queue, rows, future, time.monotonic() + 10):
            yield wait
            if wait == TURN_OVER and not queued:
                lease.end_transaction()
                lease.open(9, 4, 2)
                queued.append(len(queue))

    with pytest.raises(IllegalStateError):
        accumulator.producer.block(cut_short())
    assert [len(queue)] == queued
    assert len(queue) > 0


def test_the_end_of_a_transaction_waits_for_the_appends_under_way(accumulator: Accumulators, table: LaneTable) -> None:
    """They have looked at the lane, and not yet put their records into it."""
    lease = opened(table)
    queue = lease.queue(accumulator.map.queues[TP0])
    with ThreadPoolExecutor(1) as threads:
        with held(queue.lock):
            queue.check_lease()
            ending = threads.submit(lease.end_transaction)
            with pytest.raises(TimeoutError):
                ending.result(0.05)
        ending.result()


def test_an_append_that_was_faster_than_the_next_lease_is_dropped(accumulator: Accumulators, table: LaneTable) -> None:
    """It has found the lane open, and has its partition's lock while the sender looks what is queued."""
    accumulator.slab.become_sender()
    lease = opened(table)
    queue = lease.queue(accumulator.map.queues[TP0])
    begin = accumulator.slab.geometry.lane(0)
    lane = accumulator.slab.words[begin : begin + Lane.ID]
    found = lane.tolist()
    with held(queue.lock):
        table.lease("orders")
        assert accumulator.sender.drop_closed_lanes() == []
    closed = lane.tolist()
    lane[:] = memoryview(array("Q", found))
    future = append(accumulator, lease, TP0, b"faster")
    lane[:] = memoryview(array("Q", closed))
    lane.release()
    accumulator.sender.deferral.until_ms.clear()  # a second later
    assert len(accumulator.sender.drop_closed_lanes()) == 1
    accumulator.producer.pending.poll()
    assert isinstance(future.exception(), TransactionAbortedError)


def test_a_look_for_expired_batches_finds_a_lane_that_is_new_to_the_sender(
    accumulator: Accumulators, table: LaneTable
) -> None:
    accumulator.slab.become_sender()

    def send_in_a_new_lane() -> None:
        append(accumulator, opened(table), TP0, b"new")
        die()

    die_in(send_in_a_new_lane)
    assert accumulator.sender.abort_expired_batches(0) == []
    assert len(accumulator.map.of_lanes) == 1


def test_what_is_queued_since_a_lane_was_opened_again_is_kept(
    accumulator: Accumulators, table: LaneTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction can begin while the sender looks for what the last one has left."""
    accumulator.slab.become_sender()
    lease = opened(table)
    lease.queue(accumulator.map.queues[TP0])
    lease.close()
    futures: list[FutureRecordMetadata] = []
    entries_of = accumulator.sender.lanes.entries_of

    def overtaken(lane: int) -> list[int]:
        entries = entries_of(lane)
        lease.open(9, 4, 2)
        futures.append(append(accumulator, lease, TP0, b"kept"))
        return entries

    with monkeypatch.context() as patch:
        patch.setattr(accumulator.sender.lanes, "entries_of", overtaken)
        assert accumulator.sender.drop_closed_lanes() == []
    assert accumulator.sender.drop_closed_lanes() == []
    assert lease.error is None
    log = Log(accumulator)
    log.take_all()
    accumulator.producer.pending.poll()
    assert futures[0].succeeded()


def test_a_death_at_any_line_leaves_a_lane_for_the_next(accumulator: Accumulators, table: LaneTable) -> None:
    """The sender takes it from the dead process and empties it, and the next lease opens it."""
    accumulator.slab.become_sender()

    def live() -> None:
        lease = table.lease("orders")
        lease.open(9, 3, 2)
        append(accumulator, lease, TP0, b"of the dead")
        append(accumulator, lease, TP1, b"of the dead")
        lease.end_transaction()
        lease.close()
        lease.release()

    for line in lines_here(live, lanes, hits=1000):
        die_in(lambda line=line: die_before(line, live, lanes))
        accumulator.slab.reap_dead()
        accumulator.pool.reclaim()
        accumulator.sender.take_lanes_from_dead()
        assert not table.abandoned()
        accumulator.sender.drop_closed_lanes()
        assert table.is_empty(0)
        lease = opened(table, epoch=4)
        append(accumulator, lease, TP0, b"alive")
        log = Log(accumulator)
        log.take_all()
        lease.release()
        accumulator.sender.drop_closed_lanes()
