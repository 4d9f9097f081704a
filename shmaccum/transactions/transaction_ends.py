"""The end of many transactions of other processes at once: each request until it is answered, as in `coordinator`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import CoordinatorNotAvailableError, KafkaError, RetriableError
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.messages import FIND_COORDINATOR
from shmaccum.kafka.poller import monotonic_ms
from shmaccum.shm import native
from shmaccum.transactions.broker_client import BrokerClient, Exchange, call, refusal
from shmaccum.transactions.coordinator import MOVED, TRANSACTION, Identity, PreparedTransaction, end_call

_FIRST_OF_MANY: Final = 4
"""The first version of FindCoordinator that takes several keys."""


class TransactionEnds:
    """Ends many transactions at once, at all their coordinators."""

    def __init__(self, client: BrokerClient, config: ProducerConfig) -> None:
        self._client = client
        self._backoff_ms = config.retry_backoff_ms
        self._nodes: dict[str, Node] = {}
        """Transactional id -> its coordinator, as far as known."""

    def end(
        self, transactions: Collection[PreparedTransaction], *, commit: bool, deadline_ms: float
    ) -> dict[PreparedTransaction, KafkaError]:
        """Commit or abort transactions; return the errors of those that have not ended so."""
        errors: dict[PreparedTransaction, KafkaError] = {}
        waiting = list(transactions)
        while waiting:
            missing = self._find([each.transactional_id for each in waiting], deadline_ms)
            exchanges = {
                each: Exchange(self._nodes[each.transactional_id], partial(_end_call, each, commit))
                for each in waiting
                if each.transactional_id not in missing
            }
            self._client.ask_all(list(exchanges.values()), deadline_ms)
            again: dict[PreparedTransaction, KafkaError] = {}
            for each in waiting:
                exchange = exchanges.get(each)
                error = missing[each.transactional_id] if exchange is None else exchange.error
                if exchange is not None and error is None and exchange.response.error_code:
                    error = refusal(exchange.response.error_code, f"transactional.id {each.transactional_id!r}")
                if isinstance(error, RetriableError):
                    again[each] = error
                    if isinstance(error, MOVED):
                        self._nodes.pop(each.transactional_id, None)
                elif error is not None:
                    errors[each] = error
            waiting = list(again)
            if again and monotonic_ms() + self._backoff_ms > deadline_ms:
                return errors | again
            if again:
                native.pause(self._backoff_ms / 1000)
        return errors

    def _find(self, ids: Collection[str], deadline_ms: float) -> dict[str, KafkaError]:
        """Ask for the coordinators of ids, as far as they are not known; return why some have none."""
        unknown = [each for each in ids if each not in self._nodes]
        missing: dict[str, KafkaError] = {
            each: CoordinatorNotAvailableError(f"transactional.id {each!r}: no coordinator is known")
            for each in unknown
        }
        if unknown:
            request = FIND_COORDINATOR.of(key="", key_type=TRANSACTION, coordinator_keys=unknown)
            try:
                response = self._client.ask(
                    None, lambda connection: call(request, connection, oldest=_FIRST_OF_MANY), deadline_ms
                )
            except KafkaError as error:
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
