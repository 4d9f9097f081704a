"""Bad input raises an error that names the problem, and leaves nothing in slab or log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixture_types import Produce, Settings
from producers import in_the_way

from shmaccum import Producer, errors
from shmaccum.shm.names import leftovers, segment_path

RELEASED = memoryview(b"")
RELEASED.release()

Case = tuple[dict[str, Any], type[errors.ShmaccumError], str]

CASES: dict[str, Case] = {
    "topic None": ({"topic": None}, errors.InvalidTopicError, "must be a str, not NoneType"),
    "topic bytes": ({"topic": b"t"}, errors.InvalidTopicError, "must be a str, not bytes"),
    "topic of several": ({"topic": ["t"]}, errors.InvalidTopicError, "must be a str, not list"),
    "on_delivery no function": ({"on_delivery": 5}, errors.IllegalArgumentError, "must be callable .*, not int: 5"),
    "topic empty": ({"topic": ""}, errors.InvalidTopicError, "must not be empty"),
    "topic dots": ({"topic": ".."}, errors.InvalidTopicError, "must not be empty, '.' or '..'"),
    "topic with a space": ({"topic": "a b"}, errors.InvalidTopicError, "only ASCII letters, digits"),
    "topic with a slash": ({"topic": "a/b"}, errors.InvalidTopicError, "only ASCII letters, digits"),
    "topic too long": ({"topic": "x" * 250}, errors.InvalidTopicError, "250 characters long; at most 249"),
    "value int": ({"value": 5}, errors.SerializationError, r"value must be .*not int; set value\.serializer"),
    "value released": (
        {"value": RELEASED},
        errors.SerializationError,
        "value: operation forbidden on released memoryview",
    ),
    "header released": (
        {"headers": [("n", RELEASED)]},
        errors.SerializationError,
        "header 'n': operation forbidden on rel",
    ),
    "key list": ({"key": [b""]}, errors.SerializationError, r"key must be .*not list; set key\.serializer"),
    "lone surrogate": ({"key": "\ud800"}, errors.SerializationError, "key .*not valid Unicode"),
    "headers text": ({"headers": "abc"}, errors.SerializationError, "headers must be pairs"),
    "headers of one": ({"headers": [("name",)]}, errors.SerializationError, "headers must be pairs"),
    "headers int": ({"headers": 5}, errors.SerializationError, "headers must be pairs"),
    "header name bytes": ({"headers": [(b"n", b"")]}, errors.SerializationError, "name must be a str, not bytes"),
    "header value int": ({"headers": [("n", 5)]}, errors.SerializationError, "header 'n' must be bytes-like or None"),
    "header value int in a dict": (
        {"headers": {"n": 5}},
        errors.SerializationError,
        "header 'n' must be bytes-like or None",
    ),
    "header name no Unicode": ({"headers": [("\ud800", b"")]}, errors.SerializationError, "is not valid Unicode"),
    "header value no Unicode": (
        {"headers": [("n", "\ud800")]},
        errors.SerializationError,
        "header 'n' is not valid Unicode",
    ),
    "partition text": ({"partition": "0"}, errors.SerializationError, "partition must be an int, not str"),
    "partition bool": ({"partition": True}, errors.SerializationError, "partition must be an int, not bool"),
    "partition negative": ({"partition": -1}, errors.IllegalArgumentError, "Invalid partition: -1"),
    "partition unknown": (
        {"partition": 3},
        errors.UnknownTopicOrPartitionError,
        "with partition count 3 does not exist",
    ),
    "timestamp text": ({"timestamp_ms": "now"}, errors.InvalidTimestampError, "must be an int.*not str"),
    "timestamp float": ({"timestamp_ms": 1.5}, errors.InvalidTimestampError, "must be an int.*not float"),
    "timestamp negative": ({"timestamp_ms": -1}, errors.InvalidTimestampError, "since 1970, not -1"),
    "timestamp too large": ({"timestamp_ms": 2**63}, errors.InvalidTimestampError, "9223372036854775808"),
    "record too large": ({"value": bytes(2000)}, errors.RecordTooLargeError, r"larger than 2000.*max\.request\.size"),
    "headers too large": ({"headers": [("n", bytes(1999))]}, errors.RecordTooLargeError, "larger than 2000"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_record_is_refused(join: Produce, case: str) -> None:
    changes, error, message = CASES[case]
    producer = join(max_request_size=2000)
    before = producer.metrics()["producer-metrics"]["record-append-total"]
    arguments: dict[str, Any] = {"topic": "t", "value": b"value"} | changes
    with pytest.raises(error, match=message):
        producer.send(**arguments)
    assert producer.metrics()["producer-metrics"]["record-append-total"] == before


def test_a_serializer_fails(join: Produce) -> None:
    """Its own error is the reason, and shows."""
    producer = join(value_serializer=int, key_serializer=str)
    with pytest.raises(
        errors.SerializationError, match=r"value\.serializer cannot serialize 'x': invalid literal"
    ) as caught:
        producer.send("t", "x")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(errors.SerializationError, match=r"cannot serialize \['x{58}: int\(\) argument"):
        producer.send("t", ["x" * 10_000])
    with pytest.raises(errors.SerializationError, match=r"^value\.serializer must return .*, not int$"):
        producer.send("t", "5")


def test_the_largest_record(join: Produce) -> None:
    """What just fits is taken: the limit is Kafka's upper bound of a record's size, not more."""
    largest = 2000 - 61 - 21 - 4  # a batch's header, most of a record's overhead, and the lengths in its body
    producer = join(max_request_size=2000)
    producer.send("t", bytes(largest))
    with pytest.raises(errors.RecordTooLargeError):
        producer.send("t", bytes(largest + 1))


def test_no_record_fits(join: Produce) -> None:
    """With a limit below a batch's header, every record is too large."""
    producer = join(max_request_size=10)
    with pytest.raises(errors.RecordTooLargeError, match=r"larger than 10, .*max\.request\.size"):
        producer.send("t", b"")
    with pytest.raises(errors.RecordTooLargeError, match=r"larger than 10, .*max\.request\.size"):
        producer.send_batch("t", pa.record_batch({"value": [b""]}))


