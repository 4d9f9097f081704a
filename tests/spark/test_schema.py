from __future__ import annotations

import pytest
from pyspark.sql import types as kinds

from shmaccum.errors import SerializationError
from shmaccum.spark.schema import COLUMN_TYPES, record_columns


def schema(**columns: kinds.DataType) -> kinds.StructType:
    result = kinds.StructType()
    for name, kind in columns.items():
        result.add(name, kind)
    return result


def headers(value: kinds.DataType) -> kinds.DataType:
    return kinds.ArrayType(kinds.StructType().add("key", kinds.StringType()).add("value", value), containsNull=False)


TEXT, BYTES, INT, LONG = kinds.StringType(), kinds.BinaryType(), kinds.IntegerType(), kinds.LongType()


@pytest.mark.parametrize("timestamp", [kinds.TimestampType(), LONG, kinds.ArrayType(INT)])
def test_every_column_of_a_record_is_taken_and_others_are_ignored(timestamp: kinds.DataType) -> None:
    """One named timestamp, too, as by Spark's own sink: brokers remove records of an old time at once."""
    others = {"timestamp": timestamp, "other": kinds.MapType(INT, INT)}
    frame = schema(headers=headers(BYTES), partition=INT, key=BYTES, value=TEXT, topic=TEXT, **others)
    columns = record_columns(frame, topic_given=False)
    assert set(columns) == set(COLUMN_TYPES)
    assert columns["key"] == "binary"
    assert columns["value"] == "string"


@pytest.mark.parametrize("name", ["timestamp", "event_time"])
def test_the_named_column_gives_times_or_milliseconds(name: str) -> None:
    for kind, spark_type in ((LONG, "bigint"), (kinds.TimestampType(), "timestamp")):
        frame = schema(value=TEXT, other=LONG, **{name: kind})
        columns = record_columns(frame, topic_given=True, timestamp_column=name)
        assert columns == {"value": "string", name: spark_type}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (kinds.DateType(), "date; it must be timestamp or bigint: use CAST.event_time AS TIMESTAMP"),
        (kinds.TimestampNTZType(), "type timestamp_ntz"),
        (TEXT, "type string"),
        (INT, "type int"),
        (None, "option timestampColumn = 'event_time': no such column; the columns are: value"),
    ],
)
def test_a_named_column_that_gives_no_time_is_refused(kind: kinds.DataType | None, message: str) -> None:
    columns = {"value": TEXT} | ({} if kind is None else {"event_time": kind})
    with pytest.raises(SerializationError, match=message):
        record_columns(schema(**columns), topic_given=True, timestamp_column="event_time")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (schema(key=TEXT, topic=TEXT), "'value' not found; the columns are: key, topic"),
        (schema(Value=TEXT, topic=TEXT), "'value' not found; the columns are: Value, topic"),
        (schema(value=INT, topic=TEXT), "'value' is of unsupported type int; .* string or binary"),
        (schema(value=kinds.NullType(), topic=TEXT), "'value' is of unsupported type void"),
        (schema(key=LONG, value=TEXT, topic=TEXT), r"'key' is of .* bigint; .*: use CAST\(key AS STRING\)"),
        (schema(value=TEXT, topic=BYTES), "'topic' .* binary; it must be string: use CAST.topic AS STRING.$"),
        (schema(value=TEXT, topic=TEXT, partition=LONG), "'partition' .* bigint; it must be int: use CAST"),
        (schema(value=TEXT, topic=TEXT, headers=kinds.ArrayType(TEXT)), "'headers' .* array<string>"),
        (schema(value=TEXT, topic=TEXT, headers=headers(TEXT)), "array<struct<key:string,value:b"),
    ],
)
def test_what_is_missing_or_of_the_wrong_type_is_refused(columns: kinds.StructType, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        record_columns(columns, topic_given=False)
