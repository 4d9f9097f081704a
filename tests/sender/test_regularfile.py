"""The rule of opening: what is not a regular file of this user is refused, at once and untouched."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from fixture_types import MonkeyPatch

from shmaccum.shm.files import open_regular

FLAGS = [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.mark.parametrize("flags", FLAGS)
def test_a_link_is_refused_and_what_it_leads_to_is_untouched(flags: int, tmp_path: Path) -> None:
    precious = tmp_path / "authorized_keys"
    precious.write_text("ssh-ed25519 AAAA")
    (tmp_path / "link").symlink_to(precious)
    with pytest.raises(PermissionError, match=r"it is a symbolic link, and shmaccum follows none here: '.*/link'"):
        open_regular(tmp_path / "link", flags)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(PermissionError, match="symbolic link"):
        open_regular(tmp_path / "dangling", flags)
    assert precious.read_text() == "ssh-ed25519 AAAA"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("flags", FLAGS)
def test_a_special_file_is_refused_without_blocking(flags: int, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # an address has 108 bytes at most
        listener.bind("socket")
        for name in ("fifo", "socket"):
            with pytest.raises(PermissionError, match=f"it is no regular file.*{name}'"):
                open_regular(tmp_path / name, flags)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path, flags & ~os.O_CREAT)


@as_root
@pytest.mark.parametrize("flags", FLAGS)
def test_another_users_file_is_refused(flags: int, tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_text("theirs")
    os.chown(path, 65534, 65534)
    with pytest.raises(PermissionError, match=r"belongs to user id 65534, and this process to user id 0: '.*theirs'"):
        open_regular(path, flags)
    assert path.read_text() == "theirs"
    os.close(open_regular(path, os.O_RDONLY, any_owner=True))


def test_a_regular_file_is_made_emptied_and_opened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = len(os.listdir("/proc/self/fd"))
    for mode in (0o640, 0o600):  # what is there keeps its permissions
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, b"text")
        os.close(descriptor)
    assert path.read_bytes() == b"text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert len(os.listdir("/proc/self/fd")) == before
