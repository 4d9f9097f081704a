"""Streaming queries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tools.moved_by_one_word.job import Options, Order, Where, job, numbers

PATIENCE_S: Final = 120.0
"""How long a query may take."""
CONTINUOUS_S: Final = 20.0
"""How long a continuous query can take for its first epochs."""


def wait_for(condition: Callable[[], bool], query: Any, seconds: float = PATIENCE_S) -> None:
    """Wait until something holds, the query ends, or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition() and query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)


def arrive(directory: Path, name: str, lines: list[str]) -> None:
    """Put a file into a directory that a query reads; each is newer than those before."""
    directory.mkdir(exist_ok=True)
    count = len(list(directory.iterdir()))
    scratch = directory.with_suffix(".new")
    scratch.write_text("\n".join(lines))
    os.utime(scratch, (count, time.time() - 1000 + count))
    scratch.rename(directory / name)


def counts(spark: SparkSession, where: Where) -> DataFrame:
    """Return how often each word has come, after one file and after another."""
    arriving = where.directory / "arriving"
    arrive(arriving, "a.txt", ["red", "green", "red"])
    arrive(arriving, "b.txt", ["green", "blue"])
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(arriving))
    return lines.groupBy("value").count().selectExpr("value AS key", "concat(value, '=', count) AS value")


AFTER_A: Final = [b"red=2", b"green=1"]
"""What `counts` are after the first file."""
CHANGED_BY_B: Final = [b"green=2", b"blue=1"]
"""What the second file changes."""


@job(numbers(100))
def rate_stream(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """The rate source with `trigger(processingTime=...)`."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load().where("value < 100")
    query = (
        rows.select(F.col("value").cast("string").alias("value"))
        .writeStream.format(format)
        .options(**options)
        .option("topic", where.topic)
        .option("checkpointLocation", str(where.directory / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    wait_for(lambda: sum(progress["numInputRows"] for progress in query.recentProgress) >= 150, query)
    query.stop()


@job(numbers(700), placed=True, order=Order.PARTITION)
def restarted_stream(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Files with `availableNow`, started again with its checkpoint when more have come."""
    arriving = where.directory / "arriving"
    for name, start, end in (("a.txt", 0, 300), ("b.txt", 300, 500), ("c.txt", 500, 700)):
        arrive(arriving, name, [str(number) for number in range(start, end)])
        query = (
            spark.readStream.text(str(arriving))
            .selectExpr("CAST(value % 10 AS STRING) AS key", "value")
            .writeStream.format(format)
            .options(**options)
            .option("topic", where.topic)
            .option("checkpointLocation", str(where.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def aggregate(rows: DataFrame, mode: str, format: str, options: Options, where: Where) -> None:
    """Write `counts` in an output mode."""
    query = (
        rows.writeStream.format(format)
        .outputMode(mode)
        .options(**options)
        .option("topic", where.topic)
        .option("checkpointLocation", str(where.directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@job([*AFTER_A, b"red=2", *CHANGED_BY_B], placed=True, order=Order.KEY)
def complete_mode(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Counts in output mode `complete`."""
    aggregate(counts(spark, where), "complete", format, options, where)


@job(
    [*AFTER_A, *CHANGED_BY_B],
    placed=True,
    order=Order.KEY,
    differs=True,
    note="Spark refuses output mode `update` for every Python data source: write in `foreachBatch`",
)
def update_mode(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Counts in output mode `update`."""
    aggregate(counts(spark, where), "update", format, options, where)


@job([*AFTER_A, *CHANGED_BY_B], placed=True, order=Order.KEY)
def foreach_batch(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Counts in output mode `update`, written in `foreachBatch`."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format(format).mode("append").options(**options).option("topic", where.topic).save()

    query = (
        counts(spark, where)
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(where.directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@job(
    numbers(50),
    differs=True,
    note="Spark never runs the tasks of a Python sink then, so the query is refused. Use `trigger(processingTime=...)`",
)
def continuous_stream(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """The rate source with `trigger(continuous=...)`."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 1).load()
    query = (
        rows.where("value < 50")
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format(format)
        .options(**options)
        .option("topic", where.topic)
        .option("checkpointLocation", str(where.directory / "checkpoint"))
        .trigger(continuous="1 second")
        .start()
    )
    commits = where.directory / "checkpoint" / "commits"
    wait_for(lambda: len(list(commits.glob("[0-9]*"))) >= 5, query, CONTINUOUS_S)
    query.stop()
    if (error := query.exception()) is not None:
        raise error
