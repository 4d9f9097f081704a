"""Reduces DataFrames to the columns that make records.

Spark passes every column of a DataFrame to a sink written in Python, does not ask which of them it writes, and refuses
duplicate names. Spark's own sinks, such as ``kafka``, select their columns.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import AtomicType, DataType, NullType

from shmaccum.errors import ConfigError, SerializationError
from shmaccum.spark.schema import COLUMN_TYPES, TIMESTAMP_TYPES, check_timestamp_column, warn_of_timestamp, wrong_type
from shmaccum.spark.session import activate

_CASTS: Final[Mapping[str, tuple[str, ...]]] = {
    "partition": ("tinyint", "smallint", "bigint"),
    "headers": ("array<struct<key:string,value:string>>",),
}
"""Column -> types that are cast to the first one of `COLUMN_TYPES`. Every atomic type is cast to text."""
_TIMESTAMP_CASTS: Final = ("timestamp_ntz", "date")
"""Types that are cast to the first one of `TIMESTAMP_TYPES`."""


def kafka_columns(frame: DataFrame, timestamp_column: str | None = None) -> DataFrame:
    """Return a DataFrame with only the columns that are written, cast to types that can be written.

    ``kafka_columns(df).write`` and ``kafka_columns(df).writeStream`` write the same records as ``df.write``, but Spark
    does not carry the other columns to its Python workers. A key, value or topic of another atomic type (a number, a
    date) becomes text, as by ``CAST(key AS STRING)``; ``partition`` an int; ``timestamp_column`` a timestamp.
    ``headers`` can have text for values.

    Args:
        frame: batch or streaming.
        timestamp_column: the option ``timestampColumn`` of the write, if it has one.

    Raises:
        SerializationError: there is no column ``value`` or ``timestamp_column``, a column name occurs twice, or a
            column cannot be cast.
    """
    kinds: dict[str, DataType] = {}
    for field in frame.schema.fields:
        if field.name in COLUMN_TYPES or field.name == timestamp_column:
            if field.name in kinds:
                raise SerializationError(f"column {field.name!r} occurs twice: drop or rename one of the two")
            kinds[field.name] = field.dataType
    if "value" not in kinds:
        raise SerializationError(f"required column 'value' not found; the columns are: {', '.join(frame.columns)}")
    if timestamp_column is None:
        warn_of_timestamp(frame.schema)
    else:
        check_timestamp_column(timestamp_column, frame.columns)
    frame = _unambiguous(frame, kinds)
    # Quoted: event.time would be the field time of a struct event.
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in kinds}
    return frame.select(*(_cast(frame[quoted[name]], name, kind, timestamp_column) for name, kind in kinds.items()))


def to_kafka(frame: DataFrame, options: Mapping[str, str]) -> None:
    """Write a batch DataFrame, reduced by `kafka_columns`, in mode append, from any thread.

    Args:
        frame: batch; for a stream, use ``kafka_columns(frame).writeStream``.
        options: of the data source, such as ``{"kafka.bootstrap.servers": "broker1:9092", "topic": "flights"}``.

    Raises:
        ConfigError: the DataFrame is a stream.
        SerializationError: as `kafka_columns`.
        pyspark.errors.PySparkException: as ``DataFrameWriter.save``.
    """
    if frame.isStreaming:
        raise ConfigError("to_kafka writes batches; for a stream, use kafka_columns(df).writeStream.format('shmaccum')")
    activate(frame.sparkSession)
    timestamp_column = next((value for name, value in options.items() if name.lower() == "timestampcolumn"), None)
    narrow = kafka_columns(frame, timestamp_column)
    narrow.write.format("shmaccum").mode("append").options(**options).save()


def _unambiguous(frame: DataFrame, taken: Container[str]) -> DataFrame:
    """Rename columns that Spark, which ignores case, takes for one of ``taken``: ``VALUE`` beside ``value``."""
    names = frame.columns
    folded = {name.lower() for name in names if name in taken}
    renamed = [
        f"{name} {number}" if name not in taken and name.lower() in folded else name
        for number, name in enumerate(names)
    ]
    return frame if renamed == names else frame.toDF(*renamed)


def _cast(column: Column, name: str, kind: DataType, timestamp_column: str | None) -> Column:
    is_timestamp = name == timestamp_column
    allowed = TIMESTAMP_TYPES if is_timestamp else COLUMN_TYPES[name]
    spark_type = kind.simpleString()
    if spark_type in allowed:
        return column
    if "string" in allowed and isinstance(kind, AtomicType | NullType):
        return column.cast("string").alias(name)
    if spark_type in (_TIMESTAMP_CASTS if is_timestamp else _CASTS.get(name, ())):
        return column.cast(allowed[0]).alias(name)
    raise wrong_type(name, spark_type, allowed)
