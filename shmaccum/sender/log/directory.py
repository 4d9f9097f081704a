"""The log directory: finds and creates topics and partitions.

A partition is a directory ``<topic>-<partition>``. A topic exists once its partition 0 does, and has the consecutive
partitions from 0 on. A new topic's partitions are created from the last down to 0: a death in between leaves no topic
with too few partitions.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from shmaccum.cluster import TopicPartition, check_topic
from shmaccum.errors import InvalidTopicError, KafkaStorageError
from shmaccum.sender.log.files import sync_directory
from shmaccum.sender.log.lock import DirectoryLock

_PARTITION_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})")


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
            raise KafkaStorageError(
                f"log.dir {self.path} cannot be used: {self._reason(error)}; set log.dir to a directory "
                f"that user id {os.geteuid()} can write to"
            ) from error

    def _reason(self, error: OSError) -> str:
        name = os.path.relpath(error.filename, self.path) if error.filename else "."
        return f"{name}: {error.strerror}" if name != "." else str(error.strerror)

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def partition_path(self, topic_partition: TopicPartition) -> Path:
        """Return the directory of a partition's segments."""
        return self.path / str(topic_partition)

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions the topic has on disk, 0 if it does not exist."""
        count = 0
        while self.partition_path(TopicPartition(topic, count)).is_dir():
            count += 1
        return count

    def create_topic(self, topic: str, num_partitions: int) -> None:
        """Create the directories of a topic, durably.

        Raises:
            KafkaStorageError: a directory cannot be created or synced. Another call creates what is missing.
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
    """Return all partitions in a log directory, by topic and number. Other entries are skipped.

    Raises:
        OSError: ``log_dir`` is not a directory, or cannot be read.
    """
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
