"""Commits batches of transactions that other processes have written: all of a batch become visible, or none.

A *writer*, such as a streaming query, has batches with rising numbers. For each batch it makes a *plan* first, then
many processes write a transaction each (`TransactionManager.prepare`), and then the batch is committed:

1. The *decision* goes into the commit log: the batch's number and its transactions.
2. Each of these transactions is committed at its coordinator. This can be repeated, by anyone who reads the decision.

A plan does what a writer's death has left undone. It takes the writer's own transactional id over, so that no older
process of the writer can decide or plan any more. It commits the transactions of the last decision, unless a later plan
shows that this was done. It aborts all others whose ids begin with the writer's prefix, and which were open before the
plan was in the log.

The order matters, and `tools/model/exactly_once.pml` shows that it suffices. An id is used for another transaction only
under a later plan, since InitProducerId would abort one that was decided. And what is open is aborted by EndTxn with
the epoch that was listed before the plan: this hurts no transaction that began later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    IllegalStateError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    TransactionLostError,
)
from shmaccum.transactions.administration import ONGOING, Transactions
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.commit_log import TOPIC, CommitLog
from shmaccum.transactions.coordinator import (
    IMPLICIT,
    Identity,
    PreparedTransaction,
    TransactionCoordinator,
    deadline_after,
)
from shmaccum.transactions.transaction_ends import TransactionEnds

logger = logging.getLogger(__name__)

_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")
_GONE: Final = (
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
"""Answers to EndTxn for a transaction that has ended otherwise."""
_FORMAT: Final = 1


@dataclass(frozen=True)
class Writer:
    """Who writes batches.

    Attributes:
        name: tells it from all others, and stays the same when it starts again.
        prefix: of all its transactional ids; no other writer's begins with it.
        log: the topic of the commit log.
        fail_on_data_loss: whether a lost transaction is an error, or only logged.
        writes_once: whether it has a single batch, and its state can go after that.
    """

    name: str
    prefix: str
    log: str = TOPIC
    fail_on_data_loss: bool = True
    writes_once: bool = False

    @property
    def transactional_id(self) -> str:
        """The writer's own id, by which an older process of it is fenced."""
        return f"{self.prefix}driver"

    @classmethod
    def with_prefix(cls, prefix: str, client: BrokerClient, config: ProducerConfig) -> Writer | None:
        """Return the writer whose ids begin with a prefix; None if the commit log has no state of one."""
        log = CommitLog(client, cls.log, config)
        deadline_ms = deadline_after(config.max_block_ms)
        log.open(deadline_ms)
        text = log.read(cls("", prefix).transactional_id.encode(), deadline_ms)
        if text is None:
            return None
        try:
            return cls(str(json.loads(text)["writer"]), prefix)
        except (ValueError, LookupError, TypeError) as error:
            raise _damaged(cls.log, prefix) from error


class Plan(NamedTuple):
    """What a batch is written and committed under.

    Attributes:
        transactional_id: of the writer.
        number: of the plan; rises.
        identity: with which the decision is written. While the id has it, the plan is not over.
        version: of the transaction protocol.
        sequence: number of the decision's record.
        decided: number of the last batch that was decided; None before the first.
        source: where the decided batches come from, as `BatchCommitter.commit` was told; empty before the first.
    """

    transactional_id: str
    number: int
    identity: Identity
    version: int
    sequence: int
    decided: int | None
    source: str


