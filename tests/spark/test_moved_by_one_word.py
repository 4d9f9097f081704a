"""The jobs of `moved_jobs` with ``format("kafka")`` and ``format("shmaccum")``: the same, or as docs/spark.md says.

Each job runs twice against one Apache Kafka, with fresh topics each time and one word changed. confluent-kafka, which
shares no code with either sink, then reads the topics.

``make test`` runs three jobs, in 30 s on two cores, mostly the start of Spark and of Python workers. The others are
marked slow; ``-m ""`` runs all 25, in up to three minutes. `rate_stream` and `continuous_stream` wait for triggers of a
second, `missing_topic` for 3 s in each of two attempts, and `threads_after_register` for more workers to start.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from brokers import consume
from confluent_kafka import KafkaError, KafkaException
from moved_jobs import FORMATS, JOBS, Found, Job, Record, Sink
from pyspark.sql import DataFrameWriter, SparkSession

from tools.benchmark.errors import MissingError
from tools.benchmark.spark.jars import spark_sink_jars
from tools.kafka import KafkaCluster

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"

QUICK = {"headers_and_partitions", "no_value_column", "default_mode"}
"""The jobs of ``make test``: one is the same in both formats, one fails in both, one differs."""


class Outcome(NamedTuple):
    """The result of one run of a job: what is in each of its topics, and the error, if it raised one."""

    found: list[Found]
    error: str

    @property
    def values(self) -> Counter[bytes | None]:
        return Counter(
            record.value for found in self.found for of_partition in found.values() for record in of_partition
        )


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> SparkSession:
    """Return the session if it has Spark's own sink too, or skip the test and say why."""
    try:
        spark_sink_jars()
    except MissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI is to have Spark's own Kafka sink: {missing}")
        pytest.skip(str(missing))
    return spark


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pyspark be as without ``register(spark)``, which changes it for the whole process."""
    save = DataFrameWriter.save
    monkeypatch.setattr(DataFrameWriter, "save", getattr(save, "__wrapped__", save))


def read(servers: str, topic: str) -> Found:
    """Return what is in a topic; nothing if there is no such topic."""
    try:
        found = consume({"bootstrap.servers": servers}, topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return {}
    return {
        partition: [Record(each.key(), each.value(), tuple(each.headers() or ())) for each in messages]
        for partition, messages in found.items()
    }


def run(spark: SparkSession, kafka: KafkaCluster, job: Job, format: str, directory: Path) -> Outcome:
    topics = tuple(f"{job.run.__name__}-{format}-{number}" for number in range(job.topics))
    for topic in topics if job.exists else ():
        kafka.admin.create_topic(topic, partitions=3)
    # The second option lets a sender end soon after its job. Spark's own sink only warns of it.
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.sender.idle.ms": "500"}
    error = ""
    try:
        job.run(spark, Sink(format, options, topics, directory))
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    return Outcome([read(kafka.bootstrap_servers, topic) for topic in topics], error)


@pytest.mark.usefixtures("unregistered")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in JOBS]
)
def test_both_formats_write_the_same_or_differ_as_documented(
    name: str, both: SparkSession, kafka: KafkaCluster, tmp_path: Path
) -> None:
    job, outcomes = JOBS[name], {}
    for format in FORMATS:
        directory = tmp_path / format
        directory.mkdir()
        outcomes[format] = outcome = run(both, kafka, job, format, directory)
        if format not in job.errors:
            assert outcome.error == ""
            assert outcome.values == Counter(job.values)  # none is doubled, none is missing
        else:
            assert re.search(job.errors[format], outcome.error, re.DOTALL), outcome.error
            assert set(outcome.values) == set(job.before_error if format == "kafka" else ())
    if not job.note:
        theirs, ours = ([job.same(found) for found in outcomes[format].found] for format in FORMATS)
        assert ours == theirs


def test_the_document_has_every_job_that_differs_and_why() -> None:
    text = DOCUMENT.read_text().split("\n## Moved by one word\n")[1].split("\n## ")[0]
    different = [job for job in JOBS.values() if job.note]
    assert f"{len(JOBS) - len(different)} of {len(JOBS)} come to the same" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == [f"| {job.title} | {job.note} |" for job in different]
