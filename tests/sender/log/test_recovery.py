from __future__ import annotations

import itertools
import os
import tracemalloc
from pathlib import Path

import pytest
from batches import make_batch
from logfiles import read_log

from shmaccum._core import ProduceBatch
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import record_format
from shmaccum.sender.log.segments import (
    PRODUCERS_KEPT,
    LogEnd,
    RecentBatches,
    SegmentReader,
    StoredBatch,
    list_segments,
    recover,
    segment_path,
)

PRODUCER = 4711


def at(offset: int, batch: ProduceBatch) -> bytes:
    """The bytes of the batch as they are in a log."""
    record_format(batch.magic).set_base_offset(batch.payload[0], batch.record_count, offset)
    return bytes(batch.payload[0])


def write_segment(directory: Path, base_offset: int, *batches: bytes) -> Path:
    path = segment_path(directory, base_offset)
    path.write_bytes(b"".join(batches))
    return path


def where(end: LogEnd) -> tuple[int, int, int]:
    return end.base_offset, end.size, end.next_offset


def found(end: LogEnd, sequences: range) -> list[int | None]:
    return [end.producers.find(PRODUCER, 0, sequence, 1) for sequence in sequences]


def numbered(offsets: range, first: int = 0) -> list[bytes]:
    """One-record batches of a producer, whose sequence numbers are ``first`` less than the offsets."""
    return [at(i, make_batch([b"%d" % i], producer_id=PRODUCER, sequence=i - first)) for i in offsets]


def test_an_empty_last_segment_is_where_its_name_says(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, at(0, make_batch([b"a", b"b"])))
    write_segment(tmp_path, 100)
    assert where(recover(tmp_path, idempotent=True)) == (100, 0, 100)


def test_gaps_between_segments_and_within_them_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_segment(tmp_path, 5, at(5, make_batch([b"a"])))
    last = write_segment(tmp_path, 50, at(60, make_batch([b"b", b"c"])), at(70, make_batch([b"d", b"e"])))
    content = last.read_bytes()
    assert where(recover(tmp_path, idempotent=False)) == (50, len(content), 72)
    assert last.read_bytes() == content
    assert caplog.records == []


def test_a_partition_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        recover(tmp_path / "gone", idempotent=True)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("magic", "compression"),
    [(1, CompressionType.NONE), (1, CompressionType.GZIP), (2, CompressionType.NONE), (2, CompressionType.GZIP)],
)
def test_tail_torn_at_any_byte_is_truncated(tmp_path: Path, magic: int, compression: CompressionType) -> None:
    whole = at(0, make_batch([b"a", b"b"], magic=magic, compression=compression))
    last = at(2, make_batch([b"last" * 10], magic=magic, compression=compression))
    for kept in range(len(last)):
        path = write_segment(tmp_path, 0, whole, last[:kept])
        assert where(recover(tmp_path, idempotent=True)) == (0, len(whole), 2)
        assert path.read_bytes() == whole
    write_segment(tmp_path, 0, whole, last)
    assert where(recover(tmp_path, idempotent=True)) == (0, len(whole + last), 3)
    assert read_log(tmp_path) == [(0, b"a"), (1, b"b"), (2, b"last" * 10)]


def test_a_byte_flipped_anywhere_behind_the_base_offset_ends_the_log(tmp_path: Path) -> None:
    whole, last = at(0, make_batch([b"a"])), at(1, make_batch([b"b"], producer_id=PRODUCER, sequence=0))
    epoch_of_the_leader = range(12, 16)  # like the base offset outside the checksum, and without meaning here
    for flipped in sorted(set(range(8, len(last))) - set(epoch_of_the_leader)):
        damaged = bytearray(last)
        damaged[flipped] ^= 0x40
        path = write_segment(tmp_path, 0, whole, bytes(damaged))
        end = recover(tmp_path, idempotent=True)
        assert (where(end), found(end, range(1))) == ((0, len(whole), 1), [None]), f"byte {flipped}"
        assert path.read_bytes() == whole


@pytest.mark.parametrize("tail", [bytes(4096), b"\xff" * 4096, b"x"], ids=["zeros", "ones", "one byte"])
def test_what_a_crash_of_the_host_leaves_is_cut_off_with_a_warning(
    tmp_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    whole = at(0, make_batch([b"a"]))
    path = write_segment(tmp_path, 0, whole, tail)
    assert where(recover(tmp_path, idempotent=True)) == (0, len(whole), 1)
    assert path.read_bytes() == whole
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{path}: truncating {len(tail)} bytes from byte {len(whole)} on" in record.message


def test_a_whole_batch_of_the_past_behind_the_end_is_cut_off(tmp_path: Path) -> None:
    """A crash of the host can bring back blocks that the file had once held."""
    batches = numbered(range(3))
    write_segment(tmp_path, 0, *batches, batches[1])
    assert where(recover(tmp_path, idempotent=True)) == (0, len(b"".join(batches)), 3)
    write_segment(tmp_path, 10, batches[0])
    assert where(recover(tmp_path, idempotent=True)) == (10, 0, 10)


def test_only_the_last_segment_is_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batches = numbered(range(3))
    wrong_checksum = batches[0][:-1] + b"?"
    older = write_segment(tmp_path, 0, wrong_checksum, batches[1], b"\0" * 40)
    content = older.read_bytes()
    write_segment(tmp_path, 2, batches[2])
    end = recover(tmp_path, idempotent=True)
    assert older.read_bytes() == content
    assert found(end, range(3)) == [0, 1, 2]
    (record,) = caplog.records
    assert f"cannot be read: {older} is corrupt at byte " in record.message


def test_the_last_five_batches_of_a_producer_are_known_again(tmp_path: Path) -> None:
    write_segment(tmp_path, 100, *numbered(range(100, 107), first=100))
    end = recover(tmp_path, idempotent=True)
    assert found(end, range(7)) == [None, None, 102, 103, 104, 105, 106]


@pytest.mark.parametrize("splits", [(4,), (5,), (6,), (9,), (10,), (3, 6, 9), (5, 6, 7, 8, 9), (5, 8, 8, 10)])
def test_batches_before_the_last_segment_are_known_where_it_has_fewer_than_five(
    tmp_path: Path, splits: tuple[int, ...]
) -> None:
    batches = numbered(range(10))
    for start, stop in itertools.pairwise((0, *splits, 10)):
        write_segment(tmp_path, start, *batches[start:stop])
    assert found(recover(tmp_path, idempotent=True), range(5, 10)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("idempotent", "in_last"), [(False, 1), (True, 5)])
def test_no_older_segment_is_read_without_need(tmp_path: Path, idempotent: bool, in_last: int) -> None:
    os.mkfifo(segment_path(tmp_path, 0))  # to open it would wait for ever
    write_segment(tmp_path, 1, *numbered(range(1, 1 + in_last)))
    assert recover(tmp_path, idempotent=idempotent).next_offset == 1 + in_last


def test_the_producer_that_was_silent_longest_is_forgotten() -> None:
    kept = RecentBatches()
    for producer_id in [*range(PRODUCERS_KEPT), 0, PRODUCERS_KEPT]:
        kept.add(producer_id, StoredBatch(0, 0, 10, 1000))
    assert [kept.find(producer_id, 0, 0, 10) for producer_id in (0, 1, 2, PRODUCERS_KEPT)] == [1000, None, 1000, 1000]
    assert kept.find(2, 0, 0, 9) is None


# --- files ----------------------------------------------------------------------------------------


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
