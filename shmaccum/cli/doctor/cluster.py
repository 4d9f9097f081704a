"""Checks of the way to the brokers: names, connections, TLS, login, what they advertise, and their versions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmaccum.cli.doctor.finding import Finding, Level
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    AuthenticationError,
    KafkaError,
    SslAuthenticationError,
    UnsupportedVersionError,
)
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.journal import NoNotes
from shmaccum.kafka.messages import METADATA
from shmaccum.transactions.broker_client import BrokerClient, call
from shmaccum.transactions.coordinator import FEATURE, deadline_after

_ATTEMPTS: Final = 3
"""Failed connections after which a broker counts as unreachable: its name can have several addresses."""
_NEWEST_METADATA: Final = 12
"""Later versions name a topic by its id."""
_ADVICE: Final[Mapping[type[KafkaError], str]] = {
    SslAuthenticationError: (
        "check ssl.truststore.location, the broker's certificate and the name in it, and the port; with ALERT, check "
        "ssl.keystore.location"
    ),
    AuthenticationError: "check security.protocol, sasl.mechanism, the user and the password",
    UnsupportedVersionError: "use brokers of Kafka 2.1 or later, and their own port, not a controller's",
    KafkaError: "check the name, the port, the firewall, and whether the broker runs and security.protocol is its",
}
_ADVERTISED: Final = "clients connect to what brokers advertise: check their advertised.listeners, and the names here"


def cluster_findings(settings: Mapping[str, object], timeout_s: float) -> Iterator[Finding]:
    """Connect to each of ``bootstrap.servers``, then to all that the cluster names.

    Args:
        settings: the producers'.
        timeout_s: seconds to wait for each broker.
    """
    asked: set[str] = set()
    advertised: dict[str, Node] = {}
    for address in ProducerConfig.parse(settings).bootstrap_servers:
        answer = _ask({**settings, "bootstrap.servers": address}, None, timeout_s)
        asked.add(address)
        yield _finding(address, answer, "")
        if isinstance(answer, _Answer):
            advertised |= {node.address: node for node in answer.brokers}
    for address, node in sorted(advertised.items(), key=lambda each: each[1].id):
        if address not in asked:
            answer = _ask(settings, node, timeout_s)
            yield _finding(f"{address} (advertised by broker {node.id})", answer, _ADVERTISED)


def log_findings(config: ProducerConfig) -> Iterator[Finding]:
    """Check the directory of the transport ``log``."""
    directory = Path(config.log_dir)
    place = next(each for each in (directory.absolute(), *directory.absolute().parents) if os.path.exists(each))
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        yield Finding(Level.OK, "log", f"{directory} {'is' if place == directory.absolute() else 'can be made'}")
    else:
        yield Finding(Level.PROBLEM, "log", f"{place} is not a directory that this user can write to", "check log.dir")


class _Answer(NamedTuple):
    """What a broker has answered."""

    took_ms: float
    """Of the connection, the login and the answer."""
    brokers: list[Node]
    """Of the cluster, with the addresses that they advertise."""
    transaction_version: int


def _finding(where: str, answer: _Answer | KafkaError, advice: str) -> Finding:
    if isinstance(answer, _Answer):
        version = f"transactions of version {2 if answer.transaction_version >= 2 else 1}"
        count = len(answer.brokers)
        text = f"{where} let us in and answered after {answer.took_ms:.0f} ms; {count} in the cluster, {version}"
        return Finding(Level.OK, "broker", text)
    advice = advice or next(text for error, text in _ADVICE.items() if isinstance(answer, error))
    return Finding(Level.PROBLEM, "broker", f"{where}: {type(answer).__name__}: {answer}", advice)


def _ask(settings: Mapping[str, object], node: Node | None, timeout_s: float) -> _Answer | KafkaError:
    """Connect and log in to a broker, and ask for the cluster's brokers; return why that failed.

    Args:
        settings: the producers'.
        node: the broker; None for one of ``bootstrap.servers``.
        timeout_s: seconds.
    """
    journal = _Journal()
    features: dict[str, int] = {}

    def make(connection: Connection) -> Call:
        features.update(connection.handshake.versions.features)
        return call(METADATA.of(topics=[]), connection, oldest=1, newest=_NEWEST_METADATA)

    began = time.monotonic()
    with BrokerClient(ProducerConfig.parse(settings), journal) as client:
        journal.client = client
        try:
            answer: Any = client.ask(node, make, deadline_after(timeout_s * 1000))
        except KafkaError as error:
            return error if journal.last is None else journal.last
    brokers = [Node(each.node_id, each.host, each.port) for each in answer.brokers]
    return _Answer((time.monotonic() - began) * 1000, brokers, features.get(FEATURE, 0))


class _Journal:
    """Keeps the last incident of a client's connections, and ends its wait after a few (`Journal`)."""

    def __init__(self) -> None:
        self.has_been_let_in = False
        self.client: BrokerClient | None = None
        self.last: KafkaError | None = None
        self._failures = 0

    def let_in(self) -> None:
        self.has_been_let_in = True

    def metadata_came(self, now_ms: float) -> None:
        pass

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        self.last = error(text)
        self._failures += 1
        if self.client is not None and (self._failures >= _ATTEMPTS or not error.retriable):
            self.client.interrupt()
        return 0

    def end(self, number: int) -> None:
        pass

    def broker(self, node: Node) -> NoNotes:
        return NoNotes()
