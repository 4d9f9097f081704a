"""How the role of the sender passes to a supervised one (``shmaccum sender``) from one that a producer started.

A supervised sender that finds another one *waits for the role*: every `POLL_S` it tries to take the role, and stores
the time in the superblock. A sender that a producer started sees that, sends nothing more, waits for the answers to
what it has sent, and resigns. A supervised one keeps the role until it ends. While a supervised sender waits, producers
start none: it takes the role sooner than a new process could.

Only a fresh time counts, so a supervised sender that dies or is stopped as it waits keeps no other from the role.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sized
from typing import Final

from shmaccum.errors import SenderExistsError
from shmaccum.shm.layout import Super
from shmaccum.shm.lockfile import SENDER
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import Doorbell

logger = logging.getLogger(__name__)

POLL_S: Final = 0.1
FRESH_MS: Final = 500
"""How old the word is at most of one who waits: less than the time between two looks of a `WatchThread`."""


def has_successor(slab: Slab) -> bool:
    """Return whether a supervised sender waits for the role, and looked a moment ago."""
    return 0 <= _now_ms() - slab.words[Super.HEIR_MS] < FRESH_MS


def await_role(slab: Slab, stopped: Sized) -> Doorbell | None:
    """Take the sender's role as soon as it is free.

    Args:
        slab: the slab.
        stopped: not empty any more when the wait is to end.

    Returns:
        The doorbell; None if the wait ended first.
    """
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
                    "slab %s is served by process %d: waiting for its role, which a sender that a producer started "
                    "hands over, and another `shmaccum sender` keeps until it ends",
                    slab.name,
                    slab.lock_file.holder(SENDER),
                )
            if starts != asked_at_start:
                slab.button.press()  # it may be asleep
                asked_at_start = starts
            time.sleep(POLL_S)
    finally:
        slab.words[Super.HEIR_MS] = 0
    return None


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
