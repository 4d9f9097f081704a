"""The log directory: finds and creates topics and partitions; and its lock.

A partition is a directory ``<topic>-<partition>``. A topic exists once its partition 0 does, and has the consecutive
partitions from 0 on. A new topic's partitions are created from the last down to 0: a death in between leaves no topic
with too few partitions.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Final

from shmaccum.cluster import TopicPartition, check_topic
from shmaccum.errors import InvalidTopicError, KafkaStorageError, SlabInUseError
from shmaccum.sender.log.files import sync_directory
from shmaccum.shm.files import open_regular

_PARTITION_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})")
_LOCK_NAME: Final = ".lock"
"""Every log directory has it, from the first sender on."""
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.01


class LogDirectory:
    """One ``log.dir``, locked between `open` and `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: DirectoryLock | None = None

    def open(self) -> None:
        """Lock the directory; create it if it is missing, for this user alone.

        An existing one keeps its permissions: its administrator can let other users read the log.

        Raises:
            KafkaStorageError: it cannot be created or written; says why and what to do.
            SlabInUseError: another sender has locked it.
        """
        try:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self._lock = DirectoryLock(self.path)
            sync_directory(self.path)  # a dead sender can have created entries without a sync
        except OSError as error:
            name = os.path.relpath(error.filename, self.path) if error.filename else "."
            reason = error.strerror if name == "." else f"{name}: {error.strerror}"
            raise KafkaStorageError(
                f"log.dir {self.path} cannot be used: {reason}; set log.dir to a directory "
                f"that user id {os.geteuid()} can write to"
            ) from error

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def partition_path(self, topic_partition: TopicPartition) -> Path:
        """Return the directory of a partition's segments."""
        return self.path / str(topic_partition)

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions the topic has on disk, 0 if it does not exist.

        Raises KafkaStorageError: the directory cannot be searched.
        """
        count = 0
        try:
            while self.partition_path(TopicPartition(topic, count)).is_dir():
                count += 1
        except OSError as error:
            raise KafkaStorageError(
                f"topic {topic!r} cannot be looked up in log.dir {self.path}: {error.strerror}"
            ) from error
        return count

    def create_topic(self, topic: str, num_partitions: int) -> None:
        """Create the directories of a topic, durably.

        Raises KafkaStorageError: a directory cannot be created or synced. Another call creates what is missing.
        """
        try:
            for partition in reversed(range(num_partitions)):
                # Higher ones can exist, from an attempt cut short.
                self.partition_path(TopicPartition(topic, partition)).mkdir(0o755, exist_ok=True)
            sync_directory(self.path)
        except OSError as error:
            raise KafkaStorageError(
                f"topic {topic!r} cannot be created in log.dir {self.path}: {os.strerror(error.errno or 0)}"
            ) from error


def list_partitions(log_dir: Path) -> list[TopicPartition]:
    """Return all partitions in a log directory, sorted; skip other entries. Raises OSError: it cannot be read."""
    found = []
    with os.scandir(log_dir) as entries:
        for entry in entries:
            name = _PARTITION_NAME.fullmatch(entry.name)
            if name is not None and _is_legal(name["topic"]) and entry.is_dir():
                found.append(TopicPartition(name["topic"], int(name["partition"])))
    return sorted(found)


def _is_legal(topic: str) -> bool:
    try:
        check_topic(topic)
    except InvalidTopicError:
        return False
    return True


# --- the lock -----------------------------------------------------------------------------------


class DirectoryLock:
    """The exclusive lock of one log directory, held from creation to `close`: one sender at a time.

    It locks ``.lock`` in the directory, as Kafka does (``kafka.utils.FileLock``), with ``flock``: the kernel unlocks it
    when the process ends in any way. The file holds the holder's pid, for errors. It is never removed, since a second
    process could lock the removed file. Only its owner can open it: any process that can read a file can lock it, and
    would keep every sender out.
    """

    def __init__(self, log_dir: Path) -> None:
        """Acquire the lock.

        Raises:
            SlabInUseError: another process holds it; says which, if known.
            OSError: the file cannot be opened, or is not a regular one of this user.
        """
        self._descriptor = open_regular(log_dir / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.fchmod(self._descriptor, 0o600)  # an earlier version created it readable by all users
            if not self._take():
                pid = os.pread(self._descriptor, 20, 0).strip()
                holder = f"process {pid.decode()}" if pid.isdigit() else "another process"
                raise SlabInUseError(
                    f"log.dir {log_dir} is in use by {holder}: one sender writes to a log at a time; set "
                    f"another log.dir, or use the other's settings so that both share a sender"
                )
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self) -> bool:
        """Try for a tenth of a second: `has_writer` holds the lock for an instant."""
        for _ in range(_ATTEMPTS):
            if _try_flock(self._descriptor, fcntl.LOCK_EX):
                return True
            time.sleep(_PAUSE_S)
        return False


def is_log_directory(path: Path) -> bool:
    """Return whether a sender has ever used a directory as its ``log.dir``."""
    return os.path.lexists(path / _LOCK_NAME)


def has_writer(log_dir: Path) -> bool:
    """Return whether a sender holds the directory's lock now; for readers, which hold none."""
    try:
        descriptor = open_regular(log_dir / _LOCK_NAME, os.O_RDONLY, any_owner=True)
    except OSError:  # no sender ever wrote here, or this user cannot open the file
        return False
    try:
        return not _try_flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
