"""Completion rings lose, overwrite and double no completion."""

from __future__ import annotations

import pytest
from accumulators import BATCH_SIZE, HALF, TP0, Log, assert_empty, drain, queued
from fixture_types import OpenAccumulator
from killpoints import die, die_in
from runs import threads

from shmaccum._core import FutureRecordMetadata, Process
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.errors import KafkaError, error_for_code
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


def test_next_sender_pushes_no_completion_twice(accumulator: Accumulators) -> None:
    """One died between the push of a completion and the end of its batch; else the ring could overflow in the end."""
    future = accumulator.append(TP0, 0, None, b"value").future
    (batch,) = drain(accumulator)

    def complete_and_die() -> None:
        accumulator.pool.deallocate = lambda *buffers, timeout_s: die()  # type: ignore[method-assign]
        accumulator.sender.complete([BatchOutcome(batch, 7)])

    die_in(complete_and_die)
    accumulator.sender.recover()
    slab = accumulator.slab
    assert slab.words[slab.geometry.process(slab.me) + Process.RING_TAIL] == 1
    assert future.get(0).offset == 7
    assert_empty(accumulator)