def test_no_memory_in_time(produce: Produce, log_dir: Path) -> None:
    """The log cannot be written, and nothing becomes free; the rest of the time of ``max.block.ms`` is for memory."""
    produce(buffer_memory=32 << 10).partitions_for("t")
    producer = produce(buffer_memory=32 << 10, max_block_ms=300)
    with in_the_way(log_dir / "t-0"):
        for _ in range(2):
            producer.send("t", bytes(10_000), partition=0)
        with pytest.raises(errors.BufferExhaustedError, match=r"max blocking time.*Total memory: 32768 bytes"):
            producer.send("t", bytes(10_000), partition=0)
        assert producer.metrics()["producer-metrics"]["buffer-exhausted-total"] == 1
        assert producer.metrics()["producer-metrics"]["bufferpool-wait-ratio"] > 0
    producer.flush(20)


def test_headers_in_an_old_format(produce: Produce) -> None:
    producer = produce(message_format_version="0.10.2")
    with pytest.raises(errors.UnsupportedForMessageFormatError, match="has no headers"):
        producer.send("t", b"value", headers=[("name", b"value")])
    assert producer.send("t", b"value").get(10).offset == 0


def test_headers_that_lie_about_where_they_are(producer: Producer, topic: str) -> None:
    offsets = np.array([0, 1, 2], np.int32)
    entries = pa.array([{"key": "n", "value": b"v"}] * 2, pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.Array.from_buffers(pa.list_(entries.type), 2, [None, pa.py_buffer(offsets)], children=[entries])
    batch = pa.record_batch({"value": pa.array([b"1", b"2"], pa.binary()), "headers": headers})
    offsets[1] = 1 << 30
    with pytest.raises(errors.SerializationError, match="headers: "):
        producer.send_batch(topic, batch)
    offsets[1] = 1
    assert producer.send_batch(topic, batch).get(10).offsets.tolist() == [0, 1]


def test_the_tables_are_full(produce: Produce) -> None:
    producer = produce(shmaccum_max_topics=2, shmaccum_max_partitions=3, num_partitions=2)
    producer.partitions_for("t")
    with pytest.raises(errors.SlabFullError, match=r"the 2 partitions of topic 'u'.*shmaccum\.max\.partitions to 4"):
        producer.send("u", b"value")
    with pytest.raises(errors.SlabFullError, match=r"shmaccum\.max\.topics"):
        producer.send("v", b"value")
    assert producer.send("t", b"value").get(10).offset == 0


# --- settings -------------------------------------------------------------------------------------------


def test_a_log_directory_that_cannot_be_made(settings: Settings, slab_name: str, tmp_path: Path) -> None:
    """The sender finds it out, and the producer that started it says why."""
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(
        errors.SenderError, match=r"the sender did not start: KafkaStorageError: log\.dir .*Not a directory"
    ):
        Producer(settings() | {"log.dir": str(file / "log")})
    assert not os.path.exists(segment_path(slab_name))


def test_a_log_directory_of_another_slab(produce: Produce, settings: Settings, slab_name: str) -> None:
    produce()
    other = f"{slab_name}-other"
    with pytest.raises(errors.SenderError, match=r"SlabInUseError: log\.dir .* is in use by process \d+"):
        Producer(settings(shmaccum_name=other))
    assert not any(map(os.path.exists, leftovers(other)))


def test_another_password_than_the_slab_was_made_with(produce: Produce, settings: Settings) -> None:
    one = produce(sasl_username="alice", sasl_password="a password")
    with pytest.raises(errors.SlabAbiError, match="is in use with other passwords or keys") as refused:
        Producer(settings(sasl_username="alice", sasl_password="another password"))
    assert "a password" not in str(refused.value)
    assert "another password" not in str(refused.value)
    one.send("t", b"value").get(10)
