"""Batches lost with a damaged header: their futures fail instead of waiting for ever."""

from __future__ import annotations

import pytest
from accumulators import KEY, TP0, TP1, VALUE, Log, first

from shmaccum._core import Slot
from shmaccum.errors import SlabDamagedError
from shmaccum.shm.layout import SlotState
from tools.support.accumulators import Accumulators

PATIENCE_S = 5.0


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
        lost.get(PATIENCE_S)

    assert isinstance(called[0], SlabDamagedError)
    assert not sound.is_done
    accumulator.slab.words[at] = before
    Log(accumulator).take_all()
    assert sound.get(PATIENCE_S).offset == 0


def test_late_batch_is_waited_for(accumulator: Accumulators) -> None:
    future = accumulator.append(TP0, 0, KEY, VALUE).future
    assert not accumulator.producer.pending.wait_until(lambda: future.is_done, 0.6)
    assert not future.is_done
    Log(accumulator).take_all()
    assert future.get(PATIENCE_S).offset == 0
