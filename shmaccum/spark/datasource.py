"""The Spark data source ``shmaccum``: the part that runs on the driver.

Options, columns and save modes are those of Spark's own Kafka sink (``KafkaSourceProvider``), so a job switches from
one to the other by the format's name. Errors that can be detected before a task runs are raised here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from shmaccum.cluster import check_topic
from shmaccum.errors import ConfigError
from shmaccum.spark import writers
from shmaccum.spark.continuous import FORMAT, refuse_at_start, refuse_at_trigger
from shmaccum.spark.exactly_once import ExactlyOnce
from shmaccum.spark.options import check_names, producer_config
from shmaccum.spark.schema import record_columns, warn_of_timestamp, warn_of_unused

_WRITES_ONLY: Final = (
    "format shmaccum only writes. Read a topic with format('kafka') of spark-sql-kafka-0-10. A table to write to needs "
    "its columns: CREATE TABLE t (key STRING, value STRING) USING shmaccum"
)


class ShmAccumDataSource(DataSource):
    """Writes DataFrames, batch and streaming, at least once or exactly once.

    Use it as ``df.write.format("shmaccum").mode("append")`` or ``df.writeStream.format("shmaccum")``.

    Options (names in any case; those of Spark's Kafka source and sink are ignored, unknown ones too, with a warning):

    * ``topic``: the topic of all rows, which overrides a column ``topic``.
    * ``timestampColumn``: the column that gives the records' timestamps (timestamp, or bigint milliseconds since the
      epoch); null, or without the option: the time of sending.
    * ``kafka.bootstrap.servers``: brokers to discover the cluster from, required.
    * ``kafka.*``: the producer's other settings (docs/configuration.md), except ``key.serializer``,
      ``value.serializer`` and ``interceptor.classes``. A relative path starts at the driver's directory, and must mean
      the same on every host.

    Columns (others are ignored):

    * ``value`` (string or binary), required; null is a tombstone.
    * ``key`` (string or binary); null or absent: the record has none.
    * ``topic`` (string), required without the option; then null is an error.
    * ``partition`` (int); null or absent: the producer chooses it, as Kafka's default partitioner does.
    * ``headers`` (array<struct<key: string, value: binary>>).

    The save mode is ``append``. Spark refuses ``ignore`` and ``errorifexists``, its default, for every data source
    written in Python; this one refuses ``overwrite``. A stream's output mode is ``append``, or ``complete``, of which
    every micro-batch is appended. Spark refuses ``update``; use ``foreachBatch`` instead.

    A task succeeds only when all its rows are acknowledged. If a task fails or a job is aborted, rows that are already
    acknowledged stay in Kafka, and a retry by Spark writes them a second time. With ``exactlyOnce`` they do not become
    visible to consumers with ``isolation.level=read_committed`` (docs/exactly-once.md):

    * ``exactlyOnce``: ``true`` makes a batch visible as a whole, and once. False by default.
    * ``txnAppId`` and ``txnVersion``: name of a batch job and number of its run; a run whose number was written, or a
      higher one, writes nothing. For a streaming query ``txnAppId`` takes the place of ``checkpointLocation``.
    * ``failOnDataLoss``: ``false`` continues where a batch was lost or is in doubt. True by default.
    * ``commitLogTopic``: the topic of the commit log; ``__shmaccum_commits`` by default.
    * ``kafka.transactional.id``: begins all transactional ids; ``shmaccum-spark`` by default.
    """

    _is_unpickled = False
    """Whether this is where Spark commits a micro-batch, not where it plans one: there it makes a new object."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._is_unpickled = True

    @classmethod
    def name(cls) -> str:
        """Return the format's name.

        Spark asks for it where the data source is registered, so pyspark there refuses a continuous trigger from then
        on.
        """
        refuse_at_trigger()
        return FORMAT

    def reader(self, schema: StructType | None = None) -> NoReturn:
        """Refuse to read, and to return a schema, by a ConfigError."""
        raise ConfigError(_WRITES_ONLY)

    schema = streamReader = reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch job.

        Raises:
            ConfigError: an option is wrong, or the mode is overwrite.
            InvalidTopicError: Kafka does not allow the topic of the option.
            SerializationError: the columns are wrong.
        """
        if overwrite:
            raise ConfigError("save mode overwrite is not supported: records stay in their topic; use append")
        return writers.BatchWriter(*self._task(schema, is_stream=False, is_planned=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query; ``overwrite``, output mode complete, appends too.

        Raises:
            ConfigError: as `writer`, or as `refuse_at_start`.
            InvalidTopicError, SerializationError: as `writer`.
        """
        is_planned = not self._is_unpickled
        if is_planned:
            refuse_at_start(self.options.get("checkpointLocation"))
        task, exactly_once = self._task(schema, is_stream=True, is_planned=is_planned)
        writer = writers.StreamWriter(task)
        writer.exactly_once = exactly_once
        return writer

    def _task(
        self, schema: StructType, *, is_stream: bool, is_planned: bool
    ) -> tuple[writers.WriteTask, ExactlyOnce | None]:
        task = write_task(self.options, schema)
        exactly_once = ExactlyOnce.of(_lower_case(self.options), is_stream=is_stream)
        if exactly_once is not None:
            plan = exactly_once.plan() if is_planned else None
            task = replace(task, config=exactly_once.config, plan=plan)
        return task, exactly_once


def _lower_case(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def write_task(options: Mapping[str, str], schema: StructType) -> writers.WriteTask:
    """Check a write completely, and return its task for the executors. Raises as `ShmAccumDataSource.writer`."""
    lower_case = _lower_case(options)
    check_names(lower_case)
    topic = lower_case.get("topic")
    if topic is not None:
        topic = check_topic(topic.strip())
    timestamp_column = lower_case.get("timestampcolumn")
    columns = record_columns(schema, topic_given=topic is not None, timestamp_column=timestamp_column)
    warn_of_unused(schema, columns)
    if timestamp_column is None:
        warn_of_timestamp(schema)
    return writers.WriteTask(producer_config(lower_case), topic, columns, timestamp_column=timestamp_column)
