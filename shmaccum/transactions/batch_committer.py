"""Commits batches of transactions that other processes have written: all of a batch become visible, or none.

A *writer*, such as a streaming query, has batches with rising numbers. For each batch it makes a *plan* first, then
many processes write a transaction each (`TransactionManager.prepare`), and then the batch is committed:

1. The *decision* goes into the commit log: the batch's number and its transactions.
2. Each of these transactions is committed at its coordinator. This can be repeated, by anyone who reads the decision.

A plan does what a writer's death has left undone. It takes the writer's own transactional id over, so that no older
process of the writer can decide or plan any more. It commits the transactions of the last decision, unless a later plan
shows that this was done. It aborts all others whose ids begin with the writer's prefix, and which were open before the
plan was in the log.

A state counts if it has the producer id that the writer's transactional id has *before* it is taken over. That changes
when its epochs are used up, or when the brokers have forgotten it. Then the state is written again under the new id,
before anything else. Until that is done, a state of the former id counts if the coordinator knows that as the former
one. And if the new id was never used, or there is none, any state counts: the topic's access rules protect it then.

A driver plans many batches. Its first plan takes the id over from any other driver. Its later ones only raise the epoch
that it has: if another driver has come since, they fail.

The order matters, and `tools/model/exactly_once.pml` shows that it suffices. An id is used for another transaction only
under a later plan, since InitProducerId would abort one that was decided. And what is open is aborted by EndTxn with
the epoch that was listed before the plan: this hurts no transaction that began later.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    IllegalStateError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    TransactionLostError,
    printable,
)
from shmaccum.sender.kafka.timing import monotonic_ms
from shmaccum.shm import native
from shmaccum.transactions.administration import ONGOING, Transactions
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.commit_log import TOPIC, CommitLog, Found
from shmaccum.transactions.coordinator import (
    IMPLICIT,
    LAST_EPOCH,
    Holder,
    Identity,
    PreparedTransaction,
    TransactionCoordinator,
    deadline_after,
)
from shmaccum.transactions.transaction_ends import TransactionEnds
from shmaccum.transactions.writer_state import Driver, JunkError, WriterState, decoded, driver_id

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
_ENDING: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_UNUSED: Final = "Empty"
"""State of a transactional id before its first transaction, and behind each InitProducerId."""


@dataclass(frozen=True)
class Writer:
    """Who writes batches.

    Attributes:
        name: tells it from all others, and stays the same when it starts again.
        prefix: of all its transactional ids; no other writer's begins with it.
        log: the topic of the commit log.
        fail_on_data_loss: whether a lost transaction is an error, or only logged.
        writes_once: whether it has a single batch, and its state can go after that.
        driver: that plans many batches; None if each plan takes over from any other.
    """

    name: str
    prefix: str
    log: str = TOPIC
    fail_on_data_loss: bool = True
    writes_once: bool = False
    driver: Driver | None = None

    @property
    def transactional_id(self) -> str:
        """The writer's own id, by which an older process of it is fenced."""
        return driver_id(self.prefix)

    @classmethod
    def with_prefix(cls, prefix: str, client: BrokerClient, config: ProducerConfig, log: str = TOPIC) -> Writer | None:
        """Return the writer whose ids begin with a prefix; None if the commit log has no state of one."""
        name = BatchCommitter(client, config, cls("", prefix, log)).stored_name()
        return None if name is None else cls(name, prefix, log)


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


