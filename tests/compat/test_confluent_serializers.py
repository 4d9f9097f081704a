"""confluent-kafka's own serializers, unchanged: simple ones, and those with a schema registry, which is its mock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.error import KeySerializationError, ValueSerializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import (
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    MessageField,
    SerializationContext,
    StringDeserializer,
    StringSerializer,
)
from fixture_types import Make
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shmaccum.compat.confluent import SerializingProducer

USER = {"name": "Ada", "favorite_number": 7}
AVRO_FIELDS = [{"name": "name", "type": "string"}, {"name": "favorite_number", "type": "long"}]
AVRO = json.dumps({"type": "record", "name": "User", "fields": AVRO_FIELDS})
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "User",
        "type": "object",
        "properties": {"name": {"type": "string"}, "favorite_number": {"type": "number", "exclusiveMinimum": 0}},
        "required": ["name", "favorite_number"],
    }
)


def user_message() -> Any:
    """Return the class of a message, as protoc's modules have it."""
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", package="tests", syntax="proto3")
    message = file.message_type.add(name="User")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="favorite_number", number=2, type=3, label=1)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.User"))


User = user_message()


@pytest.fixture
def registry(topic: str) -> SchemaRegistryClient:
    """Return a client of confluent-kafka's own stand-in for a registry."""
    return SchemaRegistryClient.new_client({"url": f"mock://{topic}"})


CASES: dict[str, tuple[Any, Any, Any]] = {
    "avro": (lambda registry: AvroSerializer(registry, AVRO), lambda registry: AvroDeserializer(registry, AVRO), USER),
    "json": (
        lambda registry: JSONSerializer(JSON_SCHEMA, registry),
        lambda registry: JSONDeserializer(JSON_SCHEMA, schema_registry_client=registry),
        USER,
    ),
    "protobuf": (
        lambda registry: ProtobufSerializer(User, registry, {"use.deprecated.format": False}),
        lambda registry: ProtobufDeserializer(User, {"use.deprecated.format": False}, registry),
        User(**USER),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_serializer_with_a_registry_is_called_by_the_program_or_a_setting(
    existing: str, stored: Make, confluent: Make, registry: Any, name: str
) -> None:
    """By the program, as confluent-kafka's avro_producer.py, json_producer.py and protobuf_producer.py do."""
    make, read, value = CASES[name]
    serialize, key, producer = make(registry), StringSerializer("utf_8"), confluent()
    context = SerializationContext(existing, MessageField.VALUE)
    reports: list[Any] = []
    producer.produce(
        topic=existing,
        key=key("key"),
        value=serialize(value, context),
        partition=0,
        on_delivery=lambda error, message: reports.append((error, message.key())),
    )
    assert (producer.flush(), reports) == (0, [(None, b"key")])
    own = {"key.serializer": StringSerializer(), "value.serializer": make(registry)}
    producer = confluent(own, SerializingProducer)
    producer.produce(existing, key="key", value=value, partition=0)
    assert producer.flush() == 0
    for record in stored(existing)[0]:
        assert (record.key(), read(registry)(record.value(), context)) == (b"key", value)


def test_simple_serializers(existing: str, stored: Make, confluent: Make) -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (DoubleSerializer(), DoubleDeserializer(), 6.21682154508147),
        (IntegerSerializer(), IntegerDeserializer(), 4124),
        (StringSerializer("utf_8"), StringDeserializer("utf_8"), "Jämtland"),
        (StringSerializer("utf_16"), StringDeserializer("utf_16"), "Härjedalen"),
        (DoubleSerializer(), DoubleDeserializer(), None),
        (IntegerSerializer(), IntegerDeserializer(), None),
        (StringSerializer("utf_32"), StringDeserializer("utf_32"), None),
    ]
    for serializer, _, value in cases:
        own = {"key.serializer": serializer, "value.serializer": serializer}
        producer = confluent(own, SerializingProducer)
        producer.produce(existing, key=value, value=value, partition=0)
        assert producer.flush() == 0
    for (_, deserializer, value), record in zip(cases, stored(existing)[0], strict=True):
        assert (deserializer(record.key()), deserializer(record.value())) == (value, value)


def test_key_and_value_have_serializers_of_their_own(existing: str, stored: Make, confluent: Make) -> None:
    seen: list[Any] = []

    def serialize(value: Any, context: Any) -> bytes:
        seen.append((context.topic, context.field, context.headers))
        return str(value).encode()

    headers = [("name", b"value")]
    own = {"key.serializer": DoubleSerializer(), "value.serializer": serialize}
    producer = confluent(own, SerializingProducer[float, int])
    producer.produce(existing, key=-31.2, value=5, partition=0, headers=headers)
    producer.produce_batch(existing, [{"value": b"bytes"}], partition=0)
    producer.flush()
    first, second = stored(existing)[0]
    assert (DoubleDeserializer()(first.key()), first.value(), second.value()) == (-31.2, b"5", b"bytes")
    assert seen == [(existing, MessageField.VALUE, headers)]


def test_a_serializers_error_names_the_field(confluent: Make) -> None:
    own = {"bootstrap.servers": "127.0.0.1:1", "key.serializer": IntegerSerializer(), "value.serializer": None}
    producer = confluent(own, SerializingProducer)
    with pytest.raises(KeySerializationError, match="required argument is not an integer"):
        producer.produce("t", key="text", value=b"value")
    other = confluent({"bootstrap.servers": "127.0.0.1:1", "value.serializer": DoubleSerializer()}, SerializingProducer)
    with pytest.raises(ValueSerializationError):
        other.produce("t", value="text")
    with pytest.raises(TypeError, match="topic must be a str"):
        other.produce(5, value=1.0)
    assert len(producer) == len(other) == 0


class Builder:
    """A serializer's builder that takes a setting of its own."""

    def __init__(self) -> None:
        self.closed = False

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        assert conf.pop("own.setting") == "own"
        self.is_key = is_key
        return self, conf

    def __call__(self, value: Any, context: Any) -> bytes:
        return f"built {value}".encode()

    def close(self) -> None:
        self.closed = True


def test_a_builder_makes_a_serializer_that_the_producer_closes(existing: str, values: Make, confluent: Make) -> None:
    builder = Builder()
    own = {"value.serializer.builder": builder, "own.setting": "own"}
    with confluent(own, SerializingProducer) as producer:
        producer.produce(existing, value=5, partition=0)
    assert (builder.is_key, builder.closed) == (False, True)
    assert values(existing) == [b"built 5"]
    with pytest.raises(ValueError, match="Cannot configure both"):
        SerializingProducer({"value.serializer": str.encode, "value.serializer.builder": builder})
