"""Writer of a streaming query that gets Arrow batches; needs pyspark 4.1's base class."""

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from shmaccum.spark.writers import ArrowTask, StreamCommits


class StreamArrowWriter(ArrowTask, StreamCommits, DataSourceStreamArrowWriter):
    """Writer of a streaming query."""
