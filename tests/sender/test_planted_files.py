"""Files that another user planted: they neither redirect nor block the sender, nor who opens any other file."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from producers import Settings
from senders import read_partition

from shmaccum import Producer
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaStorageError, SenderError
from shmaccum.sender.log.directory import has_writer
from shmaccum.shm.files import open_regular

KEYS = "ssh-ed25519 AAAA\n"
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Return a file of this user that no other user should write to."""
    path = tmp_path / "authorized_keys"
    path.write_text(KEYS)
    return path


def plant(kind: str, path: Path, precious: Path) -> str:
    """Put something into a file's place; return what an error says of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        path.symlink_to(precious)
        return "it is a symbolic link, and shmaccum follows none here"
    if kind == "fifo":
        os.mkfifo(path)
        return "it is no regular file"
    path.write_bytes(b"")
    os.chown(path, 65534, 65534)
    return "it belongs to user id 65534"


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
KINDS = ["link", "fifo", pytest.param("theirs", marks=as_root)]


def test_planted_files_in_place_of_segments(settings: Settings, log_dir: Path, precious: Path) -> None:
    """Their partitions get errors that name them, and the others go on."""
    kinds = ["link", "fifo"] + (["theirs"] if os.geteuid() == 0 else [])
    said = [plant(kind, log_dir / f"t-{number}" / SEGMENT, precious) for number, kind in enumerate(kinds)]
    sound = len(kinds)
    (log_dir / f"t-{sound}").mkdir()
    with Producer(settings(retries=3, retry_backoff_ms=20)) as producer:
        futures = [producer.send("t", b"value", partition=number) for number in range(sound)]
        assert producer.send("t", b"other", partition=sound).get(30).offset == 0
        for number, future in enumerate(futures):
            with pytest.raises(KafkaStorageError, match=f"t-{number}/{SEGMENT}: cannot write .*{said[number]}"):
                future.get(30)
    assert precious.read_text() == KEYS
    assert [record.value for record in read_partition(log_dir, "t", sound)] == [b"other"]


@pytest.mark.parametrize("kind", KINDS)
def test_planted_file_in_place_of_the_lock_or_the_named_log(
    kind: str, settings: Settings, log_dir: Path, tmp_path: Path, precious: Path
) -> None:
    said, log = plant(kind, log_dir / ".lock", precious), tmp_path / "sender.log"
    with pytest.raises(SenderError, match=rf"log.dir {log_dir} cannot be used: \.lock: {said}"):
        Producer(settings())
    assert not has_writer(log_dir)
    plant(kind, log, precious)
    with pytest.raises(SenderError, match=rf"sender.log.file = '{log}' cannot be used: {said}.*; name"):
        Producer(settings(sender_log_file=str(log)))
    assert precious.read_text() == KEYS


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_handed() -> object:
    """Have what the sender makes be for everybody, as far as the umask goes."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_handed")
def test_a_new_log_is_for_its_user_alone(settings: Settings, log_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    with Producer(settings(sender_log_file=str(log))) as producer:
        producer.send("t", b"value", partition=0).get(30)
    partition = log_dir / str(TopicPartition("t", 0))
    assert [mode_of(path) for path in (log_dir, log_dir / ".lock")] == [0o700, 0o600]
    # Other users whom a directory's permissions admit can read, and cannot write.
    assert [mode_of(path) for path in (partition, partition / SEGMENT, log)] == [0o755, 0o644, 0o644]


def test_a_directory_that_is_there_keeps_its_permissions_but_for_the_lock(settings: Settings, log_dir: Path) -> None:
    """Who can read the lock file can lock it, and so keep every sender out: older ones were for everybody."""
    log_dir.mkdir()
    log_dir.chmod(0o750)
    (log_dir / ".lock").touch()
    (log_dir / ".lock").chmod(0o644)
    with Producer(settings()):
        assert mode_of(log_dir) == 0o750
        assert mode_of(log_dir / ".lock") == 0o600


# --- the rule of opening ------------------------------------------------------------------------------

FLAGS = [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND]


@pytest.mark.parametrize("flags", FLAGS)
def test_a_link_is_refused_and_what_it_leads_to_is_untouched(flags: int, tmp_path: Path, precious: Path) -> None:
    (tmp_path / "link").symlink_to(precious)
    with pytest.raises(PermissionError, match=r"it is a symbolic link, and shmaccum follows none here: '.*/link'"):
        open_regular(tmp_path / "link", flags)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(PermissionError, match="symbolic link"):
        open_regular(tmp_path / "dangling", flags)
    assert precious.read_text() == KEYS
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("flags", FLAGS)
def test_a_special_file_is_refused_without_blocking(
    flags: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
