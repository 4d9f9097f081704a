"""What a task of a write is told, and what it tells: made on the driver, pickled to the executors, and back.

The processes of the driver that plan and commit a job need nothing else, and may be new for every job: Spark ends them
when they have been idle for a minute. So this imports neither pyarrow nor the producer: an executor does,
when its first task begins.
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


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task tells the driver: how much it wrote, all of it acknowledged.

    Attributes:
        records: rows.
        bytes: of their keys and values.
    """

    records: int
    bytes: int


@dataclass(frozen=True)
class WriteTask:
    """What all tasks of a write have in common; made on the driver and pickled to the executors.

    Attributes:
        config: of the producer.
        topic: where all rows go, or None: the column ``topic`` says it.
        columns: the columns that make records, with their types as Spark writes them.
    """

    config: ProducerConfig
    topic: str | None
    columns: Mapping[str, str]

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        """Send the rows of one task, and wait until they are acknowledged.

        Args:
            batches: with the columns of `columns`, and any others.

        Raises:
            SerializationError: a topic is null.
            KafkaError: why a row was not taken, or was given up; says how many the latter are.
            SlabError, SenderError: the slab cannot be used, or the sender not be started.
        """
        from shmaccum.spark.delivery import deliver

        try:
            records, size = deliver(batches, self.config, self.topic, self.columns)
        except ShmaccumError as error:
            from shmaccum.spark.options import with_options_named

            raise with_options_named(error) from error.__cause__
        return TaskCommit(records, size)
