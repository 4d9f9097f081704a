"""Connections to brokers: opens them, and backs off after failures.

After ``ClusterConnectionStates`` and ``leastLoadedNode`` of Kafka's ``NetworkClient``.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # imported here, or else by the first name look-up, on its thread
import logging
import random
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import split_address
from shmaccum.errors import AuthenticationError, KafkaError, NetworkError, UnsupportedVersionError, printable
from shmaccum.kafka.background_calls import BackgroundCall, BackgroundCalls
from shmaccum.kafka.channel import Address
from shmaccum.kafka.connection import Connection, describe
from shmaccum.kafka.credentials import secure
from shmaccum.kafka.handshake import Handshake
from shmaccum.kafka.journal import BrokerNotes, Journal, NoNotes
from shmaccum.kafka.masking import Mask
from shmaccum.kafka.poller import FOREVER_MS, ExponentialBackoff, Poller, monotonic_ms

logger = logging.getLogger(__name__)

NOBODY: Final = -1_000_000_000
"""A number that no broker has, nor any of ``bootstrap.servers``."""
UNUSED_MS: Final = 5000
"""A broker that is not tried for this long after it could be is not needed."""


class Broker:
    """The connection state of one broker. Times are monotonic milliseconds."""

    notes: BrokerNotes = NoNotes()
    """Records how it does; of no broker before the first attempt to connect."""
    connection: Connection | None = None
    """The current one, opening or open."""
    failures = 0
    """Failed attempts to connect since the last success."""
    retry_ms = 0.0
    lookup: BackgroundCall | None = None
    """The look-up of its name, while it runs."""
    lookup_deadline_ms = 0.0
    incident = 0
    """Number of the incident that keeps us from connecting, 0 for none."""
    unreachable_since_ms = 0
    """Wall-clock milliseconds of the first of these failures."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.addresses: list[Address] = []
        """Of its name; not tried since the last look-up."""

    def ready_connection(self) -> Connection | None:
        """Return the connection if it is ready for requests."""
        return self.connection if self.connection is not None and self.connection.is_ready() else None

    def can_connect(self, now_ms: float) -> bool:
        """Return whether an attempt to connect can begin."""
        return self.connection is None and self.lookup is None and now_ms >= self.retry_ms


