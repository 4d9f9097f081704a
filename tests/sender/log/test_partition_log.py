from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from batches import make_batch
from logfiles import open_files, put_device, read_log

from shmaccum.errors import KafkaStorageError, UnsupportedForMessageFormatError
from shmaccum.record.format import record_format
from shmaccum.sender.log.files import OpenFiles
from shmaccum.sender.log.partition_log import LogConfig, PartitionLog
from shmaccum.sender.log.segments import segment_path

OpenLog = Callable[..., PartitionLog]

NEVER = 2**63 - 1


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[OpenLog]:
    """A function that returns the log in ``tmp_path`` as a new process sees it."""
    files = OpenFiles()

    def opened(segment_bytes: int = 1 << 20, flush_messages: int = NEVER, magic: int = 2) -> PartitionLog:
        return PartitionLog(tmp_path, LogConfig(segment_bytes, flush_messages, magic), files)

    yield opened
    files.close_all()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is synced: (name of the file or directory, its size if it is a file) for every fsync, which is done."""
    seen: list[tuple[str, int]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)
        seen.append((path.name, path.stat().st_size if path.is_file() else -1))

    monkeypatch.setattr(os, "fsync", watched)
    return seen


def sizes(directory: Path) -> dict[int, int]:
    """Base offset -> bytes, of all segments."""
    return {int(path.stem): path.stat().st_size for path in sorted(directory.glob("*.log"))}


# --- offsets and segments ------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_begins_a_segment(tmp_path: Path, open_log: OpenLog) -> None:
    size = make_batch([b"a"]).size
    log = open_log(segment_bytes=2 * size)
    for i in range(5):
        assert log.append(make_batch([b"%d" % i])) == i
    assert sizes(tmp_path) == {0: 2 * size, 2: 2 * size, 4: size}
    assert open_files(tmp_path) == ["00000000000000000004.log"]
    assert open_log(segment_bytes=2 * size - 1).append(make_batch([b"5"])) == 5
    assert sizes(tmp_path) == {0: 2 * size, 2: 2 * size, 4: size, 5: size}
    assert read_log(tmp_path) == [(i, b"%d" % i) for i in range(6)]


def test_offsets_in_a_segment_fit_four_bytes_of_an_index(tmp_path: Path, open_log: OpenLog) -> None:
    first = make_batch([b"a"])
    record_format(2).set_base_offset(first.payload[0], 1, 2**31 - 3)  # as compaction leaves it
    segment_path(tmp_path, 0).write_bytes(first.payload[0])
    log = open_log()
    assert log.append(make_batch([b"b", b"c"])) == 2**31 - 2
    assert list(sizes(tmp_path)) == [0]
    assert log.append(make_batch([b"d"])) == 2**31
    assert list(sizes(tmp_path)) == [0, 2**31]


def test_a_batch_of_another_format_is_refused(tmp_path: Path, open_log: OpenLog) -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match="format 1 cannot be appended to a log of format 2"):
        open_log().append(make_batch([b"a"], magic=1))
    assert sizes(tmp_path) == {}


# --- duplicates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"producer_id": 8}, {"epoch": 1}, {"sequence": 5}])
def test_a_batch_that_differs_in_its_identity_is_written(open_log: OpenLog, changed: dict[str, int]) -> None:
    identity = {"producer_id": 9, "sequence": 4, "epoch": 0}
    log = open_log()
    assert log.append(make_batch([b"a"], **identity)) == 0
    assert log.append(make_batch([b"a"], **(identity | changed))) == 1


# --- syncing -------------------------------------------------------------------------------------


def test_flush_messages_counts_records_since_the_last_flush(
    tmp_path: Path, open_log: OpenLog, synced: list[tuple[str, int]]
) -> None:
    log = open_log(flush_messages=3)
    log.append(make_batch([b"a", b"b"]))
    assert synced == []
    log.append(make_batch([b"c"]))
    (size,) = sizes(tmp_path).values()
    assert synced == [("00000000000000000000.log", size), (tmp_path.name, -1)]
    assert log.is_flushed
    log.append(make_batch([b"d", b"e"]))
    assert len(synced) == 2
    log.append(make_batch([b"f"]))
    assert [name for name, _ in synced[2:]] == ["00000000000000000000.log"]
    log.flush()
    assert len(synced) == 3, "there is nothing to sync"


def test_a_segment_is_synced_before_the_next_one_begins(
    tmp_path: Path, open_log: OpenLog, synced: list[tuple[str, int]]
) -> None:
    size = make_batch([b"a"]).size
    log = open_log(segment_bytes=size)
    log.append(make_batch([b"a"]))
    log.append(make_batch([b"b"]))
    assert synced == [("00000000000000000000.log", size), (tmp_path.name, -1)]
    log.flush()
    assert synced[2:] == [("00000000000000000001.log", size), (tmp_path.name, -1)]


def test_a_duplicate_is_not_acknowledged_before_it_is_on_disk(
    tmp_path: Path, open_log: OpenLog, synced: list[tuple[str, int]]
) -> None:
    """The sender that wrote it may have died between its write and its sync."""
    batch = make_batch([b"a"], producer_id=9, sequence=0)
    open_log().append(batch)
    assert synced == []
    assert open_log(flush_messages=1).append(batch) == 0
    assert synced == [("00000000000000000000.log", batch.size), (tmp_path.name, -1)]


# --- errors --------------------------------------------------------------------------------------


def test_failed_truncation_leads_to_recovery_before_the_next_write(
    tmp_path: Path, open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    segment = segment_path(tmp_path, 0)
    log = open_log()
    assert log.append(make_batch([b"first"])) == 0
    put_device(segment, "/dev/full")
    with pytest.raises(KafkaStorageError, match=f"{segment}: .*: No space left on device"):
        log.append(make_batch([b"a"]))
    assert f"{segment}: cannot truncate a torn batch at byte {segment.stat().st_size}: Invalid argument" in caplog.text
    stored, torn = make_batch([b"stored"]).payload[0], make_batch([b"torn"]).payload[0]
    segment.write_bytes(bytes(stored) + bytes(torn[:-1]))
    assert log.append(make_batch([b"a"])) == 1
    assert read_log(tmp_path) == [(0, b"stored"), (1, b"a")]


def test_after_a_failed_flush_the_end_is_looked_for_again(tmp_path: Path, open_log: OpenLog) -> None:
    segment = segment_path(tmp_path, 0)
    log = open_log()
    assert log.append(make_batch([b"first"])) == 0
    put_device(segment, "/dev/null")
    assert log.append(make_batch([b"lost"])) == 1
    with pytest.raises(KafkaStorageError, match=f"{segment}: cannot sync 2 records: Invalid argument"):
        log.flush()
    assert log.append(make_batch([b"a"])) == 1
    assert read_log(tmp_path) == [(0, b"first"), (1, b"a")]


def test_partition_whose_files_were_removed_begins_again(
    tmp_path: Path, open_log: OpenLog, synced: list[tuple[str, int]]
) -> None:
    log = open_log(flush_messages=1)
    log.append(make_batch([b"a"]))
    log.close()  # as when many others are in use
    segment_path(tmp_path, 0).unlink()
    with pytest.raises(KafkaStorageError, match="No such file or directory"):
        log.append(make_batch([b"b"]))
    synced.clear()
    assert log.append(make_batch([b"b"])) == 0
    assert [name for name, _ in synced] == ["00000000000000000000.log", tmp_path.name]
    assert read_log(tmp_path) == [(0, b"b")]


def test_segment_created_from_outside_is_continued(tmp_path: Path, open_log: OpenLog) -> None:
    batch = make_batch([b"a"])
    log = open_log(segment_bytes=2 * batch.size)
    for _ in range(2):
        log.append(batch)
    record_format(2).set_base_offset(batch.payload[0], 1, 2)
    segment_path(tmp_path, 2).write_bytes(batch.payload[0])
    with pytest.raises(KafkaStorageError, match="File exists"):
        log.append(make_batch([b"b"]))
    assert log.append(make_batch([b"b"])) == 3
    assert read_log(tmp_path) == [(0, b"a"), (1, b"a"), (2, b"a"), (3, b"b")]


def test_a_partition_that_cannot_be_read_is_recovered_once_it_can(tmp_path: Path, open_log: OpenLog) -> None:
    segment_path(tmp_path, 0).mkdir()
    log = open_log()
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match=f"{segment_path(tmp_path, 0)}: .*: Is a directory"):
            log.append(make_batch([b"a"]))
    segment_path(tmp_path, 0).rmdir()
    assert log.append(make_batch([b"a"])) == 0
    assert read_log(tmp_path) == [(0, b"a")]
