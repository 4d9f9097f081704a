"""From a Spark session into Apache Kafka by code for Spark's own sink, one word changed; read by confluent-kafka."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from brokers import consume, make_delegation_token
from confluent_kafka import TIMESTAMP_CREATE_TIME
from examples import example
from fixture_types import MakeCluster
from kafka.partitioner.default import murmur2
from producers import wait_until_refused
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from spark_writes import write, write_stream

from shmaccum import Producer
from tools.kafka import KafkaCluster

Options = dict[str, str]


@pytest.fixture(scope="module")
def ours(options: Options, kafka: KafkaCluster) -> Options:
    """Return what a job gives to ``format("kafka")``; and a slab that goes with the session, smaller than usual."""
    spark_sinks = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.acks": "all",
        "kafka.compression.type": "lz4",
        "includeHeaders": "true",
    }
    return spark_sinks | {
        "kafka.shmaccum.name": f"{options['kafka.shmaccum.name']}-kafka",
        "kafka.sender.idle.ms": "200",
        "kafka.buffer.memory": str(4 << 20),
    }


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return ``count`` rows in four tasks: number ``i`` with key ``k<i % 100>``."""
    return spark.range(0, count, 1, 4).selectExpr("concat('k', id % 100) AS key", "CAST(id AS STRING) AS value")


