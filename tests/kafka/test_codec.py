"""The codec, beside kafka-python's classes: every message, in every version that we use, byte for byte."""

from __future__ import annotations

import tracemalloc
import uuid
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum.errors import NetworkError
from shmaccum.kafka import messages
from shmaccum.kafka.codec import decode, encode
from shmaccum.kafka.messages import API_VERSIONS, FETCH, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from shmaccum.kafka.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    STRUCT,
    UUID,
    ApiMessageType,
    Field,
)

THEIR_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
TYPES = [each for each in vars(messages).values() if isinstance(each, ApiMessageType)]
VERSIONS = [(kind, version) for kind in TYPES for version in range(kind.api.oldest, kind.api.newest + 1)]
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT8: st.integers(-(1 << 7), (1 << 7) - 1),
    INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    UUID: st.integers(0, (1 << 128) - 1),
    STRING: st.text(max_size=150),
    BYTES: st.binary(max_size=150),
}
NAMED_OTHERWISE = ("topic_authorized_operations", "cluster_authorized_operations")
FEW = settings(max_examples=5)
every_version = pytest.mark.parametrize(
    ("kind", "version"), VERSIONS, ids=[f"{kind.api.name}-{version}" for kind, version in VERSIONS]
)


def exists(field: Field, version: int) -> bool:
    return field.since <= version <= field.until


