from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from logfiles import disk_full_beyond, open_files

from shmaccum.sender.log.files import OpenFiles, write_fully


def test_no_more_than_the_limit_are_open_and_the_least_recently_used_is_closed(tmp_path: Path) -> None:
    files = OpenFiles(limit=3)
    for name in "abc":
        files.create(tmp_path / name)
    files.get(tmp_path / "a")
    files.create(tmp_path / "d")
    assert open_files(tmp_path) == ["a", "c", "d"]
    os.pwrite(files.get(tmp_path / "b"), b"again", 0)
    assert open_files(tmp_path) == ["a", "b", "d"]
    assert (tmp_path / "b").read_bytes() == b"again"
    files.close_all()
    assert open_files(tmp_path) == []


def test_write_fully_goes_on_after_a_partial_write(tmp_path: Path) -> None:
    data = bytes(range(256)) * 16
    views = [memoryview(data)[begin : begin + 7] for begin in range(0, len(data), 7)]
    with (tmp_path / "a").open("w+b") as file:
        with disk_full_beyond(1000), pytest.raises(OSError, match="File too large") as caught:
            write_fully(file.fileno(), views, 100)
        assert caught.value.errno == errno.EFBIG  # the second write's answer, the first one wrote 900 bytes
        assert os.fstat(file.fileno()).st_size == 1000
        write_fully(file.fileno(), views, 100)
    assert (tmp_path / "a").read_bytes() == bytes(100) + data
