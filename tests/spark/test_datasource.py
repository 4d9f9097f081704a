"""The data source in a Spark session: every write here is a job of real tasks in real Python workers."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fixture_types import LogCapture, Written
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructType
from spark_writes import stored, write, write_stream

from shmaccum import Producer
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError, InvalidTopicError
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look
from shmaccum.spark import ShmAccumDataSource
from shmaccum.spark.datasource import write_task
from shmaccum.spark.options import as_options

Options = dict[str, str]

VALUE = StructType().add("value", StringType())


def source_of(options: Options) -> ShmAccumDataSource:
    """Return the data source of a topic ``t`` with some more options."""
    given = {"topic": "t", "kafka.transport": "log", "kafka.log.dir": "/nowhere"}
    return ShmAccumDataSource(CaseInsensitiveDict(given | options))


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return ``count`` rows in two tasks: number ``i`` with key ``k<i % 100>``."""
    rows = spark.range(0, count, 1, 2)
    return rows.selectExpr("cast(concat('k', id % 100) as binary) as key", "cast(id as string) as value")


# --- what is written, beside the columns in `test_kafka` -----------------------------------------------


def test_the_option_topic_beats_the_column(spark: SparkSession, options: Options, written: Written) -> None:
    rows = spark.createDataFrame([("column", "1"), (None, "2")], "topic string, value string")
    write(rows, options, Topic=" option ")
    assert sorted(record.value for record in written("option")) == [b"1", b"2"]
    assert not written("column")


# --- what is refused before a task runs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.lingr.ms": "5"}, r"^kafka.lingr.ms: no such setting; did you mean kafka.linger.ms\?"),
        ({"kafka.linger.ms": "soon"}, "^kafka.linger.ms = 'soon'"),
        ({"bootstrap.servers": "host:9092"}, r"^option bootstrap.servers: did you mean kafka.bootstrap.serv"),
        ({"Kafka.Key.Serializer": "x"}, "kafka.key.serializer is not supported: keys are written as"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer is not supported"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({"exactly_once": "true"}, r"^option exactly_once: no such option; did you mean exactlyOnce\?"),
        ({"exactly-Once": "true"}, "did you mean exactlyOnce"),
        ({"exactlyonce.enabled": "true"}, "did you mean exactlyOnce"),
        ({"exactOnce": "true"}, "did you mean exactlyOnce"),
        ({"kafka.exactlyOnce": "true"}, "^option kafka.exactlyonce: .* did you mean exactlyOnce"),
        ({"topics": "t"}, "did you mean topic"),
        ({"kafka.topic": "t"}, r"did you mean topic\?"),
        ({"txn_app_id": "a"}, "did you mean txnAppId"),
        ({"txnVersoin": "1"}, "did you mean txnVersion"),
        ({"failOnDataLost": "false"}, "did you mean failOnDataLoss"),
        ({"timestamp_column": "at"}, "did you mean timestampColumn"),
        ({"topic": "a topic"}, "'a topic' is not allowed"),
    ],
)
def test_a_wrong_option_is_refused(options: Options, message: str) -> None:
    source, error = source_of(options), InvalidTopicError if "topic" in options else ConfigError
    with pytest.raises(error, match=message):
        source.writer(VALUE, overwrite=False)
    with pytest.raises(error, match=message):
        source.streamWriter(VALUE, overwrite=False)


def test_options_of_a_job_that_moves_over_stay_as_they_are() -> None:
    """What Spark's documentation, and that of hosted clusters, has jobs set for ``format("kafka")``."""
    config = write_task(
        {
            "kafka.bootstrap.servers": "host1:9092,host2:9092",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="s3cret";',
            "kafka.ssl.endpoint.identification.algorithm": "https",
            "kafka.client.dns.lookup": "use_all_dns_ips",
            "kafka.acks": "all",
            "kafka.compression.type": "lz4",
            "includeHeaders": "true",
            "kafka.LINGER.ms": "77",
            "Kafka.Log.Dir": "logs",
            "TOPIC": "t",
        },
        VALUE,
    ).config
    assert config.bootstrap_servers == ("host1:9092", "host2:9092")
    assert (config.sasl_username, config.sasl_password) == ("alice", Password("s3cret"))
    assert (config.linger_ms, config.log_dir) == (77, str(Path("logs").absolute())), "the driver's, for all executors"
    sent = cloudpickle.loads(cloudpickle.dumps(config))
    assert sent.as_dict() == config.as_dict()


