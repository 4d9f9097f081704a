"""A continuous trigger, with which Spark never runs the tasks of a Python sink, is refused before a query begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from fixture_types import LogCapture, Written
from processes import wait_until
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from spark_writes import write_stream

from shmaccum.errors import ConfigError
from shmaccum.spark import ShmAccumDataSource, register
from shmaccum.spark.continuous import refuse_at_start

Options = dict[str, str]

REFUSED = r"trigger\(continuous=...\) is not supported: .*; use trigger\(processingTime='1 second'\), or format"

MICRO_BATCH = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n5'
EPOCH = 'v1\n\n{"0":{"value":5,"runTimeMs":1}}'
"""Files of a checkpoint's ``offsets``, as Spark writes them."""


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pyspark be as in a driver that does not register the data source: Spark finds it."""
    for name in ("trigger", "format"):
        method = getattr(DataStreamWriter, name)
        monkeypatch.setattr(DataStreamWriter, name, getattr(method, "__wrapped__", method))


def rates(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate").option("numPartitions", 1).load()
    return rows.selectExpr("cast(value as string) value")


@contextmanager
def stopped(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def another_continuous_query(spark: SparkSession, checkpoint: Path) -> Iterator[None]:
    query = rates(spark).writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    with stopped(query.trigger(continuous="1 second").start()):  # each epoch keeps the JVM from the other queries
        wait_until(lambda: list((checkpoint / "commits").glob("[0-9]*")), "the other query commits")
        yield


# --- refused where the trigger is set ------------------------------------------------------------------


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("by", ["register", "spark.dataSource.register"])
def test_a_registered_session_refuses_a_continuous_trigger_at_once(by: str, spark: SparkSession) -> None:
    if by == "register":
        register(spark.newSession())
    else:
        spark.newSession().dataSource.register(ShmAccumDataSource)
    rows = rates(spark)
    with pytest.raises(ConfigError, match=REFUSED):
        rows.writeStream.format("shmaccum").trigger(continuous="1 second")
    with pytest.raises(ConfigError, match=REFUSED):
        rows.writeStream.trigger(continuous="1 second").start(format="Shmaccum")
    rows.writeStream.format("shmaccum").trigger(processingTime="1 second")
    rows.writeStream.format("console").trigger(continuous="1 second")


# --- refused where the query is planned ----------------------------------------------------------------


@pytest.mark.usefixtures("unguarded")
def test_a_continuous_query_of_a_format_that_spark_found_is_refused_before_its_first_epoch(
    spark: SparkSession, options: Options, tmp_path: Path
) -> None:
    """Also where the sink does not know the checkpoint: one that the session names is no option of the query."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    query = rates(session).writeStream.format("shmaccum").options(**options, topic="t").queryName("refused")
    with stopped(query.trigger(continuous="100 milliseconds").start()) as running:  # noqa: SIM117
        with pytest.raises(StreamingQueryException, match=REFUSED):
            running.awaitTermination()
    assert (tmp_path / "refused" / "metadata").exists()
    assert not list((tmp_path / "refused").glob("*s/[0-9]*")), "neither offsets nor commits"


