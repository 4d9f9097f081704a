"""Runs jobs in both formats, in one Spark session, against one cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools import spark_jvm
from tools.benchmark.spark.jars import spark_sink_jars
from tools.kafka import KafkaCluster, ensure_kafka
from tools.kafka.jars import VERSION
from tools.moved_by_one_word.job import PARTITIONS, Job, Options, Where
from tools.moved_by_one_word.outcome import Outcome, outcome_of
from tools.moved_by_one_word.reading import read
from tools.moved_by_one_word.report import Comparison, Versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENDER_IDLE_MS: Final = "500"
"""For both formats the same options; Spark's own sink warns of this one. Soon after a job, nothing of it is left."""


def run_all(jobs: Sequence[Job], say: Callable[[str], None]) -> tuple[Versions, list[Comparison]]:
    """Run jobs with a cluster and a session of their own.

    Args:
        jobs: in this order.
        say: is given a line of progress.

    Raises:
        MissingError: Spark's own sink cannot be fetched.
        KafkaMissingError: Apache Kafka cannot be fetched.
        KafkaToolError: its broker does not start.
    """
    ensure_kafka()
    sink, jars = spark_sink_jars()
    versions = Versions(version("pyspark"), sink, VERSION)
    with tempfile.TemporaryDirectory(prefix="shmaccum-moved-") as scratch:
        directory = Path(scratch)
        with KafkaCluster(directory / "kafka") as cluster, _session(directory, jars) as spark:
            comparisons = []
            for number, job in enumerate(jobs, 1):
                comparisons.append(compare(spark, cluster, job, directory))
                say(f"{number} of {len(jobs)}, {job.name}: {comparisons[-1].verdict}")
    return versions, comparisons


def compare(spark: SparkSession, cluster: KafkaCluster, job: Job, directory: Path) -> Comparison:
    """Run one job in both formats.

    Args:
        spark: a session that has Spark's own sink.
        cluster: that runs.
        job: which.
        directory: for files and checkpoints.
    """
    return Comparison(job, *(run(spark, cluster, job, format, directory) for format in ("kafka", "shmaccum")))


def run(spark: SparkSession, cluster: KafkaCluster, job: Job, format: str, directory: Path) -> Outcome:
    """Run one job in one format, with topics of its own, and read these; the arguments are as of `compare`."""
    topics = tuple(f"{job.name}-{format}-{number}" for number in range(job.topics))
    where = Where(topics, directory / f"{job.name}-{format}")
    where.directory.mkdir()
    if job.exists:
        for topic in topics:
            cluster.admin.create_topic(topic, PARTITIONS)
    options: Options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.sender.idle.ms": SENDER_IDLE_MS,
    }
    error = None
    try:
        job.run(spark, format, options, where)
    except Exception as raised:
        error = raised
    return outcome_of(job, [read(cluster.bootstrap_servers, topic) for topic in topics], error)


@contextmanager
def _session(directory: Path, jars: Sequence[Path]) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault(spark_jvm.VARIABLE, spark_jvm.jvm_options())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("moved by one word")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    session: Any = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # many a job here is to fail
    try:
        yield session
    finally:
        gateway = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
