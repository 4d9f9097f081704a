"""A driver that ends amid a batch of its query, for `test_exactly_once`; with the sink's options as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def stall(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Let the rows pass, and then wait for ever if there were any."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    while rows:
        time.sleep(1)


def main() -> None:
    directory, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(directory))
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    # Several Arrow batches in each task, each larger than the 64 KiB that a Python worker gathers before it writes:
    # less would not reach the sink before the task ends.
    rows = session.readStream.format("rate").options(rowsPerSecond=6_000, numPartitions=2).load()
    values = rows.selectExpr("rpad(CAST(value AS STRING), 200, '.') AS value").mapInArrow(stall, "value string")
    values.writeStream.format("shmaccum").options(**options).start()
    print("started", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
