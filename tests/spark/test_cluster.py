"""The data source into a real cluster, with the options of a job that used ``format("kafka")``."""

from __future__ import annotations

from pathlib import Path

import pytest
from brokers import consume
from pyspark.sql import SparkSession

from tools.kafka import KafkaCluster

Options = dict[str, str]


@pytest.fixture
def job(kafka: KafkaCluster, topic: str, options: Options) -> Options:
    """Return what a job gives Spark's own sink, and a name by which the slab is seen to go with Spark's workers."""
    kafka.admin.create_topic(topic, partitions=3)
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "kafka.shmaccum.name": f"{options['kafka.shmaccum.name']}-cluster",
        "kafka.sender.idle.ms": "100",
    }


def found(kafka: KafkaCluster, topic: str) -> list[tuple[bytes, bytes]]:
    """Return keys and values of the topic, by confluent-kafka."""
    partitions = consume({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    return sorted((each.key(), each.value()) for messages in partitions.values() for each in messages)


def test_a_batch(spark: SparkSession, kafka: KafkaCluster, topic: str, job: Options) -> None:
    rows = spark.range(5_000).selectExpr("CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("shmaccum").mode("append").options(**job).save()
    expected = sorted((b"%d" % (number % 7), b"%d" % number) for number in range(5_000))
    assert found(kafka, topic) == expected


def test_a_stream(spark: SparkSession, kafka: KafkaCluster, topic: str, job: Options, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}\n")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    query = lines.selectExpr("value AS key", "value").writeStream.format("shmaccum").options(**job)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert found(kafka, topic) == [(b"0", b"0"), (b"1", b"1"), (b"2", b"2")]