def test_a_batch_job(spark: SparkSession, ours: Options, kafka: KafkaCluster, topic: str) -> None:
    count = 10_000
    kafka.admin.create_topic(topic, partitions=3)
    write(numbers(spark, count), ours, topic=topic)
    found = consume({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    assert sorted(int(record.value()) for records in found.values() for record in records) == list(range(count))
    for partition, records in found.items():
        of_a_task: dict[int, list[int]] = defaultdict(list)
        for record in records:
            number = int(record.value())
            assert record.key() == b"k%d" % (number % 100)
            assert partition == (murmur2(record.key()) & 0x7FFFFFFF) % 3
            of_a_task[number * 4 // count].append(number)
        assert all(task == sorted(task) for task in of_a_task.values())


def test_the_readme(spark: SparkSession, ours: Options, kafka: KafkaCluster, topic: str, tmp_path: Path) -> None:
    kafka.admin.create_topic(topic)
    (tmp_path / "flights.json").write_text('{"carrier": "UA", "flight": 1545}\n{"carrier": "AA", "flight": 1141}\n')
    changes = {
        '"flights"': f'"{topic}"',
        "broker1:9092": kafka.bootstrap_servers,
        '.mode("append")': f'.mode("append").options(**{ours!r})',
    }
    exec(example("Send", changes, number=1), {"df": spark.read.json(str(tmp_path / "flights.json"))})
    (records,) = consume({"bootstrap.servers": kafka.bootstrap_servers}, topic).values()
    assert sorted((record.key(), record.value()) for record in records) == [
        (b"AA", b'{"carrier":"AA","flight":1141}'),
        (b"UA", b'{"carrier":"UA","flight":1545}'),
    ]


def test_by_a_delegation_token_that_spark_has_obtained(
    spark: SparkSession, ours: Options, kafka_cluster: MakeCluster, topic: str, tmp_path: Path
) -> None:
    """As docs/spark.md has it; the token is put where Spark puts those that it obtains (``KafkaTokenUtil``)."""
    page = "docs/spark.md"
    with kafka_cluster(sasl=True) as cluster:
        jvm = spark._jvm
        token_id, token_hmac = make_delegation_token(cluster, "alice", tmp_path)
        hadoop, text = jvm.org.apache.hadoop.security, jvm.org.apache.hadoop.io.Text
        service = text("kafka.delegation.token.orders")
        token = hadoop.token.Token(
            bytearray(token_id.encode()), bytearray(token_hmac.encode()), text("KAFKA_DELEGATION_TOKEN"), service
        )
        credentials = hadoop.Credentials()
        credentials.addToken(service, token)
        hadoop.UserGroupInformation.getCurrentUser().addCredentials(credentials)
        names: dict[str, Any] = {}
        exec(example("Delegation tokens", {}, page=page, number=1), names)
        names["token_id"], names["token_hmac"] = names["kafka_token"](spark, "orders")
        changes = {"broker1:9092,broker2:9092": cluster.bootstrap_servers, "SASL_SSL": cluster.security_protocol}
        exec(example("Delegation tokens", changes, page=page), names)
        cluster.admin.create_topic(topic)
        cluster.admin.allow("alice", topic)
        mine = ours | names["options"] | {"kafka.shmaccum.name": f"{ours['kafka.shmaccum.name']}-token"}
        write(numbers(spark, 100), mine, topic=topic)
        (records,) = consume({"bootstrap.servers": cluster.internal_servers}, topic).values()
        assert len(records) == 100


def test_all_columns(spark: SparkSession, ours: Options, kafka: KafkaCluster, topic: str) -> None:
    """Each row goes to the topic that it names; all of its other columns can be null."""
    for name in (f"{topic}-0", f"{topic}-1"):
        kafka.admin.create_topic(name, partitions=4)
    an_hour_ago = int(time.time() - 3600) * 1000
    rows = spark.range(0, 1_000, 1, 2).selectExpr(
        f"concat('{topic}-', id % 2) AS topic",
        "IF(id % 9 = 0, NULL, CAST(id % 4 AS INT)) AS partition",
        "IF(id % 10 = 0, NULL, CAST(id AS STRING)) AS key",
        "IF(id % 7 = 0 AND id % 9 <> 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS value",
        "IF(id % 9 = 0, NULL, array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value),"
        "      struct('none' AS key, CAST(NULL AS BINARY) AS value))) AS headers",
        f"IF(id % 9 = 0, NULL, timestamp_millis({an_hour_ago}L + id)) AS timestamp",
        "id AS ignored",
    )
    write(rows, ours, timestampColumn="timestamp")
    seen = []
    for parity in (0, 1):
        found = consume({"bootstrap.servers": kafka.bootstrap_servers}, f"{topic}-{parity}")
        for partition, record in ((partition, record) for partition, records in found.items() for record in records):
            headers = record.headers()
            text = dict(headers)["id"] if headers else record.value()
            number = int(text)
            seen.append(number)
            assert number % 2 == parity
            assert record.key() == (None if number % 10 == 0 else text)
            if number % 9 == 0:
                assert not headers
                assert record.timestamp()[1] > an_hour_ago + 1_000_000
            else:
                assert headers == [("id", text), ("none", None)]
                assert partition == number % 4
                assert record.value() == (None if number % 7 == 0 else text)
                assert record.timestamp() == (TIMESTAMP_CREATE_TIME, an_hour_ago + number)
    assert sorted(seen) == list(range(1_000))


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, ours: Options, kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    """Every batch of it is written, one for each file; a column of any name gives the records' time."""
    kafka.admin.create_topic(topic, partitions=2)
    an_hour_ago = int(time.time() - 3600) * 1000
    (tmp_path / "arriving").mkdir()
    for files in ({"first.txt": range(600), "and.txt": range(600, 1_000)}, {"second.txt": range(1_000, 1_500)}):
        for name, numbers in files.items():
            (tmp_path / "arriving" / name).write_text("\n".join(map(str, numbers)))
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "arriving"))
        time_column = f"timestamp_millis({an_hour_ago} + CAST(value AS BIGINT)) AS event_time"
        rows = lines.selectExpr("value AS key", "value", time_column)
        write_stream(rows, ours, tmp_path / "checkpoint", topic=topic, timestampColumn="event_time")
        partitions = consume({"bootstrap.servers": kafka.bootstrap_servers}, topic)
        records = [record for of_partition in partitions.values() for record in of_partition]
        assert sorted(int(record.value()) for record in records) == list(range(numbers[-1] + 1))
        for record in records:
            assert record.key() == record.value()
            assert record.timestamp()[1] == an_hour_ago + int(record.value())


def test_a_topic_that_is_not_there_fails_the_job_with_the_reason(
    spark: SparkSession, ours: Options, topic: str
) -> None:
    options = ours | {"kafka.max.block.ms": "500", "topic": topic}
    reason = f"KafkaTimeoutError: Topic {topic} not present in metadata after 500 ms: UnknownTopicOrPartitionError"
    settings = {name.removeprefix("kafka."): value for name, value in ours.items() if name.startswith("kafka.")}
    with Producer(settings) as asking:
        wait_until_refused(asking, topic)
        with pytest.raises(PythonException, match=reason):
            write(numbers(spark, 10).coalesce(1), options)