def test_an_error_names_options_also_where_a_setting_is_a_word() -> None:
    text = "acks is '0' there and 'all' here; linger.ms is 5 there and 0 here. retries are over"
    assert as_options(text) == "kafka." + text.replace("linger", "kafka.linger")


def test_options_of_spark_are_ignored_and_unknown_ones_with_a_warning(caplog: LogCapture) -> None:
    given = {"topic": "t", "kafka.bootstrap.servers": "host:9092", "checkpointLocation": "c", "queryName": "q"}
    others = ("subscribe", "startingOffsets", "startingTimestamp", "maxOffsetsPerTrigger", "groupIdPrefix")
    write_task(given | dict.fromkeys(others, "1") | {"failOnDataLoss": "false", "includeHeaders": "true"}, VALUE)
    assert not caplog.messages
    for _ in range(2):
        write_task(given | {"mergeSchema": "true"}, VALUE)
    assert caplog.messages == ["Option mergeschema is unknown, and ignored. docs/spark.md has the options."]


def test_spark_tells_the_reason_and_runs_no_task(spark: SparkSession, options: Options) -> None:
    for columns, more, message in (
        (["1L as key", "value"], {}, "column 'key' is of unsupported type bigint; it must be string or bin"),
        (["key"], {}, "required column 'value' not found; the columns are: key"),
        (["key", "value"], {"kafka.lingr.ms": "5"}, r"kafka\.lingr\.ms: no such setting"),
    ):
        with pytest.raises(AnalysisException, match=message):
            write(numbers(spark, 10).selectExpr(*columns), options, topic="t", **more)
    with pytest.raises(AnalysisException, match="save mode overwrite is not supported"):
        numbers(spark, 10).write.format("shmaccum").mode("overwrite").options(**options, topic="t").save()


# --- what fails while it runs --------------------------------------------------------------------------


def test_a_task_that_is_tried_again_leaves_nothing_out(spark: SparkSession, options: Options, written: Written) -> None:
    def fail_at_first(batches: Any) -> Any:
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("half-way through")

    rows = numbers(spark, 2_500)  # each task has a batch of 1,000, and some more
    write(rows.mapInArrow(fail_at_first, rows.schema), options, topic="again")
    assert {int(record.value) for record in written("again")} == set(range(2_500))


# --- streaming -----------------------------------------------------------------------------------------


def test_rows_go_on_where_a_query_stopped_and_its_progress_has_what_it_observed(
    spark: SparkSession, options: Options, tmp_path: Path, written: Written
) -> None:
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    for name, first, last in (("first.txt", 0, 1_000), ("second.txt", 1_000, 1_500)):
        texts = list(map(str, range(first, last)))
        (arriving / name).write_text("\n".join(texts))
        rows = spark.readStream.text(str(arriving))
        rows = rows.observe("kafka", F.count("*").alias("rows"), F.sum(F.octet_length("value")).alias("bytes"))
        query = write_stream(rows, options, tmp_path / "checkpoint", topic="rows")
        assert sorted(int(record.value) for record in written("rows")) == list(range(last))
        progress = next(each for each in query.recentProgress if each["numInputRows"])
        observed = progress["observedMetrics"]["kafka"].asDict()
        assert observed == {"rows": len(texts), "bytes": sum(map(len, texts))}
        assert progress["sink"]["numOutputRows"] == len(texts)
        # Spark asks a Python sink for no metrics: if this changes, docs/spark.md can promise more.
        assert not progress["sink"].get("metrics")


