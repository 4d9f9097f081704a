"""What transactions a cluster has, and the end of those that their producers have left open.

Kafka's ``Admin.listTransactions``, ``describeTransactions`` and, by the transactional id, ``abortTransaction``. The end
of many at once is ours: each request until it is answered, as in `coordinator`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

from shmaccum import errors
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.messages import DESCRIBE_TRANSACTIONS, FIND_COORDINATOR, LIST_TRANSACTIONS, METADATA
from shmaccum.kafka.transaction_requests import MOVED, TRANSACTION
from shmaccum.transactions.broker_client import BrokerClient, Exchange, back_off, call, check, refusal
from shmaccum.transactions.coordinator import (
    Identity,
    PreparedTransaction,
    TransactionCoordinator,
    end_call,
    protocol_version,
)

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
_FIRST_OF_MANY: Final = 4
"""The first version of FindCoordinator that takes several keys."""
_LARGEST_ANSWER: Final = 64 << 20
"""Most bytes of an answer about many transactions: 100,000 take some 20 MB."""


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
                if not back_off(self._config.retry_backoff_ms, deadline_ms):
                    raise

    def _find(self, prefix: str, states: Collection[str], deadline_ms: float) -> list[TransactionDescription]:
        request = LIST_TRANSACTIONS.of(
            state_filters=list(states), producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None
        )
        nodes = self._nodes(deadline_ms)
        exchanges = [Exchange(node, partial(call, request, largest_answer=_LARGEST_ANSWER)) for node in nodes]
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
        def make(connection: Connection) -> Call:
            self.version = protocol_version(connection)
            return call(METADATA.of(topics=[]), connection, oldest=1, newest=12)  # with 0, no topic is all

        answer = self._client.ask(None, make, deadline_ms)
        return [Node(each.node_id, each.host, each.port) for each in answer.brokers]

    def _describe(self, node: Node, names: list[str], deadline_ms: float) -> list[TransactionDescription]:
        request = DESCRIBE_TRANSACTIONS.of(transactional_ids=names)
        answer = self._client.ask(node, partial(call, request, largest_answer=_LARGEST_ANSWER), deadline_ms)
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


class TransactionEnds:
    """Ends many transactions at once, at all their coordinators."""

    def __init__(self, client: BrokerClient, config: ProducerConfig) -> None:
        self._client = client
        self._backoff_ms = config.retry_backoff_ms
        self._nodes: dict[str, Node] = {}
        """Transactional id -> its coordinator, as far as known."""

    def end(
        self, transactions: Collection[PreparedTransaction], *, commit: bool, deadline_ms: float
    ) -> dict[PreparedTransaction, errors.KafkaError]:
        """Commit or abort transactions; return the errors of those that have not ended so."""
        failed: dict[PreparedTransaction, errors.KafkaError] = {}
        waiting = list(transactions)
        while waiting:
            missing = self._find([each.transactional_id for each in waiting], deadline_ms)
            exchanges = {
                each: Exchange(self._nodes[each.transactional_id], partial(_end_call, each, commit))
                for each in waiting
                if each.transactional_id not in missing
            }
            self._client.ask_all(list(exchanges.values()), deadline_ms)
            again: dict[PreparedTransaction, errors.KafkaError] = {}
            for each in waiting:
                exchange = exchanges.get(each)
                error = missing[each.transactional_id] if exchange is None else exchange.error
                if exchange is not None and error is None and exchange.response.error_code:
                    error = refusal(exchange.response.error_code, f"transactional.id {each.transactional_id!r}")
                if isinstance(error, errors.RetriableError):
                    again[each] = error
                    if isinstance(error, MOVED):
                        self._nodes.pop(each.transactional_id, None)
                elif error is not None:
                    failed[each] = error
            waiting = list(again)
            if again and not back_off(self._backoff_ms, deadline_ms):
                return failed | again
        return failed

    def _find(self, ids: Collection[str], deadline_ms: float) -> dict[str, errors.KafkaError]:
        """Ask for the coordinators of ids, as far as they are not known; return why some have none."""
        unknown = [each for each in ids if each not in self._nodes]
        missing: dict[str, errors.KafkaError] = {
            each: errors.CoordinatorNotAvailableError(f"transactional.id {each!r}: no coordinator is known")
            for each in unknown
        }
        if unknown:
            request = FIND_COORDINATOR.of(key="", key_type=TRANSACTION, coordinator_keys=unknown)
            try:
                make = partial(call, request, oldest=_FIRST_OF_MANY, largest_answer=_LARGEST_ANSWER)
                response = self._client.ask(None, make, deadline_ms)
            except errors.KafkaError as error:
                return dict.fromkeys(unknown, error)
            for found in response.coordinators:
                if found.error_code:
                    missing[found.key] = refusal(found.error_code, f"transactional.id {found.key!r}")
                else:
                    node = self._nodes[found.key] = Node(found.node_id, found.host, found.port)
                    missing.pop(found.key, None)
                    self._client.learn(node)
        return missing


def _end_call(each: PreparedTransaction, commit: bool, connection: Connection) -> Call:
    me = Identity(each.producer_id, each.epoch)
    return end_call(connection, each.transactional_id, me, commit=commit, version=each.version)
