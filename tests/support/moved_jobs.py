"""Users' jobs for Spark's own Kafka sink, with the format as their only variable.

Each says which records it writes, how far both formats must write the same, and how shmaccum is known to differ.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from shmaccum.spark import register

FORMATS: Final = ("kafka", "shmaccum")

MEGABYTE: Final = 1 << 20
"""Kafka's ``max.request.size``, by default."""
PATIENCE_S: Final = 120.0
"""How long a query may take."""


class Record(NamedTuple):
    """A record as a consumer finds it, but for its time."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Found = Mapping[int, list[Record]]
"""Partition -> its records in their order."""


# --- what both formats must write alike --------------------------------------------------------------------


def records(found: Found) -> object:
    """Return the records of a topic: anywhere, in any order."""
    return Counter(record for of_partition in found.values() for record in of_partition)


def partitions(found: Found) -> object:
    """Return the records of each partition, in any order: keys or a column decide on it."""
    return {partition: Counter(of_partition) for partition, of_partition in found.items()}


def order_of_keys(found: Found) -> object:
    """Return the records of each key and partition, in their order."""
    of_keys: dict[tuple[int, bytes | None], list[Record]] = defaultdict(list)
    for partition, of_partition in found.items():
        for record in of_partition:
            of_keys[partition, record.key].append(record)
    return of_keys


def order(found: Found) -> object:
    """Return the records of each partition, in their order."""
    return found


# --- what a job is -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sink:
    """Where one run of a job writes.

    Attributes:
        format: one of `FORMATS`.
        options: the same for both formats, without ``topic``.
        topics: their names.
        directory: for files and checkpoints.
    """

    format: str
    options: Mapping[str, str]
    topics: tuple[str, ...]
    directory: Path

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write a batch to the first topic."""
        given = {**self.options, "topic": self.topics[0], **options}
        rows.write.format(self.format).mode("append").options(**given).save()

    def start(self, rows: DataFrame, mode: str = "append", **trigger: Any) -> StreamingQuery:
        """Start a query that writes to the first topic."""
        given = {**self.options, "topic": self.topics[0], "checkpointLocation": str(self.directory / "checkpoint")}
        return rows.writeStream.format(self.format).outputMode(mode).options(**given).trigger(**trigger).start()


Function = Callable[[SparkSession, Sink], None]


@dataclass(frozen=True)
class Job:
    """A job, and what is known about it.

    Attributes:
        run: the job. Its name and docstring are the job's.
        values: of the records that a format without an error writes, in any order.
        same: what of a topic must be the same.
        topics: how many it has.
        exists: whether the topics are there.
        errors: by format, the pattern of the error that it raises.
        before_error: values that Spark's own sink writes before it raises an error; shmaccum writes none.
        note: how shmaccum differs, in the words of docs/spark.md; empty if it does not.
    """

    run: Function
    values: tuple[bytes | None, ...]
    same: Callable[[Found], object]
    topics: int
    exists: bool
    errors: Mapping[str, str]
    before_error: tuple[bytes, ...]
    note: str

    @property
    def title(self) -> str:
        """What it does, in a line."""
        return (self.run.__doc__ or "").rstrip(".")


JOBS: Final[dict[str, Job]] = {}
"""All jobs by their names."""


def job(
    values: Iterable[bytes | None] = (),
    same: Callable[[Found], object] = records,
    *,
    topics: int = 1,
    exists: bool = True,
    errors: Mapping[str, str] | None = None,
    before_error: Iterable[bytes] = (),
    note: str = "",
) -> Callable[[Function], Function]:
    """Add a function to `JOBS`; the arguments are the attributes of `Job`."""

    def add(function: Function) -> Function:
        JOBS[function.__name__] = Job(
            function, tuple(values), same, topics, exists, errors or {}, tuple(before_error), note
        )
        return function

    return add


def both(error: str) -> Mapping[str, str]:
    """Return one error as that of both formats."""
    return dict.fromkeys(FORMATS, error)


def numbers(count: int) -> list[bytes]:
    """Return the numbers below ``count`` as text."""
    return [b"%d" % number for number in range(count)]


# --- batches -----------------------------------------------------------------------------------------------


def keyed(spark: SparkSession, count: int) -> DataFrame:
    """Return ``count`` rows in four tasks; a key is in one task only."""
    return spark.range(0, count, 1, 4).selectExpr("concat('k', id div 25) AS key", "CAST(id AS STRING) AS value")


