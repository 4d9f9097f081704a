"""Decides how long an idle sender sleeps, and when it leaves."""

from __future__ import annotations

from typing import Final

from shmaccum.shm.layout import Role, Super
from shmaccum.shm.reclaim import LEAVE_REQUEST_MS
from shmaccum.shm.slab import Slab

LONGEST_SLEEP_MS: Final = 10_000
"""A producer can die between an append and its press of the doorbell: the sender checks without one."""
_LEAST_OF_MANY_SLEEPS_MS: Final = 1000
"""With producers attached, a sender need not check every ``sender.idle.ms`` whether they still are."""
_LOOK_LASTS_MS: Final = 100
"""How long a check for users of the slab stays valid: it takes longer than a whole short pass of the loop."""


class Idleness:
    """Tracks whether producers or undelivered records need the sender.

    Args:
        slab: the sender's slab.
        idle_ms: ``sender.idle.ms``, how long it stays without either; negative: for ever.
    """

    def __init__(self, slab: Slab, idle_ms: int) -> None:
        self._slab = slab
        self._idle_ms = idle_ms
        self._since_ms: int | None = None
        self._used_until_ms = 0

    def is_over(self, now_ms: int) -> bool:
        """Return whether to leave: idle for ``sender.idle.ms``, or another slab's creator needs this one's memory."""
        if self._idle_ms < 0 or self._since_ms is None:
            return False
        wanted_ms = self._slab.words[Super.LEAVE_REQUEST]
        is_wanted = wanted_ms != 0 and now_ms - wanted_ms < LEAVE_REQUEST_MS
        return is_wanted or now_ms - self._since_ms >= self._idle_ms

    def longest_sleep_ms(self, now_ms: int, has_batches: bool) -> float:
        """Return how long to sleep at most: until it is time to leave, or to check again for users of the slab.

        Args:
            now_ms: monotonic milliseconds.
            has_batches: whether any are in flight.
        """
        if self._idle_ms < 0:
            return LONGEST_SLEEP_MS
        longest_ms = min(max(self._idle_ms, _LEAST_OF_MANY_SLEEPS_MS), LONGEST_SLEEP_MS)
        if now_ms < self._used_until_ms:
            return min(longest_ms, self._used_until_ms - now_ms)
        if has_batches or self._has_producers() or self._slab.undelivered() != (0, 0):
            self._since_ms = None
            self._used_until_ms = now_ms + _LOOK_LASTS_MS
            return longest_ms
        if self._since_ms is None:
            self._since_ms = now_ms
        return min(max(0, self._since_ms + self._idle_ms - now_ms), LONGEST_SLEEP_MS)

    def _has_producers(self) -> bool:
        processes = self._slab.processes
        return any(
            info.alive and Role.PRODUCER in info.roles
            for info in map(processes.info, processes.in_use())
            if info.entry != self._slab.me
        )
