"""A task of a write, its result, and the writers: what Spark pickles between driver and executors.

The writers are for every pyspark from 4.0 on: each gets Arrow batches, for a `WriteTask`.

The driver's processes that plan and commit a job need nothing else. They can be new for every job, because Spark ends
them after a minute of idleness. So this module imports neither pyarrow nor the producer; an executor imports both when
its first task begins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark.sql.datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from shmaccum.config import ProducerConfig
from shmaccum.errors import ConfigError, ShmaccumError
from shmaccum.spark.exactly_once import ExactlyOnce, TaskPlan, TransactionResult

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Commits = Sequence[WriterCommitMessage | None]
"""The tasks' results; None for one that failed."""


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """A task's result for the driver: how much it wrote, all of it acknowledged."""

    records: int
    bytes: int
    """Of keys and values."""
    result: TransactionResult | None = None


@dataclass(frozen=True)
class WriteTask:
    """The common part of all tasks of a write; made on the driver and pickled to the executors."""

    config: ProducerConfig
    topic: str | None
    """Of all rows; None if the column ``topic`` gives it."""
    columns: Mapping[str, str]
    """Those that make records, with their types as Spark writes them."""
    plan: TaskPlan | None = None
    timestamp_column: str | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        """Send the rows of one task and wait until they are acknowledged.

        Raises:
            SerializationError: a topic is null.
            KafkaError: a row was refused, or failed; the text has the number of failed rows.
            SlabError, SenderError: the slab cannot be used, or the sender cannot be started.
        """
        from shmaccum.spark.delivery import deliver
        from shmaccum.spark.worker import producer

        names = ["timestamp" if name == self.timestamp_column else name for name in self.columns]
        columns = dict(zip(names, self.columns.values(), strict=True))
        batches = (batch.select(list(self.columns)).rename_columns(names) for batch in batches)
        try:
            if self.plan is not None:
                return TaskCommit(*self.plan.write(batches, self.config, self.topic, columns))
            records, size = deliver(batches, producer(self.config), self.topic, columns)
        except ShmaccumError as error:
            from shmaccum.spark.options import with_options_named

            raise with_options_named(error) from error.__cause__
        return TaskCommit(records, size)


class ArrowTask:
    """The executors' part of the writers that get Arrow batches."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one task (`WriteTask.write`)."""
        return self._task.write(iterator)


class BatchWriter(ArrowTask, DataSourceArrowWriter):
    """Writer of a batch job.

    Args:
        exactly_once: what makes all rows visible at once; None for a write that is at least once.
    """

    def __init__(self, task: WriteTask, exactly_once: ExactlyOnce | None) -> None:
        super().__init__(task)
        self._exactly_once = exactly_once

    def commit(self, messages: Commits) -> None:
        """Make all rows visible, if they are not yet, and log that all tasks are done.

        Raises KafkaError: `BatchCommitter.commit` failed.
        """
        if self._exactly_once is not None:
            results = _results(messages)
            self._exactly_once.commit(self._exactly_once.version or 0, results)
            is_empty = all(each.transaction is None for each in results)
            if is_empty and self._exactly_once.version is None and self._task.plan is not None:
                self._exactly_once.end_batch(self._task.plan.plan)  # removes what the plan left in the log
            self._exactly_once.ended()
        logger.info("%s", _total(messages))

    def abort(self, messages: Commits) -> None:
        """Abort what the tasks wrote; at least once, acknowledged rows stay, as with Spark's own Kafka sink."""
        if self._exactly_once is not None and self._task.plan is not None:
            self._exactly_once.end_batch(self._task.plan.plan)
            self._exactly_once.ended()
            logger.warning("The job failed: %s; these are aborted, unless they were committed.", _total(messages))
        else:
            logger.warning("The job failed: %s; these stay in Kafka.", _total(messages))


class StreamCommits:
    """The driver's part of the writers of a streaming query."""

    exactly_once: ExactlyOnce | None = None
    """What makes a micro-batch visible; None for a write that is at least once."""

    def commit(self, messages: Commits, batchId: int) -> None:
        """Make a micro-batch visible, if it is not yet, and log that it is done.

        Raises:
            ConfigError: a task returned nothing. With trigger(continuous=...), Spark never calls the tasks of a Python
                sink, but commits the epochs.
            KafkaError: `BatchCommitter.commit` failed.
        """
        if None in messages:
            raise ConfigError(
                f"epoch {batchId} is not committed: {messages.count(None)} of {len(messages)} tasks wrote nothing. "
                "Spark never runs the tasks of a Python sink with trigger(continuous=...). Stop the query, and use "
                "trigger(processingTime='1 second'), or format('kafka'); docs/spark.md, Continuous trigger, explains "
                "how to continue with its checkpoint"
            )
        if self.exactly_once is not None:
            self.exactly_once.commit(batchId, _results(messages))
        logger.info("batch %d: %s", batchId, _total(messages))

    def abort(self, messages: Commits, batchId: int) -> None:
        """Log that a micro-batch failed, or that its query was stopped: Spark does not tell which.

        What the tasks wrote exactly once is aborted. At least once, acknowledged rows stay, and the next attempt writes
        them again. Without any, this is not a warning: Spark itself reports the cause of a failure.

        Raises KafkaError: `BatchCommitter.end_batch` failed; the next micro-batch repeats it.
        """
        if self.exactly_once is not None:
            results = _results(messages)  # none if the query was stopped before its first task was done
            self.exactly_once.end_batch(results[0].plan if results else None)
            logger.info("batch %d failed: %s; these are aborted, unless they were committed", batchId, _total(messages))
            return
        written = any(isinstance(message, TaskCommit) and message.records for message in messages)
        logger.log(
            logging.WARNING if written else logging.INFO,
            "batch %d failed: %s; these stay in Kafka, and are written again when the query continues",
            batchId,
            _total(messages),
        )


if TYPE_CHECKING or hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter"):  # came with pyspark 4.1
    _StreamArrowWriter = pyspark.sql.datasource.DataSourceStreamArrowWriter
else:

    class _StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """In pyspark 4.0, whose workers pass Arrow batches to every writer of the second class.

        Its rows would have local times, of which an hour comes twice when the clocks go back.
        """


class StreamWriter(ArrowTask, StreamCommits, _StreamArrowWriter):
    """Writer of a streaming query."""


def _results(messages: Commits) -> list[TransactionResult]:
    return [each.result for each in messages if isinstance(each, TaskCommit) and each.result is not None]


def _total(messages: Commits) -> str:
    commits = [message for message in messages if isinstance(message, TaskCommit)]
    records, size = sum(commit.records for commit in commits), sum(commit.bytes for commit in commits)
    return f"{len(commits)} of {len(messages)} tasks finished, with {records} records of {size} bytes"