@pytest.mark.usefixtures("unguarded")
def test_beside_a_continuous_query_of_another_sink_only_ours_is_refused(
    spark: SparkSession, options: Options, tmp_path: Path, written: Written
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    (tmp_path / "arriving").mkdir()
    (tmp_path / "arriving" / "a.txt").write_text("0\n1\n2")
    lines = session.readStream.text(str(tmp_path / "arriving"))

    with another_continuous_query(session, tmp_path / "another"):
        ours = rates(session).writeStream.format("shmaccum").options(**options, topic="t")
        ours = ours.option("checkpointLocation", str(tmp_path / "ours")).trigger(continuous="100 milliseconds")
        with stopped(ours.start()) as running, pytest.raises(StreamingQueryException, match=REFUSED):
            running.awaitTermination()
        write_stream(lines, options, tmp_path / "batches", topic="beside")
        unknown = lines.writeStream.format("shmaccum").options(**options, topic="beside-unknown")
        unknown.trigger(availableNow=True).start().awaitTermination()
    epochs = (tmp_path / "another" / "offsets").glob("[0-9]*")
    assert {each.read_text().split("\n")[1] for each in epochs} == {EPOCH.split("\n")[1]}
    for topic in ("beside", "beside-unknown"):
        assert sorted(record.value for record in written(topic)) == [b"0", b"1", b"2"]


def checkpoint_of(directory: Path, offsets: dict[int, str], commits: int) -> Path:
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    (directory / "metadata").touch()
    for number, text in offsets.items():
        (directory / "offsets" / str(number)).write_text(text)
        (directory / "offsets" / f".{number}.crc").touch()
    for number in range(commits):
        (directory / "commits" / str(number)).touch()
    return directory


@pytest.mark.parametrize(
    ("offsets", "commits", "is_continuous"),
    [
        ({}, 0, True),
        ({0: MICRO_BATCH}, 0, False),
        ({0: MICRO_BATCH, 1: MICRO_BATCH}, 1, False),
        ({0: MICRO_BATCH, 1: MICRO_BATCH}, 2, True),
        ({0: EPOCH, 1: EPOCH}, 2, True),
        ({0: EPOCH, 1: EPOCH}, 1, True),
        ({0: EPOCH, 1: EPOCH, 2: MICRO_BATCH}, 2, False),
    ],
)
def test_a_checkpoint_tells_a_continuous_query_that_is_planned(
    offsets: dict[int, str], commits: int, is_continuous: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("shmaccum.spark.continuous._query_threads", lambda: (3, 2))
    checkpoint = checkpoint_of(tmp_path / "checkpoint", offsets, commits)
    for scheme in ("", "file:", "file://"):
        with pytest.raises(ConfigError, match=REFUSED) if is_continuous else nullcontext():
            refuse_at_start(f"{scheme}{checkpoint}")


@pytest.mark.parametrize("checkpoint", [None, "hdfs://host/checkpoints/c", "/nowhere"])
def test_where_neither_threads_nor_checkpoint_tell_the_driver_warns(
    checkpoint: str | None, monkeypatch: Any, caplog: LogCapture
) -> None:
    threads = "shmaccum.spark.continuous._query_threads"
    monkeypatch.setattr(threads, lambda: (2, 0))
    refuse_at_start(checkpoint)
    assert not caplog.messages
    monkeypatch.setattr(threads, lambda: (2, 1))
    refuse_at_start(checkpoint)
    assert caplog.messages[0].startswith("1 of 2 queries have a continuous trigger. Whether this one has is unknown")
    monkeypatch.setattr(threads, lambda: (2, 2))
    with pytest.raises(ConfigError, match=REFUSED):
        refuse_at_start(checkpoint)


# --- checkpoints that such a query has left ------------------------------------------------------------


def test_a_query_does_not_skip_the_rows_of_epochs_that_were_not_written(
    spark: SparkSession, options: Options, tmp_path: Path, written: Written
) -> None:
    """Spark begins at the newest offsets but one. From 4.3 on, it refuses epochs' offsets before the sink can."""
    checkpoint, arriving = tmp_path / "checkpoint", tmp_path / "arriving"
    arriving.mkdir()

    def run(format: str) -> None:
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(arriving))
        writer = rows.writeStream.format(format).options(**options, topic="skipped", checkpointLocation=str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    for number in range(4):
        (arriving / f"{number}.txt").write_text(str(number))
    run("noop")
    for number in range(1, 4):  # as a continuous query leaves them: without metadata, and not committed
        version, _, *offsets = (checkpoint / "offsets" / str(number)).read_text().split("\n")
        (checkpoint / "offsets" / str(number)).write_text("\n".join([version, "", *offsets]))
        (checkpoint / "offsets" / f".{number}.crc").unlink()
        for name in (str(number), f".{number}.crc"):
            (checkpoint / "commits" / name).unlink()
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"epochs 1 to 2 .* never written|metadata not found"):
            run("shmaccum")
    with pytest.raises(ConfigError, match=r"epochs 1 to 2 .* never written; .* delete the files from 1 "):
        refuse_at_start(str(checkpoint))
    assert not written("skipped")
    for number in range(1, 4):
        (checkpoint / "offsets" / str(number)).unlink()
    run("shmaccum")
    assert len(written("skipped")) == 3
    refuse_at_start(str(checkpoint))
