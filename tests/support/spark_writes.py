"""Writes of a frame by the data source, as a batch and as a stream, and what an independent decoder finds of them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from senders import read_partition


def session_builder(master: str, scratch: Path, **more: str) -> SparkSession.Builder:
    """Return the builder of a session on this host alone; ``_`` in a name of more settings stands for a dot."""
    settings = {
        "spark.master": master,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",  # several batches for a task, of few rows
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    return SparkSession.builder.config(map=settings | {name.replace("_", "."): text for name, text in more.items()})


class Stored(NamedTuple):
    """A record of a log, and its partition."""

    partition: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def stored(log_dir: Path, topic: str) -> list[Stored]:
    """Return the records of a topic, partition by partition, each in its order."""
    names = [re.fullmatch(rf"{re.escape(topic)}-(\d+)", path.name) for path in log_dir.iterdir()]
    return [
        Stored(partition, *record[1:])
        for partition in sorted(int(name[1]) for name in names if name)
        for record in read_partition(log_dir, topic, partition, while_written=True)
    ]


def write(rows: DataFrame, options: Mapping[str, str], **more: str) -> None:
    rows.write.format("shmaccum").mode("append").options(**{**options, **more}).save()


def write_stream(rows: DataFrame, options: Mapping[str, str], checkpoint: Path, **more: str) -> StreamingQuery:
    """Append what a stream has that is not in its checkpoint yet; return the query, which has ended."""
    writer = rows.writeStream.format("shmaccum").options(**{**options, **more, "checkpointLocation": str(checkpoint)})
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def stalling_query(session: SparkSession, options: dict[str, str], stalling: Path) -> StreamingQuery:
    """Start a query each of whose two tasks writes rows, and then waits while a file exists.

    Each has several Arrow batches that are larger than the 64 KiB that a Python worker gathers before it writes: less
    would not reach the sink before the task ends.
    """
    stalling.touch()
    arriving = stalling.with_name("arriving")
    arriving.mkdir()
    for number in range(2):
        (arriving / str(number)).write_text(f"{number:0200}\n" * 6_000)

    def stall(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        while stalling.exists():
            time.sleep(0.05)

    values = session.readStream.text(str(arriving)).mapInArrow(stall, "value string")
    return values.writeStream.format("shmaccum").options(**options).start()
