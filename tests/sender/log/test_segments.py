from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from batches import make_batch

from shmaccum.errors import CorruptRecordError
from shmaccum.record.reader import Batch
from shmaccum.sender.log.segments import SegmentReader, base_offset_of, list_segments, segment_path


def test_names_are_kafkas(tmp_path: Path) -> None:
    path = segment_path(tmp_path, 368_769)
    assert path == tmp_path / "00000000000000368769.log"
    assert base_offset_of(path) == 368_769


def test_segments_are_listed_in_order_and_other_files_left_out(tmp_path: Path) -> None:
    wanted = [segment_path(tmp_path, offset) for offset in (0, 9, 10, 2**63 - 1)]
    for path in reversed(wanted):
        path.touch()
    for name in (
        "00000000000000000000.index",
        "00000000000000000000.log.deleted",
        "0.log",
        "09223372036854775808.log",
        "0000000000000000000\u0661.log",
        "leader-epoch-checkpoint",
    ):
        (tmp_path / name).touch()
    assert list_segments(tmp_path) == wanted


def test_list_segments_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list_segments(tmp_path / "gone")


@pytest.mark.parametrize("magic", [1, 2])
def test_a_reader_says_where_every_batch_is(tmp_path: Path, magic: int) -> None:
    parts = [b"".join(make_batch([value], magic=magic).payload) for value in (b"a", b"bb" * 1_000_000, b"ccc")]
    path = tmp_path / "segment"
    path.write_bytes(b"".join(parts))
    reader = SegmentReader(path)
    seen = [(reader.position, reader.end, batch.size, _first_byte(batch)) for batch in reader.batches()]
    first, second = len(parts[0]), len(parts[0] + parts[1])
    assert seen == [
        (0, first, first, b"a"),
        (first, second, len(parts[1]), b"b"),
        (second, reader.size, len(parts[2]), b"c"),
    ]


def _first_byte(batch: Batch) -> bytes | None:
    (record,) = batch.records()
    return record.value and record.value[:1]


def test_a_reader_stops_at_a_batch_that_is_cut_short_and_at_what_comes_later(tmp_path: Path) -> None:
    whole = b"".join(make_batch([b"whole"]).payload)
    path = tmp_path / "segment"
    path.write_bytes(whole + whole[:-1])
    reader = SegmentReader(path)
    with path.open("ab") as writer:
        writer.write(whole[-1:] + whole)
    assert [batch.position for batch in reader.batches()] == [0]
    assert (reader.end, reader.size) == (len(whole), 2 * len(whole) - 1)


def test_a_reader_stops_where_a_writer_cut_the_file_meanwhile(tmp_path: Path) -> None:
    whole = b"".join(make_batch([b"whole"]).payload)
    path = tmp_path / "segment"
    path.write_bytes(whole + whole)
    for kept in (len(whole) + 5, len(whole) + 20):
        reader = SegmentReader(path)
        with path.open("r+b") as writer:
            writer.truncate(kept)
        assert len(list(reader.batches())) == 1
        path.write_bytes(whole + whole)


def test_one_batch_is_in_memory_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"".join(make_batch([b"x" * 16_000] * 4).payload) * 400)
    tracemalloc.start()
    try:
        assert sum(batch.size for batch in SegmentReader(path).batches()) == path.stat().st_size > 25_000_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "reason"), [(-1, "size -1"), (0, "size 0"), (13, "size 13")])
def test_a_size_that_no_batch_has_is_corrupt(tmp_path: Path, size: int, reason: str) -> None:
    whole = b"".join(make_batch([b"whole"]).payload)
    path = tmp_path / "segment"
    path.write_bytes(whole + whole[:8] + size.to_bytes(4, "big", signed=True) + whole[12:])
    reader = SegmentReader(path)
    with pytest.raises(CorruptRecordError, match=rf"{path} is corrupt at byte {len(whole)}; .*{reason}"):
        list(reader.batches())
    assert reader.end == len(whole)


def test_a_wrong_checksum_is_corrupt_unless_it_is_not_asked_for(tmp_path: Path) -> None:
    whole = b"".join(make_batch([b"whole"]).payload)
    path = tmp_path / "segment"
    path.write_bytes(whole + whole[:-1] + b"?")
    with pytest.raises(CorruptRecordError, match=rf"at byte {len(whole)}; .*checksum"):
        list(SegmentReader(path).batches())
    assert len(list(SegmentReader(path).batches(check_crc=False))) == 2
