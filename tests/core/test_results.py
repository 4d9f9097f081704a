"""Results and callbacks while an interrupt, or the garbage collector, comes in between.

CPython 3.11 collects garbage, and so runs other code, wherever an object is made.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from core_producers import call_back, fail, nobody
from core_slabs import Damaged, Slab

from shmaccum import _core
from shmaccum._core import BATCH_SLOT_BITS, FutureRecordMetadata, Part, ProduceRequestResult

BATCHES = 200
"""More than the lists that CPython keeps to use again, which it makes without a collection."""
SLOT = 1


@contextmanager
def collecting(code: Callable[[], object]) -> Iterator[None]:
    """Run code at each collection, as a finalizer does, or another thread then; there are as many as possible."""

    def begin(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            code()

    threshold = gc.get_threshold()
    gc.callbacks.append(begin)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(begin)


def contributions_of(slab: Slab) -> Any:
    return _core.Contributions(slab.segment, 0, nobody, call_back, fail, Damaged)


@pytest.mark.parametrize("slots", [1, BATCHES])
def test_a_batch_has_one_result(slots: int) -> None:
    """Another thread can append to the batch in the middle of `expect`, and its future has that result."""
    contributions = contributions_of(Slab(slots))
    for number in range(BATCHES):
        batch = number + 1 << BATCH_SLOT_BITS | number % slots
        results: list[ProduceRequestResult] = []

        def expect(batch: int = batch, results: list[ProduceRequestResult] = results) -> None:
            results.append(contributions.expect(batch, "t-3"))

        with collecting(expect):
            expect()
        assert set(map(id, results)) == {id(contributions.results[batch])}


def test_no_callback_is_lost() -> None:
    contributions = contributions_of(Slab(BATCHES))
    callbacks = contributions.callbacks
    called: list[int] = []
    own = [partial(lambda number, _: called.append(number), number) for number in range(BATCHES)]
    others = [partial(lambda number, _: called.append(number), -number) for number in range(BATCHES)]
    futures = [FutureRecordMetadata(contributions.expect(batch, "t-3"), 0, 0) for batch in range(1, BATCHES)]
    noted, future = set(), None

    def note() -> None:
        if future is not None and future.batch not in noted:
            noted.add(future.batch)
            callbacks.add(future.batch, others[future.batch], future)

    with collecting(note):
        for future in futures:
            callbacks.add(future.batch, own[future.batch], future)
    for each in futures:
        contributions.lose(each.batch, Damaged)
    callbacks.run()
    assert sorted(called) == sorted([*range(1, BATCHES), *(-batch for batch in noted)])


def test_a_callback_is_called_though_its_record_completes_while_it_is_noted() -> None:
    contributions = contributions_of(Slab(BATCHES))
    callbacks = contributions.callbacks
    called: list[FutureRecordMetadata] = []
    futures = [FutureRecordMetadata(contributions.expect(batch, "t-3"), 0, 0) for batch in range(1, BATCHES)]
    for future in futures:
        with collecting(lambda: contributions.lose(future.batch, Damaged)):  # noqa: B023
            callbacks.add(future.batch, called.append, future)
        contributions.lose(future.batch, Damaged)
    callbacks.run()
    assert called == futures


def test_parts_keep_their_outcomes() -> None:
    """A signal handler, or a finalizer, can read the completion that is being read."""
    first, second = Part(0, 100, -1, None), Part(2, -1, -1, Damaged)
    results = [ProduceRequestResult("t-3", SLOT, nobody) for _ in range(BATCHES)]
    for result in results:
        result.complete(first, 2)
    result = results[0]
    with collecting(lambda: result.complete(second, 0)):
        for result in results:
            result.complete(second, 0)
    for result in results:
        assert result.parts_between(0, 4) == [(0, 2, first), (2, 4, second)]


def test_an_interrupt_in_a_callback_leaves_the_others_due() -> None:
    contributions = contributions_of(Slab(4))
    callbacks = contributions.callbacks
    result, called = contributions.expect(SLOT, "t-3"), []

    def interrupted(_: object) -> None:
        called.append(1)
        raise KeyboardInterrupt

    for index in range(4):
        function = interrupted if index == 1 else partial(lambda number, _: called.append(number), index)
        callbacks.add(SLOT, function, FutureRecordMetadata(result, index, 0))
    contributions.lose(SLOT, Damaged)
    with pytest.raises(KeyboardInterrupt):
        callbacks.run()
    assert callbacks.is_due
    callbacks.run()
    assert called == [0, 1, 2, 3]
    assert not callbacks


def test_the_child_that_a_callback_forks_calls_none_of_the_others() -> None:
    contributions = contributions_of(Slab(4))
    callbacks = contributions.callbacks
    result, called = contributions.expect(SLOT, "t-3"), []

    def forked(_: object) -> None:
        called.append(0)
        callbacks.forget()  # as each child does

    for function in (forked, called.append):
        callbacks.add(SLOT, function, FutureRecordMetadata(result, 0, 0))
    contributions.lose(SLOT, Damaged)
    callbacks.run()
    callbacks.run()
    assert called == [0]
    assert not callbacks
