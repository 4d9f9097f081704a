"""Futures and callbacks: correct, once, in order, in the process that appended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

import pytest
from accumulators import (
    HALF,
    KEY,
    TP0,
    TP1,
    VALUE,
    Log,
    add,
    assert_empty,
    config_of,
    drain,
    first,
    open_accumulator,
)
from fixture_types import Link, OpenAccumulator, Start
from killpoints import interrupt_before, lines_here
from runs import in_threads, threads

from shmaccum._core import LOCK_TAKEN, Process, Slot
from shmaccum.accumulator.append import pending_batches
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import KafkaTimeoutError, RecordTooLargeError, ShmaccumError, SlabDamagedError
from shmaccum.shm.layout import SlotState
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators


class Told:
    """A callback that records its arguments."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[ShmaccumError] = []
        self.where: list[tuple[int, int]] = []

    def __call__(self, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        assert (error is None) != (metadata is None)
        self.where.append((os.getpid(), threading.get_ident()))
        if error is not None:
            self.errors.append(error)
        if metadata is not None:
            self.offsets.append(metadata.offset)


def append(accumulator: Accumulators, callback: Callable[..., object] | None = None, value: bytes = VALUE) -> None:
    accumulator.append(TP0, 0, KEY, value, (), callback)


def test_metadata(accumulator: Accumulators) -> None:
    futures = [accumulator.append(TP1, 100 + number, KEY, VALUE).future for number in range(3)]
    assert [(future.is_done, future.succeeded(), future.failed(), future.value) for future in futures] == [
        (False, False, False, None)
    ] * 3
    with pytest.raises(KafkaTimeoutError, match=r"test-1 after waiting 0\.01 s"):
        futures[0].get(0.01)
    (batch,) = drain(accumulator)
    accumulator.sender.complete([BatchOutcome(batch, 40)])
    assert not futures[0].is_done  # it only changes when the process looks
    sizes = len(KEY), len(VALUE)
    assert [future.get(0) for future in futures] == [
        RecordMetadata("test", 1, 40 + n, 100 + n, *sizes) for n in range(3)
    ]
    assert futures[0].succeeded()
    assert futures[0].exception() is None


def test_what_the_broker_says_of_a_batch(accumulator: Accumulators) -> None:
    """Under LogAppendTime the timestamp is the broker's; acks=0 and duplicates have no offset."""
    log_time, unknown = [[accumulator.append(to, 7, KEY, VALUE).future for _ in range(2)] for to in (TP0, TP1)]
    one, other = drain(accumulator)
    accumulator.sender.complete([BatchOutcome(one, 0, append_time_ms=12345), BatchOutcome(other)])
    assert [(each.get(0).offset, each.get(0).timestamp) for each in log_time] == [(0, 12345), (1, 12345)]
    assert [(each.get(0).offset, each.get(0).timestamp) for each in unknown] == [(-1, 7)] * 2


def test_add_callback_and_errback(accumulator: Accumulators) -> None:
    """As kafka-python has them: before or after the record is done, with arguments of one's own."""
    said: list[tuple[object, ...]] = []
    good = accumulator.append(TP0, 0, KEY, VALUE).future
    bad = accumulator.append(TP1, 0, KEY, VALUE).future
    for future in (good, bad):
        assert future.add_callback(lambda *a, **k: said.append(("good", *a, k)), 1, x=2) is future
        future.add_errback(lambda *a, **k: said.append(("bad", *a, k)), 3, y=4)
    one, other = drain(accumulator)
    accumulator.sender.complete([BatchOutcome(one, 5), BatchOutcome(other, error=RecordTooLargeError)])
    accumulator.producer.pending.poll()
    good.add_callback(said.append)
    bad.add_errback(said.append)
    error, again = said[1][2], said.pop()
    assert said == [("good", 1, good.value, {"x": 2}), ("bad", 3, error, {"y": 4}), good.value]
    assert {type(each) for each in (error, again)} == {RecordTooLargeError}
    assert {str(each) for each in (error, again)} == {str(bad.exception())}


def append_with_callback(link: Link, name: str, count: int) -> list[int]:
    accumulator = open_accumulator(config_of(name))
    told = Told()
    for _ in range(count):
        append(accumulator, told)
    link.send("appended")
    accumulator.producer.flush(30)
    assert {pid for pid, _ in told.where} == {os.getpid()}
    detach(accumulator.slab)
    return told.offsets


def test_each_process_completes_its_own_records(accumulator: Accumulators, slab_name: str, start: Start) -> None:
    told = Told()
    append(accumulator, told)
    other = start(append_with_callback, slab_name, 2)
    assert other.hear() == "appended"
    append(accumulator, told)
    (batch,) = drain(accumulator)
    assert batch.record_count == 4
    Log(accumulator).take([batch])
    assert other.result() == [1, 2]
    accumulator.producer.pending.poll()
    assert told.offsets == [0, 3]


def test_raising_callback_is_logged(accumulator: Accumulators, caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: object, metadata: object) -> None:
        raise ValueError("no good")

    told = Told()
    append(accumulator, told)
    append(accumulator, fail)
    append(accumulator, told)
    Log(accumulator).take_all()
    with caplog.at_level(logging.ERROR):
        accumulator.producer.pending.poll()
    assert told.offsets == [0, 2]
    assert "a delivery callback for test-0 raised" in caplog.text
    assert "no good" in caplog.text


def test_callback_can_append(accumulator: Accumulators) -> None:
    """It may, from within any call that polls, the call of `append` included; its own callback comes later."""
    told = Told()
    left = [3]

    def again(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        told(error, metadata)
        if left[0]:
            left[0] -= 1
            append(accumulator, again)

    append(accumulator, again)
    log = Log(accumulator)
    for _ in range(4):
        log.take_all()
        append(accumulator)
    log.take_all()
    accumulator.producer.pending.poll()
    assert told.offsets == [0, 1, 3, 5]  # each appended before the record of the call in which it was


def test_callbacks_run_in_order_under_threads(accumulator: Accumulators) -> None:
    told, calling = Told(), threading.Lock()
    log = Log(accumulator)
    count = 50

    def callback(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        assert calling.acquire(blocking=False), "two threads run callbacks at once"
        told(error, metadata)
        calling.release()

    def run(_: int) -> None:
        for _ in range(count):
            append(accumulator, callback)

    with threads(4, run) as any_runs:
        while any_runs():
            log.take(drain(accumulator))
    log.take_all()
    accumulator.producer.pending.poll()
    assert told.offsets == list(range(4 * count))
    assert not told.errors


def test_two_accumulators_share_a_ring(accumulate: OpenAccumulator) -> None:
    """They share the process's ring: however much the one appends and reads, the other misses nothing."""
    busy, quiet = accumulate(), accumulate()
    told = Told()
    future = quiet.append(TP0, 0, KEY, VALUE, (), told).future
    log = Log(busy)
    log.take_all()
    for _ in range(100):
        add(busy, TP1, HALF)
        log.take_all()
    quiet.producer.flush(0)
    assert future.succeeded()
    assert told.offsets == [0]
    # One of them ends, and what the other one may have to rebuild is still in its hands.
    quiet.producer.close()
    assert busy.slab.pool.rebuild() == (LOCK_TAKEN,)
    assert_empty(busy)


def test_interrupted_read_loses_no_completion(accumulator: Accumulators) -> None:
    log = Log(accumulator)
    modules = (pending_batches,)

    def prepare(told: Told) -> None:
        for _ in range(3):
            append(accumulator, told, VALUE + HALF)
        log.take_all()

    prepare(Told())
    read = accumulator.producer.pending.read
    lines = lines_here(read, *modules, hits=2)
    for line in lines:
        told = Told()
        prepare(told)
        assert interrupt_before(line, read, *modules)
        accumulator.producer.pending.poll()
        assert len(told.offsets) == len(set(told.offsets)) == 3, line
        accumulator.producer.flush(0)


def test_threads_of_a_forked_child_join_once(accumulator: Accumulators, start: Start) -> None:
    """They are all of one new process, whichever of them is the first to use the slab."""
    add(accumulator, TP0)
    child = start(lambda link: append_in_threads(accumulator, link), how="fork")
    assert child.hear() == "appended"
    (entry,) = set(accumulator.slab.processes.in_use()) - {accumulator.slab.me}
    Log(accumulator).take_all()
    assert child.result() == list(range(1, 9))
    assert accumulator.slab.processes.info(entry).records == 8
    accumulator.slab.reap_dead()


def append_in_threads(accumulator: Accumulators, link: Link) -> list[int]:
    told = Told()
    together = threading.Barrier(8)

    def run(_: int) -> None:
        together.wait()
        append(accumulator, told)

    in_threads(8, run)
    link.send("appended")
    accumulator.producer.flush(30)
    return sorted(told.offsets)


@pytest.mark.parametrize("head", [1, 1 << 63, (1 << 64) - 1])
def test_an_append_ends_although_the_head_of_the_ring_is_damaged(accumulator: Accumulators, head: int) -> None:
    """The process knows its head; the word looks as if completions were unread for ever."""
    slab = accumulator.slab
    head_at = slab.geometry.process(slab.me) + Process.RING_HEAD
    slab.words[head_at] = head

    accumulator.append(TP0, 0, KEY, VALUE)

    assert slab.words[head_at] == 0


@pytest.mark.parametrize("word", [Slot.STATE, Slot.GENERATION])
def test_lost_batch_fails_alone(accumulator: Accumulators, word: int) -> None:
    called: list[object] = []
    lost = accumulator.append(TP0, 0, KEY, VALUE, (), lambda error, metadata: called.append(error)).future
    sound = accumulator.append(TP1, 0, KEY, VALUE).future
    batch = first(accumulator, TP0)
    at = accumulator.slab.geometry.header(batch.slot) + word
    before = accumulator.slab.words[at]
    accumulator.slab.words[at] = SlotState.FREE if word == Slot.STATE else before + 1

    with pytest.raises(SlabDamagedError, match=rf"slot {batch.slot}: a batch of test-0 was freed"):
        lost.get(5)

    assert isinstance(called[0], SlabDamagedError)
    assert not sound.is_done
    accumulator.slab.words[at] = before
    Log(accumulator).take_all()
    assert sound.get(5).offset == 0
