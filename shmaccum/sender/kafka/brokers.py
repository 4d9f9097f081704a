"""The brokers: a connection to each that is in use, and when to try again where there is none.

``ClusterConnectionStates`` and ``leastLoadedNode`` of Kafka's ``NetworkClient``.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # what looks names up needs it, and would import it with the first name
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import AuthenticationError, KafkaError, NetworkError, UnsupportedVersionError
from shmaccum.sender.kafka.background_calls import BackgroundCall, BackgroundCalls
from shmaccum.sender.kafka.channel import Address, Channel, TlsChannel
from shmaccum.sender.kafka.connection import Connection, describe
from shmaccum.sender.kafka.handshake import Handshake
from shmaccum.sender.kafka.masking import Mask
from shmaccum.sender.kafka.poller import Poller
from shmaccum.sender.kafka.timing import FOREVER_MS, ExponentialBackoff, monotonic_ms
from shmaccum.sender.transport import Journal
from shmaccum.shm.incidents import printable

logger = logging.getLogger(__name__)

NOBODY: Final = -1_000_000_000
"""Number of no broker, and of none of ``bootstrap.servers``."""


class Broker:
    """One broker as we connect to it.

    Attributes:
        node: its address.
        connection: the one there is, opening or open.
        failures: attempts to connect that failed since the last one that did not.
        retry_ms: when to try again, in milliseconds of the monotonic clock.
        addresses: of its name, those that were not tried since it was looked up.
        lookup: of its name, while that is under way.
        lookup_deadline_ms: when that must have come to something.
        incident: number of the one that keeps us from connecting, 0 for none.
        unreachable_since_ms: wall-clock milliseconds when the first of these attempts failed.
    """

    __slots__ = (
        "addresses",
        "connection",
        "failures",
        "incident",
        "lookup",
        "lookup_deadline_ms",
        "node",
        "retry_ms",
        "unreachable_since_ms",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection: Connection | None = None
        self.failures = 0
        self.retry_ms = 0.0
        self.addresses: list[Address] = []
        self.lookup: BackgroundCall | None = None
        self.lookup_deadline_ms = 0.0
        self.incident = 0
        self.unreachable_since_ms = 0

    def ready_connection(self) -> Connection | None:
        """Return the connection, if requests can be sent over it."""
        return self.connection if self.connection is not None and self.connection.is_ready() else None

    def can_connect(self, now_ms: float) -> bool:
        """Say whether an attempt to connect may begin."""
        return self.connection is None and self.lookup is None and now_ms >= self.retry_ms


class Brokers:
    """Connects to brokers, when asked to.

    Args:
        config: the settings.
        client_id: our name.
        tls: what TLS needs; None for plain connections.
        mechanism: makes a SASL conversation with a host; None where there is no SASL.
        poller: that waits for the connections.
        on_change: called when a connection has become ready, and when one has ended with an error.
        journal: where connections that fail are noted.
        mask: hides from errors what brokers must not repeat.
        background_calls: does what can take long.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client_id: str,
        tls: ssl.SSLContext | None,
        mechanism: Callable[[str], Any] | None,
        poller: Poller,
        on_change: Callable[[type[KafkaError] | None], None],
        journal: Journal,
        mask: Mask,
        background_calls: BackgroundCalls,
    ) -> None:
        self._tls = tls
        self._mechanism = mechanism
        self._poller = poller
        self._on_change = on_change
        self._journal = journal
        self._mask = mask
        self._background_calls = background_calls
        self._brokers: dict[int, Broker] = {}
        self._failure: tuple[float, type[KafkaError]] | None = None
        self.next_check_ms = FOREVER_MS
        """When `check` is to be called again."""
        self.apply(config, client_id)

    def apply(self, config: ProducerConfig, client_id: str) -> None:
        """Work by these settings: waits from the next one on, sockets from the next connection on."""
        self._config = config
        self._client_id = client_id
        self._backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        )
        for broker in self._brokers.values():
            if broker.connection is not None:
                broker.connection.apply(config, client_id)
                self.check_by(0.0)  # by the new settings, it can be idle for too long

    def failure(self, now_ms: float) -> type[KafkaError] | None:
        """Return why no broker has ever let us in: since the last attempt, and until the next may be made."""
        if self._failure is None or now_ms >= self._failure[0]:
            return None
        for broker in self._brokers.values():
            if broker.ready_connection() is not None:
                return None
        return self._failure[1]

    def connection(self, node: Node) -> Connection | None:
        """Return the connection to a node, if requests can be sent over it."""
        broker = self._brokers.get(node.id)
        return None if broker is None else broker.ready_connection()

    def can_send(self, node: Node, now_ms: float) -> bool:
        """Say whether a request can be sent to a node now."""
        connection = self.connection(node)
        return connection is not None and connection.can_send(now_ms)

    def ready(self, node: Node, now_ms: float) -> bool:
        """Say whether a request can be sent to a node now; begin to connect to it where it has no connection."""
        broker = self._broker(node)
        if broker.connection is None:
            if broker.can_connect(now_ms):
                self._connect(broker)
            return False
        return broker.connection.can_send(now_ms)

    def delay_ms(self, node: Node, now_ms: float) -> float:
        """Return how long it makes no sense to ask `ready` again, unless `on_change` was called."""
        broker = self._broker(node)
        if broker.connection is None:
            return max(0.0, broker.retry_ms - now_ms) if broker.lookup is None else FOREVER_MS
        return broker.connection.throttle_delay_ms(now_ms) or FOREVER_MS

    def are_busy(self, nodes: Iterable[Node]) -> bool:
        """Say whether each of the nodes, of which there are some, has as many requests under way as it may have."""
        is_busy = False
        for node in nodes:
            connection = self.connection(node)
            if connection is None or not connection.is_full():
                return False
            is_busy = True
        return is_busy

    def least_loaded(self, nodes: Iterable[Node], now_ms: float, shunned: int = NOBODY) -> Connection | None:
        """Return the connection with the fewest requests under way, of those that can take one more now.

        Without any, begin to connect to another of the nodes, unless that is under way.

        Args:
            nodes: to choose from.
            now_ms: the time.
            shunned: number of the one to choose last.
        """
        nodes = list(nodes)
        others = [node for node in nodes if node.id != shunned]
        if others and len(others) < len(nodes):
            # Its answer was lost or made no sense, and the next one would be no better.
            connection = self.least_loaded(others, now_ms)
            if connection is not None or self.next_chance_ms(others, now_ms) == FOREVER_MS:
                return connection
        brokers = [self._broker(node) for node in nodes]
        connections = [broker.connection for broker in brokers if broker.connection is not None]
        free = [connection for connection in connections if connection.can_send(now_ms)]
        if free:
            return min(free, key=lambda connection: connection.in_flight)
        is_connecting = any(broker.lookup is not None for broker in brokers)
        if not is_connecting and all(connection.is_ready() for connection in connections):
            idle = [broker for broker in brokers if broker.can_connect(now_ms)]
            if idle:
                self._connect(random.choice(idle))
        return None

    def all_failed(self, nodes: Iterable[Node]) -> bool:
        """Say whether the last attempt to connect failed for each of the nodes."""
        return all(self._broker(node).failures for node in nodes)

    def next_chance_ms(self, nodes: Iterable[Node], now_ms: float) -> float:
        """Return when `least_loaded` may have another answer, unless something happens before."""
        chances = []
        for broker in map(self._broker, nodes):
            if broker.lookup is not None:
                return FOREVER_MS
            if broker.connection is None:
                chances.append(broker.retry_ms)
            elif not broker.connection.is_ready():
                return FOREVER_MS
            elif throttle_ms := broker.connection.throttle_delay_ms(now_ms):
                chances.append(now_ms + throttle_ms)
        return min(chances, default=FOREVER_MS)

    def keep_only(self, nodes: Iterable[Node]) -> bool:
        """Close the connections to all other nodes on which nothing is under way; say whether that was all of them."""
        others = self._brokers.keys() - {node.id for node in nodes}
        for node_id in others:
            connection = self._brokers[node_id].connection
            if connection is None or not connection.in_flight:
                if connection is not None:
                    connection.close(None, "it is not needed any more")
                self._let_go(self._brokers.pop(node_id))
        return not others & self._brokers.keys()

    def forget_all(self, message: str) -> None:
        """Close all connections and forget all brokers; requests under way fail with NetworkError."""
        brokers, self._brokers = self._brokers, {}
        for broker in brokers.values():
            if broker.connection is not None:
                broker.connection.close(None, message)
            self._let_go(broker)

    def check(self, now_ms: float) -> None:
        """Do what it is time for on each connection."""
        connections = [broker.connection for broker in self._brokers.values() if broker.connection is not None]
        self.next_check_ms = FOREVER_MS
        for connection in connections:
            self.check_by(connection.check(now_ms))
        for broker in self._brokers.values():
            if broker.lookup is None:
                continue
            if now_ms >= broker.lookup_deadline_ms:
                self._lookup_failed(broker, "its name took longer to look up than socket.connection.setup.timeout.ms")
            else:
                self.check_by(broker.lookup_deadline_ms)

    def check_by(self, time_ms: float) -> None:
        """See to it that `check` is called at a time, at the latest."""
        self.next_check_ms = min(self.next_check_ms, time_ms)

    def close(self) -> None:
        """Close all connections."""
        for broker in list(self._brokers.values()):
            if broker.connection is not None:
                broker.connection.close(None, "the transport was closed")
            if broker.lookup is not None:
                broker.lookup.cancel()

    # --- connecting ---------------------------------------------------------------------------------

    def _broker(self, node: Node) -> Broker:
        """Return what is known of a node; one that has moved is a new one."""
        broker = self._brokers.get(node.id)
        if broker is None or (broker.node is not node and broker.node != node):
            if broker is not None and broker.connection is not None:
                broker.connection.close(NetworkError, f"it is at {node.host}:{node.port} now")
            if broker is not None:
                self._let_go(broker)
            broker = self._brokers[node.id] = Broker(node)
        return broker

    def _connect(self, broker: Broker) -> None:
        """Begin to connect to a broker: its name is looked up, unless it has addresses that were not tried yet."""
        setup_timeout_ms = self._setup_timeout.wait_ms(broker.failures + 1)
        try:
            if not broker.addresses and not self._find_addresses(broker, setup_timeout_ms):
                return
            channel = self._open(broker)
        except (OSError, ValueError) as error:  # ValueError: of a name that no host can have
            self._lookup_failed(broker, str(getattr(error, "strerror", None) or error))
            return
        handshake = Handshake(self._mechanism, self._config.sasl_mechanism, broker.node.host, self._mask)
        broker.connection = Connection(
            broker.node,
            channel,
            handshake,
            self._poller,
            self._config,
            self._client_id,
            setup_timeout_ms,
            self,
            self._background_calls,
        )
        self.check_by(monotonic_ms() + setup_timeout_ms)

    def _find_addresses(self, broker: Broker, timeout_ms: float) -> bool:
        """Find out the addresses of a broker; return False where that takes a while.

        Raises:
            OSError: no thread can be started for it.
            ValueError: no host can have such a name.
        """
        look_up = partial(socket.getaddrinfo, broker.node.host, broker.node.port, type=socket.SOCK_STREAM)
        try:
            broker.addresses = _addresses(look_up(flags=socket.AI_NUMERICHOST))
            return True
        except socket.gaierror:
            pass  # it is a name
        broker.lookup_deadline_ms = monotonic_ms() + timeout_ms
        broker.lookup = self._background_calls.run(
            f"name {broker.node.host}", look_up, partial(self._looked_up, broker)
        )
        self.check_by(broker.lookup_deadline_ms)
        return False

    def _looked_up(self, broker: Broker, found: Any, error: BaseException | None) -> None:
        """Go on with the addresses of a broker, or without."""
        if error is not None:
            self._lookup_failed(broker, str(getattr(error, "strerror", None) or error))
            return
        broker.lookup = None
        broker.addresses = _addresses(found)
        self._connect(broker)

    def _lookup_failed(self, broker: Broker, reason: str) -> None:
        """Note that an attempt has failed before there was a connection."""
        if broker.lookup is not None:
            broker.lookup.cancel()
            broker.lookup = None
        self._failed(broker, NetworkError, printable(f"connection to {describe(broker.node)}: {reason}"))

    def _open(self, broker: Broker) -> Channel:
        """Begin to connect to the next address of a broker; all of them are tried before its name is looked up again.

        Raises:
            OSError: there is no way to the address.
        """
        address = broker.addresses.pop(0)
        send_buffer, receive_buffer = self._config.send_buffer_bytes, self._config.receive_buffer_bytes
        if self._tls is None:
            return Channel(address, send_buffer, receive_buffer)
        return TlsChannel(address, send_buffer, receive_buffer, self._tls, broker.node.host)

    def connection_ready(self, connection: Connection) -> None:
        """See `Owner`."""
        broker = self._brokers[connection.node.id]
        if broker.failures:
            logger.info("connected to %s after %d failed attempts", describe(broker.node), broker.failures)
        broker.failures = 0
        broker.addresses.clear()
        self._failure = None
        self._journal.let_in()
        for each in self._brokers.values():
            # The first addresses are of no interest any more: nobody connects to them again.
            if each is broker or each.node.id < 0:
                self._is_over(each)
        self.check_by(monotonic_ms())  # it is not the end of the setup any more that is to be watched for
        self._on_change(None)

    def connection_closed(self, connection: Connection, error: type[KafkaError] | None, message: str) -> None:
        """See `Owner`."""
        broker = self._brokers.get(connection.node.id)
        if broker is None or broker.connection is not connection:
            return
        broker.connection = None
        if error is None:
            logger.info("%s", message)
        else:
            self._failed(broker, error, message, was_ready=connection.has_been_ready)

    def _failed(self, broker: Broker, error: type[KafkaError], message: str, *, was_ready: bool = False) -> None:
        broker.failures += 1
        wait_ms = self._backoff.wait_ms(broker.failures)
        broker.retry_ms = monotonic_ms() + wait_ms
        self._note(broker, error, message, lasts=not was_ready)
        level = logging.WARNING
        if issubclass(error, AuthenticationError | UnsupportedVersionError):
            level = logging.ERROR
            if self._journal.has_been_let_in:
                # It did so before, with the same settings, and may do so again: to wait is all there is to do. Whoever
                # fails now fails the records of all processes, for what may last a second.
                error = NetworkError
            else:
                self._failure = (broker.retry_ms, error)
        # Said again after 2, 4, 8 ... attempts: an outage of hours is no reason for thousands of lines.
        seldom = level if broker.failures & (broker.failures - 1) == 0 else logging.DEBUG
        logger.log(seldom, "%s; attempt %d failed, the next one is in %.0f ms", message, broker.failures, wait_ms)
        self._on_change(error)

    def _note(self, broker: Broker, error: type[KafkaError], message: str, *, lasts: bool) -> None:
        """Note why a connection ended; it lasts where there was none: one that breaks is replaced when it is needed."""
        if lasts and not broker.unreachable_since_ms:
            broker.unreachable_since_ms = time.time_ns() // 1_000_000
        incident = self._journal.note(error, message, lasts=lasts, since_ms=broker.unreachable_since_ms)
        if incident != broker.incident:
            self._journal.end(broker.incident)
        broker.incident = incident

    def _is_over(self, broker: Broker) -> None:
        """Note that nothing keeps us from connecting to a broker, or that we do not want to any more."""
        self._journal.end(broker.incident)
        broker.incident = broker.unreachable_since_ms = 0

    def _let_go(self, broker: Broker) -> None:
        """Note that we do not want to connect to a broker any more."""
        if broker.lookup is not None:
            broker.lookup.cancel()
        self._is_over(broker)


def _addresses(found: Iterable[tuple[Any, ...]]) -> list[Address]:
    """Return what ``socket.getaddrinfo`` found."""
    return [(family, address) for family, _, _, _, address in found]
