"""Appends the rows of columns, as records of one partition.

`shmaccum._core.Rows` does it, as many rows at a time as there is room and free memory for. A row for which there is
something to wait for takes the way of a single record: `RecordAppender`. So owners, locks and what a death leaves are
as there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shmaccum import _core
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.append.record_appender import RecordAppender
from shmaccum.accumulator.append.waits import SENDER, TURN_OVER, Waits
from shmaccum.accumulator.state.partition_queue import PartitionQueue


class ColumnAppender:
    """Appends rows, to open batches and to new ones.

    ``check_usable`` is called before every append: reads the completion ring, raises if the accumulator is closed.
    """

    def __init__(self, records: RecordAppender, check_usable: Callable[[], None]) -> None:
        self._records = records
        self._check_usable = check_usable

    def appending(
        self, queue: PartitionQueue, rows: _core.Rows, future: FutureColumnsMetadata, deadline_s: float
    ) -> Waits[None]:
        """Append rows to a partition, waking the sender as batches become ready.

        It can wait for memory until ``deadline_s``, in monotonic seconds. The future gets the accepted rows; rows that
        an error kept out are not in it.

        Raises:
            BufferExhaustedError: no memory became free in time; earlier rows may be accepted.
            ProducerClosedError: the accumulator has been closed.
            SerializationError: the columns' memory has changed; earlier rows may be accepted.
        """
        records = self._records
        args = records.core, queue, records.free_unused
        future.add(rows)
        while rows.left:
            self._check_usable()
            yield SENDER
            try:
                status = records.run(queue, rows.append, *args)[0]
            finally:
                if rows.is_news:
                    records.wake(rows.take_news())
            if status != _core.LOCK_TAKEN:
                timestamp, body = rows.next_record()
                max_block_ms = (deadline_s - time.monotonic()) * 1000
                single, is_full, is_new, _ = yield from records.appending(
                    queue, timestamp, body, None, max_block_ms, None, 0
                )
                rows.note(single)
                if is_full or is_new:
                    records.wake(is_full)
            yield TURN_OVER
