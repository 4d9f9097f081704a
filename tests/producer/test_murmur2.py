"""The hash of keys is Kafka's murmur2."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from record_batches import examples

from shmaccum._core import murmur2
from shmaccum.producer.partitioner import partition_for_key

OF_KAFKAS_OWN_TEST = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_vectors_of_kafkas_own_test() -> None:
    assert {data: murmur2(data) for data in OF_KAFKAS_OWN_TEST} == OF_KAFKAS_OWN_TEST


@examples
@given(st.binary(max_size=40) | st.integers(250, 270).map(lambda size: bytes(range(90)) * 3 + bytes(size - 250)))
def test_kafka_python_agrees(data: bytes) -> None:
    theirs = kafka_python_murmur2(data)
    assert murmur2(data) & 0xFFFFFFFF == theirs & 0xFFFFFFFF
    assert -(2**31) <= murmur2(data) < 2**31
    assert partition_for_key(data, 7) == (theirs & 0x7FFFFFFF) % 7
