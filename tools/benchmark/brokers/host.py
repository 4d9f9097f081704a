"""Runs a broker in a process of its own and forwards the tool's requests to it.

The tool itself forks the contestants, so it must not hold clients and their threads. Administration also runs in the
broker's process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, Protocol

from tools.benchmark.errors import BenchmarkError, MissingError
from tools.kafka import KafkaMissingError
from tools.support.processes import Children

APACHE: Final = "apache"
SINK: Final = "sink"
FIVE: Final = "apache-5"
TITLES: Final = {
    APACHE: "Apache Kafka",
    FIVE: "five brokers of Apache Kafka",
    SINK: "the sink that only acknowledges",
}

_PATIENCE_S: Final = 120.0


class Service(Protocol):
    """What a kind of broker can do, in its own process."""

    servers: str
    """``bootstrap.servers``."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records."""

    def records(self, topic: str) -> int:
        """Return how many records a topic has."""

    def committed(self, topic: str, expected: int) -> int:
        """Return how many records of a topic `read_committed` consumers see; wait a while until they are expected."""

    def counts(self) -> dict[str, int]:
        """Return the broker's counts of connections, requests, batches and bytes; empty if it does not count."""

    def wait(self, link: Connection) -> None:
        """Work until the tool sends a message."""


class Broker:
    """A running broker, as the tool sees it.

    Attributes:
        pid: of the process that is the ancestor of all its processes.
        servers: ``bootstrap.servers``.
    """

    def __init__(self, kind: str, children: Children, directory: Path) -> None:
        """Start it.

        Raises:
            MissingError: it is not available on this machine.
            BenchmarkError: it does not start.
        """
        self._link, theirs = Pipe()
        self._title = TITLES[kind]
        self.pid = children.fork(self._title, lambda: _host(_service(kind, directory), self._link, theirs))
        theirs.close()
        self.servers: str = self._answer()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        self._ask("create_topic", topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._ask("delete_topic", topic)

    def records(self, topic: str) -> int:
        """Return how many records a topic has."""
        found: int = self._ask("records", topic)
        return found

    def committed(self, topic: str, expected: int) -> int:
        """Return how many records of a topic `read_committed` consumers see; wait a while until they are expected."""
        found: int = self._ask("committed", topic, expected)
        return found

    def counts(self) -> Mapping[str, int]:
        """Return the broker's counts so far; empty if it does not count."""
        found: Mapping[str, int] = self._ask("counts")
        return found

    def _ask(self, what: str, *arguments: object) -> Any:
        self._link.send((what, *arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            if not self._link.poll(_PATIENCE_S):
                raise BenchmarkError(f"{self._title} has not responded for {_PATIENCE_S:.0f} s")
            answer = self._link.recv()
        except EOFError:
            raise BenchmarkError(f"{self._title} has exited") from None
        if isinstance(answer, BenchmarkError):
            raise answer
        return answer


def _service(kind: str, directory: Path) -> Callable[[], Service]:
    def make() -> Service:
        match kind:
            case "apache" | "apache-5":
                from tools.benchmark.brokers.apache import ApacheService

                return ApacheService(directory, 5 if kind == FIVE else 1)
            case _:
                from tools.benchmark.brokers.sink import SinkService

                return SinkService()

    return make


def _host(make: Callable[[], Service], tools_end: Connection, link: Connection) -> int:
    """Run as the broker's process until it is killed; its children are killed with it."""
    tools_end.close()
    try:
        service = make()
    except KafkaMissingError as error:
        link.send(MissingError(str(error)))
        return 1
    except Exception as error:
        link.send(BenchmarkError(f"{type(error).__name__}: {error}"))
        return 1
    link.send(service.servers)
    while True:
        service.wait(link)
        what, *arguments = link.recv()
        try:
            answer = getattr(service, what)(*arguments)
        except Exception as error:
            answer = BenchmarkError(f"{what}{tuple(arguments)}: {type(error).__name__}: {error}")
        link.send(answer)
