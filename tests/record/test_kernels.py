"""The kernels in C give the bytes of their plain counterparts: both in one process, over the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_modules import plain
from record_batches import blobs, examples, header_lists

import shmaccum
from shmaccum.record.v2 import records

pytestmark = pytest.mark.skipif(not shmaccum.compiled, reason="the plain form has no kernels to compare with")

_PAIRS = (records,)
_NAMES = [module.__name__ for module in _PAIRS]
PLAIN = dict(zip(_NAMES, plain(*_NAMES), strict=True)) if shmaccum.compiled else {}

longs = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**31 - 1)


def in_both(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function and its plain counterpart; return what both return."""
    found = function(*arguments, **named)
    assert getattr(PLAIN[function.__module__], function.__name__)(*arguments, **named) == found
    return found


def test_the_counterparts_are_plain() -> None:
    assert not PLAIN["shmaccum.record.v2.records"].COMPILED
    assert {str(module.__file__).rpartition(".")[2] for module in PLAIN.values()} == {"py"}
    assert records.COMPILED


@examples
@given(st.none() | blobs, st.none() | blobs, header_lists, counts, longs)
def test_a_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], offset: int, delta: int
) -> None:
    body = in_both(records.encode_body, key, value, headers)
    record = in_both(records.encode_record, offset, delta, 0, body)
    assert in_both(records.record_size, offset, delta, len(body)) == len(record)


@examples
@given(
    section=st.binary(max_size=300),
    more=st.lists(st.binary(max_size=50), max_size=2),
    attributes=st.integers(0, 2**15 - 1),
    record_count=st.integers(1, 2**31 - 1),
    times=st.tuples(longs, longs),
    producer=st.tuples(longs, st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
)
def test_the_header_of_a_batch(
    section: bytes, more: list[bytes], attributes: int, record_count: int, times: tuple, producer: tuple
) -> None:
    written = []
    for module in (records, PLAIN[records.__name__]):
        buffer = memoryview(bytearray(records.HEADER_SIZE) + section + b"behind")
        size = records.HEADER_SIZE + len(section)
        module.write_header(buffer, size, attributes, record_count, *times, *producer, tuple(map(memoryview, more)))
        written.append(bytes(buffer))
    assert written[0] == written[1]
