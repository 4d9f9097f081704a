"""One broker process: its settings, its data, and its life from format to removal."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.kafka import keeper
from tools.kafka.errors import KafkaToolError
from tools.kafka.jvm import java_command
from tools.kafka.ports import free_port
from tools.kafka.running import Running
from tools.kafka.settings import CLUSTER_ID

START_TIMEOUT_S: Final = 180.0
CHECKPOINT: Final = "bootstrap.checkpoint"
"""File in a node's data: the cluster's initial metadata, users for example."""
_EXCERPT: Final = 3000
_STARTED: Final = "Kafka Server started"


class Node:
    """A broker with its controller.

    Attributes:
        id: its ``node.id``, from 1.
        port: what clients connect to.
        internal_port: the same broker, always open (see `tools.kafka.settings`).
        advertised_port: port advertised to clients: `port`, or a proxy's, set before the first start.
        data: the directory of its logs (``log.dirs``); a partition is a directory in it.
        log_file: the broker's messages.
    """

    def __init__(self, id: int, directory: Path, jvm_options: Sequence[str] | None, detached: bool) -> None:
        self.id = id
        self.port = self.advertised_port = free_port()
        self.internal_port, self.controller_port = free_port(), free_port()
        self.directory = directory
        self.data = directory / "data"
        self.log_file = directory / "broker.log"
        self.running: Running | None = None
        self._jvm_options = jvm_options
        self._detached = detached
        self._process: subprocess.Popen[str] | None = None
        self._log_begin = 0

    @property
    def settings_file(self) -> Path:
        return self.directory / "server.properties"

    def configure(self, settings: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.settings_file.write_text(settings)

    def format(self, arguments: Sequence[str]) -> None:
        tool = ("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(self.settings_file))
        done = subprocess.run(
            java_command(*tool, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise KafkaToolError(f"node {self.id} could not be formatted, status {done.returncode}: {done.stdout}")

    def format_like(self, checkpoint: Path) -> None:
        """Format the node's directory, but for the ids, as the tool has formatted one with this checkpoint."""
        self.data.mkdir(parents=True)
        shutil.copyfile(checkpoint, self.data / CHECKPOINT)
        directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        properties = {"version": 1, "cluster.id": CLUSTER_ID, "node.id": self.id, "directory.id": directory_id}
        (self.data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def begin_start(self) -> None:
        """Start the broker, without waiting for it."""
        if self.is_running():
            raise KafkaToolError(f"node {self.id} runs already")
        self._reap()  # one that has exited on its own
        command = java_command("kafka.Kafka", str(self.settings_file), options=self._jvm_options)
        if not self._detached:
            command = [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid()), *command]
        with open(self.log_file, "a") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log if self._detached else subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # an interrupt at the terminal is for the owner
                text=True,
            )
        pid = self._process.pid if self._process.stdout is None else int(self._process.stdout.readline())
        self.running = Running.process(pid)

    def wait_started(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while _STARTED not in self._says():
            if not self.is_running() or time.monotonic() > deadline:
                why = "takes too long to start" if self.is_running() else "ended while it started"
                raise KafkaToolError(f"node {self.id} {why}; {self.log_file} says:\n{self._complaint()}")
            time.sleep(0.02)

    def start(self) -> None:
        self.begin_start()
        self.wait_started()

    def is_running(self) -> bool:
        """Return whether the broker's process is there, stopped (`pause`) or not."""
        return self.running is not None and self.running.is_alive()

    def stop(self) -> None:
        """Shut the broker down in order; kill it if that takes too long."""
        if self.running is not None:
            self.running.stop()
            self._reap()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, and wait until it is gone."""
        if self.running is not None:
            self.running.kill()
            self._reap()

    def pause(self) -> None:
        """Stop the broker with SIGSTOP: its connections stay, and nothing answers."""
        if self.running is not None:
            self.running.signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.running is not None:
            self.running.signal(signal.SIGCONT)

    def _reap(self) -> None:
        self.running = None
        if self._process is not None:
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def _says(self) -> str:
        with open(self.log_file, errors="replace") as log:
            log.seek(self._log_begin)
            return log.read()

    def _complaint(self) -> str:
        """Return the log of a failed start: from the first error on, or else its end."""
        said = self._says()
        error = said.find(" ERROR ")
        return said[-_EXCERPT:] if error < 0 else said[said.rfind("\n", 0, error) + 1 :][:_EXCERPT]
