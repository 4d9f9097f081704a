from __future__ import annotations

import tracemalloc
from pathlib import Path

from batches import make_batch

from shmaccum.sender.log.segments import SegmentReader, list_segments, segment_path


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
