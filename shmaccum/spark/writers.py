"""The writers that Spark pickles to the executors, of the kinds that every pyspark from 4.0 on has.

Whatever Spark gives, a `WriteTask` gets Arrow batches of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from shmaccum.errors import ConfigError
from shmaccum.spark.task import TaskCommit, WriteTask

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

ROWS_PER_BATCH: Final = 10_000
"""As many as Spark puts into an Arrow batch (``spark.sql.execution.arrow.maxRecordsPerBatch``)."""

Commits = Sequence[WriterCommitMessage | None]
"""What the tasks returned; None of one that failed."""


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch job."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one task, on an executor (`WriteTask.write`)."""
        return self._task.write(iterator)

    def commit(self, messages: Commits) -> None:
        """Take note, on the driver, that all tasks are done: nothing is left to do."""
        logger.info("%s", _total(messages))

    def abort(self, messages: Commits) -> None:
        """Take note, on the driver, that the job failed: what has been acknowledged stays, as in Kafka's own sink."""
        logger.warning("the job did not complete: %s; these stay in Kafka", _total(messages))


class StreamCommits:
    """What the writers of a streaming query do on the driver."""

    def commit(self, messages: Commits, batchId: int) -> None:
        """Take note that a micro-batch is done: nothing is left to do.

        Raises:
            ConfigError: a task returned nothing. With trigger(continuous=...), Spark never calls the
                tasks of a Python sink, and commits the epochs all the same.
        """
        if None in messages:
            raise ConfigError(
                f"epoch {batchId} is not committed: {messages.count(None)} of {len(messages)} tasks wrote nothing. "
                "Spark never runs the tasks of a Python sink with trigger(continuous=...). Stop the query, and use "
                "trigger(processingTime='1 second'), or format('kafka'); docs/spark.md, Continuous trigger, says how "
                "to go on with its checkpoint"
            )
        logger.info("batch %d: %s", batchId, _total(messages))

    def abort(self, messages: Commits, batchId: int) -> None:
        """Take note that a micro-batch failed, or that its query was stopped: Spark does not say which.

        What has been acknowledged stays, and comes again with the next try. Where that is nothing, there is nothing
        to warn of: of a failure, Spark itself gives the reason.
        """
        written = any(isinstance(message, TaskCommit) and message.records for message in messages)
        logger.log(
            logging.WARNING if written else logging.INFO,
            "batch %d did not complete: %s; these stay in Kafka, and are written again when the query goes on",
            batchId,
            _total(messages),
        )


class StreamRowWriter(StreamCommits, DataSourceStreamWriter):
    """Writer of a streaming query that gets rows: pyspark 4.0 has no other."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[Row]) -> TaskCommit:
        """Write the rows of one task, on an executor (`WriteTask.write`)."""
        return self._task.write(batches_of_rows(iterator, self._task.columns))


def batches_of_rows(rows: Iterator[Row], columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches that have ``columns``, by their types as Spark writes them, and no others."""
    import pyarrow as pa  # the driver's processes, which commit, have no use for it

    kinds = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "array<struct<key:string,value:binary>>": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pydict(
            {name: pa.array([_plain(row[name]) for row in chunk], kinds[kind]) for name, kind in columns.items()}
        )


def _plain(value: Any) -> Any:
    """Return a row's value as Arrow takes it: of a timestamp, Spark gives the local time and does not say so."""
    return value.astimezone() if isinstance(value, datetime) else value


def _total(messages: Commits) -> str:
    commits = [message for message in messages if isinstance(message, TaskCommit)]
    records, size = sum(commit.records for commit in commits), sum(commit.bytes for commit in commits)
    return f"{len(commits)} of {len(messages)} tasks finished, with {records} records of {size} bytes"
