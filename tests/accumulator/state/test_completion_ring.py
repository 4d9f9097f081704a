"""Completion rings lose and overwrite no completion; duplicates have no effect."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from accumulators import BATCH_SIZE, HALF, TP0, TP1, Log, assert_empty, config_of, drain, open_accumulator, queued
from fixture_types import Link, OpenAccumulator, Start
from killpoints import die, die_in
from runs import threads

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.errors import KafkaError, error_for_code
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

SLOTS = 4


def test_every_error_has_a_code_of_its_own() -> None:
    """An error without one would be mistaken for its base, or for another."""
    kinds, seen = [KafkaError], []
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        seen.append(kind)
    assert len(seen) > 20
    for kind in set(seen) - {KafkaError}:
        assert error_for_code(kind.code) is kind


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Accumulators:
    return accumulate(buffer_memory=SLOTS * BATCH_SIZE)


def test_ring_holds_the_completions_of_threads_that_waited_for_memory(accumulator: Accumulators) -> None:
    """None of them polls between getting its memory and its append; the ring does not overflow all the same."""
    futures: list[FutureRecordMetadata] = []
    log = Log(accumulator)
    append = lambda _: futures.append(accumulator.append(TP0, 0, None, HALF).future)  # noqa: E731
    with threads(6 * SLOTS, append) as any_runs:
        while any_runs():
            if accumulator.pool.queued() or queued(accumulator, TP0):
                log.take(drain(accumulator))
    log.take_all()
    assert sorted(future.get(1).offset for future in futures) == list(range(6 * SLOTS))
    assert_empty(accumulator)


def append_and_sleep(link: Link, name: str, count: int) -> list[int]:
    accumulator = open_accumulator(config_of(name, buffer_memory=SLOTS * BATCH_SIZE))
    futures = [accumulator.append(TP1, 0, None, HALF).future for _ in range(count)]
    link.send("appended")
    link.recv()
    offsets = [future.get(30).offset for future in futures]
    detach(accumulator.slab)
    return offsets


def die_before_free(accumulator: Accumulators, action: Callable[[], object]) -> None:
    """Act in a child that dies as it is about to free a slot."""

    def act() -> None:
        accumulator.pool.deallocate = lambda *buffers, timeout_s: die()  # type: ignore[method-assign]
        action()

    die_in(act)


@pytest.mark.parametrize("told_before", [0, 2])
def test_sender_death_between_push_and_free_loses_no_completion(
    accumulator: Accumulators, slab_name: str, start: Start, told_before: int
) -> None:
    """However often a sender dies between push and free, a producer that reads late misses no completion."""
    producer = start(append_and_sleep, slab_name, SLOTS)
    assert producer.hear() == "appended"
    Log(accumulator).take([drain(accumulator)[0] for _ in range(told_before)])
    in_flight = [drain(accumulator)[0] for _ in range(SLOTS - told_before)]

    outcomes = [BatchOutcome(batch, told_before + number) for number, batch in enumerate(in_flight)]
    die_before_free(accumulator, lambda: accumulator.sender.complete(outcomes))
    for _ in range(3):
        die_before_free(accumulator, accumulator.sender.recover)
    accumulator.sender.recover()
    producer.tell()
    assert producer.result() == list(range(SLOTS))
    assert_empty(accumulator)


def test_duplicate_completion_is_ignored(accumulator: Accumulators) -> None:
    """A sender died after a push; the next one pushes again what has been read meanwhile."""
    told = []
    future = accumulator.append(TP0, 0, None, b"value", (), lambda error, metadata: told.append(metadata)).future
    (batch,) = drain(accumulator)
    die_before_free(accumulator, lambda: accumulator.sender.complete([BatchOutcome(batch, 7)]))
    assert future.get(0).offset == 7
    accumulator.sender.recover()
    accumulator.producer.pending.poll()
    assert (future.get(0).offset, len(told)) == (7, 1)
    again = accumulator.append(TP0, 0, None, b"value").future
    Log(accumulator).take_all()
    assert again.get(0).offset == 0
    assert_empty(accumulator)
