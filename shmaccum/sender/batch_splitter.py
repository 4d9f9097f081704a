"""Batches that a broker does not take as a whole (``Sender.completeBatch``, ``RecordAccumulator.splitAndReenqueue``).

Kafka splits such a batch into new ones. Here other processes know the batch by its slot, and the sender must not wait
for memory. So the batch stays where it is and is sent *in pieces*, one at a time and from its front to its end; what
becomes of a piece is told at once, and the rest goes back to its place in the deque.

* A broker knows a batch that comes again by its first and last sequence number. So where a piece ends is in the slot
  header before it is sent, and is changed only by an answer which says that the piece was not stored.
* While a piece is on its way, its partition is muted: what is behind it has later sequence numbers.
* Too large (``MESSAGE_TOO_LARGE``): the piece is halved. A single record that is too large is given up, alone.
* Invalid records (KIP-467): those that the broker names are given up, and the pieces are cut around them. The batch
  holds records of several processes, so that the others must not suffer for them, as they do in Kafka.
"""

from __future__ import annotations

import logging

from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import TopicPartition
from shmaccum.errors import RecordTooLargeError
from shmaccum.record.compression import CompressionType
from shmaccum.record.reader import Record
from shmaccum.record.split import Piece, read_records, write_piece
from shmaccum.sender.transport import ProduceResponse
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.layout import PIECES_IN_FLIGHT

logger = logging.getLogger(__name__)


class BatchSplitter:
    """What the sender knows of the batches that it sends in pieces; their progress is in their headers."""

    def __init__(self, accumulator: SenderAccumulator) -> None:
        self._accumulator = accumulator
        self._incidents = accumulator.state.slab.companion(Incidents)
        self._format = accumulator.state.format
        self._in_flight: set[int] = set()
        """Slots of batches of which a piece is on its way."""
        self._limits: dict[int, int] = {}
        """Partition entry -> bytes that its pieces have at most, as far as it is known what the broker takes."""

    # --- sending ------------------------------------------------------------------------------------

    def admit(self, batch: RecordBatch, now_ms: int) -> bool:
        """Say whether a batch in pieces that was just drained is to be sent now; put it back if it cannot be.

        That is, if somebody who is to be told of this piece has not read of too many others.
        """
        in_flight = len(self._in_flight)
        if in_flight == PIECES_IN_FLIGHT or not self._accumulator.can_tell_of_a_piece(batch, in_flight):
            self._accumulator.reenqueue(batch, now_ms)
            return False
        self._in_flight.add(batch.slot)
        self._accumulator.mute(self._topic_partition(batch))
        return True

    def piece_of(self, batch: RecordBatch) -> Piece:
        """Return what is to be sent now of a batch in pieces, not sealed yet."""
        if batch.piece_end > batch.settled:
            return write_piece(self._format, self._records(batch, batch.piece_end))
        piece = write_piece(self._format, self._records(batch, batch.record_count), self._limits.get(batch.partition))
        batch.cut(batch.settled + piece.record_count)
        return piece

    # --- answers ------------------------------------------------------------------------------------

    def answered(self, batch: RecordBatch) -> None:
        """Note that a batch is not on its way any more."""
        if batch.slot in self._in_flight:
            self._in_flight.remove(batch.slot)
            self._accumulator.unmute(self._topic_partition(batch))

    def can_divide(self, response: ProduceResponse) -> bool:
        """Say whether some of the records that were refused may be taken if they come without the others."""
        if response.batch.record_count == 1 or response.error is None or response.error.retriable:
            return False
        is_too_large = response.error is RecordTooLargeError
        return is_too_large or bool(_invalid_records(response))

    def divide(self, batch: RecordBatch, response: ProduceResponse) -> BatchOutcome | None:
        """Cut what was refused; return the outcome of the records that are given up for it, if there are any.

        Without any, the batch is back in its deque.
        """
        count = response.batch.record_count
        first = batch.settled
        if response.error is RecordTooLargeError:
            batch.cut(first + self._halve(batch, first + count))
        else:
            assert response.error is not None
            invalid = _invalid_records(response)
            bad = 0
            while bad in invalid:
                bad += 1
            if bad == count or (bad and batch.in_pieces):
                # Up to the next that is invalid, so that the broker takes it; what is behind is cut in its turn.
                batch.cut(first + min((each for each in invalid if each > bad), default=count))
                logger.error("%s; gave up %d records of %r", response.message, bad, batch)
                # One completion for all of them: what is said of the first stands for the others.
                incident = self._incidents.note(response.error, invalid[0] or response.words)
                return BatchOutcome(batch, error=response.error, end=first + bad, incident=incident)
            # What was sent as a whole has no room in the rings for a part: its first records are sent once more.
            batch.cut(first + (bad or min(invalid)))
        logger.warning("%s; %r is sent in smaller pieces", response.message, batch)
        self._accumulator.put_back(batch)
        return None

    def _halve(self, batch: RecordBatch, end: int) -> int:
        """Return how many of the records from the first that is not settled to ``end`` are half of their bytes."""
        records = self._records(batch, end)
        half = len(write_piece(self._format, records).memory) // 2
        limit = self._limits[batch.partition] = min(half, self._limits.get(batch.partition, half))
        return write_piece(self._format, records, limit).record_count

    def _topic_partition(self, batch: RecordBatch) -> TopicPartition:
        return self._accumulator.state.map.by_entry[batch.partition].topic_partition

    def _records(self, batch: RecordBatch, end: int) -> list[Record]:
        """Return the records of a batch from the first that is not settled to ``end``."""
        records = read_records(
            self._format,
            memoryview(b"".join(batch.views())),
            record_count=batch.record_count,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
            compression=batch.compression or CompressionType.NONE,
        )
        return records[batch.settled : end]


def _invalid_records(response: ProduceResponse) -> dict[int, str]:
    """Return the records that an answer names, by their numbers in what was sent, and what it says of each."""
    count = response.batch.record_count
    return {number: words for number, words in response.invalid_records.items() if 0 <= number < count}
