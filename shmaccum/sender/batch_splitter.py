"""Batch splitting: resends a refused batch in parts.

``Sender.completeBatch`` and ``RecordAccumulator.splitAndReenqueue`` copy such a batch into new ones. Here processes
know the batch by its slot, and the sender must not wait for memory. So the batch stays in its slot. The sender sends
its parts one at a time, front to end, completes each part at once, and puts the rest back into the deque.

The sender writes ``Slot.PART`` of the batches that it has drained (`RecordBatch.cut`), without a lock. A death of the
sender leaves the progress there for the next one.

* A broker recognises a resent part by its first and last sequence number. So the slot header says where a part ends
  before the part is sent. Only an answer that says "not stored" changes it, or one that has named its records. If an
  earlier attempt was stored, its answer lost, and the topic's limit lowered since, that is wrong: the records are
  stored again, as by Kafka's producer.
* While a part is in flight its partition is muted: the batches behind it have later sequence numbers.
* ``MESSAGE_TOO_LARGE`` halves the part. A single record that is too large fails alone. What the topic takes, as far as
  that tells, is kept in ``Partition.MAX_BYTES``: no batch of the partition grows beyond it.
* Invalid records (KIP-467) fail alone: parts end in front of them. In Kafka the whole batch fails, but here it holds
  records of several processes. One answer names all of them: those behind the first are not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from shmaccum._core import PARTS_IN_FLIGHT, Partition, ProduceResponse, Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import KafkaError, RecordTooLargeError
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import BatchPart, read_records, write_part

if TYPE_CHECKING:
    from shmaccum.record.fields import Record

logger = logging.getLogger(__name__)

_KEPT: Final = 8
"""Batches whose records and refusals are kept; the others are read, and asked for, again."""


class _Split:
    """What this sender knows of a batch that it sends in parts."""

    records: list[Record] | None = None
    error: type[KafkaError] = KafkaError
    message = words = ""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.invalid: dict[int, str] = {}
        """Numbers of the records that a broker refused, and why."""


class BatchSplitter:
    """Splits batches, and limits how many of them have a part in flight."""

    def __init__(self, accumulator: SenderAccumulator) -> None:
        self._accumulator = accumulator
        self._incidents = accumulator.state.slab.incidents
        self._format = accumulator.state.format
        self._in_flight: set[int] = set()
        """Slots of batches with a part in flight."""
        self._known: dict[int, _Split] = {}
        """By slot."""
        self._words = accumulator.state.slab.words

    # --- sending ------------------------------------------------------------------------------------

    def admit(self, batch: RecordBatch, now_ms: int) -> bool:
        """Return whether to send a part of a batch just drained; reenqueue the batch otherwise.

        It waits if `PARTS_IN_FLIGHT` parts are in flight, or if a contributor's completion ring has no room.
        """
        in_flight = len(self._in_flight)
        if in_flight == PARTS_IN_FLIGHT or not self._accumulator.has_room_for_part(batch, in_flight):
            self._accumulator.reenqueue(batch, now_ms)
            return False
        return True

    def refused(self, batch: RecordBatch) -> BatchOutcome | None:
        """Return the outcome of the next records of a batch just drained, if a broker has refused them already.

        The part behind them ends in front of the next ones, so that the broker takes it.
        """
        known = self._of(batch)
        if batch.completed not in known.invalid:
            return None
        end = _end_of_run(batch.completed, batch.record_count, known.invalid)
        count = end - batch.completed
        batch.cut(_end_of_run(end, batch.record_count, known.invalid))
        topic = self._accumulator.state.map.by_entry[batch.partition].topic_partition.topic
        logger.error("%s; failed %d records of %r", known.message, count, batch, extra={"seldom": ("invalid", topic)})
        # One completion for all of them: it carries the reason of the first.
        words = known.invalid[batch.completed] or known.words
        incident = self._incidents.note_of_partition(known.error, words, batch.partition)
        return BatchOutcome(batch, error=known.error, end=end, incident=incident)

    def next_part(self, batch: RecordBatch) -> BatchPart:
        """Return the part of a split batch to send now, not sealed yet."""
        if batch.part_end > batch.completed:
            return write_part(self._format, self._records(batch, batch.part_end))
        limit = self._words[batch.partition_at + Partition.MAX_BYTES]
        part = write_part(self._format, self._records(batch, batch.record_count), limit or None)
        batch.cut(batch.completed + part.fields.record_count)
        return part

    def sent(self, batch: RecordBatch) -> None:
        """Note that a part of a batch is in flight: its partition is muted."""
        self._in_flight.add(batch.slot)
        self._accumulator.mute(batch.partition)

    # --- answers ------------------------------------------------------------------------------------

    def answered(self, batch: RecordBatch) -> None:
        """Note that no part of a batch is in flight any longer."""
        if batch.slot in self._in_flight:  # a damaged header can name parts of a batch that was sent whole
            self._in_flight.remove(batch.slot)
            self._accumulator.unmute(batch.partition)

    def can_split(self, response: ProduceResponse) -> bool:
        """Return whether some of the refused records can succeed without the others."""
        if response.batch.record_count == 1 or response.error is None or response.error.retriable:
            return False
        is_too_large = response.error is RecordTooLargeError
        return is_too_large or bool(_invalid_records(response))

    def split(self, batch: RecordBatch, response: ProduceResponse) -> None:
        """Split a refused batch or part: put the batch back into its deque; `refused` fails invalid records then."""
        count = response.batch.record_count
        first = batch.completed
        if response.error is RecordTooLargeError:
            batch.cut(first + self._halve(batch, first + count))
        else:
            assert response.error is not None
            known = self._of(batch)
            known.invalid |= {first + number: words for number, words in _invalid_records(response).items()}
            known.error, known.message, known.words = response.error, response.message, response.words
            # The completion rings have no room reserved for a part of a batch sent whole: `admit` looks first.
            batch.cut(_end_of_run(first, batch.record_count, known.invalid))
        kind = "split", response.batch.topic_partition.topic
        logger.warning("%s; splitting %r into smaller parts", response.message, batch, extra={"seldom": kind})
        self._accumulator.state.slab.words[Super.BATCHES_SPLIT] += 1
        self._accumulator.put_back(batch)

    def _halve(self, batch: RecordBatch, end: int) -> int:
        """Return how many of the records from the first incomplete one to ``end`` hold half of their bytes."""
        records = self._records(batch, end)
        half = len(write_part(self._format, records).memory) // 2
        word = batch.partition_at + Partition.MAX_BYTES
        limit = self._words[word] = min(half, self._words[word] or half)
        return write_part(self._format, records, limit).fields.record_count

    def _records(self, batch: RecordBatch, end: int) -> list[Record]:
        """Return the records of a batch from the first incomplete one to ``end``."""
        known = self._of(batch)
        if known.records is None:
            whole = memoryview(b"".join(batch.memory()))
            known.records = read_records(self._format, whole, BatchFields(*batch.contents()))
        return known.records[batch.completed : end]

    def _of(self, batch: RecordBatch) -> _Split:
        """Return this sender's knowledge of a batch."""
        generation = batch.buffer().generation
        known = self._known.pop(batch.slot, None)
        if known is None or known.generation != generation:
            known = _Split(generation)
        self._known[batch.slot] = known
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return known


def _invalid_records(response: ProduceResponse) -> dict[int, str]:
    """Return the records that an answer names as invalid: number in the request -> the broker's message."""
    count = response.batch.record_count
    return {number: words for number, words in response.invalid_records.items() if 0 <= number < count}


def _end_of_run(begin: int, count: int, invalid: Collection[int]) -> int:
    """Return where the run of records that are all invalid, or all valid, ends that begins with a record."""
    end = begin
    while end < count and (end in invalid) == (begin in invalid):
        end += 1
    return end
