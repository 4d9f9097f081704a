"""Checks a DataFrame's columns on the driver, before any task runs.

The columns and types are those of Spark's own Kafka sink (``org.apache.spark.sql.kafka010.KafkaWriter``), and
``timestamp``. As there, a column of any other name is ignored.
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

_TEXT_OR_BYTES: Final = ("string", "binary")

COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp", "bigint"),
}
"""Column -> allowed types, as Spark writes them."""


def record_columns(schema: StructType, *, topic_given: bool) -> dict[str, str]:
    """Return the columns that make records, with their types, in the order of `COLUMN_TYPES`.

    Args:
        schema: of the DataFrame.
        topic_given: whether the option ``topic`` is set; it holds for all rows, and a column ``topic`` is ignored.

    Raises:
        SerializationError: there is no column ``value``, two columns have one name, or a column's type is not allowed.
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
    if topic_given:
        there.pop("topic", None)
    elif "topic" not in there:
        raise ConfigError(
            "option topic is required without a column 'topic'. A table's own OPTIONS do not reach it: "
            "give it to the statement, INSERT INTO t WITH ('topic' = '...') SELECT ..."
        )
    written = {name: there[name] for name in COLUMN_TYPES if name in there}
    for name, spark_type in written.items():
        if spark_type not in COLUMN_TYPES[name]:
            raise wrong_type(name, spark_type)
    return written


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


def wrong_type(column: str, spark_type: str) -> SerializationError:
    """Return the error for a column of an unsupported type, with the cast that helps."""
    allowed = COLUMN_TYPES[column]
    if spark_type.startswith(("struct", "array", "map", "variant")):
        advice = f"convert it with to_json({column})" if "string" in allowed else "build it of that type"
    else:
        name = "STRING" if "string" in allowed else allowed[0].upper()
        advice = f"use CAST({column} AS {name})"
    return SerializationError(
        f"column {column!r} is of unsupported type {spark_type}; it must be {' or '.join(allowed)}: {advice}"
    )
