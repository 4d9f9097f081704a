"""What else a job meets that moves from ``format("kafka")``: threads, SQL, wide frames, triggers, errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import Written
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType
from spark_writes import write, write_stream

import shmaccum.spark.schema
from shmaccum import Producer, ProducerConfig
from shmaccum.errors import ConfigError, KafkaTimeoutError, SerializationError
from shmaccum.spark import kafka_columns, register, to_kafka
from shmaccum.spark.datasource import write_task
from shmaccum.spark.session import TASKS
from shmaccum.spark.worker import close_all

Options = dict[str, str]

SOON = {f"kafka.socket.connection.setup.timeout{name}.ms": "200" for name in ("", ".max")} | {
    "kafka.sender.idle.ms": "200"
}

VALUE = StructType().add("value", StringType())


def numbers(spark: SparkSession, count: int = 3) -> DataFrame:
    return spark.range(0, count, 1, 1).selectExpr("cast(id as string) as value")


def values(records: list[Any]) -> list[int]:
    return sorted(int(record.value) for record in records)


# --- where Spark finds the data source: without registration in `test_kafka` ---------------------------


def test_threads_write_batches_and_start_queries(
    spark: SparkSession, options: Options, tmp_path: Path, written: Written
) -> None:
    register(spark)
    register(spark)  # which changes nothing
    (tmp_path / "arriving").mkdir()
    (tmp_path / "arriving" / "a.txt").write_text("0\n1\n2")
    rows, lines = numbers(spark), spark.readStream.text(str(tmp_path / "arriving"))

    def stream() -> None:
        write_stream(lines, options, tmp_path / "checkpoint", topic="thread-stream")

    # One after the other: every write that goes on beside another needs processes of its own.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write, rows, options, topic="thread-0").result()
    for thread in (
        InheritableThread(target=to_kafka, args=(rows, options | {"topic": "thread-1"})),
        InheritableThread(target=stream),
    ):
        thread.start()
        thread.join()
    for topic in ("thread-0", "thread-1", "thread-stream"):
        assert values(written(topic)) == [0, 1, 2], topic


class FoundAlready(AnalysisException):
    """What ``spark.dataSource.register`` raises in Spark 4.0 for a source that Spark has found by its package."""

    condition = "DATA_SOURCE_ALREADY_EXISTS"

    def getCondition(self) -> str:
        return self.condition


def test_a_data_source_that_spark_has_found_need_not_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: type) -> None:
        raise FoundAlready("already there")

    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec="python3"),
        conf=SimpleNamespace(get=lambda name, default: "python3"),
        dataSource=SimpleNamespace(register=refuse),
    )
    register(session)
    monkeypatch.setattr(FoundAlready, "condition", "ANOTHER")
    with pytest.raises(FoundAlready):
        register(session)


def test_a_given_python_of_tasks_stays(spark: SparkSession) -> None:
    session = spark.newSession()
    assert session.conf.get(TASKS, None) is None
    register(session)
    assert session.conf.get(TASKS) == spark.sparkContext.pythonExec
    session.conf.set(TASKS, "./environment/bin/python")
    register(session)
    assert session.conf.get(TASKS) == "./environment/bin/python"


# --- SQL -----------------------------------------------------------------------------------------------


def test_tables_are_written_with_the_options_of_the_statement(
    spark: SparkSession, options: Options, written: Written
) -> None:
    """Spark tells a data source written in Python nothing of a table's own OPTIONS."""
    session = spark.newSession()
    rows = numbers(session)
    rows.createOrReplaceTempView("numbers")
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    session.sql(f"CREATE TABLE sink (value STRING) USING shmaccum OPTIONS ({given}, topic 'sql')")
    try:
        with pytest.raises(AnalysisException, match=r"option topic is required .*INSERT INTO .* WITH"):
            session.sql("INSERT INTO sink SELECT * FROM numbers")
        session.sql(f"INSERT INTO sink WITH ({given}, 'topic' = 'sql') SELECT * FROM numbers")
        rows.writeTo("sink").options(**options, topic="sql").append()
    finally:
        session.sql("DROP TABLE sink")
    assert values(written("sql")) == [0, 0, 1, 1, 2, 2]


def test_it_says_that_it_only_writes(spark: SparkSession, options: Options) -> None:
    message = r"format shmaccum only writes. Read a topic with format\('kafka'\)"
    for source in (spark.read, spark.readStream, spark.read.schema("value string")):
        with pytest.raises(PySparkException, match=message):
            source.format("shmaccum").options(**options).load().count()


# --- columns -------------------------------------------------------------------------------------------


