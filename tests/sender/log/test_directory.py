"""The directory of a log: its partitions, and its lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shmaccum.cluster import MAX_TOPIC_LENGTH, TopicPartition
from shmaccum.errors import KafkaStorageError, SlabInUseError
from shmaccum.sender.log.directory import DirectoryLock, LogDirectory, has_writer, list_partitions


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_open_refuses_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    tmp_path.chmod(0o500)
    with pytest.raises(KafkaStorageError, match=f"Permission denied; .* user id {os.geteuid()} may write"):
        LogDirectory(tmp_path).open()
    tmp_path.chmod(0o700)


def test_a_topic_has_the_partitions_that_follow_each_other_from_0(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    assert directory.count_partitions("t") == 0
    for partition in (1, 3):
        (tmp_path / f"t-{partition}").mkdir()
    assert directory.count_partitions("t") == 0
    (tmp_path / "t-0").mkdir()
    assert directory.count_partitions("t") == 2
    (tmp_path / "t-2").touch()
    assert directory.count_partitions("t") == 2


def test_the_longest_topic_fits_a_directory_name(tmp_path: Path) -> None:
    topic = "t" * MAX_TOPIC_LENGTH
    directory = LogDirectory(tmp_path / "a" / "b")
    directory.open()  # makes what is missing
    directory.create_topic(topic, 1)
    directory.close()
    assert list_partitions(tmp_path / "a" / "b") == [TopicPartition(topic, 0)]


def test_list_partitions_sorts_by_number_and_leaves_out_what_is_none(tmp_path: Path) -> None:
    for name in ("t-10", "t-9", "a-b-0", "t-01", "t", "-1", "t-1.delete", "sp ace-0", "..-0", "t-\u0661"):
        (tmp_path / name).mkdir()
    (tmp_path / "t-3").touch()
    (tmp_path / ".lock").touch()
    assert list_partitions(tmp_path) == [("a-b", 0), ("t", 9), ("t", 10)]


HOLD = """
import pathlib, sys
from shmaccum.sender.log.directory import DirectoryLock
lock = DirectoryLock(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_second_sender_gets_the_holders_pid(tmp_path: Path) -> None:
    assert not has_writer(tmp_path)
    assert list(tmp_path.iterdir()) == [], "to ask leaves nothing behind"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert has_writer(tmp_path)
        with pytest.raises(SlabInUseError, match=rf"{tmp_path} is in use by process {holder.pid}:"):
            DirectoryLock(tmp_path)
        holder.kill()
    assert not has_writer(tmp_path)
    lock = DirectoryLock(tmp_path)
    assert has_writer(tmp_path)
    lock.close()
    lock.close()
    assert not has_writer(tmp_path)
