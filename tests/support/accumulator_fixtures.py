"""An accumulator for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accumulators import config_of, open_accumulator
from fixture_types import OpenAccumulator

from shmaccum.errors import IllegalStateError
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators


@pytest.fixture
def accumulate(slab_name: str) -> Iterator[OpenAccumulator]:
    """Return a function that opens the test's accumulator with the settings given; what is left in it is dropped."""
    opened: list[Accumulators] = []

    def open_one(**settings: object) -> Accumulators:
        opened.append(open_accumulator(config_of(slab_name, **settings)))
        return opened[-1]

    yield open_one
    for accumulator in opened:
        accumulator.sender.recover()
        accumulator.sender.abort_incomplete_batches(IllegalStateError)
        accumulator.slab.reap_dead()
        accumulator.pool.reclaim()
        detach(accumulator.slab)


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Accumulators:
    return accumulate()
