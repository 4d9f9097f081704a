"""Decides what becomes of each batch that the transport answered: Kafka's ``Sender.handleProduceResponse``.

The sender alone writes ``Super.BYTES_SENT``, ``Super.LARGEST_BATCH``, what a partition entry says of drained batches,
bytes and errors, and the histograms of delivered batches, all without a lock. A death leaves the batches in flight in
their slots, with or without an answer; `SenderAccumulator.recover` of the next sender queues them again.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from shmaccum import errors
from shmaccum._core import ProduceBatch, ProduceResponse, Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.sender.batch_splitter import BatchSplitter
from shmaccum.sender.sealer import Sealer
from shmaccum.sender.transport import Transport
from shmaccum.shm.layout import SlotState

logger = logging.getLogger(__name__)

_REFUSALS: Final = frozenset(
    {
        errors.CorruptRecordError,
        errors.NotEnoughReplicasError,
        errors.OutOfOrderSequenceError,
        errors.UnknownProducerIdError,
        errors.UnknownTopicOrPartitionError,
    }
)
"""Errors of a batch that the broker certainly did not store. After others that can be retried, it can have it."""


class ResponseHandler:
    """Tracks the batches in flight, and completes, reenqueues or fails them by their answers.

    ``mutes``: whether a partition waits for the answer to its last batch, which keeps order without sequence numbers.
    ``in_flight``: number of batches without an answer.
    """

    def __init__(
        self, accumulator: SenderAccumulator, transport: Transport, splitter: BatchSplitter, *, mutes: bool
    ) -> None:
        slab = accumulator.state.slab
        self._accumulator = accumulator
        self._sequences = accumulator.sequences
        self._doubt = accumulator.doubt
        self._words = slab.words
        self._incidents = slab.incidents
        self._counts = accumulator.counts
        self._transport = transport
        self._splitter = splitter
        self._mutes = mutes
        self._batches: list[RecordBatch | None] = [None] * slab.geometry.slot_count
        """Those in flight, by slot."""
        self.in_flight = 0

    def seal(self, sealer: Sealer, drained: list[RecordBatch]) -> tuple[list[ProduceBatch], list[RecordBatch]]:
        """Seal batches and `expect` them, but for those that Python code has to see; return both."""
        if sealer.core is None or self._mutes:
            return [], drained
        sealed, rest = sealer.core.seal_all(drained, self._batches, self._counts)
        self.in_flight += len(sealed)
        return sealed, rest

    def expect(self, batch: RecordBatch, sealed: ProduceBatch) -> None:
        """Expect the answer to a batch, or to a part of it, before it is sent."""
        self._batches[batch.slot] = batch
        self.in_flight += 1
        self._counts.count_drained(batch, sealed.size, sealed.record_count)
        if self._mutes:
            self._accumulator.mute(batch.partition)
        if batch.is_split:
            self._splitter.sent(batch)

    def handle(self, responses: list[ProduceResponse], now_ms: int) -> None:
        """Complete stored batches, reenqueue what can succeed later, fail the rest (``Sender.completeBatch``)."""
        if not self._mutes:
            responses = self._complete_stored(responses)
        outcomes: list[BatchOutcome] = []
        out_of_date: set[str] = set()
        bytes_sent, now_us = 0, time.monotonic_ns() // 1000
        for response in responses:
            produced, error = response.batch, response.error
            batch = self._landed(produced)
            stored = error is None or self._has_it(batch, error)
            if stored:
                bytes_sent += produced.size
                self._counts.count_delivered(batch, produced.size, produced.record_count, now_us)
                outcomes += self._doubt.confirm(batch, now_ms)
            elif error is not None and issubclass(error, errors.InvalidMetadataError):
                out_of_date.add(produced.topic_partition.topic)
            if batch.state == SlotState.COMPLETING:
                self._accumulator.release(batch, stored=stored)  # it expired in flight
            elif stored:
                offset, append_time_ms = response.base_offset, response.log_append_time_ms
                outcomes.append(BatchOutcome(batch, offset, append_time_ms, end=batch.part_end))
            elif self._splitter.can_split(response):
                self._splitter.split(batch, response)
            elif self._can_retry(batch, response):
                self._retry(batch, response, now_ms)
            else:
                outcomes.append(self._fail(batch, response))
            if not stored:
                self._doubt.refute(batch, now_ms)
        self._words[Super.BYTES_SENT] += bytes_sent
        if outcomes:
            self._accumulator.complete(outcomes)
        if out_of_date:
            self._transport.request_update(out_of_date)

    def _complete_stored(self, responses: list[ProduceResponse]) -> list[ProduceResponse]:
        """Complete the batches of the first answers, which say only that they are stored; return the others."""
        contributors: set[int] = set()
        now_us = time.monotonic_ns() // 1000
        done, size = self._counts.conclude_stored(responses, self._batches, now_us, contributors)
        if not done:
            return responses
        self.in_flight -= len(done)
        self._words[Super.BYTES_SENT] += size
        self._accumulator.completed(done, contributors)
        return responses[len(done) :]

    def _landed(self, produced: ProduceBatch) -> RecordBatch:
        """Take an answered batch out of those in flight; return it."""
        batch = self._batches[produced.slot]
        if batch is None:
            raise errors.IllegalStateError(
                f"the transport answered a batch in slot {produced.slot}, which has none in flight"
            )
        self._batches[produced.slot] = None
        self.in_flight -= 1
        produced.release()
        if self._mutes:
            self._accumulator.unmute(batch.partition)
        if batch.is_split:
            self._splitter.answered(batch)
        return batch

    def _has_it(self, batch: RecordBatch, error: type[errors.KafkaError]) -> bool:
        """Return whether the broker has a batch although it answered with an error."""
        if error is errors.DuplicateSequenceNumberError:
            return True
        return issubclass(error, errors.OutOfOrderSequenceError) and self._sequences.is_stored(batch)

    def _can_retry(self, batch: RecordBatch, response: ProduceResponse) -> bool:
        """Return whether to send a batch again; one with a sequence number also if that number is out of order.

        If it has expired by now, the next pass fails it as such.
        """
        if response.error is None or batch.attempts >= batch.retries:
            return False
        if _is_out_of_order(response) and response.batch.base_sequence >= 0:
            return not self._sequences.is_unknowable(batch)
        return response.error.retriable

    def _retry(self, batch: RecordBatch, response: ProduceResponse, now_ms: int) -> None:
        what = f"{response.batch.record_count} records of {response.batch.topic_partition}"
        self._sequences.came_back(batch, response.error in _REFUSALS)
        if _is_out_of_order(response) and self._doubt.suspend(batch):
            logger.warning(
                "%s; %s are stored if those behind them are", response.message, what, extra=_seldom(response)
            )
            return
        logger.warning("%s; retrying %s", response.message, what, extra=_seldom(response))
        self._accumulator.reenqueue(batch, now_ms, self._note(batch, response))

    def _fail(self, batch: RecordBatch, response: ProduceResponse) -> BatchOutcome:
        count, of = response.batch.record_count, response.batch.topic_partition
        logger.error("%s; failed %d records of %s", response.message, count, of, extra=_seldom(response, "failed"))
        if response.error is errors.ProducerFencedError and response.batch.transactional_id is None:
            self._sequences.replace_producer_id()
        return BatchOutcome(batch, error=response.error, end=batch.part_end, incident=self._note(batch, response))

    def _note(self, batch: RecordBatch, response: ProduceResponse) -> int:
        """Record why a batch failed as an incident; return its number."""
        return self._incidents.note_of_partition(response.error or errors.KafkaError, response.words, batch.partition)


def _seldom(response: ProduceResponse, what: str = "tried again") -> dict[str, object]:
    """Return the kind of a log line (`shmaccum.sender.logfile`): an outage repeats it for each batch."""
    return {"seldom": (what, response.error, response.batch.topic_partition.topic)}


def _is_out_of_order(response: ProduceResponse) -> bool:
    return response.error is not None and issubclass(response.error, errors.OutOfOrderSequenceError)
