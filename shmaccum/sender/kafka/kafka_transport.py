"""The transport to brokers; `shmaccum.sender.transport.Transport` documents its methods.

One thread calls it and does all its work, most of it in `poll`: input, output, timeouts. Between two calls only the
kernel works, and background calls: name look-ups and login steps.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import AUTO
from shmaccum.errors import AuthenticationError, KafkaError, NetworkError, UnsupportedVersionError, error_for_code
from shmaccum.kafka.brokers import NOBODY, Brokers
from shmaccum.kafka.connection import Connection, Request
from shmaccum.kafka.handshake import SMALL_ANSWER, Call, decode_answer
from shmaccum.kafka.journal import Journal, OwnJournal
from shmaccum.kafka.messages import INIT_PRODUCER_ID
from shmaccum.kafka.poller import FOREVER_MS, ExponentialBackoff, monotonic_ms
from shmaccum.kafka.schema import ApiMessage
from shmaccum.sender.kafka.cluster_metadata import Metadata
from shmaccum.sender.kafka.produce_request import NEWEST_BEFORE_KIP_890, Batches, ProduceEncoder, by_partition, each_of
from shmaccum.sender.kafka.produce_response import decode_answers, largest_answer, refuse
from shmaccum.sender.kafka.transaction_partitions import TransactionPartitions

logger = logging.getLogger(__name__)

_FIRST_IMPLICIT: Final = 2
"""The first version of the transaction protocol in which a Produce request adds partitions to the transaction."""
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_LOOK_MS: Final = 100.0
"""Between two looks for batches that have waited too long for the coordinator of their transaction."""
_MOST_TRANSACTIONS: Final = 4096
"""Transactional ids whose partitions are known."""
_LOADED_MS: Final = 60_000
"""A broker keeps its further connections for this long after they were last needed."""
_FAR_MS: Final = 1.0
"""From this distance on, a connection carries less than a loaded sender has: the broker's receive buffer a round trip.
Nearer, what is gained by a third connection is lost by smaller requests."""
_CONNECTIONS_NEAR, _CONNECTIONS_FAR = 2, 16
_NO_TRANSACTIONS_MS: Final = 2**31 - 1


class ProducerIds:
    """Gets one producer id at a time, on demand: by it, brokers recognise resent batches."""

    def __init__(self, config: ProducerConfig) -> None:
        self.apply(config)
        self._wanted = False
        self._under_way = False
        self._attempts = 0
        self._not_before_ms = 0.0
        self._refused: type[KafkaError] | None = None
        self._answer: tuple[int, int] | None = None

    def apply(self, config: ProducerConfig) -> None:
        """Use these settings from now on."""
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def take(self) -> tuple[int, int] | None:
        """Return a new producer id and its epoch; if there is none, request one and return None."""
        answer, self._answer = self._answer, None
        self._wanted = answer is None
        return answer

    def failure(self) -> type[KafkaError] | None:
        """Return why the cluster refused one; None once the next attempt is due."""
        return self._refused if self._refused is None or monotonic_ms() < self._not_before_ms else None

    def due_ms(self) -> float:
        """Return when to ask."""
        return self._not_before_ms if self._wanted and not self._under_way else FOREVER_MS

    def request(self, now_ms: float) -> ApiMessage:
        """Return the request to send now."""
        self._under_way = True
        return INIT_PRODUCER_ID.of(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTIONS_MS)

    def largest_answer(self) -> int:
        """Return the most bytes of the answer."""
        return SMALL_ANSWER

    def update(self, response: Any, now_ms: float) -> None:
        """Store an answer. Raises NetworkError: it holds neither a valid id nor an error."""
        error = error_for_code(response.error_code) if response.error_code else None
        if error is None and not (response.producer_id >= 0 <= response.producer_epoch):
            raise NetworkError(f"impossible producer id {response.producer_id}, epoch {response.producer_epoch}")
        self._under_way = False
        self._refused = None if error is None or error.retriable else error
        if error is None:
            self._answer = (response.producer_id, response.producer_epoch)
            self._wanted = False
            self._attempts = 0
        else:
            logger.warning("no producer id: %s", error.__name__, extra={"seldom": ("producer id", error)})
            self._again(now_ms)

    def failed(self, now_ms: float) -> None:
        """Note that a request got no answer."""
        self._under_way = False
        self._again(now_ms)

    def _again(self, now_ms: float) -> None:
        self._attempts += 1
        self._not_before_ms = now_ms + self._backoff.wait_ms(self._attempts)


_Inquiry: TypeAlias = Metadata | ProducerIds | TransactionPartitions
"""A question that any broker can answer, or the coordinator of a transaction."""


class KafkaTransport:
    """Sends batches to the leaders of their partitions."""

    def __init__(self, config: ProducerConfig, journal: Journal | None = None) -> None:
        self._config = config
        self._journal = journal or OwnJournal()
        self._client_id = _client_id(config)
        self._acks = _ACKS[config.acks]
        self._max_request_size = config.max_request_size
        self._request_timeout_ms = config.request_timeout_ms
        self._metadata = Metadata(config)
        self._producer_ids = ProducerIds(config)
        self._encoders: dict[int, ProduceEncoder] = {}
        self._shunned = NOBODY
        """The broker that failed to answer the last inquiry; the next one goes to another if possible."""
        self._answers: list[ProduceResponse] = []
        self._awaited: set[Node] = set()
        """Nodes that were not ready when the sender asked."""
        self._transactions: dict[str, TransactionPartitions] = {}
        """The last transaction of each transactional id, in protocol version 1."""
        self._adding: dict[str, TransactionPartitions] = {}
        """Those of them with batches that wait for their partitions to be added."""
        self._loaded: dict[int, float] = {}
        """Broker -> until when it has further connections, if it takes them."""
        self._has_news = False
        """Whether `poll` returns for a change of the cluster, a node, the producer id or the failure."""
        self._has_new_nodes = False
        """Whether connections to nodes outside the cluster's metadata can be open, such as bootstrap servers."""

    def start(self) -> None:
        """Read certificates and keys. Brokers are not needed yet.

        Raises:
            ConfigError: a setting names a file or function that cannot be used.
            ApiVersionError: a needed library is missing.
        """
        self._brokers = Brokers(self._config, self._client_id, self._on_change, self._journal)

    def init_producer_id(self) -> tuple[int, int] | None:
        """Return a new (producer id, epoch), or None until a broker has answered."""
        return self._producer_ids.take()

    def failure(self) -> type[KafkaError] | None:
        """Return why nothing can be sent, from a refused attempt until the next one is due."""
        return self._brokers.failure() or self._producer_ids.failure()

    def cluster(self) -> Cluster:
        """Return the current metadata."""
        return self._metadata.cluster

    def request_update(self, topics: Collection[str]) -> None:
        """Request metadata of these topics in the next `poll`."""
        self._metadata.request_update(topics, monotonic_ms())

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return whether the node takes a request now; begin to connect if there is no connection."""
        if self._brokers.ready(node, now_ms):
            return True
        if node.is_further and self._brokers.all_failed((node,)):
            self._unite(node.broker)
        self._awaited.add(node)
        return False

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        """Return for how long `ready` stays False; infinite if only a return of `poll` can change it."""
        return self._brokers.delay_ms(node, now_ms)

    def is_busy(self) -> bool:
        """Return whether no broker takes a request before it answers, or reads more; `poll` returns once one does."""
        nodes = self._metadata.cluster.nodes.values()
        if not self._brokers.are_busy(nodes):
            return False
        self._awaited.update(nodes)
        return True

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Send a request: as much of it as the socket takes now, the rest from `poll`.

        Batches whose partitions are not in their transaction yet are sent once they are.
        """
        first = batches[0]
        if first.transactional_id is not None and first.transaction_version < _FIRST_IMPLICIT:
            batches = self._admit(first.transactional_id, node, batches, now_ms)
        if batches:
            self._send(node, batches, now_ms)

    def _send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: float) -> None:
        connection = self._brokers.connection(node)
        if connection is None:
            self._answers += refuse(batches, NetworkError, f"the connection to broker {node.broker} was closed")
            return
        found = by_partition(batches)
        for topic in found:
            self._metadata.use(topic, now_ms)
        version, first = connection.handshake.produce_version, batches[0]
        if first.transactional_id is not None and first.transaction_version < _FIRST_IMPLICIT:
            version = min(version, NEWEST_BEFORE_KIP_890)
        frame = partial(self._encoder(version).encode, found, transactional_id=first.transactional_id)
        answered, failed = partial(self._stored, connection, found), partial(self._not_stored, found)
        request = Request(frame, answered, failed, largest_answer(batches))
        connection.send(request, self._acks != 0)
        if connection.backlog >= self._max_request_size:
            self._loaded[node.broker] = now_ms + _LOADED_MS
        self._brokers.check_by(now_ms + self._request_timeout_ms)

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers that came; wait for one, for the doorbell, or for another change the sender handles."""
        self._brokers.poller.listen_to(doorbell)
        now_ms = monotonic_ms()
        end_ms = now_ms + timeout_ms
        while True:
            until_ms = min(end_ms, self._inquire(now_ms))
            rings = self._brokers.poller.wait(0.0 if self._has_something(now_ms) else max(0.0, until_ms - now_ms))
            now_ms = monotonic_ms()
            # After reading: an answer that came in time is not late because this process was stopped before reading it.
            if now_ms >= self._brokers.next_check_ms:
                self._brokers.check(now_ms)
            if rings or now_ms >= end_ms or self._has_something(now_ms):
                break
        answers, self._answers = self._answers, []
        self._has_news = False
        self._awaited.clear()
        return answers

    def apply(self, config: ProducerConfig) -> None:
        """Use other values of the settings of scope shared, from the next request or connection on."""
        self._config = config
        self._client_id = _client_id(config)
        self._max_request_size = config.max_request_size
        self._request_timeout_ms = config.request_timeout_ms
        self._encoders.clear()  # they hold the client id and the timeout
        self._metadata.apply(config)
        self._producer_ids.apply(config)
        self._brokers.apply(config, self._client_id)

    def close(self) -> None:
        """Close all connections; drop unanswered requests, and with them all views of the slab."""
        self._adding.clear()
        self._transactions.clear()
        self._brokers.close()
        self._answers.clear()

    # --- answers ------------------------------------------------------------------------------------

    def _encoder(self, version: int) -> ProduceEncoder:
        """Return the encoder for requests of a version."""
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = ProduceEncoder(version, self._client_id, self._acks, self._config.request_timeout_ms)
            self._encoders[version] = encoder
        return encoder

    def _stored(self, connection: Connection, batches: Batches, frame: bytes) -> int:
        """Complete a request with the broker's answer; with ``acks=0``, when it is sent."""
        if not self._acks:
            self._answers += [ProduceResponse(batch) for batch in each_of(batches)]
            return 0
        version = connection.handshake.produce_version
        responses, hints, throttle_ms = decode_answers(version, frame, batches, connection.node, self._brokers.shown)
        self._answers += responses
        if hints:
            self._metadata.follow(hints)
        return throttle_ms

    def _not_stored(self, batches: Batches, error: type[KafkaError], message: str) -> None:
        self._answers += refuse(each_of(batches), error, message)

    # --- transactions of protocol version 1 ---------------------------------------------------------

    def _admit(
        self, transactional_id: str, node: Node, batches: Sequence[ProduceBatch], now_ms: float
    ) -> list[ProduceBatch]:
        """Return the batches whose partitions are in their transaction; the others wait for that."""
        known = self._transactions.get(transactional_id)
        if known is None or not known.is_of(batches[0]):
            if known is not None:
                known.drop()
                self._answers += known.take_failed(now_ms)
            if len(self._transactions) >= _MOST_TRANSACTIONS:  # the others' partitions are added again
                self._transactions = dict(self._adding)
            backoff = ExponentialBackoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
            broker = None if known is None else known.broker
            known = self._transactions[transactional_id] = TransactionPartitions(batches[0], backoff, broker)
        self._send_added(known, now_ms)  # first: a later batch of the same partition must not overtake
        ready = known.admit(node, batches, now_ms + self._request_timeout_ms)
        if known.is_waiting:
            self._adding[transactional_id] = known
        return ready

    def _send_added(self, adding: TransactionPartitions, now_ms: float) -> None:
        """Send the batches whose partitions have been added while they waited."""
        for node, batches in adding.take_added():
            self._send(node, batches, now_ms)

    def _add_partitions(self, now_ms: float) -> float:
        """Send what waits no longer, and ask for the rest; return when to look again."""
        next_ms = FOREVER_MS
        for name, adding in list(self._adding.items()):
            self._send_added(adding, now_ms)
            self._answers += adding.take_failed(now_ms)
            if not adding.is_waiting:
                del self._adding[name]
                continue
            due_ms = adding.due_ms()
            if now_ms >= due_ms:
                due_ms = self._ask(adding, now_ms)
            next_ms = min(next_ms, due_ms, max(adding.next_deadline_ms(), now_ms + _LOOK_MS))
        return next_ms

    # --- further connections ------------------------------------------------------------------------

    def _divide(self, now_ms: float) -> None:
        """Divide the partitions of loaded brokers among further connections once these are ready."""
        metadata = self._metadata
        for broker, until_ms in list(self._loaded.items()):
            node = self.cluster().nodes.get(broker)
            if now_ms >= until_ms or node is None:
                del self._loaded[broker]
                self._unite(broker)
            elif not metadata.is_divided(broker) and (first := self._brokers.connection(node)) is not None:
                connections = metadata.led_by(broker, self._most_connections(first))
                further = [node.by_connection(number) for number in range(1, connections)]
                waiting = [each for each in further if not self._brokers.ready(each, now_ms)]  # connects to all
                if waiting:  # for ever if the broker allows fewer
                    further = further[: further.index(waiting[0])] if self._brokers.all_failed(waiting) else []
                if further or not waiting:
                    metadata.divide(broker, 1 + len(further))
                    self._has_news = True

    def _most_connections(self, first: Connection) -> int:
        """Return how many connections a loaded broker has at most, given the first one."""
        most = self._config.shmaccum_connections_per_broker
        if most != AUTO:
            return most
        return _CONNECTIONS_FAR if first.distance_ms >= _FAR_MS else _CONNECTIONS_NEAR

    def _unite(self, broker: int) -> None:
        """Send all of a broker's partitions over its first connection."""
        self._metadata.unite(broker)
        self._has_news = True

    # --- inquiries ----------------------------------------------------------------------------------

    def _inquire(self, now_ms: float) -> float:
        """Close connections outside the cluster, and send the inquiries that are due; return when to look again."""
        metadata = self._metadata
        if self._loaded:
            self._divide(now_ms)
        if self._has_new_nodes:
            self._has_new_nodes = not self._brokers.keep_only(self.cluster().nodes.values())
        if now_ms >= metadata.rebootstrap_ms():
            # Start over from bootstrap.servers: the known brokers can have left the cluster.
            metadata.rebootstrap(now_ms)
            self._brokers.forget_all("closed for a rebootstrap from bootstrap.servers")
            self._has_news = True
        adding_ms = self._add_partitions(now_ms) if self._adding else FOREVER_MS
        metadata_ms, producer_id_ms = metadata.due_ms(), self._producer_ids.due_ms()
        if now_ms >= metadata_ms:
            metadata.trying(now_ms)
            metadata_ms = self._ask(metadata, now_ms)
        if now_ms >= producer_id_ms:
            producer_id_ms = self._ask(self._producer_ids, now_ms)
        return min(metadata_ms, producer_id_ms, adding_ms, self._brokers.next_check_ms, metadata.rebootstrap_ms())

    def _ask(self, inquiry: _Inquiry, now_ms: float) -> float:
        """Send an inquiry to its broker, or to any; if none takes it now, return when to try again."""
        adding = inquiry if isinstance(inquiry, TransactionPartitions) else None
        if adding is None or adding.broker is None:
            nodes = self._nodes()
        else:
            coordinator = self.cluster().nodes.get(adding.broker)
            nodes = [] if coordinator is None else [coordinator]
        connection = self._brokers.least_loaded(nodes, now_ms, self._shunned)
        if connection is None:
            if adding is None or not self._brokers.all_failed(nodes):
                return self._brokers.next_chance_ms(nodes, now_ms)
            adding.failed(now_ms)  # another may coordinate by now
            self._metadata.doubt(now_ms)
            return adding.due_ms()
        request = inquiry.request(now_ms)
        call = connection.handshake.versions.call(request, largest_answer=inquiry.largest_answer())
        connection.call(call, partial(self._told, inquiry, call), partial(self._not_told, inquiry, connection.node.id))
        self._brokers.check_by(now_ms + self._request_timeout_ms)
        return FOREVER_MS

    def _nodes(self) -> list[Node]:
        """Return the known brokers, and ``bootstrap.servers`` if none is known or, with rebootstrap, none reachable."""
        known = [node for node in self.cluster().nodes.values() if not node.is_further]
        if known and (not self._metadata.rebootstraps or not self._brokers.all_failed(known)):
            return known
        return known + self._brokers.bootstrap

    def _told(self, inquiry: _Inquiry, call: Call, frame: bytes) -> int:
        response = decode_answer(call, frame)
        nodes = self.cluster().nodes
        now_ms = monotonic_ms()
        inquiry.update(response, now_ms)
        if inquiry is self._metadata and self._metadata.is_current:
            self._journal.metadata_came(now_ms)
        self._shunned = NOBODY
        self._has_new_nodes |= self.cluster().nodes != nodes
        self._has_news = True
        return int(response.throttle_time_ms)

    def _not_told(self, inquiry: _Inquiry, node_id: int, error: type[KafkaError], message: str) -> None:
        self._shunned = node_id
        inquiry.failed(monotonic_ms())

    # --- changes that the sender handles ------------------------------------------------------------

    def _on_change(self, error: type[KafkaError] | None) -> None:
        """Note that a connection is ready, or why one failed."""
        self._has_news = True
        if error is None:
            return
        is_final = issubclass(error, AuthenticationError | UnsupportedVersionError)
        if is_final or self._brokers.all_failed(self._nodes()):
            self._metadata.refuse(error)
        if not is_final:
            self._metadata.doubt(monotonic_ms())

    def _has_something(self, now_ms: float) -> bool:
        """Return whether `poll` has a reason to return."""
        if self._answers or self._has_news:
            return True
        for node in self._awaited:  # noqa: SIM110  # most often empty, and a generator costs more to make
            if self._brokers.can_send(node, now_ms):
                return True
        return False


def _client_id(config: ProducerConfig) -> str:
    return config.client_id or f"shmaccum-{config.slab_name(os.geteuid())}"
