"""Batch jobs that cannot go well, and what Spark lets not every data source do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession

from shmaccum.spark import register
from tools.moved_by_one_word.job import Options, Where, job, numbers


@job(
    numbers(9),
    differs=True,
    note="the error is the same; shmaccum checks all rows of an Arrow batch before it writes one, so a retry doubles "
    "none of them",
)
def record_too_large(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """The last of ten values is larger than `max.request.size`."""
    rows = spark.range(0, 10, 1, 1).selectExpr("IF(id = 9, repeat('x', 2000000), CAST(id AS STRING)) AS value")
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job()
def no_value_column(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """No column `value`."""
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS key", "'x' AS payload")
    rows.write.format(format).mode("append").options(**options).option("topic", where.topic).save()


@job(exists=False)
def missing_topic(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """A topic that is not there, and brokers that create none."""
    rows = spark.range(0, 3, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    (
        rows.write.format(format)
        .mode("append")
        .options(**options)
        .option("kafka.max.block.ms", "3000")
        .option("topic", where.topic)
        .save()
    )


@job(
    numbers(20),
    differs=True,
    note="Spark inserts nothing into tables of its own sink. A table's own OPTIONS do not reach a Python sink, so they "
    "are those of the statement",
)
def insert_into(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """SQL: `INSERT INTO` a table."""
    given = {**options, "subscribe": where.topic, "topic": where.topic}
    table = f"sink_{format}"
    of_table = ", ".join(f"'{name}' '{value}'" for name, value in given.items())
    of_statement = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    columns = "" if format == "kafka" else "(key STRING, value STRING)"  # Spark has columns of its own for its sink
    spark.sql(f"CREATE TABLE {table} {columns} USING {format} OPTIONS ({of_table})")
    try:
        rows = "SELECT 'k' AS key, CAST(id AS STRING) AS value FROM range(20)"
        spark.sql(f"INSERT INTO {table} WITH ({of_statement}) {rows}")
    finally:
        spark.sql(f"DROP TABLE {table}")


def write_from_threads(rows: DataFrame, format: str, options: Options, topic: str) -> None:
    """Write the rows in three parts, each from a thread of its own."""

    def write(part: int) -> None:
        mine = rows.where(f"CAST(value AS INT) % 3 = {part}")
        mine.write.format(format).mode("append").options(**options).option("topic", topic).save()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))


@job(
    numbers(60),
    differs=True,
    note="Spark finds a Python data source by the thread's session, and a new thread has none: call `register(spark)`",
)
def threads(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Writes from a `ThreadPoolExecutor`."""
    rows = spark.range(60).selectExpr("CAST(id AS STRING) AS value")
    write_from_threads(rows, format, options, where.topic)


@job(numbers(60), note="with `register(spark)` at its start")
def threads_after_register(spark: SparkSession, format: str, options: Options, where: Where) -> None:
    """Writes from a `ThreadPoolExecutor`, after `register(spark)`."""
    register(spark)  # for the whole process: this job is the last one
    rows = spark.range(60).selectExpr("CAST(id AS STRING) AS value")
    write_from_threads(rows, format, options, where.topic)