@job(numbers(1000), order_of_keys)
def keys_and_values(spark: SparkSession, sink: Sink) -> None:
    """Text keys and values, four tasks."""
    sink.write(keyed(spark, 1000))


@job(
    numbers(10),
    errors={"shmaccum": r"^AnalysisException: \[UNSUPPORTED_DATA_SOURCE_SAVE_MODE\]"},
    note='Spark refuses its default mode, `errorifexists`, for every Python data source: add `.mode("append")`',
)
def default_mode(spark: SparkSession, sink: Sink) -> None:
    """Without `.mode("append")`."""
    keyed(spark, 10).write.format(sink.format).options(**sink.options).option("topic", sink.topics[0]).save()


@job(numbers(500))
def values_only(spark: SparkSession, sink: Sink) -> None:
    """Values without keys, with settings of the producer."""
    settings = {
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.compression.type": "zstd",
        "kafka.linger.ms": "20",
        "kafka.batch.size": "65536",
        "kafka.client.id": "flights-loader",
        "kafka.delivery.timeout.ms": "60000",
        "kafka.request.timeout.ms": "20000",
    }
    sink.write(spark.range(500).select(F.col("id").cast("string").alias("value")), **settings)


@job([b"\0\0\0\0\7" + number for number in numbers(100)] + [bytes(MEGABYTE - 4096)], order)
def binary(spark: SparkSession, sink: Sink) -> None:
    """Binary values as of Avro with a schema's id, the last of nearly 1 MiB."""
    small = spark.range(0, 100, 1, 1).select(
        F.encode(F.concat(F.lit("key-"), F.col("id") % 10), "UTF-8").alias("key"),
        F.concat(F.unhex(F.lit("0000000007")), F.encode(F.col("id").cast("string"), "UTF-8")).alias("value"),
    )
    large = spark.createDataFrame([(bytearray(b"large"), bytearray(MEGABYTE - 4096))], "key binary, value binary")
    sink.write(small.unionByName(large).coalesce(1))


@job([None] * 20 + [b"there"] * 20, order)
def tombstones(spark: SparkSession, sink: Sink) -> None:
    """Null values, which delete a key of a compacted topic."""
    key, value = F.concat(F.lit("customer-"), "id"), F.when(F.col("id") % 2 == 0, "there")
    sink.write(spark.range(0, 40, 1, 1).select(key.alias("key"), value.alias("value")))


def wide_value(number: int) -> bytes:
    row = {"id": number} | {f"column{each}": f"{each}-{number}" for each in range(30)}
    return json.dumps(row, separators=(",", ":")).encode()