class _Stored(NamedTuple):
    """A state as it is in the commit log."""

    producer_id: int
    value: bytes
    """As it is stored."""
    name: str
    """The writer's."""
    state: WriterState


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
            IllegalStateError: the commit log has lost the writer's state; nothing was taken over then.
            ProducerFencedError: another driver has replaced this one, or another process plans at the same time.
            TransactionLostError: a decided transaction was aborted by its timeout.
            KafkaError: a broker refuses, or does not answer.
        """
        deadline_ms = self._deadline()
        me, state, left = self._take_over(None, deadline_ms)
        driver, replaced = drivers = state.drivers(self._writer.driver)
        state = replace(state, plan=state.plan + 1, driver=driver, replaced=replaced)
        version = self._coordinator.version
        me, sequence = self._store(state, me, version, 0, deadline_ms)
        self._abort(left, deadline_ms)
        return Plan(
            self._writer.transactional_id, state.plan, me, version, sequence, state.batch, state.source, drivers
        )

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
        state = WriterState(plan.number, plan.number, batch, source, tuple(transactions), *plan.drivers)
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

    def settle(self, plan: Plan | None) -> None:
        """Bring a batch to an end that failed, or whose decision is in doubt: committed if it is decided, else aborted.

        Nothing happens if the writer has a newer plan.

        Args:
            plan: of the batch; None for the last one of the writer's driver.

        Raises:
            KafkaError: as `plan`.
        """
        deadline_ms = self._deadline()
        self._log.open(deadline_ms)
        now = self._holder(deadline_ms)
        if now is None:
            return
        if plan is not None:
            is_ours = now.identity in _identities(plan, now.state)
        else:
            last = self._look(deadline_ms)
            is_ours = (
                last is not None and last.state.driver is not None and last.state.driver.is_same(self._writer.driver)
            )
        if is_ours:
            _, _, left = self._take_over(now.identity, deadline_ms)
            self._abort(left, deadline_ms)

    def stored_name(self) -> str | None:
        """Return the writer's name as its state has it; None if the commit log has no state."""
        deadline_ms = self._deadline()
        last = self._look(deadline_ms)
        if last is None:  # it can be under the former producer id
            last = self._stored(self._log.read(self._key, None, self._is_state, deadline_ms))
        return None if last is None else last.name

    def successor(self, plan: Plan) -> str:
        """Return what has come after a plan, for an error; empty if that cannot be found out."""
        try:
            last = self._look(self._deadline())
        except KafkaError as error:
            logger.warning("topic %s: who has planned last cannot be read: %s", self._writer.log, error)
            return ""
        if last is None or last.state.driver is None or last.state.driver == plan.drivers[0]:
            return ""
        return self._replaced_by(last.state.driver)

    # --- take-over ----------------------------------------------------------------------------------

    def _take_over(
        self, mine: Identity | None, deadline_ms: float
    ) -> tuple[Identity, WriterState, list[PreparedTransaction]]:
        """Fence older processes of the writer, and commit what they decided.

        Args:
            mine: identity that this process has; None to fence any other.
            deadline_ms: monotonic milliseconds.

        Returns:
            The new identity, the last state, and the transactions that are open and not decided.
        """
        self._log.open(deadline_ms)
        while True:
            now = self._holder(deadline_ms)
            if mine is not None and (now is None or now.identity != mine):
                raise self._fenced(deadline_ms)
            last = self._find(now, deadline_ms)
            if now is None:
                expected = after = None
            else:
                self._check_loss(now, last)
                continues = mine is not None or (last is not None and self._is_driver_of(last.state))
                expected = now.identity if continues else None
                after = self._prepare(now, last, expected, deadline_ms)
            if after is not None:
                mine = None if mine is None else after
                continue
            me = self._init(expected, deadline_ms)
            if last is not None and last.producer_id != me.producer_id:
                continue  # the brokers had forgotten the id
            state = self._read_last(me, deadline_ms)
            if state.decided_in and state.decided_in == state.plan:
                self._end_decided(state.transactions, me, deadline_ms)
            return me, state, self._open_transactions(deadline_ms)

    def _prepare(
        self, now: Holder, last: _Stored | None, expected: Identity | None, deadline_ms: float
    ) -> Identity | None:
        """Do one step that is needed before the take-over; return the identity after it, or None if none is needed.

        Args:
            now: who has the transactional id.
            last: the state that counts.
            expected: the identity to raise; None to fence any other.
            deadline_ms: monotonic milliseconds.
        """
        is_last = now.identity.epoch >= LAST_EPOCH
        has_state = last is not None and last.producer_id == now.identity.producer_id
        if _is_new(now) and not has_state and not self._writer.writes_once:
            # The first record of a producer id. A repetition by any process stores it once.
            value = WriterState().encoded(self._writer.name) if last is None else last.value
            return self._write(value, now.identity, self._coordinator.version, 0, deadline_ms)[0]
        if now.state == ONGOING:
            # InitProducerId would use an epoch to abort it, and then refuse the one that is expected.
            needed = is_last or expected is not None
            return self._abort_own(now, deadline_ms) if needed else None
        if last is not None and not has_state:
            return self._write(last.value, now.identity, self._coordinator.version, 0, deadline_ms)[0]
        if is_last:
            # As its holder, so that the coordinator remembers the producer id that this one takes the place of.
            timeout_ms = self._config.transaction_timeout_ms
            after = self._coordinator.init_producer_id(timeout_ms, now.identity, deadline_ms)
            if last is not None:
                after, _ = self._write(last.value, after, self._coordinator.version, 0, deadline_ms)
            return after
        return None

    def _init(self, mine: Identity | None, deadline_ms: float) -> Identity:
        try:
            return self._coordinator.init_producer_id(self._config.transaction_timeout_ms, mine, deadline_ms)
        except ProducerFencedError as error:
            raise self._fenced(deadline_ms) from error

    def _abort_own(self, now: Holder, deadline_ms: float) -> Identity:
        """Abort the open transaction of the writer's own id; return the identity after that."""
        coordinator = self._coordinator
        try:
            return coordinator.end(now.identity, commit=False, version=coordinator.version, deadline_ms=deadline_ms)
        except _GONE as error:
            logger.info("%r: another process has ended its transaction: %s", self._writer.name, error)
            return now.identity

    def _holder(self, deadline_ms: float) -> Holder | None:
        """Return who has the writer's transactional id, once no transaction of it is being ended; None if none has."""
        while True:
            try:
                now = self._coordinator.describe(deadline_ms)
            except TransactionalIdNotFoundError:
                return None
            if now.state not in _ENDING:
                return now
            if monotonic_ms() + self._config.retry_backoff_ms > deadline_ms:
                raise KafkaTimeoutError(
                    f"transactional.id {self._writer.transactional_id!r}: its transaction has not ended within "
                    f"max.block.ms: {now.state}"
                )
            native.pause(self._config.retry_backoff_ms / 1000)

    def _find(self, now: Holder | None, deadline_ms: float) -> _Stored | None:
        """Return the state that counts, before the take-over; None if there is none.

        Args:
            now: who has the transactional id.
            deadline_ms: monotonic milliseconds.
        """
        if now is None:
            return self._read_any("the brokers do not know its transactional.id", deadline_ms)
        found = self._log.read(self._key, now.identity.producer_id, _any, deadline_ms)
        if found.producer_id is None and found.others and now.identity.epoch == 0:
            # The coordinator answers this only once: the state is to be written under the new id at once.
            for former in found.others if now.state != ONGOING else ():
                if self._coordinator.follows(former, now.identity, self._config.transaction_timeout_ms, deadline_ms):
                    return self._stored(self._log.read(self._key, former, _any, deadline_ms))
            if _is_new(now):
                return self._read_any("its transactional.id is new to the brokers", deadline_ms)
        elif found.producer_id is not None and found.others:
            logger.warning(
                "topic %s: records of %r by other producer ids are skipped: %s. Only the user of this query should be "
                "allowed to write its state: see docs/exactly-once.md, Rights",
                self._writer.log,
                self._writer.name,
                ", ".join(map(str, sorted(found.others)[:8])),
            )
        return self._stored(found)

    def _look(self, deadline_ms: float) -> _Stored | None:
        """Return the state under the present producer id, for who takes nothing over; None if there is none."""
        self._log.open(deadline_ms)
        now = self._holder(deadline_ms)
        by = None if now is None else now.identity.producer_id
        return self._stored(self._log.read(self._key, by, self._is_state if now is None else _any, deadline_ms))

    def _read_any(self, why: str, deadline_ms: float) -> _Stored | None:
        """Return the last state by anyone."""
        found = self._log.read(self._key, None, self._is_state, deadline_ms)
        stored = self._stored(found)
        if stored is not None:
            logger.warning(
                "topic %s: the state of %r by producer id %d counts, up to batch %s, although %s. "
                "Only the topic's access rules protect such a state",
                self._writer.log,
                self._writer.name,
                stored.producer_id,
                stored.state.batch,
                why,
            )
        return stored

    def _read_last(self, me: Identity, deadline_ms: float) -> WriterState:
        """Return the last state, behind the take-over."""
        stored = self._stored(self._log.read(self._key, me.producer_id, _any, deadline_ms))
        return WriterState() if stored is None else stored.state

    def _stored(self, found: Found) -> _Stored | None:
        if found.producer_id is None or not found.value:
            return None
        try:
            name, state = decoded(found.value, self._writer.prefix)
            if name != self._writer.name and self._writer.name:
                raise JunkError(f"it is the state of {name!r:.200}")
        except JunkError as error:
            writer = self._writer
            raise IllegalStateError(
                f"topic {writer.log}: the state of the writer whose ids begin with {writer.prefix!r} cannot be read: "
                f"{printable(str(error))}"
            ) from error
        return _Stored(found.producer_id, found.value, name, state)

    def _is_state(self, value: bytes) -> bool:
        """Return whether a record that anyone can have written is a state of the writer."""
        try:
            name, _ = decoded(value, self._writer.prefix)
            if name == self._writer.name or not self._writer.name:
                return True
            why = f"it is the state of {name!r:.200}"
        except JunkError as error:
            why = str(error)
        logger.warning("topic %s: a record of %r is skipped: %s", self._writer.log, self._writer.name, printable(why))
        return False

    def _check_loss(self, now: Holder | None, last: _Stored | None) -> None:
        """Refuse to go on where the commit log has lost the state. Nothing is changed by then: it is refused again."""
        writer = self._writer
        if (
            last is None
            and now is not None
            and not _is_new(now)
            and writer.fail_on_data_loss
            and not writer.writes_once
        ):
            raise IllegalStateError(
                f"topic {writer.log} has no state of {writer.name!r}, but its transactional.id "
                f"{writer.transactional_id!r} was used: the topic was deleted, or lost records. What was decided last "
                "can be visible in part, and a batch that is repeated is there twice then. Check that, then continue "
                "with failOnDataLoss=false"
            )

    def _is_driver_of(self, state: WriterState) -> bool:
        """Return whether the writer's driver has made the last plan.

        Raises:
            ProducerFencedError: another driver has made it, and has replaced ours.
        """
        mine, last = self._writer.driver, state.driver
        if mine is None or last is None:
            return False
        if mine.is_same(last):
            return True
        if any(mine.is_same(each) for each in state.replaced) and not last.is_gone():
            raise ProducerFencedError(self._replaced_by(last))
        return False

    def _deadline(self) -> float:
        return deadline_after(self._config.max_block_ms)

    def _store(
        self, state: WriterState | None, me: Identity, version: int, sequence: int, deadline_ms: float
    ) -> tuple[Identity, int]:
        """Write the state, or that there is none any more; return the identity and number for the next one."""
        value = None if state is None else state.encoded(self._writer.name)
        return self._write(value, me, version, sequence, deadline_ms)

    def _write(
        self, value: bytes | None, me: Identity, version: int, sequence: int, deadline_ms: float
    ) -> tuple[Identity, int]:
        """Write a stored state in a transaction of the writer's own, and again if that has used up the producer id."""
        writer, log = self._writer, self._log
        try:
            if version < IMPLICIT:
                partition = TopicPartition(log.topic, log.partition_of(self._key))
                self._coordinator.add_partitions(me, [partition], deadline_ms)
            log.append(writer.transactional_id, me, version, sequence, self._key, value, deadline_ms)
            following = self._coordinator.end(me, commit=True, version=version, deadline_ms=deadline_ms)
        except (InvalidProducerEpochError, ProducerFencedError, InvalidTxnStateError) as error:
            raise self._fenced(deadline_ms) from error
        if following.producer_id != me.producer_id:
            return self._write(value, following, version, 0, deadline_ms)
        return following, sequence + 1 if following == me else 0

    def _fenced(self, deadline_ms: float) -> ProducerFencedError:
        """Return the error of a process whose transactional id another one has taken over."""
        try:
            last = self._look(deadline_ms)
        except KafkaError as error:
            logger.warning("topic %s: who has planned last cannot be read: %s", self._writer.log, error)
            last = None
        return ProducerFencedError(self._replaced_by(None if last is None else last.state.driver))

    def _replaced_by(self, other: Driver | None) -> str:
        writer = self._writer
        if writer.driver is not None and other is not None and not other.is_same(writer.driver):
            return (
                f"{writer.name!r} has another driver now: {other}. This one, {writer.driver}, can commit nothing any "
                "more. Stop one of both: a query with exactlyOnce has one driver. To go on with this one, stop the "
                "other, and start this application again"
            )
        return (
            f"{writer.name!r} has been started again, and the newer one has taken transactional.id "
            f"{writer.transactional_id!r} over: this one can commit nothing any more"
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
            now = self._holder(deadline_ms)
            if now is None or now.identity != me:
                raise self._fenced(deadline_ms)
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


def _is_new(holder: Holder) -> bool:
    """Return whether a producer id has ended no transaction yet: the first one has only the writer's state."""
    return holder.identity.epoch == 0 and holder.state in (_UNUSED, ONGOING)


def _any(value: bytes) -> bool:
    """Return that a record of the writer's own counts, whatever it is: if it cannot be read, that is an error."""
    return True


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
