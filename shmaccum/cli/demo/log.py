"""The demo's log on disk: replaces only an earlier demo's output, and reads records back."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shmaccum.cli.demo.check import TopicContents, read_topic
from shmaccum.errors import KafkaStorageError
from shmaccum.shm.files import open_regular

_MARKER: Final = ".shmaccum-demo"


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
        """Read the log with kafka-python's decoder."""
        return read_topic(self._directory, self.topic)

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
