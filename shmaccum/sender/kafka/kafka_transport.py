"""The transport for brokers; see `shmaccum.sender.transport.Transport` for its methods.

Everything happens in the one thread that calls it, and most of it inside `poll`: input, output, what it is time for.
Between two calls only the kernel works, and background calls: name look-ups and steps of logins.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol

from shmaccum.cluster import Cluster, Node
from shmaccum.config import ProducerConfig
from shmaccum.config.addresses import split_address
from shmaccum.errors import AuthenticationError, KafkaError, NetworkError, UnsupportedVersionError
from shmaccum.sender.kafka.background_calls import BackgroundCalls
from shmaccum.sender.kafka.brokers import NOBODY, Brokers
from shmaccum.sender.kafka.channel import Buffer
from shmaccum.sender.kafka.cluster_metadata import Metadata
from shmaccum.sender.kafka.connection import Connection
from shmaccum.sender.kafka.credentials import sasl_mechanism, tls_context
from shmaccum.sender.kafka.handshake import Call, decode_answer
from shmaccum.sender.kafka.masking import Mask
from shmaccum.sender.kafka.poller import Poller
from shmaccum.sender.kafka.produce_request import Batches, ProduceEncoder, by_partition, each_of
from shmaccum.sender.kafka.produce_response import decode_answers, largest_answer, refuse
from shmaccum.sender.kafka.producer_id import ProducerIds
from shmaccum.sender.kafka.requests import Request
from shmaccum.sender.kafka.timing import FOREVER_MS, monotonic_ms
from shmaccum.sender.transport import Journal, OwnJournal, ProduceBatch, ProduceResponse

_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}


class _Inquiry(Protocol):
    """Something to find out from any broker."""

    def due_ms(self) -> float:
        """Return when to ask."""

    def request(self, now_ms: float) -> Any:
        """Return the request to send now."""

    def largest_answer(self) -> int:
        """Return how many bytes the answer to that request can need."""

    def update(self, response: Any, now_ms: float) -> None:
        """Take over an answer."""

    def failed(self, now_ms: float) -> None:
        """Note that there was none."""


class _ProduceRequest(Request):
    """A Produce request on its way."""

    __slots__ = ("_batches", "_connection", "_encoder", "_transport")

    def __init__(
        self,
        transport: KafkaTransport,
        connection: Connection,
        encoder: ProduceEncoder,
        batches: Batches,
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._encoder = encoder
        self._batches = batches
        self.largest_answer = largest_answer(batches)

    def frame(self, correlation_id: int) -> list[Buffer]:
        return self._encoder.encode(self._batches, correlation_id)

    def answered(self, frame: bytes) -> int:
        return self._transport._stored(self._connection, self._batches, frame)

    def failed(self, error: type[KafkaError], message: str) -> None:
        self._transport._lost(self._batches, error, message)


class KafkaTransport:
    """Sends batches to the leaders of their partitions.

    Args:
        config: the settings, with ``bootstrap.servers``.
        journal: where it notes how its connections fare.
    """

    def __init__(self, config: ProducerConfig, journal: Journal | None = None) -> None:
        self._config = config
        self._journal = journal or OwnJournal()
        self._client_id = _client_id(config)
        self._acks = _ACKS[config.acks]
        self._request_timeout_ms = config.request_timeout_ms
        addresses = map(split_address, config.bootstrap_servers)
        self._bootstrap = [Node(-1 - number, host, port) for number, (host, port) in enumerate(addresses)]
        self._metadata = Metadata(config)
        self._producer_ids = ProducerIds(config)
        self._encoders: dict[int, ProduceEncoder] = {}
        self._mask = Mask(config.sasl_password.value if config.sasl_password is not None else "")
        self._shown = self._mask.shown
        self._shunned = NOBODY
        """The broker that was last asked something in vain: others are asked first."""
        self._answers: list[ProduceResponse] = []
        self._awaited: set[Node] = set()
        """Nodes that were not ready when the sender asked."""
        self._has_news = False
        """Whether the sender should look again: at the cluster, a node, a producer id, a failure."""
        self._has_new_nodes = False
        """Whether there may be connections to brokers that are none of the cluster's: to the first ones."""
        self._next_ms = FOREVER_MS
        """When there is something to do, if nothing happens before."""

    def start(self) -> None:
        """Read certificates and keys. Brokers are not needed yet.

        Raises:
            ConfigError: what a setting names cannot be used.
            ApiVersionError: a needed library is missing.
        """
        tls, mechanism = tls_context(self._config), sasl_mechanism(self._config, self._mask)
        self._poller = Poller()
        self._background_calls = BackgroundCalls(self._poller)
        self._brokers = Brokers(
            self._config,
            self._client_id,
            tls,
            mechanism,
            self._poller,
            self._on_change,
            self._journal,
            self._mask,
            self._background_calls,
        )

    def init_producer_id(self) -> tuple[int, int] | None:
        """Return a new (producer id, epoch), or None while a broker is asked for one."""
        return self._producer_ids.take()

    def failure(self) -> type[KafkaError] | None:
        """Return why nothing can be sent, from an attempt that was refused until the next one may be made."""
        now_ms = monotonic_ms()
        return self._brokers.failure(now_ms) or self._producer_ids.failure(now_ms)

    def cluster(self) -> Cluster:
        """Return what is known now."""
        return self._metadata.cluster

    def request_update(self, topics: Collection[str]) -> None:
        """Have a broker asked about these topics by the next `poll`."""
        self._metadata.request_update(topics, monotonic_ms())

    def ready(self, node: Node, now_ms: int) -> bool:
        """Say whether a request may be sent to the node now; begin to connect where there is no connection."""
        if self._brokers.ready(node, now_ms):
            return True
        self._awaited.add(node)
        return False

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        """Return how long not to ask again, unless `poll` returns; endless where that is all there is to wait for."""
        return self._brokers.delay_ms(node, now_ms)

    def is_busy(self) -> bool:
        """Say whether every broker has as many requests under way as it may have."""
        return self._brokers.are_busy(self.cluster().nodes.values())

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Send a request: as much of it as the socket takes now, the rest from `poll`."""
        connection = self._brokers.connection(node)
        if connection is None:
            self._answers += refuse(batches, NetworkError, f"there is no connection to broker {node.id} any more")
            return
        found = by_partition(batches)
        for topic in found:
            self._metadata.use(topic, now_ms)
        encoder = self._encoder(connection.handshake.produce_version)
        connection.send(_ProduceRequest(self, connection, encoder, found), self._acks != 0)
        self._brokers.check_by(now_ms + self._request_timeout_ms)

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers that came. Waits for one, for the doorbell, or for what else the sender has to know."""
        self._poller.listen_to(doorbell)
        now_ms = monotonic_ms()
        end_ms = now_ms + timeout_ms
        self._inquire(now_ms)
        while True:
            wait_ms = 0.0 if self._has_something(now_ms) else min(end_ms, self._next_ms) - now_ms
            rings = self._poller.wait(max(0.0, wait_ms))
            now_ms = monotonic_ms()
            # Only here: what came in time is not late because this process was held up before it could read it.
            if now_ms >= self._brokers.next_check_ms:
                self._brokers.check(now_ms)
            self._inquire(now_ms)
            if rings or now_ms >= end_ms or self._has_something(now_ms):
                break
        answers, self._answers = self._answers, []
        self._has_news = False
        self._awaited.clear()
        return answers

    def apply(self, config: ProducerConfig) -> None:
        """Work by other values of the settings of scope shared, from the next request or connection on."""
        self._config = config
        self._client_id = _client_id(config)
        self._request_timeout_ms = config.request_timeout_ms
        self._encoders.clear()  # they write the client id and the timeout
        self._metadata.apply(config)
        self._producer_ids.apply(config)
        self._brokers.apply(config, self._client_id)

    def close(self) -> None:
        """Close all connections. What was not answered is forgotten."""
        self._brokers.close()
        self._answers.clear()
        self._background_calls.close()
        self._poller.close()

    # --- answers ------------------------------------------------------------------------------------

    def _encoder(self, version: int) -> ProduceEncoder:
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = ProduceEncoder(version, self._client_id, self._acks, self._config.request_timeout_ms)
            self._encoders[version] = encoder
        return encoder

    def _stored(self, connection: Connection, batches: Batches, frame: bytes) -> int:
        """Answer a request by what the broker said, or by its being sent where ``acks`` is 0."""
        if not self._acks:
            self._answers += [ProduceResponse(batch) for batch in each_of(batches)]
            return 0
        answers = decode_answers(connection.handshake.produce_version, frame, batches, connection.node, self._shown)
        self._answers += answers.responses
        if answers.hints:
            self._metadata.follow(answers.hints)
        return answers.throttle_time_ms

    def _lost(self, batches: Batches, error: type[KafkaError], message: str) -> None:
        self._answers += refuse(each_of(batches), error, message)

    # --- what it is time for ------------------------------------------------------------------------

    def _inquire(self, now_ms: float) -> None:
        """Let go of brokers that are none any more, ask what it is time to ask, and work out when to be back."""
        if self._has_new_nodes:
            self._has_new_nodes = not self._brokers.keep_only(self.cluster().nodes.values())
        if now_ms >= self._metadata.rebootstrap_ms():
            self._rebootstrap(now_ms)
        metadata_ms, producer_id_ms = self._metadata.due_ms(), self._producer_ids.due_ms()
        if now_ms >= metadata_ms:
            self._metadata.trying(now_ms)
            metadata_ms = self._ask(self._metadata, now_ms)
        if now_ms >= producer_id_ms:
            producer_id_ms = self._ask(self._producer_ids, now_ms)
        self._next_ms = min(metadata_ms, producer_id_ms, self._brokers.next_check_ms, self._metadata.rebootstrap_ms())

    def _rebootstrap(self, now_ms: float) -> None:
        """Begin again from ``bootstrap.servers``: those that we know may be no members of the cluster any more."""
        self._metadata.rebootstrap(now_ms)
        self._brokers.forget_all("bootstrap.servers are asked again")
        self._has_news = True

    def _ask(self, inquiry: _Inquiry, now_ms: float) -> float:
        """Send a request to any broker; return when to try again where that is not possible now."""
        nodes = self._nodes()
        connection = self._brokers.least_loaded(nodes, now_ms, self._shunned)
        if connection is None:
            return self._brokers.next_chance_ms(nodes, now_ms)
        request = inquiry.request(now_ms)
        call = connection.handshake.versions.call(request, largest_answer=inquiry.largest_answer())
        connection.call(call, partial(self._told, inquiry, call), partial(self._not_told, inquiry, connection.node.id))
        self._brokers.check_by(now_ms + self._request_timeout_ms)
        return FOREVER_MS

    def _nodes(self) -> list[Node]:
        """Return the brokers to ask: those that we know, and as long as there is none to be had, the first ones.

        With ``metadata.recovery.strategy`` none the first ones are only asked before any other is known.
        """
        known = list(self.cluster().nodes.values())
        if known and (not self._metadata.rebootstraps or not self._brokers.all_failed(known)):
            return known
        return known + self._bootstrap

    def _told(self, inquiry: _Inquiry, call: Call, frame: bytes) -> int:
        response = decode_answer(call, frame)
        nodes = self.cluster().nodes
        inquiry.update(response, monotonic_ms())
        self._shunned = NOBODY
        self._has_new_nodes |= self.cluster().nodes != nodes
        self._has_news = True
        return int(response.throttle_time_ms)

    def _not_told(self, inquiry: _Inquiry, node_id: int, error: type[KafkaError], message: str) -> None:
        self._shunned = node_id
        inquiry.failed(monotonic_ms())

    # --- what the sender has to know ----------------------------------------------------------------

    def _on_change(self, error: type[KafkaError] | None) -> None:
        """Note that a broker can be reached, or why it cannot."""
        self._has_news = True
        if error is None:
            return
        is_final = issubclass(error, AuthenticationError | UnsupportedVersionError)
        if is_final or self._brokers.all_failed(self._nodes()):
            self._metadata.refuse(error)
        if not is_final:
            self._metadata.doubt(monotonic_ms())

    def _has_something(self, now_ms: float) -> bool:
        """Say whether `poll` has something to return for."""
        if self._answers or self._has_news:
            return True
        for node in self._awaited:  # noqa: SIM110  # most often there is none, and a generator takes longer to make
            if self._brokers.can_send(node, now_ms):
                return True
        return False


def _client_id(config: ProducerConfig) -> str:
    return config.client_id or f"shmaccum-{config.slab_name(os.geteuid())}"
