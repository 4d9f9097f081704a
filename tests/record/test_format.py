from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import (
    COMBINATIONS,
    DECODERS,
    NOW,
    Case,
    Sample,
    cases,
    expected,
    fill,
    many_examples,
    samples,
    seal,
    stored,
)
from runs import run_python

from shmaccum.errors import ConfigError, IllegalStateError, UnsupportedForMessageFormatError
from shmaccum.record.compression import CompressionType, compress
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import message_format_magic, record_format

ONE = [Sample(b"key", b"value", [], NOW)]


@many_examples
@given(cases, st.integers(0, 2**40))
def test_independent_decoders_read_every_batch(case: Case, base_offset: int) -> None:
    (magic, compression), records = case
    log = stored(magic, records, compression, base_offset)
    for decode in DECODERS:
        assert decode(log) == expected(records, base_offset), decode.__name__


@pytest.mark.parametrize(("magic", "compression"), COMBINATIONS)
def test_a_log_of_several_batches_is_read(magic: int, compression: CompressionType) -> None:
    log = b"".join(stored(magic, ONE * 3, compression, base_offset) for base_offset in (10, 13, 16))
    for decode in DECODERS:
        assert [record.offset for record in decode(log)] == list(range(10, 19)), decode.__name__


@pytest.mark.parametrize(("magic", "compression"), COMBINATIONS)
def test_to_seal_again_gives_the_same_batch(magic: int, compression: CompressionType) -> None:
    fmt = record_format(magic)
    slot = fill(fmt, ONE * 5)
    records = bytes(slot[fmt.header_size :])
    producer = {"producer_id": 3, "producer_epoch": 1, "base_sequence": 8} if magic == 2 else {}
    first = seal(fmt, slot, ONE * 5, compression, **producer)
    as_sent = bytes(first)
    assert bytes(seal(fmt, slot, ONE * 5, compression, **producer)) == as_sent
    assert slot[fmt.header_size :] == records
    assert (first.obj is slot) == (compression is CompressionType.NONE)
    # The log transport may have set the offset before the sender died.
    fmt.set_base_offset(first, 5, 1000)
    again = seal(fmt, slot, ONE * 5, compression, **producer)
    fmt.set_base_offset(again, 5, 0)
    for decode in DECODERS:
        assert decode(bytes(again)) == expected(ONE * 5), decode.__name__


@many_examples
@given(st.sampled_from(CompressionType), samples(2))
def test_records_that_were_compressed_ahead(compression: CompressionType, records: list[Sample]) -> None:
    """Byte for byte what sealing makes of the uncompressed ones, and in place."""
    fmt = record_format(2)
    slot = fill(fmt, records)
    ahead = memoryview(slot[: fmt.header_size] + compress(compression, slot[fmt.header_size :], 2))
    sealed = seal(fmt, ahead, records, compression, 3, 1, 8, compressed=True)
    assert sealed.obj is ahead.obj
    assert sealed == seal(fmt, slot, records, compression, 3, 1, 8)


@many_examples
@given(cases, st.data())
def test_a_batch_whose_memory_is_not_adjacent(case: Case, data: st.DataObject) -> None:
    """The same bytes as in adjacent memory; format 2 leaves what it does not compress in place."""
    (magic, compression), records = case
    fmt = record_format(magic)
    slot = fill(fmt, records)
    where = st.integers(max(fmt.header_size, 1), len(slot))
    cuts = [0, *sorted(data.draw(st.lists(where, min_size=1, max_size=4), "cuts")), len(slot)]
    views = [memoryview(slot[begin:end]) for begin, end in pairwise(cuts)]
    sealed = seal(fmt, slot, records, compression)

    first = seal(fmt, views[0], records, compression, rest=tuple(views[1:]))

    in_place = magic == 2 and compression is CompressionType.NONE
    assert (first.obj is views[0].obj) == in_place
    assert b"".join((first, *(views[1:] if in_place else []))) == sealed
    assert b"".join(views)[fmt.header_size :] == slot[fmt.header_size :]


def test_old_formats_are_not_compressed_ahead() -> None:
    fmt = record_format(1)
    assert not fmt.compresses_ahead
    with pytest.raises(IllegalStateError, match="format 1 is compressed when it is sealed"):
        seal(fmt, fill(fmt, ONE), ONE, CompressionType.GZIP, compressed=True)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_record_never_takes_more_than_the_most_it_may(magic: int) -> None:
    fmt = record_format(magic)
    body = fmt.encode_body(None, b"x" * 2_000_000, [])
    for base_timestamp in (0, 2**62):
        record = fmt.encode_record(2**31 - 1, 2**62, base_timestamp, body)
        assert len(record) <= len(body) + fmt.record_overhead_max


@pytest.mark.parametrize("magic", [1, 2])
def test_an_empty_batch_is_not_sealed(magic: int) -> None:
    fmt = record_format(magic)
    with pytest.raises(IllegalStateError, match="0 records"):
        fmt.seal(memoryview(bytearray(fmt.header_size)), BatchFields(0, NOW, NOW), CompressionType.NONE)


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_a_set_of_messages_whose_offsets_do_not_increase_is_not_sealed(compression: CompressionType) -> None:
    fmt = record_format(1)
    with pytest.raises(IllegalStateError, match="offsets must increase"):
        seal(fmt, fill(fmt, ONE) * 2, ONE * 2, compression)


def test_old_formats_say_what_they_have_no_place_for() -> None:
    fmt = record_format(1)
    with pytest.raises(UnsupportedForMessageFormatError, match=r"headers.*message\.format\.version"):
        fmt.encode_body(None, None, [("name", None)])
    with pytest.raises(UnsupportedForMessageFormatError, match=r"producer id 7.*enable\.idempotence"):
        seal(fmt, fill(fmt, ONE), ONE, producer_id=7, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("magic", [-1, 0, 3])
def test_there_are_two_formats(magic: int) -> None:
    assert [record_format(known).magic for known in (1, 2)] == [1, 2]
    with pytest.raises(ConfigError, match=str(magic)):
        record_format(magic)


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        *[(version, 1) for version in ("v1", "0.10.0", "0.10.0-IV1", "0.10.2.1", "0.10.2-IV0")],
        *[(version, 2) for version in ("v2", "0.11.0", "0.11.0-IV2", "1.0", "2.8-IV1", "3.0-IV1", "3.9.0", "4.0")],
    ],
)
def test_a_version_of_kafka_names_a_format(version: str, magic: int) -> None:
    assert message_format_magic(version) == magic


@pytest.mark.parametrize("version", ["", "2", "v0", "v3", "0.7.0", "0.9.0.1", "0.12.0", "3.0-IV", "3.0 ", "latest"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"message\.format\.version"):
        message_format_magic(version)


def test_pyarrow_is_not_needed() -> None:
    script = """
import sys
import shmaccum.record.format
sys.exit("pyarrow" in sys.modules)
"""
    assert run_python("-c", script).returncode == 0
