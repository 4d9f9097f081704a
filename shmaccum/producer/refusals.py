"""Counts calls of `send` that fail before acceptance, by topic and reason, in the slab.

No batch has such a record, so that neither the sender nor a partition's counters see it. The counts are words of the
topic's entry, and stay when the process ends.
"""

from __future__ import annotations

import time
from typing import Final

from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.errors import (
    AuthenticationError,
    AuthorizationError,
    BufferExhaustedError,
    IllegalArgumentError,
    InvalidMetadataError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    LockTimeoutError,
    NetworkError,
    RecordTooLargeError,
    SerializationError,
    SlabFullError,
    UnknownServerError,
)
from shmaccum.shm.layout import Refusal, Super, Topic
from shmaccum.shm.slab import Slab

_CODE_MASK: Final = 0xFFFF
_COUNTER: Final = (1 << 64) - 1
"""Mask of a counter: one that damage has left at the end begins again."""
_REASONS: Final[tuple[tuple[Refusal, tuple[type[Exception], ...]], ...]] = (
    (Refusal.MEMORY, (BufferExhaustedError,)),
    (Refusal.LOCK, (LockTimeoutError,)),
    (Refusal.TOO_LARGE, (RecordTooLargeError,)),
    (Refusal.ARGUMENT, (SerializationError, IllegalArgumentError, InvalidTimestampError, InvalidTopicError)),
    (
        Refusal.TOPIC,
        (
            KafkaTimeoutError,
            InvalidMetadataError,
            AuthenticationError,
            AuthorizationError,
            NetworkError,
            SlabFullError,
        ),
    ),
)
"""The first match holds: the errors about memory are timeouts, too."""


class Refusals:
    """Counts the refused calls of one producer.

    Args:
        slab: the producer's.
        partition_map: of the slab.
    """

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
        if type(error) is KafkaTimeoutError and isinstance(error.__cause__, KafkaError):
            kind = type(error.__cause__)  # why there was no metadata in time
        key = -1 if entry is None else entry.entry, _reason(error)
        calls, _ = self._waiting.get(key, (0, 0))
        code = kind.code if issubclass(kind, KafkaError) else UnknownServerError.code
        self._waiting[key] = calls + 1, code & _CODE_MASK
        now_ms = time.time_ns() // 1_000_000
        try:
            with self._slab.tables_lock.within(0.0):
                self._store(now_ms)
        except LockTimeoutError:
            pass

    def _store(self, now_ms: int) -> None:
        """Add what waits to the slab's counts; under the tables' lock."""
        words, geometry = self._slab.words, self._slab.geometry
        waiting, self._waiting = self._waiting, {}
        for (entry, reason), (calls, code) in waiting.items():
            if entry < 0:
                words[Super.REFUSALS] = words[Super.REFUSALS] + calls & _COUNTER
                continue
            at = geometry.topic(entry)
            words[at + Topic.REFUSALS + reason] = words[at + Topic.REFUSALS + reason] + calls & _COUNTER
            words[at + Topic.REFUSED_ERROR] = code
            words[at + Topic.REFUSED_MS] = now_ms


def _reason(error: Exception) -> Refusal:
    return next((reason for reason, kinds in _REASONS if isinstance(error, kinds)), Refusal.OTHER)