def structs(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return values of all fields that a version has, but for the two that kafka-python gives other names."""
    there = [each for each in fields if exists(each, version) and each.name not in NAMED_OTHERWISE]
    return st.fixed_dictionaries({each.name: values(each, version) for each in there})


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any] = structs(field.fields, version) if field.kind is STRUCT else SCALARS[field.kind]
    if field.is_array:
        found = st.lists(found, max_size=3)
    return found | st.none() if version >= field.nullable_since else found


@cache  # making a strategy takes longer than drawing from it
def messages_of(name: str, part: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return values of a kind's requests or responses, which ``part`` is."""
    return structs(getattr(next(kind for kind in TYPES if kind.api.name == name), part), version)


def theirs(name: str) -> Any:
    """Return kafka-python's class of a message."""
    return next(getattr(module, name) for module in THEIR_MODULES if hasattr(module, name))


def their_struct(cls: Any, fields: tuple[Field, ...], given: dict[str, Any], version: int) -> Any:
    """Return kafka-python's object with these values."""
    converted = {}
    for field in fields:
        value = given.get(field.name)
        if field.name not in given:
            continue
        if value is not None and field.kind is STRUCT:
            of_field = cls._struct.fields[field.name].data_class
            if field.is_array:
                value = [their_struct(of_field, field.fields, each, version) for each in value]
            else:
                value = their_struct(of_field, field.fields, value, version)
        elif field.kind is UUID:
            value = uuid.UUID(int=value)
        converted[field.name] = value
    return cls(version=version, **converted)


def their_response(kind: ApiMessageType, version: int, given: dict[str, Any]) -> bytes:
    """Return a response's frame without its size, as kafka-python encodes it."""
    response = their_struct(theirs(f"{kind.api.name}Response"), kind.response, given, version)
    response.with_header(correlation_id=7)
    return bytes(response.encode(header=True))


def plain(value: Any) -> Any:
    """Return what was decoded as dicts and lists."""
    if isinstance(value, SimpleNamespace):
        return {name: plain(each) for name, each in vars(value).items()}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def completed(fields: tuple[Field, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return values with the defaults of all fields that are not given."""
    found: dict[str, Any] = {}
    for field in fields:
        value = given.get(field.name, field.default)
        if value is not None and field.kind is STRUCT:
            complete = [completed(field.fields, each) for each in (value if field.is_array else [value])]
            value = complete if field.is_array else complete[0]
        found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


@every_version
@FEW
@given(data=st.data())
def test_requests_are_kafka_pythons_byte_for_byte(kind: ApiMessageType, version: int, data: st.DataObject) -> None:
    given = data.draw(messages_of(kind.api.name, "request", version))
    request = their_struct(theirs(f"{kind.api.name}Request"), kind.request, given, version)
    request.with_header(correlation_id=7, client_id="client")
    assert encode(kind.of(**given), version, 7, "client") == bytes(request.encode(framed=True, header=True))


@every_version
@FEW
@given(data=st.data())
def test_responses_of_kafka_python_are_read_and_damaged_ones_refused(
    kind: ApiMessageType, version: int, data: st.DataObject
) -> None:
    """Of one that is cut nothing is read. Where bytes of it are others, nothing but a NetworkError comes of it."""
    given = data.draw(messages_of(kind.api.name, "response", version))
    frame = their_response(kind, version, given)
    assert plain(decode(kind, version, frame)) == completed(kind.response, given)
    end = data.draw(st.integers(0, len(frame) - 1))
    said = f"an answer of {end} bytes is no {kind.api.name} response of version {version}"
    with pytest.raises(NetworkError, match=said):
        decode(kind, version, frame[:end])
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFE, 0xFF)))
    with suppress(NetworkError):
        decode(kind, version, bytes(changed))


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\x00\x0f\xff\xff"])
@pytest.mark.parametrize(
    ("kind", "version", "head"),
    [(FETCH, 7, bytes(14)), (SASL_AUTHENTICATE, 0, bytes(6) + b"\xff\xff"), (SASL_HANDSHAKE, 1, bytes(6))],
    ids=["structs", "bytes", "texts"],
)
def test_a_length_takes_no_memory_before_it_is_checked(
    kind: ApiMessageType, version: int, head: bytes, length: bytes
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NetworkError, match="are announced, and 0 are left"):
            decode(kind, version, head + length)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (b"\xff\xff\xff\xfe", "mechanisms has length -2"),
        (b"\xff\xff\xff\xff", "mechanisms is null"),
        (b"\0\0\0\1\xff\xff", "mechanisms is null"),  # an element
    ],
)
def test_a_length_that_cannot_be_is_refused(length: bytes, said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        decode(SASL_HANDSHAKE, 1, bytes(6) + length)


def test_elements_without_their_tagged_fields_are_read() -> None:
    """What a length is compared with counts none of those."""
    partitions = [{"index": number, "error_code": 0, "base_offset": 0} for number in range(50)]
    given = {"responses": [{"name": "t", "partition_responses": partitions}], "throttle_time_ms": 0}
    found = decode(PRODUCE, 10, their_response(PRODUCE, 10, given))
    assert len(found.responses[0].partition_responses) == 50


def test_unknown_tagged_fields_are_skipped() -> None:
    given = {"error_code": 0, "api_keys": [{"api_key": 1, "min_version": 2, "max_version": 3}], "throttle_time_ms": 9}
    frame = their_response(API_VERSIONS, 3, given)
    assert frame.endswith(b"\0")
    found = decode(API_VERSIONS, 3, frame[:-1] + b"\x02\x63\x03abc\xe3\x07\x00")
    assert plain(found) == plain(decode(API_VERSIONS, 3, frame))


def test_a_tagged_field_of_another_size_is_refused() -> None:
    frame = their_response(API_VERSIONS, 3, {"error_code": 0, "api_keys": [], "throttle_time_ms": 9})
    with pytest.raises(NetworkError, match="finalized_features_epoch has 8 bytes, not 9"):
        decode(API_VERSIONS, 3, frame[:-1] + b"\x01\x01\x09" + bytes(9))


@pytest.mark.parametrize(
    ("kind", "version", "given", "said"),
    [
        (METADATA, 12, {"topcis": []}, "there is no field topcis"),
        (METADATA, 12, {"topics": [{"nmae": "t"}]}, "there is no field nmae"),
        (METADATA, 0, {"topics": None}, "topics cannot be null in version 0"),
        (PRODUCE, 8, {"acks": 1 << 15}, "a Produce request has a value out of range"),
        (PRODUCE, 8, {"transactional_id": "x" * 40_000}, "a Produce request has a value out of range"),
    ],
)
def test_a_request_that_cannot_be_is_refused(
    kind: ApiMessageType, version: int, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        encode(kind.of(**given), version, 1, "client")