@job([wide_value(number) for number in range(200)], order)
def wide_frame(spark: SparkSession, sink: Sink) -> None:
    """`to_json(struct(*))` of a frame of 31 columns, coalesced."""
    wide = spark.range(200).select("id", *(F.concat(F.lit(f"{n}-"), "id").alias(f"column{n}") for n in range(30)))
    sink.write(wide.coalesce(1).selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value"))


@job(
    numbers(50),
    partitions,
    errors={"shmaccum": "SerializationError: columns of the same name: id"},
    note="Spark cannot hand a Python sink two columns of one name: write `kafka_columns(df)`, or select",
)
def joined_frame(spark: SparkSession, sink: Sink) -> None:
    """A join that leaves two unused columns of one name."""
    flights = spark.range(50).selectExpr("id", "CAST(id % 5 AS STRING) AS key", "CAST(id AS STRING) AS value")
    carriers = spark.range(5).selectExpr("id", "CAST(id AS STRING) AS carrier")
    sink.write(flights.join(carriers, flights["key"] == carriers["carrier"]))


@job(numbers(120), order)
def headers_and_partitions(spark: SparkSession, sink: Sink) -> None:
    """Columns `headers` (one with a null value, some rows without) and `partition`."""
    rows = spark.range(0, 120, 1, 1).selectExpr(
        "CAST(id AS STRING) AS value",
        "CAST(id % 3 AS INT) AS partition",
        "IF(id % 4 = 0, NULL, array(struct('trace' AS key, encode(CAST(id AS STRING), 'UTF-8') AS value),"
        "                           struct('none' AS key, CAST(NULL AS BINARY) AS value))) AS headers",
    )
    sink.write(rows, includeHeaders="true")


@job(numbers(300), order, topics=2)
def topic_column(spark: SparkSession, sink: Sink) -> None:
    """Two topics in one job: a union with a column `topic`."""
    arrivals, departures = (
        spark.range(start, start + 150, 1, 1).selectExpr(
            f"'{topic}' AS topic", "CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value"
        )
        for start, topic in zip((0, 150), sink.topics, strict=True)
    )
    arrivals.union(departures).write.format(sink.format).mode("append").options(**sink.options).save()


@job(numbers(60), partitions, topics=2)
def topic_option(spark: SparkSession, sink: Sink) -> None:
    """The option `topic` beside a column `topic`: the option wins."""
    sink.write(spark.range(60).selectExpr(f"'{sink.topics[1]}' AS topic", "'k' AS key", "CAST(id AS STRING) AS value"))


@job(numbers(400) * 2, order_of_keys)
def cached_and_twice(spark: SparkSession, sink: Sink) -> None:
    """A frame cached, repartitioned by key, counted, and written twice."""
    rows = keyed(spark, 400).repartition(2, "key").sortWithinPartitions(F.col("value").cast("int")).cache()
    rows.count()
    for _ in range(2):
        sink.write(rows)
    rows.unpersist()


@job()
def empty_frame(spark: SparkSession, sink: Sink) -> None:
    """A frame without rows."""
    sink.write(spark.createDataFrame([], "key string, value string"))


@job(numbers(90), partitions)
def sql_in_a_new_session(spark: SparkSession, sink: Sink) -> None:
    """A query in SQL, in `spark.newSession()`."""
    session = spark.newSession()
    session.range(90).createOrReplaceTempView("flights")
    rows = "SELECT CAST(id % 9 AS STRING) AS key, CAST(id AS STRING) AS value FROM flights ORDER BY id"
    sink.write(session.sql(rows))


# --- streaming queries -------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool], query: StreamingQuery, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)


def arrive(directory: Path, name: str, lines: Iterable[object]) -> None:
    """Put a file into a directory that a query reads; each is newer than those before."""
    directory.mkdir(exist_ok=True)
    count = len(list(directory.iterdir()))
    scratch = directory.with_suffix(".new")
    scratch.write_text("\n".join(map(str, lines)))
    os.utime(scratch, (count, time.time() - 1000 + count))
    scratch.rename(directory / name)


def counts(spark: SparkSession, sink: Sink) -> DataFrame:
    """Return how often each word has come, after one file and after another."""
    arriving = sink.directory / "arriving"
    arrive(arriving, "a.txt", ["red", "green", "red"])
    arrive(arriving, "b.txt", ["green", "blue"])
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(arriving))
    return lines.groupBy("value").count().selectExpr("value AS key", "concat(value, '=', count) AS value")


AFTER_A: Final = [b"red=2", b"green=1"]
"""What `counts` are after the first file."""
CHANGED_BY_B: Final = [b"green=2", b"blue=1"]
"""What the second file changes."""


@job(numbers(100))
def rate_stream(spark: SparkSession, sink: Sink) -> None:
    """The rate source with `trigger(processingTime=...)`."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load().where("value < 100")
    query = sink.start(rows.selectExpr("CAST(value AS STRING) AS value"), processingTime="1 second")
    wait_for(lambda: sum(progress["numInputRows"] for progress in query.recentProgress) >= 150, query)
    query.stop()


@job(numbers(700), order)
def restarted_stream(spark: SparkSession, sink: Sink) -> None:
    """Files with `availableNow`, started again with its checkpoint when more have come."""
    arriving = sink.directory / "arriving"
    for name, start, end in (("a.txt", 0, 300), ("b.txt", 300, 500), ("c.txt", 500, 700)):
        arrive(arriving, name, range(start, end))
        rows = spark.readStream.text(str(arriving)).selectExpr("CAST(value % 10 AS STRING) AS key", "value")
        sink.start(rows, availableNow=True).awaitTermination()


@job([*AFTER_A, b"red=2", *CHANGED_BY_B], order_of_keys)
def complete_mode(spark: SparkSession, sink: Sink) -> None:
    """Counts in output mode `complete`."""
    sink.start(counts(spark, sink), "complete", availableNow=True).awaitTermination()


@job(
    [*AFTER_A, *CHANGED_BY_B],
    order_of_keys,
    errors={"shmaccum": "^StreamingQueryException: .*shmaccum does not support Update mode"},
    note="Spark refuses output mode `update` for every Python data source: write in `foreachBatch`",
)
def update_mode(spark: SparkSession, sink: Sink) -> None:
    """Counts in output mode `update`."""
    sink.start(counts(spark, sink), "update", availableNow=True).awaitTermination()


@job([*AFTER_A, *CHANGED_BY_B], order_of_keys)
def foreach_batch(spark: SparkSession, sink: Sink) -> None:
    """Counts in output mode `update`, written in `foreachBatch`."""
    query = counts(spark, sink).writeStream.foreachBatch(lambda batch, number: sink.write(batch)).outputMode("update")
    query = query.option("checkpointLocation", str(sink.directory / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()


@job(
    numbers(50),
    errors={"shmaccum": r"trigger\(continuous=...\) is not supported"},
    note="Spark never runs the tasks of a Python sink then, so the query is refused. Use `trigger(processingTime=...)`",
)
def continuous_stream(spark: SparkSession, sink: Sink) -> None:
    """The rate source with `trigger(continuous=...)`."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 1).load()
    query = sink.start(rows.where("value < 50").selectExpr("CAST(value AS STRING) AS value"), continuous="1 second")
    commits = sink.directory / "checkpoint" / "commits"
    wait_for(lambda: len(list(commits.glob("[0-9]*"))) >= 5, query, seconds=20)
    query.stop()
    if (error := query.exception()) is not None:
        raise error


