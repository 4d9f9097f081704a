"""What columns a DataFrame must have to be written: checked on the driver, before any task runs.

The columns and types are those of Spark's own Kafka sink (``org.apache.spark.sql.kafka010.KafkaWriter``), and
``timestamp`` besides. Like there, a column of any other name is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from shmaccum.errors import ConfigError, SerializationError

_TEXT_OR_BYTES: Final = {"string": pa.string(), "binary": pa.binary()}

COLUMN_TYPES: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    "topic": {"string": pa.string()},
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "partition": {"int": pa.int32()},
    "headers": {
        "array<struct<key:string,value:binary>>": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    },
    "timestamp": {"timestamp": pa.timestamp("us", "UTC"), "bigint": pa.int64()},
}
"""Column -> the types that it may have, as Spark writes them, and the Arrow type of each."""


def record_columns(schema: StructType, *, topic_given: bool) -> dict[str, pa.DataType]:
    """Return the columns that make records, with their Arrow types, in the order of `COLUMN_TYPES`.

    Args:
        schema: of the DataFrame.
        topic_given: the option ``topic`` is set; it then stands for all rows, and a column ``topic`` is ignored.

    Raises:
        SerializationError: there is no column ``value``, or a column is of a type that it may not have.
        ConfigError: neither the option nor a column says the topic.
    """
    there = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in there:
        raise SerializationError(f"required column 'value' not found; the columns are: {', '.join(there)}")
    if topic_given:
        there.pop("topic", None)
    elif "topic" not in there:
        raise ConfigError("option topic is required when there is no column 'topic'")
    return {name: _arrow_type(name, there[name]) for name in COLUMN_TYPES if name in there}


def _arrow_type(column: str, spark_type: str) -> pa.DataType:
    allowed = COLUMN_TYPES[column]
    if spark_type not in allowed:
        raise SerializationError(
            f"column {column!r} is of unsupported type {spark_type}; it must be {' or '.join(allowed)}"
        )
    return allowed[spark_type]
