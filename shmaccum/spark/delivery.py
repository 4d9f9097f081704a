"""One task of a write, on an executor: Arrow batches into the slab, and out of it acknowledged.

A task returns only when every row that it sent has been acknowledged, and raises if one was given up, so that Spark
tries it again. What it must remember does not grow with its rows: an append that is acknowledged is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.config import ProducerConfig
from shmaccum.errors import SerializationError, ShmaccumError
from shmaccum.producer.producer import Producer
from shmaccum.record.columns.arrow import arrow_of, numpy_of
from shmaccum.spark.quickack import acknowledge_at_once
from shmaccum.spark.worker import producer

_SHARE_OF_MEMORY: Final = 4
"""The rows of one append come to at most this fraction of ``buffer.memory``. ``max.block.ms`` bounds the wait for
memory of a whole append, and rows that need all the slab at once would have to wait for everybody else's."""


def deliver(
    batches: Iterable[pa.RecordBatch], config: ProducerConfig, topic: str | None, columns: Mapping[str, str]
) -> tuple[int, int]:
    """Send the rows of one task, and wait until they are acknowledged: see `shmaccum.spark.task.WriteTask`.

    Returns:
        How many rows, and the bytes of their keys and values.
    """
    acknowledge_at_once()
    deliveries = _Deliveries(producer(config))
    append_bytes = config.buffer_memory // _SHARE_OF_MEMORY
    for batch in batches:
        chosen = batch.select(list(columns))
        for name, rows in group_by_topic(chosen) if topic is None else ((topic, chosen),):
            for part in parts_of(rows, append_bytes):
                deliveries.send(name, part)
    return deliveries.finish()


class _Deliveries:
    """What one task has sent."""

    def __init__(self, to: Producer) -> None:
        self._producer = to
        self._pending: deque[tuple[FutureColumnsMetadata, int]] = deque()
        self._records = 0
        self._bytes = 0

    def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Send rows, unless it is known by now that some of those before failed."""
        self._settle()
        self._pending.append((self._producer.send_batch(topic, rows), rows.num_rows))
        self._records += rows.num_rows
        self._bytes += sum(_payload_bytes(rows.column(name)) for name in ("key", "value") if name in rows.schema.names)

    def finish(self) -> tuple[int, int]:
        """Wait until everything is acknowledged; return how much it was, as `deliver`.

        A flush rather than a wait for the futures: it does not let the last batches linger. It takes in what else
        this process has sent, which in a Spark worker, with its one task at a time, is next to nothing.
        """
        self._producer.flush()
        self._settle()
        return self._records, self._bytes

    def _settle(self) -> None:
        """Forget the oldest appends as far as they are done, and raise if one of them failed."""
        error: ShmaccumError | None = None
        failed_rows = 0
        while self._pending and self._pending[0][0].is_done:
            future, rows = self._pending.popleft()
            if future.exception is not None:
                error = error or future.exception
                failed_rows += rows
        if error is not None:
            raise type(error)(
                f"{error} Up to {failed_rows} of the {self._records} rows that the task has sent so far were given up; "
                "a retry sends them all again."
            ) from error


def group_by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, in their order and without the column ``topic``.

    Raises:
        SerializationError: a topic is null.
    """
    topics = batch.column("topic")
    if topics.null_count:
        raise SerializationError(
            f"null topic present in the data, in {topics.null_count} of {batch.num_rows} rows; use the option topic to "
            "set one for all rows"
        )
    rows = batch.select([name for name in batch.schema.names if name != "topic"])
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    codes = numpy_of(encoded.indices)
    rows = rows.take(arrow_of(np.argsort(codes, kind="stable")))
    start = 0
    for name, count in zip(names, np.bincount(codes).tolist(), strict=True):
        yield name, rows.slice(start, count)
        start += count


def parts_of(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts of about ``limit`` bytes, a row at least, without copying them."""
    rows = max(1, batch.num_rows * limit // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _payload_bytes(column: pa.Array) -> int:
    return pc.sum(pc.binary_length(column)).as_py() or 0
