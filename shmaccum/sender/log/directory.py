"""The log directory: which topics and partitions are in it, and how a topic comes into it.

A partition is a directory ``<topic>-<partition>``. A topic is there once its partition 0 is, and has the
partitions that follow each other from 0 on. New topics are made from their last partition down to 0, so
that a death in between leaves no topic with fewer partitions than it was to have.
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
        """Make the directory where it is missing, for this user alone, and lock it.

        One that is there keeps its permissions: others can read the log where its administrator lets them.

        Raises:
            KafkaStorageError: it cannot be made or written; says why and what to do.
            SlabInUseError: another sender has it.
        """
        try:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self._lock = DirectoryLock(self.path)
            sync_directory(self.path)  # what a sender made here just before it died
        except OSError as error:
            raise KafkaStorageError(
                f"log.dir {self.path} cannot be used: {self._reason(error)}; set log.dir to a directory "
                f"that user id {os.geteuid()} may write to"
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
        """Return where a partition's segments are."""
        return self.path / str(topic_partition)

    def count_partitions(self, topic: str) -> int:
        """Return how many partitions the topic has on disk, 0 if it is not there.

        Args:
            topic: a legal name.
        """
        count = 0
        while self.partition_path(TopicPartition(topic, count)).is_dir():
            count += 1
        return count

    def create_topic(self, topic: str, num_partitions: int) -> None:
        """Make the directories of a topic that is not there, durably.

        Args:
            topic: a legal name.
            num_partitions: at least 1.

        Raises:
            KafkaStorageError: a directory cannot be made or synced. To ask again completes what is missing.
        """
        try:
            for partition in reversed(range(num_partitions)):
                # Higher ones may be there, from an attempt that ended half-way.
                self.partition_path(TopicPartition(topic, partition)).mkdir(0o755, exist_ok=True)
            sync_directory(self.path)
        except OSError as error:
            raise KafkaStorageError(
                f"topic {topic!r} cannot be made in log.dir {self.path}: {os.strerror(error.errno or 0)}"
            ) from error


def list_partitions(log_dir: Path) -> list[TopicPartition]:
    """Return all partitions in a log directory, by topic and number. What is not a partition is left out.

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
