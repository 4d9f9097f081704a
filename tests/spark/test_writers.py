from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fixture_types import LogCapture
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType, TimestampType
from spark_writes import stored

from shmaccum import ProducerConfig
from shmaccum.errors import ConfigError
from shmaccum.spark.schema import record_columns
from shmaccum.spark.task import TaskCommit, WriteTask
from shmaccum.spark.writers import ROWS_PER_BATCH, BatchWriter, StreamRowWriter, batches_of_rows

HEADER = StructType().add("key", StringType()).add("value", BinaryType())
SCHEMA = (
    StructType()
    .add("ignored", IntegerType())
    .add("value", StringType())
    .add("topic", StringType())
    .add("key", BinaryType())
    .add("partition", IntegerType())
    .add("headers", ArrayType(HEADER))
    .add("event_time", TimestampType())
)
NewRow = Row(*SCHEMA.fieldNames())
NewHeader = Row("key", "value")


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a time zone that is not UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_rows_are_written_as_arrow_batches_are(config: ProducerConfig) -> None:
    headers = [NewHeader("h", bytearray(b"1")), NewHeader("h", None)]
    rows = [
        NewRow(7, "all", "a", bytearray(b"key"), 2, headers, datetime(2026, 7, 4, 12, 0, 0, 123_999)),
        # An hour that came twice, the second time; and as pyspark 4.0 gives binary values.
        NewRow(7, "late", "a", b"key", 0, [], datetime(2026, 11, 1, 1, 30, fold=1)),
        NewRow(7, None, "b", None, None, None, None),
    ]
    before = int(time.time() * 1000)
    columns = record_columns(SCHEMA, topic_given=False, timestamp_column="event_time")
    writer = StreamRowWriter(WriteTask(config, None, columns, timestamp_column="event_time"))
    commit = writer.write(iter(rows))
    assert (commit.records, commit.bytes) == (3, 13)
    late, everything = stored(Path(config.log_dir), "a")
    assert (everything.partition, everything.key, everything.value) == (2, b"key", b"all")
    assert everything.headers == [("h", b"1"), ("h", None)]
    assert everything.timestamp == 1_783_180_800_123
    assert (late.partition, late.value, late.headers, late.timestamp) == (0, b"late", [], 1_793_514_600_000)
    (bare,) = stored(Path(config.log_dir), "b")
    assert (bare.key, bare.value, bare.headers) == (None, None, [])
    assert before <= bare.timestamp <= int(time.time() * 1000)


@pytest.mark.parametrize("batch_id", [(), (7,)], ids=["batch", "stream"])
def test_the_driver_says_how_much_was_written(
    batch_id: tuple[int, ...], config: ProducerConfig, caplog: LogCapture
) -> None:
    task = WriteTask(config, "t", {})
    writer: Any = StreamRowWriter(task) if batch_id else BatchWriter(task, None)
    caplog.set_level(logging.INFO)
    writer.commit([TaskCommit(3, 30), TaskCommit(4, 40)], *batch_id)
    writer.abort([TaskCommit(3, 30), None], *batch_id)
    committed, aborted = caplog.messages
    assert "2 of 2 tasks finished, with 7 records of 70 bytes" in committed
    assert "failed: 1 of 2 tasks finished, with 3 records of 30 bytes; these stay in Kafka" in aborted


def test_an_epoch_that_no_task_wrote_is_not_committed_and_its_end_is_not_warned_of(
    config: ProducerConfig, caplog: LogCapture
) -> None:
    writer = StreamRowWriter(WriteTask(config, "t", {}))
    writer.abort([None, None], 4)
    writer.abort([TaskCommit(0, 0), None], 4)
    assert not caplog.messages
    with pytest.raises(ConfigError, match=r"epoch 7 is not committed: 1 of 2 tasks wrote .*trigger\(processingTime="):
        writer.commit([TaskCommit(1, 1), None], 7)


def test_rows_come_in_batches_of_bounded_size() -> None:
    row = Row("value", "other")
    rows = (row(b"%d" % number, None) for number in range(2 * ROWS_PER_BATCH + 1))
    batches = list(batches_of_rows(rows, {"value": "binary"}))
    assert [batch.num_rows for batch in batches] == [ROWS_PER_BATCH, ROWS_PER_BATCH, 1]
    assert batches[2].to_pydict() == {"value": [b"%d" % (2 * ROWS_PER_BATCH)]}
