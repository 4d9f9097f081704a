"""One task of a write, on an executor: sends Arrow batches and waits for acknowledgement.

A task returns only when every row that it sent is acknowledged, and raises if one failed, so that Spark retries the
task. Its memory does not grow with its rows: it drops each acknowledged append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.errors import SerializationError, ShmaccumError
from shmaccum.producer.producer import Producer
from shmaccum.record.columns import arrow_of, numpy_of
from shmaccum.spark.worker import acknowledge_at_once

_SHARE_OF_MEMORY: Final = 4
"""The rows of one append take at most this fraction of ``buffer.memory``. ``max.block.ms`` bounds the wait for the
memory of a whole append, and rows that need the whole slab at once would wait for all other producers."""


def deliver(
    batches: Iterable[pa.RecordBatch],
    to: Producer,
    topic: str | None,
    columns: Mapping[str, str],
    on_first: Callable[[], object] | None = None,
) -> tuple[int, int]:
    """Send the rows of one task and wait until they are acknowledged: see `shmaccum.spark.writers.WriteTask`.

    ``on_first`` is called once the first rows are acknowledged, before more are taken from ``batches``.
    Return the number of rows, and the bytes of their keys and values.
    """
    acknowledge_at_once()
    deliveries = _Deliveries(to)
    append_bytes = to.config.slab_memory // _SHARE_OF_MEMORY
    for batch in batches:
        chosen = batch.select(list(columns))
        for name, rows in group_by_topic(chosen) if topic is None else ((topic, chosen),):
            for part in parts_of(rows, append_bytes):
                deliveries.send(name, part)
                if on_first is not None:
                    deliveries.finish()
                    on_first()
                    on_first = None
    return deliveries.finish()


class _Deliveries:
    """The appends of one task."""

    def __init__(self, to: Producer) -> None:
        self._producer = to
        self._pending: deque[tuple[FutureColumnsMetadata, int]] = deque()
        self._records = 0
        self._bytes = 0

    def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Send rows, unless an earlier append is already known to have failed."""
        self._drop_complete()
        self._pending.append((self._producer.send_batch(topic, rows), rows.num_rows))
        self._records += rows.num_rows
        payload = [rows.column(name) for name in ("key", "value") if name in rows.schema.names]
        self._bytes += sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in payload)

    def finish(self) -> tuple[int, int]:
        """Wait until everything is acknowledged; return how much it was, as `deliver`.

        It flushes instead of waiting for the futures, because a flush does not let the last batches linger. The flush
        also covers other records of this process; a Spark worker runs one task at a time, so there are hardly any.
        """
        self._producer.flush()
        self._drop_complete()
        return self._records, self._bytes

    def _drop_complete(self) -> None:
        """Drop the oldest appends that are complete, and raise if one of them failed."""
        error: ShmaccumError | None = None
        failed_rows = 0
        while self._pending and self._pending[0][0].is_done:
            future, rows = self._pending.popleft()
            if future.exception() is not None:
                error = error or future.exception()
                failed_rows += rows
        if error is not None:
            raise type(error)(
                f"{str(error).removesuffix('.')}. Up to {failed_rows} of the {self._records} rows that the task has "
                "sent so far failed; a retry sends them all again."
            ) from error


def group_by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, in their order and without the column ``topic``.

    Raises SerializationError: a topic is null.
    """
    topics = batch.column("topic")
    if topics.null_count:
        raise SerializationError(
            f"null topic present in the data, in {topics.null_count} of {batch.num_rows} rows; set one for all rows "
            "with the option topic"
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
    """Yield the rows in parts of about ``limit`` bytes, at least one row each, without a copy."""
    rows = max(1, batch.num_rows * limit // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
