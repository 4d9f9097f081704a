"""Decides how long each pass of the sender's loop sleeps, and publishes that as the sender's sign of life.

The sender alone writes ``Super.SENDER_RAN``, without a lock: when its last pass began, and how long it sleeps at most.
After its death or while it is stopped the word ages. ``shmaccum status`` and the errors of waiting producers show that.
"""

from __future__ import annotations

from typing import Final

from shmaccum.accumulator.drain.ready_check import FOREVER_MS
from shmaccum.sender.idleness import Idleness
from shmaccum.shm.layout import MAX_SLEEP_MS, SLEEP_BITS, Super
from shmaccum.shm.memory import SlabMemory

_RAN: Final = Super.SENDER_RAN
_SLEEP_BITS: Final = SLEEP_BITS
_MAX_SLEEP_MS: Final = MAX_SLEEP_MS

LOOK_AGAIN_MS: Final = 100
"""Longest sleep while the sender waits for a topic, a leader or a producer id."""


class Sleep:
    """The sleep at the end of a pass: each step of the pass can shorten it.

    Args:
        memory: of the slab.
        idleness: bounds every sleep.
    """

    def __init__(self, memory: SlabMemory, idleness: Idleness) -> None:
        self._memory = memory
        self._idleness = idleness
        self._now_ms = 0
        self._longest_ms: float = FOREVER_MS

    def begin_pass(self, now_ms: int) -> None:
        """Publish that the sender runs; forget the bounds of the last pass."""
        self._now_ms = now_ms
        self._longest_ms = FOREVER_MS
        self._memory.words[_RAN] = now_ms << _SLEEP_BITS

    def at_most(self, longest_ms: float) -> None:
        """Sleep no longer than this in this pass; 0 or less: not at all."""
        self._longest_ms = min(self._longest_ms, longest_ms)

    def begin(self, has_batches: bool) -> float:
        """Publish the coming sleep; return its most milliseconds.

        Args:
            has_batches: whether any are in flight.
        """
        longest_ms = max(self._longest_ms, 0)
        if longest_ms:
            longest_ms = min(longest_ms, self._idleness.longest_sleep_ms(self._now_ms, has_batches))
        self._memory.words[_RAN] = self._now_ms << _SLEEP_BITS | int(min(longest_ms + 1, _MAX_SLEEP_MS))
        return longest_ms
