"""What transactions a cluster has, and the end of one that its producer has left open.

Kafka's ``Admin.listTransactions``, ``describeTransactions`` and, by the transactional id, ``abortTransaction``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from shmaccum import errors
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.messages import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, METADATA
from shmaccum.kafka.poller import monotonic_ms
from shmaccum.shm import native
from shmaccum.transactions.broker_client import BrokerClient, Exchange, call, check
from shmaccum.transactions.coordinator import Identity, TransactionCoordinator, protocol_version

ONGOING: Final = "Ongoing"
"""State of a transaction that is open."""
STATES: Final = (
    "Empty",
    ONGOING,
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""``TransactionState``."""


class TransactionDescription(NamedTuple):
    """A transactional id at its coordinator (``TransactionDescription``)."""

    transactional_id: str
    state: str
    """One of `STATES`."""
    producer_id: int
    producer_epoch: int
    started_ms: int
    """Milliseconds since the epoch when its transaction began; -1 if none is open."""
    timeout_ms: int
    coordinator: int
    """Id of the broker."""
    partitions: tuple[TopicPartition, ...]
    """Those of the open transaction."""


class Transactions:
    """The transactions of a cluster.

    Attributes:
        version: of the transaction protocol, as of the last `find`.
    """

    def __init__(self, client: BrokerClient, config: ProducerConfig) -> None:
        self._client = client
        self._config = config
        self.version = 1

    def find(self, prefix: str, states: Collection[str], deadline_ms: float) -> list[TransactionDescription]:
        """Return transactional ids, sorted, as all coordinators know them: in any state if ``states`` is empty.

        Raises KafkaError: a broker did not answer, or refused.
        """
        while True:
            try:
                return self._find(prefix, states, deadline_ms)
            except errors.KafkaTimeoutError:
                raise
            except errors.RetriableError:  # a broker has just gone, and the coordinators that it was are about to move
                if monotonic_ms() + self._config.retry_backoff_ms > deadline_ms:
                    raise
                native.pause(self._config.retry_backoff_ms / 1000)

    def _find(self, prefix: str, states: Collection[str], deadline_ms: float) -> list[TransactionDescription]:
        request = LIST_TRANSACTIONS.of(
            state_filters=list(states), producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None
        )
        nodes = self._nodes(deadline_ms)
        exchanges = [Exchange(node, lambda connection: call(request, connection)) for node in nodes]
        self._client.ask_all(exchanges, deadline_ms)
        found: list[TransactionDescription] = []
        for node, exchange in zip(nodes, exchanges, strict=True):
            if exchange.error is not None:
                raise exchange.error
            answer = exchange.response
            check(answer.error_code, f"broker {node.id} lists no transactions")
            names = [each.transactional_id for each in answer.transaction_states]
            names = [name for name in names if name.startswith(prefix)]
            if names:
                found += self._describe(node, names, deadline_ms)
        return sorted(each for each in found if not states or each.state in states)

    def describe(self, transactional_id: str, deadline_ms: float) -> TransactionDescription | None:
        """Return a transactional id as its coordinator knows it; None if no coordinator does.

        Raises KafkaError: a broker did not answer, or refused.
        """
        found = [each for each in self.find(transactional_id, (), deadline_ms) if each[0] == transactional_id]
        return found[0] if found else None

    def abort(self, transactional_id: str, deadline_ms: float) -> TransactionDescription:
        """Abort the open transaction of an id; return what it was. A producer that is still in it gets an error.

        Raises:
            TransactionalIdNotFoundError: no coordinator knows the id.
            InvalidTxnStateError: it has no open transaction.
            KafkaError: a broker did not answer, or refused.
        """
        transaction = self.describe(transactional_id, deadline_ms)
        if transaction is None:
            raise errors.TransactionalIdNotFoundError(f"no coordinator knows transactional.id {transactional_id!r}")
        if transaction.state != ONGOING:
            raise errors.InvalidTxnStateError(
                f"transactional.id {transactional_id!r} has no open transaction: its state is {transaction.state}"
            )
        coordinator = TransactionCoordinator(self._client, transactional_id, self._config)
        me = Identity(transaction.producer_id, transaction.producer_epoch)
        coordinator.end(me, commit=False, version=self.version, deadline_ms=deadline_ms)
        return transaction

    def _nodes(self, deadline_ms: float) -> list[Node]:
        """Return all brokers."""

        def make(connection: Connection) -> Call:
            self.version = protocol_version(connection)
            return call(METADATA.of(topics=[]), connection, oldest=1, newest=12)  # with 0, no topic is all

        answer = self._client.ask(None, make, deadline_ms)
        return [Node(each.node_id, each.host, each.port) for each in answer.brokers]

    def _describe(self, node: Node, names: list[str], deadline_ms: float) -> list[TransactionDescription]:
        request = DESCRIBE_TRANSACTIONS.of(transactional_ids=names)
        answer = self._client.ask(node, lambda connection: call(request, connection), deadline_ms)
        found = []
        for each in answer.transaction_states:
            if each.error_code == errors.TransactionalIdNotFoundError.code:
                continue  # it has expired meanwhile
            check(each.error_code, f"transactional.id {each.transactional_id!r} cannot be described")
            partitions = [TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions]
            found.append(
                TransactionDescription(
                    each.transactional_id,
                    each.transaction_state,
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_start_time_ms,
                    each.transaction_timeout_ms,
                    node.id,
                    tuple(sorted(partitions)),
                )
            )
        return found
