"""The benchmark's streaming query: each micro-batch once, whenever Spark triggers one more."""

from __future__ import annotations

from pathlib import Path

from brokers import consume_values, wait_for_markers
from pyspark.sql import SparkSession

from tools.benchmark.settings import Settings
from tools.benchmark.spark.jobs import EXACTLY_ONCE, Job, Query, Running
from tools.kafka import KafkaCluster

ROWS, TASKS, INTERVAL_S, MEASURED = 400, 4, 0.5, 2


def test_a_query(spark: SparkSession, kafka: KafkaCluster, topic: str, tmp_path: Path, options: dict[str, str]) -> None:
    """The interval is so short that it can be over before the query is stopped: what comes then has no rows."""
    kafka.admin.create_topic(topic, partitions=3)
    job = Job(EXACTLY_ONCE, TASKS, ROWS, 20, kafka.bootstrap_servers, topic, Settings(buffer_memory=4 << 20))
    slab = f"{options['kafka.shmaccum.name']}-queries"
    running = Running(spark, Query(job, INTERVAL_S, MEASURED), slab, tmp_path / "checkpoint")
    found = running.measured()
    running.stop()
    assert len(found) == MEASURED
    for each in found:
        assert 0 < each.add_batch_s <= each.took_s
    assert found[0].began_s < found[1].began_s
    wait_for_markers(kafka.bootstrap_servers)
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    values = [value for each in consume_values(reading, topic).values() for value in each]
    assert sorted(int(value[:10].split()[0]) for value in values if value) == list(range((1 + MEASURED) * ROWS))
    assert {len(value) for value in values if value} == {20}
