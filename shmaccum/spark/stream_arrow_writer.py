"""Writer of a streaming query that gets Arrow batches; needs pyspark 4.1's base class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from shmaccum.spark.task import TaskCommit, WriteTask
from shmaccum.spark.writers import StreamCommits

if TYPE_CHECKING:
    import pyarrow as pa


class StreamArrowWriter(StreamCommits, DataSourceStreamArrowWriter):
    """Writer of a streaming query."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one task, on an executor (`WriteTask.write`)."""
        return self._task.write(iterator)
