"""A writer's own transactional id, which fences older processes of it, and its state in the commit log under that id.

A state counts if it has the producer id that the writer's transactional id has *before* it is taken over. That changes
when its epochs are used up, or when the brokers have forgotten it. Then the state is written again under the new id,
before anything else. Until that is done, a state of the former id counts if the coordinator knows that as the former
one. And if the new id was never used, or there is none, any state counts: the topic's access rules protect it then.

A driver plans many batches. Its first plan takes the id over from any other driver. Its later ones only raise the epoch
that it has: if another driver has come since, they fail.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from shmaccum import errors
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import printable
from shmaccum.transactions.administration import ONGOING
from shmaccum.transactions.broker_client import BrokerClient, back_off
from shmaccum.transactions.commit_log import TOPIC, CommitLog, Found
from shmaccum.transactions.coordinator import (
    IMPLICIT,
    LAST_EPOCH,
    Holder,
    Identity,
    TransactionCoordinator,
    deadline_after,
)
from shmaccum.transactions.writer_state import Driver, JunkError, WriterState, decoded, driver_id

logger = logging.getLogger(__name__)

GONE: Final = (
    errors.InvalidPidMappingError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,
    errors.ProducerFencedError,
    errors.TransactionalIdNotFoundError,
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
        name = WriterId(client, config, cls("", prefix, log)).stored_name()
        return None if name is None else cls(name, prefix, log)


class Stored(NamedTuple):
    """A state as it is in the commit log."""

    producer_id: int
    value: bytes
    """As it is stored."""
    name: str
    """The writer's."""
    state: WriterState


