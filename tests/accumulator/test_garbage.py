"""Nothing reachable from a future leads back to it: compiled, the collector could not free the cycle."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from accumulators import KEY, TP0, VALUE, config_of, drain, open_accumulator

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.errors import IllegalStateError, RecordTooLargeError, ShmaccumError
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators


class Canary:
    """An object whose freeing can be observed."""


def append_in_a_circle(accumulator: Accumulators, canary: Canary) -> list[FutureRecordMetadata]:
    """Return futures whose callbacks lead to all of them, and to the canary."""
    futures: list[FutureRecordMetadata] = []

    def called(error: ShmaccumError | None, metadata: object) -> tuple[object, object]:
        return futures, canary

    for _ in range(3):
        futures.append(accumulator.append(TP0, 0, KEY, VALUE, (), called).future)
        futures[-1].add_callback(called, None)
        futures[-1].add_errback(called, None)
    return futures


def is_gone(canary: weakref.ref[Canary]) -> bool:
    gc.collect()
    return canary() is None


def raise_error_of(future: FutureRecordMetadata) -> None:
    raise future.exception()


@pytest.mark.parametrize("fail", [None, lambda future: future.get(0), raise_error_of])
def test_done_futures_are_freed(
    accumulator: Accumulators, fail: Callable[[FutureRecordMetadata], object] | None
) -> None:
    """Those of errors that were raised, too: a traceback leads to the frame that has error, futures and canary."""

    def use() -> weakref.ref[Canary]:
        canary = Canary()
        futures = append_in_a_circle(accumulator, canary)
        (batch,) = drain(accumulator)
        accumulator.sender.complete([BatchOutcome(batch, 0, error=RecordTooLargeError if fail else None)])
        accumulator.producer.pending.poll()
        errors = []
        for future in futures if fail else []:
            with pytest.raises(RecordTooLargeError) as info:
                fail(future)
            errors.append(info.value)
        assert len(set(map(id, errors))) == len(errors)
        return weakref.ref(canary)

    assert is_gone(use())


def test_pending_futures_of_a_closed_producer_are_freed(
    slab_name: str, accumulate: Callable[[], RecordAccumulator]
) -> None:
    """The process has left the slab with callbacks that are never called."""

    def use() -> tuple[FutureRecordMetadata, weakref.ref[Canary]]:
        accumulator, canary = open_accumulator(config_of(slab_name)), Canary()
        future = accumulator.append(TP0, 0, KEY, VALUE).future
        append_in_a_circle(accumulator, canary)
        accumulator.producer.close()
        detach(accumulator.slab)
        return future, weakref.ref(canary)

    future, canary = use()
    assert is_gone(canary)
    assert not future.is_done
    with pytest.raises(IllegalStateError, match="no longer exists"):
        future.get(0)
    accumulate()  # which is to drop the records
