"""Decides what becomes of each batch that the transport answered: Kafka's ``Sender.handleProduceResponse``.

The sender alone writes ``Super.BYTES_SENT``, ``Super.LARGEST_BATCH``, what a partition entry says of drained batches,
bytes and errors, and the histograms of delivered batches, all without a lock. A death leaves the batches in flight in
their slots, with or without an answer; `SenderAccumulator.recover` of the next sender queues them again.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from shmaccum.accumulator.drain.completer import BatchOutcome, stored_at
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import (
    DuplicateSequenceNumberError,
    IllegalStateError,
    InvalidMetadataError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from shmaccum.sender.batch_splitter import BatchSplitter
from shmaccum.sender.transport import ProduceBatch, ProduceResponse, Transport
from shmaccum.shm.histograms import count
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.layout import (
    COMMIT_SIZE_SHIFT,
    COMPRESSION_MASK,
    PROGRESS_MASK,
    STATE_MASK,
    OfSender,
    Partition,
    Slot,
    SlotState,
    Super,
)

logger = logging.getLogger(__name__)

_BYTES_SENT: Final = Super.BYTES_SENT
_PARTITION_BYTES_SENT: Final = Partition.BYTES_SENT
_LARGEST_BATCH: Final = Super.LARGEST_BATCH
_BATCHES_DRAINED: Final = Partition.BATCHES_DRAINED
_RECORDS_DRAINED: Final = Partition.RECORDS_DRAINED
_BYTES_DRAINED: Final = Partition.BYTES_DRAINED
_COMPRESSION_DRAINED: Final = Partition.COMPRESSION_DRAINED
_WHOLE: Final = 1000
"""Compression is counted in thousandths."""
_STATE: Final = Slot.STATE
_COMMIT: Final = Slot.COMMIT
_LINGER: Final = Slot.LINGER
_OPENED_US: Final = Slot.OPENED_US
_PART: Final = Slot.PART
_SLOTS: Final = Slot.SLOTS
_STATE_BITS: Final = STATE_MASK
_PROGRESS_MASK: Final = PROGRESS_MASK
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_COMPRESSION_BITS: Final = COMPRESSION_MASK
_COMPLETING: Final = int(SlotState.COMPLETING)


class ResponseHandler:
    """Tracks the batches in flight, and completes, reenqueues or fails them by their answers.

    Args:
        accumulator: of the slab.
        transport: asked for metadata when an answer shows that they are out of date.
        splitter: splits batches that a broker does not take as a whole.
        mutes: whether a partition waits for the answer to its last batch, which keeps order without sequence numbers.

    Attributes:
        in_flight: number of batches without an answer.
    """

    def __init__(
        self, accumulator: SenderAccumulator, transport: Transport, splitter: BatchSplitter, *, mutes: bool
    ) -> None:
        slab = accumulator.state.slab
        self._accumulator = accumulator
        self._sequences = accumulator.sequences
        self._doubt = accumulator.doubt
        self._limits = accumulator.limits
        self._memory = slab.memory
        self._incidents = slab.companion(Incidents)
        self._delivery_times_at = slab.geometry.sender_histogram(OfSender.DELIVERY_TIME)
        self._record_counts_at = slab.geometry.sender_histogram(OfSender.BATCH_RECORDS)
        self._fills_at = slab.geometry.sender_histogram(OfSender.BATCH_FILL)
        self._compressions_at = slab.geometry.sender_histogram(OfSender.COMPRESSION)
        self._header_size = accumulator.state.format.header_size
        self._transport = transport
        self._splitter = splitter
        self._mutes = mutes
        self._batches: list[RecordBatch | None] = [None] * slab.geometry.slot_count
        """Those in flight, by slot."""
        self.in_flight = 0

    def expect(self, batch: RecordBatch, sealed: ProduceBatch) -> None:
        """Expect the answer to a batch, or to a part of it, before it is sent."""
        self._batches[batch.slot] = batch
        self.in_flight += 1
        self._count_drained(batch, sealed)
        if self._mutes:
            self._accumulator.mute(batch.partition)
        if self._memory.words[batch.at + _PART]:
            self._splitter.sent(batch)

    def handle(self, responses: list[ProduceResponse], now_ms: int) -> None:
        """Complete stored batches, reenqueue what can succeed later, fail the rest (``Sender.completeBatch``)."""
        words = self._memory.words
        outcomes: list[BatchOutcome] = []
        out_of_date: set[str] = set()
        bytes_sent, now_us = 0, time.monotonic_ns() // 1000
        for response in responses:
            produced, error = response.batch, response.error
            batch = self._landed(produced)
            stored = error is None or self._has_it(batch, error)
            if stored:
                bytes_sent += produced.size
                self._count(batch, produced, now_us)
                outcomes += self._doubt.confirm(batch)
            elif error is not None and issubclass(error, InvalidMetadataError):
                out_of_date.add(produced.topic_partition.topic)
            if words[batch.at + _STATE] & _STATE_BITS == _COMPLETING:
                self._accumulator.release(batch, stored=stored)  # it expired in flight
            elif stored:
                offset, append_time_ms = response.base_offset, response.log_append_time_ms
                outcomes.append(stored_at(batch, offset, append_time_ms, words[batch.at + _PART] & _PROGRESS_MASK))
            elif self._splitter.can_split(response):
                outcomes += self._splitter.split(batch, response)
            elif self._can_retry(batch, response, now_ms):
                self._retry(batch, response, now_ms)
            else:
                outcomes.append(self._fail(batch, response))
            if not stored:
                self._doubt.refute(batch, now_ms)
        words[_BYTES_SENT] += bytes_sent
        if outcomes:
            self._accumulator.complete(outcomes)
        if out_of_date:
            self._transport.request_update(out_of_date)

    def _count_drained(self, batch: RecordBatch, sealed: ProduceBatch) -> None:
        """Count a batch, or a part of one, that is given to a request: Kafka's ``updateProduceRequestMetrics``."""
        memory, at, header_size, sent = self._memory, batch.partition_at, self._header_size, sealed.size
        memory.words[at + _BATCHES_DRAINED] += 1
        memory.words[at + _RECORDS_DRAINED] += sealed.record_count
        memory.words[at + _BYTES_DRAINED] += sent
        if sent > memory.words[_LARGEST_BATCH]:
            memory.words[_LARGEST_BATCH] = sent
        size = memory.words[batch.at + _COMMIT] >> _SIZE_SHIFT
        ratio = _WHOLE  # of what is not compressed, and of parts
        if header_size < size and header_size < sent and not memory.words[batch.at + _PART]:
            ratio = (sent - header_size) * _WHOLE // (size - header_size)
        memory.words[at + _COMPRESSION_DRAINED] += ratio

    def _count(self, batch: RecordBatch, produced: ProduceBatch, now_us: int) -> None:
        """Count a stored batch, or part of one, for statistics."""
        memory, at = self._memory, batch.at
        words = memory.words
        words[batch.partition_at + _PARTITION_BYTES_SENT] += produced.size
        opened_us = words[at + _OPENED_US]
        if now_us > opened_us:
            count(memory, self._delivery_times_at, now_us - opened_us)
        if words[at + _PART]:
            return
        size = words[at + _COMMIT] >> _SIZE_SHIFT
        slots = words[at + _SLOTS]
        # A damaged number of slots counts for nothing: in the compiled form, its product could wrap around to 0.
        if not size or not 0 < slots <= memory.slot_count:
            return
        count(memory, self._record_counts_at, produced.record_count)
        count(memory, self._fills_at, size * 1000 // (slots * memory.slot_size))
        if words[at + _LINGER] & _COMPRESSION_BITS:
            count(memory, self._compressions_at, produced.size * 1000 // size)

    def _landed(self, produced: ProduceBatch) -> RecordBatch:
        """Take an answered batch out of those in flight; return it."""
        batch = self._batches[produced.slot]
        if batch is None:
            raise IllegalStateError(f"the transport answered a batch in slot {produced.slot}, which has none in flight")
        self._batches[produced.slot] = None
        self.in_flight -= 1
        produced.release()
        if self._mutes:
            self._accumulator.unmute(batch.partition)
        if self._memory.words[batch.at + _PART]:
            self._splitter.answered(batch)
        return batch

    def _has_it(self, batch: RecordBatch, error: type[KafkaError]) -> bool:
        """Return whether the broker has a batch although it answered with an error."""
        if error is DuplicateSequenceNumberError:
            return True
        return issubclass(error, OutOfOrderSequenceError) and self._sequences.is_stored(batch)

    def _can_retry(self, batch: RecordBatch, response: ProduceResponse, now_ms: int) -> bool:
        """Return whether to send a batch again; one with a sequence number also if that number is out of order."""
        if response.error is None or batch.attempts >= self._limits.retries(batch):
            return False
        may_succeed = response.error.retriable or (_is_out_of_order(response) and response.batch.base_sequence >= 0)
        return may_succeed and batch.created_ms + self._limits.timeout_ms(batch) > now_ms

    def _retry(self, batch: RecordBatch, response: ProduceResponse, now_ms: int) -> None:
        if _is_out_of_order(response) and self._doubt.suspend(batch):
            logger.warning("%s; %r is stored if a batch behind it is", response.message, batch, extra=_seldom(response))
            return
        logger.warning("%s; retrying %r", response.message, batch, extra=_seldom(response))
        self._accumulator.reenqueue(batch, now_ms, self._note(batch, response))

    def _fail(self, batch: RecordBatch, response: ProduceResponse) -> BatchOutcome:
        records = response.batch.record_count
        logger.error("%s; failed %d records of %r", response.message, records, batch, extra=_seldom(response, "failed"))
        if response.error is ProducerFencedError and response.batch.transactional_id is None:
            self._sequences.replace_producer_id()
        return BatchOutcome(batch, error=response.error, end=batch.part_end, incident=self._note(batch, response))

    def _note(self, batch: RecordBatch, response: ProduceResponse) -> int:
        """Record why a batch failed as an incident; return its number."""
        return self._incidents.note_of_partition(response.error or KafkaError, response.words, batch.partition)


def _seldom(response: ProduceResponse, what: str = "tried again") -> dict[str, object]:
    """Return the kind of a log line (`shmaccum.sender.logfile`): an outage repeats it for each batch."""
    return {"seldom": (what, response.error, response.batch.topic_partition.topic)}


def _is_out_of_order(response: ProduceResponse) -> bool:
    return response.error is not None and issubclass(response.error, OutOfOrderSequenceError)
