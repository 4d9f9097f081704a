"""Decides how long each pass of the sender's loop sleeps, and when an idle sender leaves.

The sender alone writes ``Super.SENDER_RAN``, its sign of life, without a lock: when its last pass began, and how long
it sleeps at most. While it is stopped the word ages; ``shmaccum status`` and the errors of waiting producers show that.
Once it runs again, an incident does: records whose ``delivery.timeout.ms`` expired meanwhile are failed then.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Final

from shmaccum._core import SLEEP_BITS, Super
from shmaccum.errors import KafkaTimeoutError
from shmaccum.shm.inspection import SILENCE_MS
from shmaccum.shm.layout import MAX_SLEEP_MS, Role
from shmaccum.shm.reclaim import LEAVE_REQUEST_MS
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

_SILENCES_S: Final = (SILENCE_MS // 1000, 5, 10, 30, 60, 120, 300, 900, 3600)
"""What an incident says of a time without a pass: few texts, since each takes an entry."""
LOOK_AGAIN_MS: Final = 100
"""Longest sleep while the sender waits for a topic, a leader or a producer id."""
LONGEST_SLEEP_MS: Final = 10_000
"""A producer can die between an append and its press of the doorbell: the sender checks without one."""
_LEAST_OF_MANY_SLEEPS_MS: Final = 1000
"""With producers attached, a sender need not check every ``sender.idle.ms`` whether they still are."""
_LOOK_LASTS_MS: Final = 100
"""How long a check for users of the slab stays valid: it takes longer than a whole short pass of the loop."""


class Sleep:
    """The sleep at the end of a pass; a negative ``idle_ms`` (``sender.idle.ms``) never lets the sender leave."""

    def __init__(self, slab: Slab, idle_ms: int) -> None:
        self._slab = slab
        self._words = slab.words
        self._idle_ms = idle_ms
        self._longest_ms = min(max(idle_ms, _LEAST_OF_MANY_SLEEPS_MS), LONGEST_SLEEP_MS)
        self._idle_since_ms: int | None = None
        self._used_until_ms = 0
        self._now_ms = 0
        self._due_ms: float = math.inf
        """When the sleep is over at the latest."""

    def begin_pass(self, now_ms: int) -> None:
        """Publish that the sender runs, and note as an incident if it did not for long."""
        silent_ms = now_ms - self._due_ms
        if silent_ms > SILENCE_MS:
            least_s = max(each for each in _SILENCES_S if each * 1000 <= silent_ms)
            text = f"the sender did not run for {least_s} s or more: stopped, without processor, or waiting for a disk"
            logger.warning(text)
            self._slab.incidents.note(KafkaTimeoutError, text)
        self._now_ms = now_ms
        self._words[Super.SENDER_RAN] = now_ms << SLEEP_BITS

    def begin(self, longest_ms: float, has_batches: bool) -> float:
        """Publish the coming sleep, of ``longest_ms`` at most; return its most milliseconds."""
        longest_ms = min(longest_ms, self._until_check_ms(has_batches)) if longest_ms > 0 else 0
        self._words[Super.SENDER_RAN] = self._now_ms << SLEEP_BITS | int(min(longest_ms + 1, MAX_SLEEP_MS))
        self._due_ms = self._now_ms + longest_ms
        return longest_ms

    def is_over(self) -> bool:
        """Return whether to leave: idle for ``sender.idle.ms``, or another slab's creator needs this one's memory."""
        if self._idle_ms < 0 or self._idle_since_ms is None:
            return False
        now_ms = time.monotonic_ns() // 1_000_000
        wanted_ms = self._slab.words[Super.LEAVE_REQUEST]
        is_wanted = wanted_ms != 0 and now_ms - wanted_ms < LEAVE_REQUEST_MS
        return is_wanted or now_ms - self._idle_since_ms >= self._idle_ms

    def _until_check_ms(self, has_batches: bool) -> float:
        """Return how long to sleep until it is time to leave, or to check again for users of the slab."""
        now_ms = self._now_ms
        if self._idle_ms < 0:
            return LONGEST_SLEEP_MS
        if now_ms < self._used_until_ms:
            return self._used_until_ms - now_ms
        if has_batches or self._has_producers() or self._slab.undelivered() != (0, 0):
            self._idle_since_ms = None
            self._used_until_ms = now_ms + _LOOK_LASTS_MS
            return self._longest_ms
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        return min(max(0, self._idle_since_ms + self._idle_ms - now_ms), LONGEST_SLEEP_MS)

    def _has_producers(self) -> bool:
        processes = self._slab.processes
        return any(
            info.alive and Role.PRODUCER in info.roles
            for info in map(processes.info, processes.in_use())
            if info.entry != self._slab.me
        )