def test_columns_that_are_not_written_stay_behind(spark: SparkSession, options: Options, written: Written) -> None:
    value, timestamp = "cast(id as double) as value", "date'2024-01-02' as timestamp"
    rows = spark.range(3).selectExpr("id as key", value, "id % 2 as partition", timestamp, "id as unused")
    joined = rows.join(spark.range(1).selectExpr("'x' as unused"))
    with pytest.raises(AnalysisException, match=r"columns of the same name: unused\. .*kafka_columns"):
        write(joined, options, topic="narrow")
    narrow = ["key string", "value string", "partition int"]
    assert [f"{name} {kind}" for name, kind in kafka_columns(joined).dtypes] == narrow
    timed = kafka_columns(joined, "timestamp")
    assert [f"{name} {kind}" for name, kind in timed.dtypes] == [*narrow, "timestamp timestamp"]
    to_kafka(joined, options | {"topic": "narrow", "TimestampColumn": "timestamp"})
    records = written("narrow")
    assert sorted((record.key, record.value, record.partition) for record in records) == [
        (b"0", b"0.0", 0),
        (b"1", b"1.0", 1),
        (b"2", b"2.0", 0),
    ]
    assert {record.timestamp // 86_400_000 for record in records} <= {19_723, 19_724}  # midnight of the session's zone


def test_columns_can_have_any_name_and_some_differ_in_case_alone(
    spark: SparkSession, options: Options, written: Written
) -> None:
    for name in ("event.time", "event`time", "event time"):
        quoted = name.replace("`", "``")
        rows = spark.range(1).selectExpr("'x' as value", f"date'2024-01-02' as `{quoted}`")
        assert kafka_columns(rows, name).dtypes == [("value", "string"), (name, "timestamp")]
    rows = spark.range(1).selectExpr("'b' as VALUE", "'a' as value", "'k' as key", "1 as Key", "2 as kEY", "id as ID")
    assert kafka_columns(rows, "ID").columns == ["value", "key", "ID"]
    to_kafka(rows, options | {"topic": "cased"})
    (record,) = written("cased")
    assert (record.key, record.value) == (b"k", b"a")


def test_what_cannot_be_made_a_column_is_refused(spark: SparkSession, options: Options) -> None:
    for columns, timestamp, message in (
        (["struct(id) as value"], None, r"'value' is of unsupported type struct.*: .* with to_json\(value\)"),
        (["id as value", "id as value"], None, "'value' occurs twice"),
        (["id"], None, "required column 'value' not found; the columns are: id"),
        (["id as value"], "at", "timestampColumn = 'at': no such column; the columns are: value"),
    ):
        with pytest.raises(SerializationError, match=message):
            kafka_columns(spark.range(1).selectExpr(*columns), timestamp)
    with pytest.raises(ConfigError, match=r"kafka_columns\(df\).writeStream"):
        to_kafka(spark.readStream.format("rate").load(), options)


def test_columns_that_travel_for_nothing_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    schema = StructType().add("value", "string")
    for number in range(7):
        schema = schema.add(f"wide{number}", "string")
    given = {"kafka.bootstrap.servers": "host:9092", "topic": "t"}
    for _ in range(2):
        write_task(given, schema)
    write_task(given, StructType().add("value", "string"))
    (message,) = caplog.messages
    assert message.startswith("7 of 8 columns are not written (wide0, wide1, wide2, wide3, wide4, ...)")


def test_an_unused_column_timestamp_is_warned_of_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shmaccum.spark.schema, "_has_warned_of_timestamp", False)
    schema = StructType().add("value", "string").add("timestamp", "timestamp")
    given = {"kafka.bootstrap.servers": "host:9092", "topic": "t"}
    write_task(given | {"timestampColumn": "timestamp"}, schema)
    write_task(given, StructType().add("value", "string").add("timestamp", "string"))
    assert not any("timestampColumn" in message for message in caplog.messages)
    kafka_columns(spark.range(1).selectExpr("id as value", "current_timestamp() as timestamp"))
    for _ in range(2):
        write_task(given, schema)
    (message,) = (message for message in caplog.messages if "timestampColumn" in message)
    assert message.startswith("Column timestamp is ignored, as by Spark's own sink")


# --- brokers that are not there ------------------------------------------------------------------------


@contextmanager
def noted(config: ProducerConfig, reason: str) -> Iterator[None]:
    """Keep a producer open whose sender has met an error: one that starts later has yet to meet it."""
    deadline = time.monotonic() + 60
    with Producer(config) as asking:
        while True:
            with pytest.raises(KafkaTimeoutError) as caught:
                asking.send("t", b"")
            if re.search(reason, str(caught.value)):
                break
            assert time.monotonic() < deadline, caught.value
        yield


@pytest.mark.parametrize(
    ("servers", "reason"),
    [("127.0.0.1:1", "Connection refused"), ("broker.invalid:9092", "(Name or service not known|Temporary failure)")],
)
def test_the_reason_is_named(servers: str, reason: str, options: Options) -> None:
    given = {"kafka.bootstrap.servers": servers, "topic": "t", "kafka.max.block.ms": "500"}
    given["kafka.shmaccum.name"] = f"{options['kafka.shmaccum.name']}-{re.sub('[^a-z0-9]', '-', servers)}"
    task = write_task(given | SOON, VALUE)
    reason = f"connection to broker {servers}: {reason}"
    named = rf"kafka\.bootstrap\.servers = '{servers}'.*{reason}"
    with noted(task.config, reason), pytest.raises(KafkaTimeoutError, match=named):
        task.write([pa.RecordBatch.from_pydict({"value": ["1"]})])
    close_all()
