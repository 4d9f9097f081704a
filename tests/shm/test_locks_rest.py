"""Locks: which process rests, and for how long."""

from __future__ import annotations

import time

import pytest
from slab_helpers import NUMBER, take

from shmaccum._core import TICKET_SHIFT, Lock, Super
from shmaccum.shm import native
from shmaccum.shm.slab import Slab

OTHER = 6
"""Entry of another process, which has the lock while this one is awake."""


class Naps:
    """Lets another process hold a slab's lock, until this one sleeps.

    Attributes:
        lengths: of the naps, in seconds.
        now_s: the processor time of this process.
    """

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._owner_at = slab.geometry.lock(NUMBER) + Lock.OWNER
        self.lengths: list[float] = []
        self.now_s = 0.0

    def hold(self) -> None:
        self._slab.words[self._owner_at] = OTHER + 1 | 1 << TICKET_SHIFT

    def sleep(self, seconds: float) -> None:
        self.lengths.append(seconds)
        self._slab.words[self._owner_at] = 0

    def wait_after_running(self, seconds: float) -> float:
        """Take and release the lock; return how long the wait slept at its start."""
        self.now_s += seconds
        self.hold()
        take(self._slab)
        return self.lengths[-1]


@pytest.fixture
def naps(slab: Slab, monkeypatch: pytest.MonkeyPatch) -> Naps:
    naps = Naps(slab)
    monkeypatch.setattr(native, "sleep", naps.sleep)
    monkeypatch.setattr(time, "process_time", lambda: naps.now_s)
    return naps


def test_a_rest_is_longer_the_less_there_was_to_do_since_the_last(naps: Naps) -> None:
    lengths = [naps.wait_after_running(0.0005) for _ in range(8)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[1]
    assert lengths[-2] == lengths[-1] < 0.02, "there is a longest"
    again = naps.wait_after_running(0.004)
    assert again < lengths[-1]
    assert naps.wait_after_running(0.000001) == again, "to have come at the wrong moment tells nothing"
    assert naps.wait_after_running(10.0) < lengths[0], "it was long ago that there was a crowd"


def test_no_process_rests_with_a_timeout_or_while_the_sender_has_the_lock(slab: Slab, naps: Naps) -> None:
    rest = [naps.wait_after_running(0.0005) for _ in range(8)][-1]
    naps.hold()
    take(slab, 5.0)
    assert naps.lengths[-1] < rest / 10
    slab.words[Super.SENDER_ENTRY] = OTHER + 1
    assert naps.wait_after_running(0.0005) < rest / 10
    slab.words[Super.SENDER_ENTRY] = 0
