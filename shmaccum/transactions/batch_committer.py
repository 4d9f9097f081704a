"""Commits batches of transactions that other processes have written: all of a batch become visible, or none.

A *writer*, such as a streaming query, has batches with rising numbers. For each batch it makes a *plan* first, then
many processes write a transaction each (`TransactionManager.prepare`), and then the batch is committed:

1. The *decision* goes into the commit log: the batch's number and its transactions.
2. Each of these transactions is committed at its coordinator. This can be repeated, by anyone who reads the decision.

A plan does what a writer's death has left undone. It takes the writer's own transactional id over, so that no older
process of the writer can decide or plan any more. It commits the transactions of the last decision, unless a later plan
shows that this was done. It aborts all others whose ids begin with the writer's prefix, and which were open before the
plan was in the log. `shmaccum.transactions.writer_id` has the take-over, and which state counts.

The order matters, and `tools/model/exactly_once.pml` shows that it suffices. An id is used for another transaction only
under a later plan, since InitProducerId would abort one that was decided. And what is open is aborted by EndTxn with
the epoch that was listed before the plan: this hurts no transaction that began later.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, TransactionLostError
from shmaccum.transactions.administration import ONGOING, TransactionEnds, Transactions
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import IMPLICIT, Identity, PreparedTransaction, deadline_after
from shmaccum.transactions.writer_id import GONE, Writer, WriterId
from shmaccum.transactions.writer_state import Driver, WriterState

logger = logging.getLogger(__name__)

_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")


class Plan(NamedTuple):
    """What a batch is written and committed under.

    Attributes:
        number: of the plan; rises.
        identity: with which the decision is written. While the id has it, the plan is not over.
        sequence: number of the decision's record.
        decided: number of the last batch that was decided; None before the first.
        source: where the decided batches come from, as given to `BatchCommitter.commit`; empty before the first.
        drivers: the one that made it, and those that it has replaced, as in `WriterState`.
    """

    transactional_id: str
    number: int
    identity: Identity
    version: int
    sequence: int
    decided: int | None
    source: str
    drivers: tuple[Driver | None, tuple[Driver, ...]] = (None, ())


class BatchCommitter:
    """Plans and commits the batches of one writer, in any process of it."""

    def __init__(self, client: BrokerClient, config: ProducerConfig, writer: Writer) -> None:
        self._client = client
        self._config = config
        self._writer = writer
        self._transactions = Transactions(client, config)
        self._id = WriterId(client, config, writer)

    def plan(self) -> Plan:
        """Fence every older process of the writer, and bring to an end what it has left; return the plan of a batch.

        Raises:
            IllegalStateError: the commit log has lost the writer's state; nothing was taken over then.
            ProducerFencedError: another driver has replaced this one, or another process plans at the same time.
            TransactionLostError: a decided transaction was aborted by its timeout.
            KafkaError: a broker refuses, or does not answer.
        """
        deadline_ms = self._deadline()
        me, state, left = self._take_over(None, deadline_ms)
        driver, replaced = drivers = state.drivers(self._writer.driver)
        state = replace(state, plan=state.plan + 1, driver=driver, replaced=replaced)
        version = self._id.version
        me, sequence = self._id.store(state, me, version, 0, deadline_ms)
        self._abort(left, deadline_ms)
        return Plan(
            self._writer.transactional_id, state.plan, me, version, sequence, state.batch, state.source, drivers
        )

    def commit(self, plan: Plan, batch: int, source: str, transactions: Sequence[PreparedTransaction]) -> None:
        """Make a batch visible, and abort whatever else is open; its number begins again when ``source`` changes.

        Raises:
            ProducerFencedError: the writer has a newer plan.
            TransactionLostError: a transaction was aborted by its timeout after the decision.
            KafkaError: a broker refuses, or does not answer, before the batch is visible as a whole. It may be decided:
                the next plan tells.
        """
        deadline_ms = self._deadline()
        self._id.open(deadline_ms)
        state = WriterState(plan.number, plan.number, batch, source, tuple(transactions), *plan.drivers)
        me, sequence = self._id.store(state, plan.identity, plan.version, plan.sequence, deadline_ms)
        self._end_decided(transactions, me, deadline_ms)
        try:
            # After the decision: what opens later finds its plan over, and aborts itself
            # (`TransactionManager.holder_of`).
            left = self._open_transactions(deadline_ms)
            if self._id.has(me, deadline_ms):  # else they can belong to a newer plan
                self._abort(left, deadline_ms)
            if self._writer.writes_once:
                self._id.store(None, me, plan.version, sequence, deadline_ms)
        except KafkaError as error:  # the batch is visible: a job that failed now would be run again
            logger.warning(
                "%r: batch %d is committed. What failed attempts have left open stays until the next plan, shmaccum "
                "transactions recover, or its timeout: %s",
                self._writer.name,
                batch,
                error,
            )

    def recover(self) -> tuple[list[PreparedTransaction], list[PreparedTransaction]]:
        """Do what the next plan would do for the last batch: commit it if it is decided, and abort what else is open.

        A driver that still runs is fenced.

        Returns:
            What was open and is committed now; what was aborted.

        Raises KafkaError: as `plan`.
        """
        deadline_ms = self._deadline()
        before = self._open_transactions(deadline_ms)
        _, _, left = self._take_over(None, deadline_ms)
        self._abort(left, deadline_ms)
        aborted = {each.transactional_id for each in left}
        return [each for each in before if each.transactional_id not in aborted], left

    def end_batch(self, plan: Plan | None) -> None:
        """End a batch that failed, or whose decision is in doubt: commit it if it is decided, else abort it.

        Without a plan, it is the last batch of the writer's driver.

        Nothing happens if the writer has a newer plan. The state of a writer with a single batch goes: the log would
        keep that of each failed job for ever.

        Raises KafkaError: as `plan`.
        """
        deadline_ms = self._deadline()
        now = self._id.holder(deadline_ms)
        if now is None:
            return
        if plan is not None:
            is_ours = now.identity in _identities(plan, now.state)
        else:
            last = self._id.look(deadline_ms)
            is_ours = (
                last is not None and last.state.driver is not None and last.state.driver.is_same(self._writer.driver)
            )
        if is_ours:
            me, _, left = self._take_over(now.identity, deadline_ms)
            self._abort(left, deadline_ms)
            if self._writer.writes_once:
                self._id.store(None, me, self._id.version, 0, deadline_ms)

    def successor(self, plan: Plan) -> str:
        """Return the newer plan, for an error; empty if there is none to be found."""
        other = self._id.last_driver(self._deadline())
        return "" if other is None or other.is_same(plan.drivers[0]) else self._id.replaced_by(other)

    # --- the transactions ---------------------------------------------------------------------------

    def _take_over(
        self, mine: Identity | None, deadline_ms: float
    ) -> tuple[Identity, WriterState, list[PreparedTransaction]]:
        """Fence older processes of the writer, other than ``mine``, and commit what they decided.

        Return the new identity, the last state, and the transactions that are open and not decided.
        """
        me, state = self._id.take_over(mine, deadline_ms)
        if state.decided_in and state.decided_in == state.plan:
            self._end_decided(state.transactions, me, deadline_ms)
        return me, state, self._open_transactions(deadline_ms)

    def _deadline(self) -> float:
        return deadline_after(self._config.max_block_ms)

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
        """Commit transactions that were decided. The holder of a newer identity than ours may have reused their ids."""
        errors = TransactionEnds(self._client, self._config).end(transactions, commit=True, deadline_ms=deadline_ms)
        lost = [each for each in transactions if isinstance(errors.get(each), GONE)]
        others = [error for error in errors.values() if not isinstance(error, GONE)]
        if lost:
            if not self._id.has(me, deadline_ms):
                raise self._id.fenced(deadline_ms)
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
            if not isinstance(error, GONE):
                logger.warning("transactional.id %r is not aborted: %s", transaction.transactional_id, error)


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
