"""Checks a DataFrame's columns on the driver, before any task runs.

The columns and types are those of Spark's own Kafka sink (``org.apache.spark.sql.kafka010.KafkaWriter``). As there, a
column of any other name is ignored. The option ``timestampColumn`` names one more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql.types import StructType

from shmaccum.errors import ConfigError, SerializationError

logger = logging.getLogger(__name__)

_SHOWN: Final = 5
"""Most columns that a warning names."""
_warned_of: set[tuple[str, ...]] = set()
_has_warned_of_timestamp = False

_TEXT_OR_BYTES: Final = ("string", "binary")

COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Column -> allowed types, as Spark writes them."""
TIMESTAMP_TYPES: Final = ("timestamp", "bigint")
"""Allowed types of the column that the option ``timestampColumn`` names."""


def record_columns(schema: StructType, *, topic_given: bool, timestamp_column: str | None = None) -> dict[str, str]:
    """Return the columns that make records, with their types, in the order of `COLUMN_TYPES`.

    Args:
        schema: of the DataFrame.
        topic_given: whether the option ``topic`` is set; it holds for all rows, and a column ``topic`` is ignored.
        timestamp_column: the option ``timestampColumn``; this column comes last.

    Raises:
        SerializationError: there is no column ``value`` or ``timestamp_column``, two columns have one name, or a
            column's type is not allowed.
        ConfigError: neither the option nor a column gives the topic.
    """
    names = [field.name for field in schema.fields]
    there = {field.name: field.dataType.simpleString() for field in schema.fields}
    if len(there) < len(names):
        twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
        raise SerializationError(
            f"columns of the same name: {twice}. Spark cannot pass these to a sink written in Python, even if it does "
            "not write them: select the written columns with shmaccum.spark.kafka_columns(df)"
        )
    if "value" not in there:
        raise SerializationError(f"required column 'value' not found; the columns are: {', '.join(there)}")
    written = {name: there[name] for name in COLUMN_TYPES if name in there}
    if topic_given:
        written.pop("topic", None)
    elif "topic" not in there:
        raise ConfigError(
            "option topic is required without a column 'topic'. A table's own OPTIONS do not reach it: "
            "give it to the statement, INSERT INTO t WITH ('topic' = '...') SELECT ..."
        )
    for name, spark_type in written.items():
        if spark_type not in COLUMN_TYPES[name]:
            raise wrong_type(name, spark_type, COLUMN_TYPES[name])
    if timestamp_column is not None:
        check_timestamp_column(timestamp_column, names)
        spark_type = there[timestamp_column]
        if spark_type not in TIMESTAMP_TYPES:
            raise wrong_type(timestamp_column, spark_type, TIMESTAMP_TYPES)
        written[timestamp_column] = spark_type
    return written


def check_timestamp_column(name: str, columns: Collection[str]) -> None:
    """Raise SerializationError if the option ``timestampColumn`` names no column."""
    if name not in columns:
        raise SerializationError(
            f"option timestampColumn = {name!r}: no such column; the columns are: {', '.join(columns)}"
        )


def warn_of_unused(schema: StructType, written: Collection[str]) -> None:
    """Log which columns Spark carries to its Python workers in vain; once in a process for the same columns."""
    unused = tuple(name for name in schema.fieldNames() if name not in written)
    if unused and unused not in _warned_of:
        _warned_of.add(unused)
        shown = ", ".join(unused[:_SHOWN]) + (", ..." if len(unused) > _SHOWN else "")
        logger.warning(
            "%d of %d columns are not written (%s), but Spark still carries them to its Python workers: select the "
            "others with shmaccum.spark.kafka_columns(df).",
            len(unused),
            len(schema.fields),
            shown,
        )


def warn_of_timestamp(schema: StructType) -> None:
    """Log that a column ``timestamp`` is ignored, once in a process.

    Without this, a job that needs the option does not notice that its records have other timestamps.
    """
    global _has_warned_of_timestamp
    if _has_warned_of_timestamp or "timestamp" not in schema.names:
        return
    if schema["timestamp"].dataType.simpleString() in TIMESTAMP_TYPES:
        _has_warned_of_timestamp = True
        logger.warning(
            "Column timestamp is ignored, as by Spark's own sink: records have their time of sending. The option "
            "timestampColumn = timestamp gives them the column's time, by which brokers also remove old records."
        )


def wrong_type(column: str, spark_type: str, allowed: tuple[str, ...]) -> SerializationError:
    """Return the error for a column of an unsupported type, with the cast that helps."""
    if spark_type.startswith(("struct", "array", "map", "variant")):
        advice = f"convert it with to_json({column})" if "string" in allowed else "build it of that type"
    else:
        name = "STRING" if "string" in allowed else allowed[0].upper()
        advice = f"use CAST({column} AS {name})"
    return SerializationError(
        f"column {column!r} is of unsupported type {spark_type}; it must be {' or '.join(allowed)}: {advice}"
    )
