"""The demo's way into a log on disk, and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from shmaccum.cli import demodir
from shmaccum.cli.logcheck import TopicContents, read_topic


class LogTarget:
    """A directory for the log transport; see `shmaccum.cli.demo.Target` for the methods.

    Args:
        directory: of the log; an earlier demo's output there is replaced.
        topic: its one topic.
        partitions: of the topic.
        given: further settings.
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
        """Empty the directory.

        Raises:
            KafkaStorageError: it holds something else than an earlier demo's output, or cannot be made.
        """
        demodir.make_empty(self._directory, self.topic)

    def read_back(self) -> TopicContents:
        """Read the log by kafka-python's decoder."""
        return read_topic(self._directory, self.topic)
