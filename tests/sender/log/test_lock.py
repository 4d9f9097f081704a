from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shmaccum.errors import SlabInUseError
from shmaccum.sender.log.directory import DirectoryLock, has_writer

HOLD = """
import pathlib, sys
from shmaccum.sender.log.directory import DirectoryLock
lock = DirectoryLock(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_second_sender_gets_the_holders_pid(tmp_path: Path) -> None:
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
    lock.close()
    lock.close()


def test_asking_for_a_writer_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not has_writer(tmp_path)
    assert list(tmp_path.iterdir()) == []
    lock = DirectoryLock(tmp_path)
    assert has_writer(tmp_path)
    lock.close()
    assert not has_writer(tmp_path)
