"""Metrics by Kafka's names: the slab's counters, and the times of one producer's transactional calls.

Counters are words of shared memory that only grow. Each has one writer: a process counts in its table entry, the
sender in the superblock. Readers take no lock. The times are in the producer's process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shmaccum.shm.layout import Geometry, Super


def slab_metrics(words: memoryview, geometry: Geometry) -> dict[str, float]:
    """Return the metrics of a slab: its memory, and what its senders have sent."""
    slot_size = geometry.slot_size
    batches, records = words[Super.BATCHES_SENT], words[Super.RECORDS_SENT]
    requests = words[Super.REQUESTS_SENT]
    filled, capacity = words[Super.FILL_BYTES], words[Super.CAPACITY_BYTES]
    return {
        "buffer-total-bytes": geometry.slot_count * slot_size,
        "buffer-available-bytes": words[Super.FREE_SLOTS] * slot_size,
        "buffer-peak-bytes": words[Super.PEAK_SLOTS] * slot_size,
        "record-send-total": records,
        "record-error-total": words[Super.RECORDS_FAILED],
        "record-lost-total": words[Super.RECORDS_LOST],
        "batch-send-total": batches,
        "batch-error-total": words[Super.BATCHES_FAILED],
        "batch-retry-total": words[Super.BATCHES_RETRIED],
        "batch-expired-total": words[Super.BATCHES_EXPIRED],
        "producer-epoch-bump-total": words[Super.EPOCH_BUMPS],
        "byte-total": words[Super.BYTES_SENT],
        "request-total": requests,
        "records-per-batch-avg": records / batches if batches else 0.0,
        "records-per-request-avg": records / requests if requests else 0.0,
        "batch-size-avg": filled / batches if batches else 0.0,
        "batch-fill-ratio": filled / capacity if capacity else 0.0,
        "compression-rate-avg": words[Super.BYTES_SENT] / filled if batches and filled else 0.0,
        "sender-start-total": words[Super.SENDER_STARTS],
        "reclaimed-slots-total": words[Super.RECLAIMED_SLOTS],
        "rebuild-total": words[Super.REBUILDS],
    }


class TransactionTimes:
    """Nanoseconds that a producer's transactional calls have taken, by Kafka's names (``KafkaProducerMetrics``).

    As in Kafka, a call that failed does not count. The caller's lock guards `call`; readers need none.
    """

    def __init__(self) -> None:
        self._totals = dict.fromkeys(_TRANSACTION_CALLS, 0)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Measure a call.

        Args:
            name: ``init``, ``begin``, ``send-offsets``, ``commit`` or ``abort``.
        """
        began_ns = time.monotonic_ns()
        yield
        self._totals[name] += time.monotonic_ns() - began_ns

    def metrics(self) -> dict[str, float]:
        """Return the metrics."""
        return {f"txn-{name}-time-ns-total": total for name, total in self._totals.items()}


_TRANSACTION_CALLS: Final = ("init", "begin", "send-offsets", "commit", "abort")