@dataclass(frozen=True)
class _State:
    """A writer's state in the commit log."""

    plan: int = 0
    decided_in: int = 0
    """Plan of the last decision; 0 before the first."""
    batch: int | None = None
    source: str = ""
    transactions: tuple[PreparedTransaction, ...] = ()
    """Of the last decision."""

    def encoded(self, writer: Writer) -> bytes:
        """Return it as JSON."""
        fields = {"format": _FORMAT, "writer": writer.name, **vars(self)}  # a tuple with names is a JSON array
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, text: bytes, writer: Writer) -> _State:
        """Return the state in a JSON text."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != _FORMAT or fields.pop("writer") != writer.name:
                raise IllegalStateError(
                    f"topic {writer.log}: the state of {writer.name!r} is of another version or writer"
                )
            transactions = tuple(
                PreparedTransaction(*row)._replace(partitions=tuple(TopicPartition(*each) for each in row[4]))
                for row in fields.pop("transactions")
            )
            return cls(transactions=transactions, **fields)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(writer.log, writer.prefix) from error


class BatchCommitter:
    """Plans and commits the batches of one writer, in any process of it.

    Args:
        client: connects to brokers.
        config: the settings: ``max.block.ms``, ``transaction.timeout.ms``, ``retry.backoff.ms``.
        writer: whose.
    """

    def __init__(self, client: BrokerClient, config: ProducerConfig, writer: Writer) -> None:
        self._client = client
        self._config = config
        self._writer = writer
        self._key = writer.transactional_id.encode()
        self._log = CommitLog(client, writer.log, config)
        self._transactions = Transactions(client, config)
        self._coordinator = TransactionCoordinator(client, writer.transactional_id, config)

    def plan(self) -> Plan:
        """Fence every older process of the writer, and bring to an end what it has left; return the plan of a batch.

        Raises:
            IllegalStateError: the commit log has lost the writer's state.
            ProducerFencedError: another process plans at the same time.
            TransactionLostError: a decided transaction was aborted by its timeout.
            KafkaError: a broker refuses, or does not answer.
        """
        deadline_ms = self._deadline()
        me, state, left = self._take_over(None, deadline_ms)
        state = replace(state, plan=state.plan + 1)
        version = self._coordinator.version
        me, sequence = self._store(state, me, version, 0, deadline_ms)
        self._abort(left, deadline_ms)
        return Plan(self._writer.transactional_id, state.plan, me, version, sequence, state.batch, state.source)

    def commit(self, plan: Plan, batch: int, source: str, transactions: Sequence[PreparedTransaction]) -> None:
        """Make a batch visible.

        Args:
            plan: under which its transactions were written.
            batch: its number.
            source: where the batches come from; when this changes, their numbers begin again.
            transactions: all that was written and counts; whatever else is open is aborted.

        Raises:
            ProducerFencedError: the writer has a newer plan.
            TransactionLostError: a transaction was aborted by its timeout after the decision.
            KafkaError: a broker refuses, or does not answer. The batch may be decided: the next plan tells.
        """
        deadline_ms = self._deadline()
        self._log.open(deadline_ms)
        state = _State(plan.number, plan.number, batch, source, tuple(transactions))
        me, sequence = self._store(state, plan.identity, plan.version, plan.sequence, deadline_ms)
        self._end_decided(transactions, me, deadline_ms)
        # After the decision: what opens later finds its plan over, and aborts itself (`TransactionManager.holder_of`).
        decided = {each.transactional_id for each in transactions}
        left = [each for each in self._open_transactions(deadline_ms) if each.transactional_id not in decided]
        if self._coordinator.holder(deadline_ms) == me:  # else they can belong to a newer plan
            self._abort(left, deadline_ms)
        if self._writer.writes_once:
            self._store(None, me, plan.version, sequence, deadline_ms)

    def recover(self) -> tuple[list[PreparedTransaction], list[PreparedTransaction]]:
        """Do what the next plan would do for the last batch: commit it if it is decided, and abort what else is open.

        A driver that still runs is fenced.

        Returns:
            What was open and is committed now; what was aborted.

        Raises:
            KafkaError: as `plan`.
        """
        deadline_ms = self._deadline()
        before = self._open_transactions(deadline_ms)
        _, _, left = self._take_over(None, deadline_ms)
        self._abort(left, deadline_ms)
        aborted = {each.transactional_id for each in left}
        return [each for each in before if each.transactional_id not in aborted], left

    def settle(self, plan: Plan) -> None:
        """Bring a batch to an end that failed, or whose decision is in doubt: committed if it is decided, else aborted.

        Nothing happens if the writer has a newer plan.

        Raises:
            KafkaError: as `plan`.
        """
        deadline_ms = self._deadline()
        now = self._transactions.describe(self._writer.transactional_id, deadline_ms)
        if now is None or Identity(now.producer_id, now.producer_epoch) not in _identities(plan, now.state):
            return
        _, _, left = self._take_over(Identity(now.producer_id, now.producer_epoch), deadline_ms)
        self._abort(left, deadline_ms)

    def _take_over(
        self, last: Identity | None, deadline_ms: float
    ) -> tuple[Identity, _State, list[PreparedTransaction]]:
        """Fence older processes of the writer, and commit what they decided.

        Args:
            last: identity of this process; None to fence any other.
            deadline_ms: monotonic milliseconds.

        Returns:
            The new identity, the last state, and the transactions that are open and not decided.
        """
        writer = self._writer
        self._log.open(deadline_ms)
        before = self._transactions.describe(writer.transactional_id, deadline_ms)
        me = self._coordinator.init_producer_id(self._config.transaction_timeout_ms, last, deadline_ms)
        text = self._log.read(self._key, deadline_ms)
        had_state = before is not None and before.state in _COMMITTED and not writer.writes_once
        if text is None and had_state and writer.fail_on_data_loss:
            raise IllegalStateError(
                f"topic {writer.log} has no state of {writer.name!r}, but its transactional.id "
                f"{writer.transactional_id!r} has committed one: the topic was deleted, or lost records. What was "
                "decided last may be visible in part. Check that, then continue with failOnDataLoss=false"
            )
        state = _State() if text is None else _State.decoded(text, writer)
        if state.decided_in and state.decided_in == state.plan:
            self._end_decided(state.transactions, me, deadline_ms)
        return me, state, self._open_transactions(deadline_ms)

    def _deadline(self) -> float:
        return deadline_after(self._config.max_block_ms)

    def _store(
        self, state: _State | None, me: Identity, version: int, sequence: int, deadline_ms: float
    ) -> tuple[Identity, int]:
        """Write the state, or that there is none any more, in a transaction of the writer's own.

        Returns:
            The identity and number for the next one.
        """
        writer, log = self._writer, self._log
        try:
            if version < IMPLICIT:
                partition = TopicPartition(log.topic, log.partition_of(self._key))
                self._coordinator.add_partitions(me, [partition], deadline_ms)
            text = None if state is None else state.encoded(writer)
            log.append(writer.transactional_id, me, version, sequence, self._key, text, deadline_ms)
            following = self._coordinator.end(me, commit=True, version=version, deadline_ms=deadline_ms)
        except (InvalidProducerEpochError, ProducerFencedError, InvalidTxnStateError) as error:
            raise self._fenced() from error
        return following, sequence + 1 if following == me else 0

    def _fenced(self) -> ProducerFencedError:
        return ProducerFencedError(
            f"{self._writer.name!r} has been started once more, and that one has taken transactional.id "
            f"{self._writer.transactional_id!r} over: this one can commit nothing any more"
        )

    def _open_transactions(self, deadline_ms: float) -> list[PreparedTransaction]:
        """Return the open transactions of the writer but for its own id."""
        found = self._transactions.find(self._writer.prefix, (ONGOING,), deadline_ms)
        version = self._transactions.version
        return [
            PreparedTransaction(each.transactional_id, each.producer_id, each.producer_epoch, version, each.partitions)
            for each in found
            if each.transactional_id != self._writer.transactional_id
        ]

    def _end_decided(self, transactions: Collection[PreparedTransaction], me: Identity, deadline_ms: float) -> None:
        """Commit transactions that were decided.

        Args:
            transactions: of the last decision.
            me: the writer's identity. The holder of a newer one may have reused their ids.
            deadline_ms: monotonic milliseconds.
        """
        errors = TransactionEnds(self._client, self._config).end(transactions, commit=True, deadline_ms=deadline_ms)
        lost = [each for each in transactions if isinstance(errors.get(each), _GONE)]
        others = [error for error in errors.values() if not isinstance(error, _GONE)]
        if lost:
            now = self._transactions.describe(self._writer.transactional_id, deadline_ms)
            if now is None or (now.producer_id, now.producer_epoch) != me:
                raise self._fenced()
            text = (
                f"{len(lost)} of {len(transactions)} decided transactions of {self._writer.name!r} are not committed: "
                "the brokers have aborted them, as after transaction.timeout.ms: their records are lost to "
                "read_committed consumers. " + "; ".join(_shown(each, errors[each]) for each in lost)
            )
            if self._writer.fail_on_data_loss:
                raise TransactionLostError(
                    f"{text}. Write them again, and continue with failOnDataLoss=false; for the future raise "
                    "transaction.timeout.ms, and the brokers' transaction.max.timeout.ms"
                )
            logger.error("%s. failOnDataLoss=false: the writer goes on.", text)
        if others:
            raise others[0]

    def _abort(self, transactions: Collection[PreparedTransaction], deadline_ms: float) -> None:
        """Abort transactions, as far as they are still what they were."""
        errors = TransactionEnds(self._client, self._config).end(transactions, commit=False, deadline_ms=deadline_ms)
        for transaction, error in errors.items():
            if not isinstance(error, _GONE):
                logger.warning("transactional.id %r is not aborted: %s", transaction.transactional_id, error)


def _damaged(log: str, prefix: str) -> IllegalStateError:
    return IllegalStateError(f"topic {log}: the state of the writer whose ids begin with {prefix!r} cannot be read")


def _identities(plan: Plan, state: str) -> tuple[Identity, ...]:
    """Return the identities that the writer can have now unless it was taken over since a plan."""
    producer_id, epoch = plan.identity
    if plan.version >= IMPLICIT and state in _COMMITTED:  # by the decision: that has raised the epoch
        return plan.identity, Identity(producer_id, epoch + 1)
    return (plan.identity,)


def _shown(each: PreparedTransaction, error: KafkaError) -> str:
    where = ", ".join(map(str, each.partitions))
    who = f"{each.transactional_id} (producer id {each.producer_id}, epoch {each.epoch})"
    return f"{who}: {each.records} records in {where}: {error}"
