"""The demo's log on disk: replaces only an earlier demo's output, and reads records back, not by our decoder."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shmaccum.errors import KafkaStorageError
from shmaccum.shm.files import open_regular

_MARKER: Final = ".shmaccum-demo"


@dataclass(slots=True)
class TopicContents:
    """What a reader found in a topic: the values of each key, in the order of their offsets, and problems."""

    values: dict[bytes | None, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    records: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, where: str, offset: int, expected_offset: int, key: bytes | None, value: bytes | None) -> None:
        """Add the next record of a partition."""
        if offset != expected_offset:
            self.problems.append(f"{where}: offset {offset} instead of {expected_offset}")
        self.records += 1
        self.values[key].append(value)


class LogTarget:
    """A directory for the log transport, with one topic; an earlier demo's output there is replaced.

    ``name`` is for people, ``settings`` for producers that write there; the command ``hint`` shows the records.
    """

    def __init__(self, directory: Path, topic: str, partitions: int, given: Mapping[str, object]) -> None:
        self._directory = directory.absolute()
        self.topic = topic
        self.name = str(self._directory)
        self.settings: dict[str, object] = {
            **given,
            "transport": "log",
            "log.dir": self._directory,
            "num.partitions": partitions,
        }
        command = sys.argv[0] if Path(sys.argv[0]).name == "shmaccum" else "shmaccum"
        self.hint = f"{command} dump {directory}"

    def prepare(self) -> None:
        """Create the directory, or empty it of an earlier demo. Raises KafkaStorageError: it cannot, or must not."""
        try:
            self._clear()
            self._directory.mkdir(parents=True, exist_ok=True)
            marker = open_regular(self._directory / _MARKER, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            with open(marker, "w") as file:
                file.write("Made by `shmaccum demo`: the next run replaces everything in this directory.\n")
        except OSError as error:
            raise KafkaStorageError(
                f"cannot write the output to {error.filename or self._directory}: {error.strerror}; choose another "
                "--out"
            ) from error

    def read_back(self) -> TopicContents:
        """Read all partitions by kafka-python: check every CRC, and that offsets are consecutive from 0."""
        from kafka.record import MemoryRecords

        contents = TopicContents()
        for partition in sorted(self._directory.glob(f"{self.topic}-*")):
            offset = 0
            for segment in sorted(partition.glob("*.log")):
                data = segment.read_bytes()
                log = MemoryRecords(data)
                while (batch := log.next_batch()) is not None:
                    if not batch.validate_crc():
                        contents.problems.append(
                            f"{segment}: the CRC of the batch at offset {batch.base_offset} is wrong"
                        )
                    for record in batch:
                        contents.add(str(segment), record.offset, offset, record.key, record.value)
                        offset = record.offset + 1
                if rest := len(data) - log.valid_bytes():
                    contents.problems.append(f"{segment}: {rest} bytes at its end are not a whole batch")
        return contents

    def _clear(self) -> None:
        there = list(self._directory.iterdir()) if self._directory.exists() else []
        foreign = [entry.name for entry in there if not self._is_ours(entry)]
        if foreign or (there and not (self._directory / _MARKER).exists()):
            raise KafkaStorageError(
                f"{self._directory} is not an earlier demo's output: it holds "
                f"{', '.join(sorted(foreign)[:5]) or 'a topic'}; nothing was removed; choose another --out, or remove "
                "it yourself"
            )
        for entry in there:
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != _MARKER:  # removed last: the marker identifies the directory until it is empty
                entry.unlink()

    def _is_ours(self, entry: Path) -> bool:
        name, _, partition = entry.name.rpartition("-")
        is_partition = name == self.topic and partition.isdigit() and entry.is_dir() and not entry.is_symlink()
        return is_partition or entry.name in (_MARKER, ".lock")
