from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint as kafka_decode_varint
from kafka.record.util import encode_varint as kafka_encode_varint
from record_batches import examples

from shmaccum.errors import CorruptRecordError
from shmaccum.record.v2 import NULL, decode_varint, encode_varint, size_of_varint

EDGES = [sign * (1 << bits) + step for bits in range(63) for sign in (1, -1) for step in (-1, 0, 1)]
numbers = st.sampled_from([*EDGES, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1) | st.integers(-9000, 9000)


@examples
@given(numbers)
def test_a_number_is_encoded_as_kafka_python_does(n: int) -> None:
    theirs = bytearray()
    kafka_encode_varint(n, theirs.append)
    assert encode_varint(n) == bytes(theirs)
    assert kafka_decode_varint(encode_varint(n), 0) == (n, len(theirs))


def test_every_edge_comes_back_with_its_size() -> None:
    assert encode_varint(-1) == NULL
    for n in EDGES:
        encoded = encode_varint(n)
        assert size_of_varint(n) == len(encoded)
        assert decode_varint(b"\xff\xff" + encoded + b"\xff", 2) == (n, 2 + len(encoded))


@pytest.mark.parametrize("n", [2**63, -(2**63) - 1, 2**70])
def test_more_than_64_bits_are_refused(n: int) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        encode_varint(n)


@pytest.mark.parametrize("n", [64, 8192, 2**40, -(2**63)])
def test_a_number_cut_short_is_corrupt(n: int) -> None:
    encoded = encode_varint(n)
    for end in range(len(encoded)):
        with pytest.raises(CorruptRecordError, match="runs past the end"):
            decode_varint(encoded[:end], 0)


def test_an_overlong_number_is_corrupt_but_may_be_padded_as_the_java_client_allows() -> None:
    assert decode_varint(b"\x82\x80\x00", 0) == (1, 3)
    with pytest.raises(CorruptRecordError, match="longer than 10 bytes"):
        decode_varint(b"\x80" * 10 + b"\x00", 0)
    with pytest.raises(CorruptRecordError, match="does not fit"):
        decode_varint(b"\xff" * 9 + b"\x02", 0)
