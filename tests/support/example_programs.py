"""Runs the programs of examples/ as a reader does, and counts what Apache Kafka has of their records."""

from __future__ import annotations

import http.client
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from brokers import consume
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from producers import PATIENCE_S, wait_until, wait_until_gone

from shmaccum.errors import SlabError
from shmaccum.shm.inspection import ProcessInfo
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look
from tools.kafka import KafkaCluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent
CLIENTS = 3
PARTITIONS = 3


class Program:
    """A running example: its process, and the lines that it has printed."""

    def __init__(self, command: list[str], cwd: Path, environment: Mapping[str, str], log: Path) -> None:
        self.lines: list[str] = []
        self._log = log
        self._is_over = False
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def read_until(self, condition: Callable[[], object]) -> None:
        """Read its lines until a condition holds. The program then blocks once the pipe is full."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if condition():
                return
        raise AssertionError("the program has ended")

    def words(self, first: str) -> list[list[str]]:
        """Return the words of every line read so far that begins with a word, without that one."""
        return [line.split()[1:] for line in self.lines if line.split()[:1] == [first]]

    def wait(self) -> int:
        """Wait until it has ended, and return its exit status."""
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)
        return self.process.wait(60)

    def end(self) -> None:
        """End it as a service manager does, and print its errors, which are shown if the test has failed."""
        if self._is_over:
            return
        self._is_over = True
        killing = threading.Timer(PATIENCE_S / 2, os.killpg, (self.process.pid, signal.SIGKILL))
        killing.start()
        try:
            self.process.terminate()
            self.wait()
        finally:
            killing.cancel()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # and what it has left
            print(self.errors()[-5000:])

    def errors(self) -> str:
        return self._log.read_text()


class Example:
    """An example of one test: settings of a slab of its own, and what Kafka has since the test began."""

    def __init__(self, kafka: KafkaCluster, slab: str, directory: Path) -> None:
        self.slab = slab
        self.directory = directory
        self._started: list[Program] = []
        self.properties = directory / "producer.properties"
        settings = f"bootstrap.servers={kafka.bootstrap_servers}\nshmaccum.name={slab}\n"
        self.properties.write_text(settings + "sender.idle.ms=100\nbuffer.memory=4194304\n")
        self._client = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
        there = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).topics
        self._ends: dict[str, dict[int, int]] = {}
        for topic in ("orders", "logs"):
            if topic in there:
                self._ends[topic] = end_offsets(kafka.bootstrap_servers, topic)
            else:  # not asked for its ends: the broker can say for a moment that it is not the leader
                kafka.admin.create_topic(topic, partitions=PARTITIONS)
                self._ends[topic] = dict.fromkeys(range(PARTITIONS), 0)

    def start(self, *command: object, cwd: Path | str = "", **variables: object) -> Program:
        """Start a command in a directory of examples/."""
        environment = os.environ | {"PRODUCER_PROPERTIES": str(self.properties), "HOME": str(self.directory)}
        environment |= {name: str(value) for name, value in variables.items()}
        environment.pop("PYTHONUNBUFFERED", None)  # it writes a line in pieces, which those of other processes part
        log = self.directory / f"errors-{len(self._started)}.log"
        self._started.append(Program(list(map(str, command)), EXAMPLES / cwd, environment, log))
        return self._started[-1]

    @contextmanager
    def program(self, *command: object, cwd: Path | str = "", **variables: object) -> Iterator[Program]:
        """Run a command in a directory of examples/ during the block, then end it and wait until its slab is gone."""
        started = self.start(*command, cwd=cwd, **variables)
        try:
            yield started
        finally:
            started.end()
        wait_until_gone(self.slab)

    def end(self) -> None:
        for program in self._started:
            program.end()

    def python(self, script: str, *arguments: object, **variables: object) -> AbstractContextManager[Program]:
        return self.program(sys.executable, EXAMPLES / script, *arguments, cwd=self.directory, **variables)

    def wait_for_worker(self, program: Program) -> int:
        """Wait until a process that the program has started has appended records; return its id.

        A busy machine can need minutes for that if the program is a driver of Spark.
        """
        found: list[int] = []

        def is_there() -> bool:
            assert program.process.poll() is None, "the program has ended"
            with suppress(SlabError), look(self.slab) as view:
                found.extend(process.pid for process in view.processes() if self._is_worker(process, program))
            return bool(found)

        while not is_there():
            assert program.process.poll() is None, program.errors()
            time.sleep(0.01)
        return found[0]

    @staticmethod
    def _is_worker(process: ProcessInfo, program: Program) -> bool:
        if not process.alive or Role.PRODUCER not in process.roles or process.records == 0:
            return False
        with suppress(ProcessLookupError):
            return process.pid != program.process.pid == os.getsid(process.pid)
        return False

    def stored(self, topic: str = "orders") -> Counter[str]:
        """Return how often Kafka has each key that has come since the test began."""
        found = consume(self._client, topic, self._ends[topic])
        return Counter((record.key() or b"").decode() for records in found.values() for record in records)


def end_offsets(servers: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests", "log_level": 0})
    try:
        parts = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return {part.partition: consumer.get_watermark_offsets(part, timeout=PATIENCE_S)[1] for part in parts}
    finally:
        consumer.close()


class Shop:
    """Clients of a web server, which order all the time; and what it has accepted."""

    def __init__(self, port: int, prefix: str) -> None:
        self.port = port
        self.accepted: dict[str, str] = {}
        """By order, the worker's process id."""
        self.refused: list[str] = []
        self._prefix = prefix
        self._numbers = itertools.count()

    def order(self) -> None:
        """Order once. What an order without an answer has come to, the client does not know."""
        order = f"{self._prefix}-{next(self._numbers)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", f"/orders/{order}", b"x" * 100, {"Connection": "close"})
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()
        if answer.status == 202:
            self.accepted[order] = "".join(filter(str.isdigit, text))
        else:
            self.refused.append(f"{answer.status} {text}")

    def workers(self) -> set[str]:
        return set(self.accepted.copy().values())

    def wait_for_workers(self, count: int) -> set[str]:
        wait_until(lambda: len(self.workers()) >= count, f"{count} workers have answered, not {self.workers()}")
        return self.workers()

    @contextmanager
    def open(self) -> Iterator[None]:
        closed = threading.Event()

        def go_on() -> None:
            while not closed.wait(0.03):  # most of the time goes to starts of workers, which need the processors
                self.order()

        clients = [threading.Thread(target=go_on, daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            closed.set()
            for client in clients:
                client.join(60)