class Brokers:
    """Connects to brokers on demand.

    Args:
        on_change: Called when a connection becomes ready, and when one ends with an error.

    Raises ApiVersionError, ConfigError: as `secure`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client_id: str,
        on_change: Callable[[type[KafkaError] | None], None],
        journal: Journal,
    ) -> None:
        self._mask = Mask(config.sasl_password.value if config.sasl_password is not None else "")
        self.shown = self._mask.shown
        """Hides secrets in brokers' texts."""
        self._open_channel, self._mechanism = secure(config, self._mask)
        self.poller = Poller()
        self.background_calls = BackgroundCalls(self.poller)
        self.bootstrap = [
            Node(-1 - number, *split_address(address)) for number, address in enumerate(config.bootstrap_servers)
        ]
        """The addresses of ``bootstrap.servers``."""
        self._on_change = on_change
        self._journal = journal
        self._brokers: dict[int, Broker] = {}
        self._failure: tuple[float, type[KafkaError]] | None = None
        self.next_check_ms = FOREVER_MS
        """When to call `check` again."""
        self.apply(config, client_id)

    def apply(self, config: ProducerConfig, client_id: str) -> None:
        """Use these settings: for waits from the next one on, for sockets from the next connection on."""
        self.config = config
        self.client_id = client_id
        self._backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        )
        for broker in self._brokers.values():
            if broker.connection is not None:
                broker.connection.apply(config, client_id)
                self.check_by(0.0)  # it can exceed the new connections.max.idle.ms

    def failure(self) -> type[KafkaError] | None:
        """Return why no broker has ever accepted a connection of ours; None once the next attempt is due."""
        if self._failure is None or monotonic_ms() >= self._failure[0]:
            return None
        return None if self._has_connection() else self._failure[1]

    def _has_connection(self) -> bool:
        return any(broker.ready_connection() is not None for broker in self._brokers.values())

    def connection(self, node: Node) -> Connection | None:
        """Return the connection to a node if it is ready for requests."""
        broker = self._brokers.get(node.id)
        return None if broker is None else broker.ready_connection()

    def can_send(self, node: Node, now_ms: float) -> bool:
        """Return whether a node takes a request now."""
        connection = self.connection(node)
        return connection is not None and connection.can_send(now_ms)

    def ready(self, node: Node, now_ms: float) -> bool:
        """Return whether a node takes a request now; begin to connect if it has no connection."""
        broker = self._broker(node)
        if broker.connection is None:
            if broker.can_connect(now_ms):
                self._connect(broker)
            return False
        return broker.connection.can_send(now_ms)

    def delay_ms(self, node: Node, now_ms: float) -> float:
        """Return for how long `ready` stays False, unless `on_change` is called."""
        broker = self._broker(node)
        if broker.connection is None:
            return max(0.0, broker.retry_ms - now_ms) if broker.lookup is None else FOREVER_MS
        return broker.connection.throttle_delay_ms(now_ms) or FOREVER_MS

    def are_busy(self, nodes: Iterable[Node]) -> bool:
        """Return whether each of the nodes takes no request before its connection has an event; False without nodes."""
        is_busy = False
        for node in nodes:
            connection = self.connection(node)
            if connection is None or not connection.is_busy():
                return False
            is_busy = True
        return is_busy

    def least_loaded(self, nodes: Iterable[Node], now_ms: float, shunned: int = NOBODY) -> Connection | None:
        """Return the connection with the fewest requests in flight, of those that take one more now.

        If there is none, begin to connect to another of the nodes, unless a connection is opening.
        """
        nodes = list(nodes)
        others = [node for node in nodes if node.id != shunned]
        if others and len(others) < len(nodes):
            # Its last answer was lost or could not be decoded; the next can be no better.
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
        """Return whether the last attempt to connect failed for each of the nodes."""
        return all(self._broker(node).failures for node in nodes)

    def next_chance_ms(self, nodes: Iterable[Node], now_ms: float) -> float:
        """Return when to call `least_loaded` again, unless a connection changes before."""
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
        """Close the idle connections to all other brokers; return whether none of those is left."""
        kept = {node.broker for node in nodes}
        others = {node_id for node_id, broker in self._brokers.items() if broker.node.broker not in kept}
        for node_id in others:
            connection = self._brokers[node_id].connection
            if connection is None or not connection.in_flight:
                if connection is not None:
                    connection.close(None, "closed: the broker is not in the cluster's metadata")
                self._let_go(self._brokers.pop(node_id))
        return not others & self._brokers.keys()

    def forget_all(self, message: str) -> None:
        """Close all connections and forget all brokers; requests in flight fail with NetworkError."""
        brokers, self._brokers = self._brokers, {}
        for broker in brokers.values():
            if broker.connection is not None:
                broker.connection.close(None, message)
            self._let_go(broker)

    def check(self, now_ms: float) -> None:
        """Handle what is due: timeouts, idleness and logins of connections; overdue look-ups; outages that are over."""
        connections = [broker.connection for broker in self._brokers.values() if broker.connection is not None]
        self.next_check_ms = FOREVER_MS
        for connection in connections:
            self.check_by(connection.check(now_ms))
        is_cluster_reached = any(connection.is_ready() for connection in connections)
        for broker in list(self._brokers.values()):  # a failed look-up calls `on_change`, which can add others
            if broker.incident and is_cluster_reached:
                self._end_if_unused(broker, now_ms)
            if broker.lookup is None:
                continue
            if now_ms >= broker.lookup_deadline_ms:
                self._lookup_failed(broker, "looking up its name took longer than socket.connection.setup.timeout.ms")
            else:
                self.check_by(broker.lookup_deadline_ms)

    def check_by(self, time_ms: float) -> None:
        """Call `check` at this time at the latest."""
        if time_ms < self.next_check_ms:
            self.next_check_ms = time_ms

    def close(self) -> None:
        """Close all connections, and the poller."""
        for broker in list(self._brokers.values()):
            if broker.connection is not None:
                broker.connection.close(None, "closed by this process")
            if broker.lookup is not None:
                broker.lookup.cancel()
        self.background_calls.close()
        self.poller.close()

    # --- connecting ---------------------------------------------------------------------------------

    def _broker(self, node: Node) -> Broker:
        """Return the state of a node; a node with another address gets a new one."""
        broker = self._brokers.get(node.id)
        if broker is None or (broker.node is not node and broker.node != node):
            if broker is not None:
                if broker.connection is not None:
                    broker.connection.close(NetworkError, f"the broker moved to {node.address}")
                self._let_go(broker)
            broker = self._brokers[node.id] = Broker(node)
        return broker

    def _connect(self, broker: Broker) -> None:
        """Begin to connect to a broker: to its next untried address, or look its name up first."""
        # Only here: an entry for each broker of a large cluster takes time, and the place of one that is connected.
        broker.notes = self._journal.broker(broker.node)
        setup_timeout_ms = self._setup_timeout.wait_ms(broker.failures + 1)
        try:
            if not broker.addresses and not self._find_addresses(broker, setup_timeout_ms):
                return
            address = broker.addresses.pop(0)  # after the last one, the name is looked up again
            buffers = self.config.send_buffer_bytes, self.config.receive_buffer_bytes
            channel = self._open_channel(address, *buffers, broker.node.host)
        except (OSError, ValueError) as error:  # ValueError: no host can have this name
            self._lookup_failed(broker, str(getattr(error, "strerror", None) or error))
            return
        name, is_idempotent = self.config.sasl_mechanism, self.config.enable_idempotence
        handshake = Handshake(self._mechanism, name, broker.node.host, self._mask, is_idempotent=is_idempotent)
        broker.connection = Connection(broker.node, channel, handshake, setup_timeout_ms, self, broker.notes)
        broker.notes.connecting()
        self.check_by(monotonic_ms() + setup_timeout_ms)

    def _find_addresses(self, broker: Broker, timeout_ms: float) -> bool:
        """Find the addresses of a broker; return False if a look-up on a thread has begun.

        Raises OSError, ValueError: no thread can be started for it, or no host can have such a name.
        """
        look_up = partial(socket.getaddrinfo, broker.node.host, broker.node.port, type=socket.SOCK_STREAM)
        try:
            broker.addresses = _addresses(look_up(flags=socket.AI_NUMERICHOST))
            return True
        except socket.gaierror:
            pass  # it is a name
        broker.lookup_deadline_ms = monotonic_ms() + timeout_ms
        broker.lookup = self.background_calls.run(f"name {broker.node.host}", look_up, partial(self._looked_up, broker))
        self.check_by(broker.lookup_deadline_ms)
        return False

    def _looked_up(self, broker: Broker, found: Any, error: BaseException | None) -> None:
        if error is not None:
            self._lookup_failed(broker, str(getattr(error, "strerror", None) or error))
            return
        broker.lookup = None
        broker.addresses = _addresses(found)
        self._connect(broker)

    def _lookup_failed(self, broker: Broker, reason: str) -> None:
        """Note that an attempt failed before there was a connection."""
        if broker.lookup is not None:
            broker.lookup.cancel()
            broker.lookup = None
        self._failed(broker, NetworkError, printable(f"connection to {describe(broker.node)}: {reason}"))

    def connection_ready(self, connection: Connection) -> None:
        """Note that a connection takes requests."""
        broker = self._brokers[connection.node.id]
        if broker.failures:
            logger.info(
                "connected to %s after %d failed attempts",
                describe(broker.node),
                broker.failures,
                extra={"seldom": ("connected", broker.node.broker)},
            )
        broker.failures = 0
        broker.addresses.clear()
        broker.notes.ready()
        self._failure = None
        self._journal.let_in()
        for each in self._brokers.values():
            # Also end the incidents of bootstrap servers: the sender may never connect to them again.
            if each is broker or each.node.id < 0:
                self._is_over(each)
        self.check_by(monotonic_ms())  # the deadline of the setup no longer counts
        self._on_change(None)

    def connection_closed(self, connection: Connection, error: type[KafkaError] | None, message: str) -> None:
        """Note that a connection has ended: with an error, or None if closed on purpose."""
        broker = self._brokers.get(connection.node.id)
        if broker is None or broker.connection is not connection:
            return
        broker.connection = None
        if error is None:
            broker.notes.idle()
            logger.info("%s", message)
        else:
            self._failed(broker, error, message, was_ready=connection.has_been_ready)

    def _failed(self, broker: Broker, error: type[KafkaError], message: str, *, was_ready: bool = False) -> None:
        broker.failures += 1
        wait_ms = self._backoff.wait_ms(broker.failures)
        broker.retry_ms = monotonic_ms() + wait_ms
        # An address of bootstrap.servers that we may never connect to again, or a connection that we can do without.
        is_spare = (broker.node.id < 0 or broker.node.is_further) and self._has_connection()
        self._note(broker, error, message, lasts=not was_ready and not is_spare)
        self.check_by(broker.retry_ms + UNUSED_MS)
        level = logging.WARNING
        if issubclass(error, AuthenticationError | UnsupportedVersionError):
            level = logging.ERROR
            if self._journal.has_been_let_in:
                # The cluster accepted these settings before: wait and retry. An authentication error would fail the
                # records of all processes, for what may last a second.
                error = NetworkError
            else:
                self._failure = (broker.retry_ms, error)
        # Logged after 1, 2, 4, 8 ... failures: an outage of hours must not write thousands of lines.
        seldom = level if broker.failures & (broker.failures - 1) == 0 else logging.DEBUG
        logger.log(
            seldom,
            "%s; attempt %d failed, the next one is in %.0f ms",
            message,
            broker.failures,
            wait_ms,
            extra={"seldom": (message, broker.failures)},  # connections can also be made and lost all the time
        )
        self._on_change(error)

    def _note(self, broker: Broker, error: type[KafkaError], message: str, *, lasts: bool) -> None:
        """Record an incident; it lasts only if connecting failed: a broken connection is replaced when needed."""
        if lasts and not broker.unreachable_since_ms:
            broker.unreachable_since_ms = time.time_ns() // 1_000_000
        incident = self._journal.note(
            error, message, lasts=lasts, since_ms=broker.unreachable_since_ms, node=broker.node.broker
        )
        broker.notes.failed(incident, is_refusal=issubclass(error, AuthenticationError))
        if incident != broker.incident:
            self._journal.end(broker.incident)
        broker.incident = incident

    def _end_if_unused(self, broker: Broker, now_ms: float) -> None:
        """End the incident of a broker that nothing needs: no attempt would ever show that its cause is gone."""
        if broker.connection is not None or broker.lookup is not None:
            return
        if now_ms >= broker.retry_ms + UNUSED_MS:
            self._is_over(broker)
            broker.notes.idle()
        else:
            self.check_by(broker.retry_ms + UNUSED_MS)

    def _is_over(self, broker: Broker) -> None:
        """End the incident that kept us from connecting to a broker."""
        self._journal.end(broker.incident)
        broker.incident = broker.unreachable_since_ms = 0

    def _let_go(self, broker: Broker) -> None:
        """Stop connecting to a broker: cancel its look-up, end its incident."""
        if broker.lookup is not None:
            broker.lookup.cancel()
        self._is_over(broker)
        broker.notes.idle()


def _addresses(found: Iterable[tuple[Any, ...]]) -> list[Address]:
    """Return the addresses in a result of ``socket.getaddrinfo``."""
    return [(family, address) for family, _, _, _, address in found]
