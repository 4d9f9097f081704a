"""Files that another user planted where the sender works: they neither redirect nor block it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from producers import Settings
from senders import read_partition

from shmaccum import Producer
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaStorageError, SenderError
from shmaccum.sender.log.directory import has_writer

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


KINDS = [
    "link",
    "fifo",
    pytest.param("theirs", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")),
]


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
