"""Hands the sender's role over to a supervised sender (``shmaccum sender``).

A supervised sender that finds another one *waits for the role*: every `POLL_S` it tries to take it, and stores the
time in ``Super.HEIR_MS``, without a lock. A sender that a producer started then stops sending, waits for the answers
to what it has sent, and resigns. A supervised sender keeps the role until it ends. While one waits, producers start
none: it takes the role sooner than a new process could.

Only a fresh time counts. So a supervised sender that dies or is stopped while it waits keeps no other from the role.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sized
from typing import Final

from shmaccum._core import Super
from shmaccum.errors import SenderExistsError
from shmaccum.shm.lockfile import SENDER
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import Doorbell

logger = logging.getLogger(__name__)

POLL_S: Final = 0.1
FRESH_MS: Final = 500
"""Greatest age of a waiting sender's time: less than the time between two checks of a `WatchThread`."""


def has_successor(slab: Slab) -> bool:
    """Return whether a supervised sender waits for the role and tried within `FRESH_MS`."""
    return 0 <= _now_ms() - slab.words[Super.HEIR_MS] < FRESH_MS


def await_role(slab: Slab, stopped: Sized) -> Doorbell | None:
    """Take the sender's role as soon as it is free; return None once ``stopped`` is not empty."""
    asked_at_start = 0
    try:
        while not stopped:
            try:
                return slab.become_sender()
            except SenderExistsError:
                starts = slab.words[Super.SENDER_STARTS]
            slab.words[Super.HEIR_MS] = _now_ms()
            if not asked_at_start:
                logger.info(
                    "slab %s: process %d has the sender's role; waiting for it. A sender started by a producer hands "
                    "the role over; another `shmaccum sender` keeps it until it ends",
                    slab.name,
                    slab.lock_file.holder(SENDER),
                )
            if starts != asked_at_start:
                slab.button.press()  # that sender may sleep
                asked_at_start = starts
            time.sleep(POLL_S)
    finally:
        slab.words[Super.HEIR_MS] = 0
    return None


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