# --- what fails, and what Spark lets not every data source do -----------------------------------------------


@job(
    errors=both(r"RecordTooLarge(Error|Exception): .*\b20000\d\d bytes when serialized which is larger than"),
    before_error=numbers(9),
    note="the error is the same; shmaccum checks all rows of an Arrow batch before it writes one, so a retry doubles "
    "none of them",
)
def record_too_large(spark: SparkSession, sink: Sink) -> None:
    """The last of ten values is larger than `max.request.size`."""
    value = "IF(id = 9, repeat('x', 2000000), CAST(id AS STRING)) AS value"
    sink.write(spark.range(0, 10, 1, 1).selectExpr(value))


@job(errors=both("^AnalysisException: .*'value' not found"))
def no_value_column(spark: SparkSession, sink: Sink) -> None:
    """No column `value`."""
    sink.write(spark.range(3).selectExpr("CAST(id AS STRING) AS key", "'x' AS payload"))


@job(exists=False, errors=both(r"Timeout(Error|Exception): Topic \S+ not present in metadata after 3000 ms"))
def missing_topic(spark: SparkSession, sink: Sink) -> None:
    """A topic that is not there, and brokers that create none."""
    rows = spark.range(0, 3, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    sink.write(rows, **{"kafka.max.block.ms": "3000"})


@job(
    numbers(20),
    errors={"kafka": r"^AnalysisException: \[UNSUPPORTED_INSERT"},
    note="Spark inserts nothing into tables of its own sink. A table's own OPTIONS do not reach a Python sink, so they "
    "are those of the statement",
)
def insert_into(spark: SparkSession, sink: Sink) -> None:
    """SQL: `INSERT INTO` a table."""
    given = {**sink.options, "subscribe": sink.topics[0], "topic": sink.topics[0]}
    table = f"sink_{sink.format}"
    of_table = ", ".join(f"'{name}' '{value}'" for name, value in given.items())
    of_statement = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    columns = "" if sink.format == "kafka" else "(key STRING, value STRING)"  # Spark has columns for its own sink
    spark.sql(f"CREATE TABLE {table} {columns} USING {sink.format} OPTIONS ({of_table})")
    try:
        rows = "SELECT 'k' AS key, CAST(id AS STRING) AS value FROM range(20)"
        spark.sql(f"INSERT INTO {table} WITH ({of_statement}) {rows}")
    finally:
        spark.sql(f"DROP TABLE {table}")


@job(
    numbers(60),
    errors={"shmaccum": r"\[DATA_SOURCE_NOT_FOUND\]"},
    note="Spark finds a Python data source by the thread's session, and a new thread has none: call `register(spark)`",
)
def threads(spark: SparkSession, sink: Sink) -> None:
    """Writes from a `ThreadPoolExecutor`."""
    rows = spark.range(60).selectExpr("CAST(id AS STRING) AS value")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda part: sink.write(rows.where(f"CAST(value AS INT) % 3 = {part}")), range(3)))


@job(numbers(60))
def threads_after_register(spark: SparkSession, sink: Sink) -> None:
    """Writes from a `ThreadPoolExecutor`, after `register(spark)`."""
    register(spark)
    threads(spark, sink)
