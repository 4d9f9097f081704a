from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from batches import make_batch
from logfiles import read_log

from shmaccum._core import ProduceBatch
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import record_format
from shmaccum.sender.log.segments import PRODUCERS_KEPT, LogEnd, RecentBatches, StoredBatch, recover, segment_path

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


def test_a_partition_without_segments_gets_its_first(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").touch()
    assert where(recover(tmp_path, idempotent=True)) == (0, 0, 0)
    assert segment_path(tmp_path, 0).read_bytes() == b""


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


def test_batches_of_a_producer_that_others_followed_are_known(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, *numbered(range(2)))
    write_segment(tmp_path, 2, at(2, make_batch([b"x"], producer_id=8, sequence=0)))
    end = recover(tmp_path, idempotent=True)
    assert found(end, range(2)) == [0, 1]
    assert end.producers.find(8, 0, 0, 1) == 2


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
