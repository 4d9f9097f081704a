"""A sender driven pass by pass, into a log, that never sleeps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import InvalidRecordError, OutOfOrderSequenceError, RecordTooLargeError
from shmaccum.record.format import iter_batches
from shmaccum.sender.log.log_transport import LogTransport
from shmaccum.sender.sender import Sender
from tools.step.settings import INVALID, LARGEST
from tools.support.accumulators import Accumulators

LATER_MS = 1_000
"""Lead of the passes over the clock: no backoff is pending then."""
_REMEMBERED = 5
"""Batches of a producer that a broker remembers to detect duplicates."""


class Log(LogTransport):
    """The log transport without waits, which refuses what a broker would refuse.

    Attributes:
        refusing: whether it also refuses batches of more than `LARGEST` bytes, and records that are `INVALID`.
        held: whether responses are held back for now.
    """

    def __init__(self, config: ProducerConfig, *, refusing: bool) -> None:
        self._log_dir = Path(config.log_dir)
        rolling = config.segment_bytes, config.flush_messages, config.flush_ms
        super().__init__(self._log_dir, config.num_partitions, *rolling, magic=2)
        self.refusing = refusing
        self.held = False
        self._refused: list[ProduceResponse] = []

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Write the batches that it does not refuse."""
        for batch in batches:
            refusal = self._refusal(batch)
            if refusal is None:
                super().send(node, [batch], now_ms)
            else:
                self._refused.append(refusal)

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the available responses."""
        if self.held:
            return []
        refused, self._refused = self._refused, []
        return refused + super().poll(0, doorbell)

    def _refusal(self, batch: ProduceBatch) -> ProduceResponse | None:
        if self.refusing:
            if batch.size > LARGEST:
                return ProduceResponse(batch, error=RecordTooLargeError)
            records = [record for entry in iter_batches(b"".join(batch.payload)) for record in entry.records()]
            invalid = [number for number, record in enumerate(records) if record.value == INVALID]
            if invalid:
                return ProduceResponse(batch, error=InvalidRecordError, invalid_records=dict.fromkeys(invalid, ""))
        if not self._follows(batch):
            return ProduceResponse(batch, error=OutOfOrderSequenceError)
        return None

    def _follows(self, batch: ProduceBatch) -> bool:
        """Return whether a batch follows its producer's last one in the log, or is in it (``ProducerAppendInfo``)."""
        segments = sorted((self._log_dir / str(batch.topic_partition)).glob("*.log"))
        batches = (each for segment in segments for each in iter_batches(segment.read_bytes(), check_crc=False))
        stored = [each for each in batches if each.producer_id == batch.producer_id]
        if not stored:
            return True  # a broker accepts any sequence from an unknown producer
        begins = [(each.producer_epoch, each.base_sequence, each.record_count) for each in stored[-_REMEMBERED:]]
        if (batch.producer_epoch, batch.base_sequence, batch.record_count) in begins:
            return True
        last = stored[-1]
        expected = last.base_sequence + last.record_count if batch.producer_epoch == last.producer_epoch else 0
        return batch.base_sequence == expected


class HandSender:
    """The sender of a slab: acquires the role, and releases it in `resign`."""

    def __init__(self, accumulator: Accumulators, config: ProducerConfig, *, refusing: bool) -> None:
        self._slab = accumulator.slab
        self._doorbell = self._slab.become_sender()
        self.accumulator = accumulator
        self.transport = Log(config, refusing=refusing)
        self.transport.start()
        self.loop = Sender(accumulator.sender, self.transport, self._doorbell, config)

    def run_once(self) -> None:
        self.loop.run_once(later_ms())

    def resign(self) -> None:
        self.transport.close()
        self._slab.resign_as_sender(self._doorbell)


def later_ms() -> int:
    """Return the time of a pass, in monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000 + LATER_MS
