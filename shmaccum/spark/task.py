"""A task of a write and its result, which Spark pickles between driver and executors.

The driver's processes that plan and commit a job need nothing else. They can be new for every job, because Spark ends
them after a minute of idleness. So this module imports neither pyarrow nor the producer; an executor imports both when
its first task begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from shmaccum.config import ProducerConfig
from shmaccum.errors import ShmaccumError

if TYPE_CHECKING:
    import pyarrow as pa

    from shmaccum.spark.exactly_once import TaskPlan, TransactionResult


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
