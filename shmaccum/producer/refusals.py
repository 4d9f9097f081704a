"""Counts calls of `send` that fail before acceptance, by topic and reason, in the slab.

No batch has such a record, so that neither the sender nor a partition's counters see it. The counts are words of the
topic's entry, and stay when the process ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from shmaccum import errors
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.shm.layout import Refusal
from shmaccum.shm.slab import Slab

_CODE_MASK: Final = 0xFFFF
_REASONS: Final[Mapping[type[Exception], Refusal]] = {
    errors.BufferExhaustedError: Refusal.MEMORY,
    errors.LockTimeoutError: Refusal.LOCK,
    errors.RecordTooLargeError: Refusal.TOO_LARGE,
    errors.SerializationError: Refusal.ARGUMENT,
    errors.IllegalArgumentError: Refusal.ARGUMENT,
    errors.InvalidTimestampError: Refusal.ARGUMENT,
    errors.InvalidTopicError: Refusal.ARGUMENT,
    errors.KafkaTimeoutError: Refusal.TOPIC,
    errors.InvalidMetadataError: Refusal.TOPIC,  # NetworkError is one
    errors.AuthenticationError: Refusal.TOPIC,
    errors.AuthorizationError: Refusal.TOPIC,
    errors.SlabFullError: Refusal.TOPIC,
}
"""The first match holds: the errors about memory are timeouts, too."""


class Refusals:
    """Counts the refused calls of one producer."""

    def __init__(self, slab: Slab, partition_map: PartitionMap) -> None:
        self._slab = slab
        self._map = partition_map
        self._waiting: dict[tuple[int, Refusal], tuple[int, int]] = {}
        """Topic entry and reason -> calls not stored yet, and the last one's code: the tables' lock was not free."""
        slab.on_fork(self)

    def forked(self) -> None:
        """Forget in a forked child what the parent will store."""
        self._waiting = {}

    def count(self, topic: object, error: Exception) -> None:
        """Count a refused call; if the tables' lock is not free, store it with the next one.

        A call that has just waited for a stopped process must not wait for it again.
        """
        entry = self._map.topics.get(topic) if isinstance(topic, str) else None
        kind = type(error)
        if type(error) is errors.KafkaTimeoutError and isinstance(error.__cause__, errors.KafkaError):
            kind = type(error.__cause__)  # why there was no metadata in time
        key = -1 if entry is None else entry.entry, _reason(error)
        calls, _ = self._waiting.get(key, (0, 0))
        code = kind.code if issubclass(kind, errors.KafkaError) else errors.UnknownServerError.code
        self._waiting[key] = calls + 1, code & _CODE_MASK
        self._store(time.time_ns() // 1_000_000)

    def _store(self, now_ms: int) -> None:
        """Add what waits to the slab's counts, as long as the tables' lock is free."""
        for key in list(self._waiting):
            calls, code = self._waiting.pop(key, (0, 0))  # 0: another thread stores them
            try:
                self._slab.tables_lock.run(partial(self._slab.tables.refuse, *key, calls, code, now_ms), 0.0)
            except errors.LockTimeoutError:
                since, _ = self._waiting.get(key, (0, 0))
                self._waiting[key] = calls + since, code
                return


def _reason(error: Exception) -> Refusal:
    return next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), Refusal.OTHER)