class WriterId:
    """The transactional id of one writer, in any process of it."""

    def __init__(self, client: BrokerClient, config: ProducerConfig, writer: Writer) -> None:
        self._config = config
        self._writer = writer
        self._key = writer.transactional_id.encode()
        self._log = CommitLog(client, writer.log, config)
        self._coordinator = TransactionCoordinator(client, writer.transactional_id, config)

    @property
    def version(self) -> int:
        """Version of the transaction protocol, as the coordinator said last."""
        return self._coordinator.version

    def open(self, deadline_ms: float) -> None:
        """Create and check the commit log (`CommitLog.open`)."""
        self._log.open(deadline_ms)

    def has(self, me: Identity, deadline_ms: float) -> bool:
        """Return whether the writer has this identity now."""
        now = self.holder(deadline_ms)
        return now is not None and now.identity == me

    def take_over(self, mine: Identity | None, deadline_ms: float) -> tuple[Identity, WriterState]:
        """Fence older processes of the writer, other than ``mine``; return the new identity, and the last state."""
        self._log.open(deadline_ms)
        while True:
            now = self.holder(deadline_ms)
            if mine is not None and (now is None or now.identity != mine):
                raise self.fenced(deadline_ms)
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
            try:
                me = self._coordinator.init_producer_id(self._config.transaction_timeout_ms, expected, deadline_ms)
            except errors.ProducerFencedError as error:
                raise self.fenced(deadline_ms) from error
            if last is not None and last.producer_id != me.producer_id:
                continue  # the brokers had forgotten the id
            stored = self._stored(self._log.read(self._key, me.producer_id, _any, deadline_ms))  # behind the take-over
            return me, WriterState() if stored is None else stored.state

    def stored_name(self) -> str | None:
        """Return the writer's name as its state has it; None if the commit log has no state."""
        deadline_ms = deadline_after(self._config.max_block_ms)
        last = self.look(deadline_ms)
        if last is None:  # it can be under the former producer id
            last = self._stored(self._log.read(self._key, None, self._is_state, deadline_ms))
        return None if last is None else last.name

    def _prepare(
        self, now: Holder, last: Stored | None, expected: Identity | None, deadline_ms: float
    ) -> Identity | None:
        """Do a step that is needed before the take-over; return the identity after it, None if none is needed."""
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

    def _abort_own(self, now: Holder, deadline_ms: float) -> Identity:
        """Abort the open transaction of the writer's own id; return the identity after that."""
        coordinator = self._coordinator
        try:
            return coordinator.end(now.identity, commit=False, version=coordinator.version, deadline_ms=deadline_ms)
        except GONE as error:
            logger.info("%r: another process has ended its transaction: %s", self._writer.name, error)
            return now.identity

    def holder(self, deadline_ms: float) -> Holder | None:
        """Return the holder of the writer's transactional id, once none of its transactions is being ended; or None."""
        while True:
            try:
                now = self._coordinator.describe(deadline_ms)
            except errors.TransactionalIdNotFoundError:
                return None
            if now.state not in _ENDING:
                return now
            if not back_off(self._config.retry_backoff_ms, deadline_ms):
                raise errors.KafkaTimeoutError(
                    f"transactional.id {self._writer.transactional_id!r}: its transaction has not ended within "
                    f"max.block.ms: {now.state}"
                )

    def _find(self, now: Holder | None, deadline_ms: float) -> Stored | None:
        """Return the state that counts, before the take-over; None if there is none."""
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

    def look(self, deadline_ms: float) -> Stored | None:
        """Return the state under the present producer id, for who takes nothing over; None if there is none."""
        self._log.open(deadline_ms)
        now = self.holder(deadline_ms)
        by = None if now is None else now.identity.producer_id
        return self._stored(self._log.read(self._key, by, self._is_state if now is None else _any, deadline_ms))

    def _read_any(self, why: str, deadline_ms: float) -> Stored | None:
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

    def _stored(self, found: Found) -> Stored | None:
        if found.producer_id is None or not found.value:
            return None
        try:
            name, state = self._decoded(found.value)
        except JunkError as error:
            writer = self._writer
            raise errors.IllegalStateError(
                f"topic {writer.log}: the state of the writer whose ids begin with {writer.prefix!r} cannot be read: "
                f"{printable(str(error))}"
            ) from error
        return Stored(found.producer_id, found.value, name, state)

    def _is_state(self, value: bytes) -> bool:
        """Return whether a record that anyone can have written is a state of the writer."""
        try:
            self._decoded(value)
        except JunkError as error:
            writer, why = self._writer, printable(str(error))
            logger.warning("topic %s: a record of %r is skipped: %s", writer.log, writer.name, why)
            return False
        return True

    def _decoded(self, value: bytes) -> tuple[str, WriterState]:
        name, state = decoded(value, self._writer.prefix)
        if name != self._writer.name and self._writer.name:
            raise JunkError(f"it is the state of {name!r:.200}")
        return name, state

    def _check_loss(self, now: Holder, last: Stored | None) -> None:
        """Refuse to go on where the commit log has lost the state. Nothing is changed by then: it is refused again."""
        writer = self._writer
        if last is None and not _is_new(now) and writer.fail_on_data_loss and not writer.writes_once:
            raise errors.IllegalStateError(
                f"topic {writer.log} has no state of {writer.name!r}, but its transactional.id "
                f"{writer.transactional_id!r} was used: the topic was deleted, or lost records. What was decided last "
                "can be visible in part, and a batch that is repeated is there twice then. Check that, then continue "
                "with failOnDataLoss=false"
            )

    def _is_driver_of(self, state: WriterState) -> bool:
        """Return whether the writer's driver has made the last plan.

        Raises ProducerFencedError: another driver has made it, and has replaced ours.
        """
        mine, last = self._writer.driver, state.driver
        if mine is None or last is None:
            return False
        if mine.is_same(last):
            return True
        if any(mine.is_same(each) for each in state.replaced) and not last.is_gone():
            raise errors.ProducerFencedError(self.replaced_by(last))
        return False

    def store(
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
        except (errors.InvalidProducerEpochError, errors.ProducerFencedError, errors.InvalidTxnStateError) as error:
            raise self.fenced(deadline_ms) from error
        if following.producer_id != me.producer_id:
            return self._write(value, following, version, 0, deadline_ms)
        return following, sequence + 1 if following == me else 0

    def fenced(self, deadline_ms: float) -> errors.ProducerFencedError:
        """Return the error of a process whose transactional id another one has taken over."""
        return errors.ProducerFencedError(self.replaced_by(self.last_driver(deadline_ms)))

    def last_driver(self, deadline_ms: float) -> Driver | None:
        """Return the driver that has planned last; None if there is none to be found."""
        try:
            last = self.look(deadline_ms)
        except errors.KafkaError as error:
            logger.warning("topic %s: who has planned last cannot be read: %s", self._writer.log, error)
            return None
        return None if last is None else last.state.driver

    def replaced_by(self, other: Driver | None) -> str:
        """Return an error's text: the writer has another driver now, or None if that is not known."""
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


def _is_new(holder: Holder) -> bool:
    """Return whether a producer id has ended no transaction yet: the first one has only the writer's state."""
    return holder.identity.epoch == 0 and holder.state in (_UNUSED, ONGOING)


def _any(value: bytes) -> bool:
    """Return that a record of the writer's own counts, whatever it is: if it cannot be read, that is an error."""
    return True
