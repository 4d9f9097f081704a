"""Batch jobs that write a DataFrame."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tools.moved_by_one_word.job import Options, Order, Where, job, numbers

MEGABYTE = 1 << 20
"""Kafka's ``max.request.size``, by default."""


def keyed(spark: SparkSession, count: int) -> DataFrame:
    """Return ``count`` rows in four tasks; a key is in one task only."""
    return spark.range(0, count, 1, 4).selectExpr("concat('k', id div 25) AS key", "CAST(id AS STRING) AS value")


@job(numbers(1000), placed=True, order=Order.KEY)
def keys_and_values(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Text keys and values, four tasks."""
    keyed(spark, 1000).write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job(
    numbers(10),
    differs=True,
    note='Spark refuses its default mode, `errorifexists`, for every Python data source: add `.mode("append")`',
)
def default_mode(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Without `.mode("append")`."""
    keyed(spark, 10).write.format(format).options(**options).option("topic", where.topic).save()


@job(numbers(500))
def values_only(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Values without keys, with settings of the producer."""
    (
        spark.range(500)
        .select(F.col("id").cast("string").alias("value"))
        .write.format(format)
        .mode("append")
        .options(**options)
        .option("kafka.acks", "all")
        .option("kafka.enable.idempotence", "true")
        .option("kafka.compression.type", "zstd")
        .option("kafka.linger.ms", "20")
        .option("kafka.batch.size", "65536")
        .option("kafka.client.id", "flights-loader")
        .option("kafka.delivery.timeout.ms", "60000")
        .option("kafka.request.timeout.ms", "20000")
        .option("topic", where.topic)
        .save()
    )


@job(
    [b"\0\0\0\0\7" + number for number in numbers(100)] + [bytes(MEGABYTE - 4096)],
    placed=True,
    order=Order.PARTITION,
)
def binary(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Binary values as of Avro with a schema's id, the last of nearly 1 MiB."""
    small = spark.range(0, 100, 1, 1).select(
        F.encode(F.concat(F.lit("key-"), F.col("id") % 10), "UTF-8").alias("key"),
        F.concat(F.unhex(F.lit("0000000007")), F.encode(F.col("id").cast("string"), "UTF-8")).alias("value"),
    )
    large = spark.createDataFrame([(bytearray(b"large"), bytearray(MEGABYTE - 4096))], "key binary, value binary")
    rows = small.unionByName(large).coalesce(1)
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job([None] * 20 + [b"there"] * 20, placed=True, order=Order.PARTITION)
def tombstones(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Null values, which delete a key of a compacted topic."""
    rows = spark.range(0, 40, 1, 1).select(
        F.concat(F.lit("customer-"), "id").alias("key"), F.when(F.col("id") % 2 == 0, "there").alias("value")
    )
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


def wide_value(number: int) -> bytes:
    """Return the JSON of a row of `wide_frame`."""
    row = {"id": number} | {f"column{each}": f"{each}-{number}" for each in range(30)}
    return json.dumps(row, separators=(",", ":")).encode()


@job([wide_value(number) for number in range(200)], placed=True, order=Order.PARTITION)
def wide_frame(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """`to_json(struct(*))` of a frame of 31 columns, coalesced."""
    wide = spark.range(200).select("id", *(F.concat(F.lit(f"{n}-"), "id").alias(f"column{n}") for n in range(30)))
    (
        wide.coalesce(1)
        .selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
        .write.format(format)
        .mode("append")
        .options(**options)
        .option("topic", where.topic)
        .save()
    )


@job(
    numbers(50),
    placed=True,
    differs=True,
    note="Spark cannot hand a Python sink two columns of one name: write `kafka_columns(df)`, or select",
)
def joined_frame(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """A join that leaves two unused columns of one name."""
    flights = spark.range(50).selectExpr("id", "CAST(id % 5 AS STRING) AS key", "CAST(id AS STRING) AS value")
    carriers = spark.range(5).selectExpr("id", "CAST(id AS STRING) AS carrier")
    joined = flights.join(carriers, flights["key"] == carriers["carrier"])
    joined.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job(numbers(120), placed=True, order=Order.PARTITION)
def headers_and_partitions(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Columns `headers` (one with a null value, some rows without) and `partition`."""
    rows = spark.range(0, 120, 1, 1).selectExpr(
        "CAST(id AS STRING) AS value",
        "CAST(id % 3 AS INT) AS partition",
        "IF(id % 4 = 0, NULL, array(struct('trace' AS key, encode(CAST(id AS STRING), 'UTF-8') AS value),"
        "                           struct('none' AS key, CAST(NULL AS BINARY) AS value))) AS headers",
    )
    (
        rows.write.format(format)
        .mode("append")
        .options(**options)
        .option("includeHeaders", "true")
        .option("topic", where.topic)
        .save()
    )


@job(numbers(300), topics=2, placed=True, order=Order.PARTITION)
def topic_column(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Two topics in one job: a union with a column `topic`."""
    arrivals, departures = (
        spark.range(start, start + 150, 1, 1).selectExpr(
            f"'{topic}' AS topic", "CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value"
        )
        for start, topic in zip((0, 150), where.topics, strict=True)
    )
    arrivals.union(departures).write.format(format).mode("append").options(**options).save()


@job(numbers(60), topics=2, placed=True)
def topic_option(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """The option `topic` beside a column `topic`: the option wins."""
    rows = spark.range(60).selectExpr(f"'{where.topics[1]}' AS topic", "'k' AS key", "CAST(id AS STRING) AS value")
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job(numbers(400) * 2, placed=True, order=Order.KEY)
def cached_and_twice(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """A frame cached, repartitioned by key, counted, and written twice."""
    rows = keyed(spark, 400).repartition(2, "key").sortWithinPartitions(F.col("value").cast("int")).cache()
    rows.count()
    for _ in range(2):
        rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()
    rows.unpersist()


@job()
def empty_frame(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """A frame without rows."""
    rows = spark.createDataFrame([], "key string, value string")
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job(numbers(90), placed=True)
def sql_in_a_new_session(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """A query in SQL, in `spark.newSession()`."""
    session = spark.newSession()
    session.range(90).createOrReplaceTempView("flights")
    rows = session.sql("SELECT CAST(id % 9 AS STRING) AS key, CAST(id AS STRING) AS value FROM flights ORDER BY id")
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()