def test_a_query_whose_delivery_fails_stops_with_the_reason_and_succeeds_later(
    spark: SparkSession, options: Options, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log"
    log_dir.mkdir()
    own = {"kafka.log.dir": str(log_dir), "kafka.shmaccum.name": f"{options['kafka.shmaccum.name']}-own"}
    (tmp_path / "arriving").mkdir()
    (tmp_path / "arriving" / "a.txt").write_text("1\n2\n3")

    def run(**more: str) -> None:
        rows = spark.readStream.text(str(tmp_path / "arriving"))
        write_stream(rows, options | own, tmp_path / "checkpoint", topic="t", **more)

    (log_dir / "t-0").touch()  # where a directory must be
    with pytest.raises(StreamingQueryException, match="KafkaTimeoutError: Topic t not present in metadata"):
        run(**{"kafka.max.block.ms": "500"})
    (log_dir / "t-0").unlink()
    run()
    assert sorted(record.value for record in stored(log_dir, "t")) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_result_of_an_aggregation_is_appended(
    mode: str, spark: SparkSession, options: Options, tmp_path: Path, written: Written
) -> None:
    """An update by the way of docs/spark.md: Spark refuses that output mode for a data source written in Python."""
    (tmp_path / "words.txt").write_text("a\nb\na")
    counts = spark.readStream.text(str(tmp_path)).groupBy("value").count()
    query = counts.selectExpr("value as key", "cast(count as string) as value").writeStream
    if mode == "complete":
        query = query.format("shmaccum").options(**options, topic=mode)
    else:
        query = query.foreachBatch(lambda batch, number: write(batch, options, topic=mode))
    query = query.outputMode(mode).option("checkpointLocation", str(tmp_path / "point"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert {(record.key, record.value) for record in written(mode)} == {(b"a", b"2"), (b"b", b"1")}


# --- processes -----------------------------------------------------------------------------------------


def test_a_worker_keeps_its_producer_and_all_share_one_sender(
    spark: SparkSession, options: Options, written: Written
) -> None:
    settings = {name.removeprefix("kafka."): value for name, value in options.items()}

    def send(numbers: Any) -> Any:
        import time

        from shmaccum.spark import producer

        mine: Any = producer(settings)
        mine.tasks = getattr(mine, "tasks", 0) + 1
        futures = [mine.send("kept", b"%d" % number) for number in numbers]
        time.sleep(0.3)  # keeps the worker busy, so that another one gets a task too
        for future in futures:
            future.get(30)
        yield os.getpid(), mine.tasks

    def sender_starts() -> int:
        with look(settings["shmaccum.name"]) as slab:
            return slab.sender().starts

    tasks = defaultdict(list)
    with Producer(settings):  # Spark may end workers at any time, and a sender without producers leaves
        starts = sender_starts()  # a worker may have kept the slab since the test before, but not its sender
        write(numbers(spark, 100), options, topic="written-beside")
        for _ in range(2):
            for pid, number in spark.sparkContext.range(0, 400, 1, 4).mapPartitions(send).collect():
                tasks[pid].append(number)
        assert 2 <= len(tasks) < 8
        assert all(sorted(of_a_worker) == list(range(1, len(of_a_worker) + 1)) for of_a_worker in tasks.values())
        assert sorted(int(record.value) for record in written("kept")) == sorted([*range(400)] * 2)
        with look(settings["shmaccum.name"]) as slab:
            attached = {process.pid for process in slab.processes() if Role.PRODUCER in process.roles and process.alive}
            assert tasks.keys() <= attached
        assert sender_starts() == starts


def test_what_a_worker_has_imported_is_not_gone_through_after_every_task(spark: SparkSession, options: Options) -> None:
    settings = {name.removeprefix("kafka."): value for name, value in options.items()}

    def look_at_collector(_: Any) -> Any:
        import gc
        import weakref

        from shmaccum.spark import producer

        for _ in range(2):  # as in two tasks
            producer(settings)
        frozen, tracked = gc.get_freeze_count(), len(gc.get_objects())
        garbage: Any = type("Garbage", (), {})()
        garbage.itself = garbage
        alive = weakref.ref(garbage)
        del garbage
        gc.collect()
        yield frozen, tracked, alive() is None

    found = spark.sparkContext.range(0, 4, 1, 4).mapPartitions(look_at_collector).collect()
    for frozen, tracked, is_collected in found:
        assert frozen > 10 * tracked
        assert is_collected
