"""The transactions of one producer: Kafka's ``TransactionManager``, with its states and rules.

The records go through a lane of the slab (`shmaccum.accumulator.state.lanes`), and the sender adds their partitions.
The requests that begin and end a transaction go from this process to the coordinator. So the sender needs no state of
transactions in the slab but the lane's words. If this process dies in a transaction, the sender drops what it had
queued. What was sent stays invisible to ``read_committed`` consumers until the next producer of the id, or the
transaction's timeout, aborts it.

Where Kafka's producer waits in the background, this one waits in the call, at most ``max.block.ms``. A call that ended
with KafkaTimeoutError can be repeated; nothing else can be called then.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from shmaccum import errors
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.state.lanes import LaneLease, LaneTable
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.observe.kafka_metrics import TRANSACTION_CALLS, CallTimes
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import (
    IMPLICIT,
    Identity,
    PreparedTransaction,
    TransactionCoordinator,
    deadline_after,
)
from shmaccum.transactions.transaction import Transaction
from shmaccum.transactions.transaction_state import State, TransactionState

logger = logging.getLogger(__name__)

_REPEATABLE: Final = (errors.ClusterAuthorizationError, errors.TransactionalIdAuthorizationError)
"""Errors after which ``init_transactions`` can be called again, once the user is authorized."""


class TransactionManager:
    """The transactions of one producer with a ``transactional.id``.

    Attributes:
        current: the transaction that is open, else the last one: what a call of ``send`` takes when it begins.
        times: of the calls.
        max_block_ms: how long a call waits. It can be changed between calls.
    """

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator) -> None:
        self.times: Final = CallTimes(TRANSACTION_CALLS)
        self._timeout_ms = config.transaction_timeout_ms
        self.max_block_ms: float = config.max_block_ms
        self._config = config
        self._accumulator = accumulator
        state = accumulator.state
        self._lanes = LaneTable(state.slab, state.map)
        self._lease: LaneLease | None = None
        self._client: BrokerClient | None = None
        self._leader: TransactionCoordinator | None = None
        """Of the last id that `holder_of` was asked about."""
        # On an error, `send` asks for its partitions again: it is refused then.
        self._state = TransactionState(config.transactional_id, lambda: self.current.forget())
        self._me = Identity(-1, -1)
        self._open_as = self._me
        """Identity with which the lane is open."""
        self._version = 1
        """Of the protocol, for the current transaction."""
        self.current = Transaction(self._add, self._outside)
        self._begun: bool | None = False
        """Whether the current transaction has begun at the coordinator: else it is not ended there. None if unknown."""
        self._has_offsets = True
        """Whether all offsets given to the current transaction are committed with it."""
        self._lost_before = 0
        """How many batches of the lane were lost when the current transaction began."""
        self._numbers: list[int] = []
        """What `LaneLease.numbers` were then: those of a batch that is sent are others."""
        self._lock = threading.RLock()
        state.slab.on_fork(self)

    def forked(self) -> None:
        """Keep a forked child's records out of its parent's transaction."""
        self._lock = threading.RLock()
        self.current.forget()

    # --- the calls of users -------------------------------------------------------------------------

    def init(self, transactional_id: str | None = None, following: Sequence[str] = ()) -> None:
        """See `Producer.init_transactions`; another id takes the place of the producer's from now on.

        ``following``: those that are likely to do so next.
        """
        with self._lock, self.times.call("txn-init"):
            self._state.enter(State.INITIALIZING, "init_transactions")
            own_id = self._state.transactional_id = transactional_id or self._state.transactional_id
            deadline_ms = deadline_after(self.max_block_ms)
            self._client = self._client or BrokerClient(self._config)
            self._coordinator = TransactionCoordinator(self._client, own_id, self._config, following)
            if self._lease is None:
                self._lease = self._lanes.lease(own_id)
            self._lease.end_transaction()
            self._wait_until_empty(self._lease, deadline_ms)
            if not self._lease.is_valid:  # else this producer would fence the one that has the lane now
                self._state.fail(self._lease.fenced())
            try:
                with self._state.failing():
                    self._me = self._coordinator.init_producer_id(self._timeout_ms, None, deadline_ms)
                    self._version = self._coordinator.version
                    self._open(self._lease)
            except _REPEATABLE:
                self._state.succeed(State.UNINITIALIZED)
                raise
            self._state.succeed(State.READY)

    def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        with self._lock, self.times.call("txn-begin"):
            self._state.enter(State.IN_TRANSACTION, "begin_transaction")
            self.current = Transaction(self._add, self._outside)
            self._begun, self._has_offsets = False, True
            self._lost_before = self._accumulator.pending.lost[self._held.number]
            self._numbers = self._held.numbers()

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        with self._lock:
            self._state.check(State.IN_TRANSACTION, "send_offsets_to_transaction")
            _check_group(group)
            if not offsets:
                return
            _check_offsets(offsets)
            deadline_ms = deadline_after(self.max_block_ms)
            self._has_offsets = False
            with self.times.call("txn-send-offsets"), self._state.failing():
                with self._beginning():
                    if self._version < IMPLICIT:
                        self._coordinator.add_group(self._me, group.group_id, deadline_ms)
                self._coordinator.commit_offsets(self._me, offsets, group, deadline_ms)
            self._has_offsets = True

    def commit(self) -> None:
        """See `Producer.commit_transaction`."""
        with self._lock, self.times.call("txn-commit"):
            self._check_offsets("commit_transaction")
            self._state.enter(State.COMMITTING_TRANSACTION, "commit_transaction")
            lease = self._held
            deadline_ms = deadline_after(self.max_block_ms)
            self._store_all(lease)
            self._end(lease, commit=True, deadline_ms=deadline_ms)

    def prepare(self) -> PreparedTransaction:
        """Wait until all of the transaction is stored, and leave its end to another process; give up the id and lane.

        `init`, with another id, begins again.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaError: a record was not stored: abort the transaction.
        """
        with self._lock:
            self._check_offsets("prepare")
            # Stay in this state: if not all is stored in time, the transaction can still be aborted.
            self._state.check(State.IN_TRANSACTION, "prepare")
            lease = self._held
            partitions = [queue.topic_partition for queue in self.current.queues.values()]
            self._store_all(lease)
            lease.release()
            self._lease = None
            self._state.succeed(State.UNINITIALIZED)
            return PreparedTransaction(
                self._state.transactional_id, *self._me, self._version, tuple(sorted(partitions))
            )

    @property
    def opens_once(self) -> bool:
        """Whether no record can open the transaction again once another process has ended it (KIP-890)."""
        return self._version >= IMPLICIT

    def holder_of(self, transactional_id: str) -> Identity:
        """Return the identity of another transactional id: of the process that is to end a prepared transaction.

        Raises KafkaError: its coordinator does not answer, or does not know the id.
        """
        with self._lock:
            leader = self._leader
            if leader is None or leader.transactional_id != transactional_id:
                client = self._client = self._client or BrokerClient(self._config)
                leader = self._leader = TransactionCoordinator(client, transactional_id, self._config)
            return leader.describe(deadline_after(self.max_block_ms)).identity

    def abort(self, timeout_ms: float | None = None) -> None:
        """See `Producer.abort_transaction`; wait ``timeout_ms`` at most, if that is less than ``max.block.ms``."""
        with self._lock, self.times.call("txn-abort"):
            self._state.enter(State.ABORTING_TRANSACTION, "abort_transaction")
            lease = self._held
            self.current.forget()
            deadline_ms = deadline_after(min(self.max_block_ms, timeout_ms or self.max_block_ms))
            lease.end_transaction()
            lease.close()
            self._wait_until_empty(lease, deadline_ms)
            self._end(lease, commit=False, deadline_ms=deadline_ms)

    def close(self, timeout_s: float | None) -> None:
        """Abort an open transaction, unless the timeout is 0; leave the lane, and close the connections.

        A call in which another thread waits, for a coordinator or for batches, after the timeout ends with
        ProducerClosedError.
        """
        client = self._client
        if timeout_s is not None and client is not None:
            if self._lock.acquire(timeout=timeout_s):
                self._lock.release()
            else:
                client.interrupt()
                self._accumulator.close()
        with self._lock:
            if self._state.is_forked:
                return
            lease, client = self._lease, self._client
            try:
                if timeout_s != 0 and self._state.allows(State.ABORTING_TRANSACTION):
                    self.abort(None if timeout_s is None else timeout_s * 1000)
            except errors.ProducerFencedError:
                pass  # the producer that fenced this one has aborted its transaction
            except errors.ShmaccumError as error:
                logger.warning(
                    "transactional.id %r: its transaction stays open until its timeout: %s",
                    self._state.transactional_id,
                    error,
                )
            finally:
                self._state.succeed(State.UNINITIALIZED)
                self._lease, self._client, self._leader = None, None, None
                if lease is not None:
                    lease.release()
                if client is not None:
                    client.close()

    @property
    def must_abort(self) -> bool:
        """Whether the transaction has failed, and can only be aborted."""
        return self._state.now is State.ABORTABLE_ERROR

    @property
    def has_unfinished_call(self) -> bool:
        """Whether a call has timed out, so that only the same one can follow."""
        return self._state.now in (State.INITIALIZING, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)

    # --- the path of records ------------------------------------------------------------------------

    def refused(self, error: errors.KafkaError, transaction: Transaction) -> None:
        """Note that a record of a transaction was refused: if it is the open one, it can only be aborted."""
        with self._lock:
            if error.is_api and transaction is self.current and self._state.now is State.IN_TRANSACTION:
                self._state.note(error, of_batch=True)

    def _add(self, transaction: Transaction, of: Iterable[PartitionQueue]) -> None:
        """Give partitions of a transaction, which is still the open one, their deques in the lane (``doSend``)."""
        with self._lock:
            self._state.check(State.IN_TRANSACTION, "send")
            if transaction is not self.current:
                raise self._state.impossible("send", "the transaction in which it was called has ended")
            queues = [queue for queue in of if queue.entry not in transaction.queues]
            if not queues:
                return
            lease = self._held
            if not lease.is_valid:
                self._state.fail(lease.fenced())
            in_lane = {queue.entry: lease.queue(queue) for queue in queues}
            self._begun = self._begun or None  # the first batch begins it, if one is sent
            transaction.queues.update(in_lane)

    def _outside(self, of: PartitionQueue) -> PartitionQueue:
        return self._accumulator.state.map.queues[of.topic_partition]

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Note whether a request has begun the transaction: not if the coordinator refused it."""
        before = self._begun
        self._begun = before or None
        try:
            yield
        except errors.KafkaTimeoutError:
            raise
        except errors.KafkaError:
            self._begun = before
            raise
        self._begun = True

    # --- the end ------------------------------------------------------------------------------------

    def _store_all(self, lease: LaneLease) -> None:
        """Wait until all records of the transaction are stored, or fail it."""
        self.current.forget()
        lease.end_transaction()
        self._accumulator.flush(self.max_block_ms / 1000, lease.number)
        if not lease.is_valid:
            self._state.fail(lease.fenced())
        error = lease.error
        if error is not None:
            self._state.fail(error(f"a batch of the transaction failed: {error.meaning()}"), of_batch=True)
        if self._accumulator.pending.lost[lease.number] != self._lost_before:
            self._state.fail(errors.CorruptRecordError("a batch was lost with a damaged header"), of_batch=True)

    def _end(self, lease: LaneLease, *, commit: bool, deadline_ms: float) -> None:
        """End the transaction at the coordinator, and open the lane for the next one."""
        with self._state.failing():
            if self._begun is not False:
                try:
                    self._me = self._coordinator.end(
                        self._me, commit=commit, version=self._version, deadline_ms=deadline_ms
                    )
                except errors.InvalidTxnStateError:
                    has_begun = lease.numbers() != self._numbers and (commit or self._version >= IMPLICIT)
                    if self._begun or has_begun:
                        raise  # else it never began: no group or partition of it was confirmed, or no batch was sent
                self._begun = False
            if not commit and self._version < IMPLICIT:
                # Dropped batches leave gaps in the numbers, so the next transaction needs another epoch (KIP-360).
                self._me = self._coordinator.init_producer_id(self._timeout_ms, self._me, deadline_ms)
                self._version = self._coordinator.version
            try:
                if self._me != self._open_as or not commit:
                    self._wait_until_empty(lease, deadline_ms)
                    self._open(lease)
                else:
                    lease.go_on()
            except errors.ProducerFencedError as error:
                self._state.note(error)  # this transaction has ended well, and the next one cannot begin
                return
        self._state.succeed(State.READY)

    @property
    def _held(self) -> LaneLease:
        """The lane, which all states but those before `init` have."""
        assert self._lease is not None
        return self._lease

    def _check_offsets(self, what: str) -> None:
        """Refuse to commit a transaction without offsets that the program believes to be part of it."""
        if self._state.now is State.IN_TRANSACTION and not self._has_offsets:
            raise self._state.impossible(
                what, "send_offsets_to_transaction has not ended; call it again, or abort the transaction"
            )

    def _open(self, lease: LaneLease) -> None:
        lease.open(*self._me, self._version)
        self._open_as = self._me

    def _wait_until_empty(self, lease: LaneLease, deadline_ms: float) -> None:
        if not lease.wait_until_empty(deadline_ms / 1000, self._accumulator.check_open):
            raise errors.KafkaTimeoutError(
                f"transactional.id {self._state.transactional_id!r}: batches of its last transaction are still in "
                f"flight after max.block.ms{self._accumulator.pending.trouble()}"
            )
        self._accumulator.pending.poll()


def _check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Check offsets to commit (``OffsetAndMetadata``): whatever else their request raised would count as damage."""
    try:
        for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
            str.encode(topic), str.encode(metadata or ""), struct.pack("iqi", partition, offset, leader_epoch)
            if offset < 0:
                raise ValueError(f"Invalid negative offset {offset} of {topic}-{partition}")
    except (AttributeError, TypeError, ValueError, struct.error) as error:
        raise errors.IllegalArgumentError(
            f"offsets must map each TopicPartition to an OffsetAndMetadata: {error}"
        ) from error


def _check_group(group: ConsumerGroupMetadata) -> None:
    """Check a group's metadata (``ConsumerGroupMetadata``, ``throwIfInvalidGroupMetadata``), as `_check_offsets`."""
    try:
        str.encode(group.group_id), str.encode(group.member_id), str.encode(group.group_instance_id or "")
        struct.pack("i", group.generation_id)
    except (AttributeError, TypeError, ValueError, struct.error) as error:
        raise errors.IllegalArgumentError(
            f"group_metadata must have what ConsumerGroupMetadata has, not be {group!r:.100}: {error}"
        ) from error
    if group.generation_id > 0 and not group.member_id:
        raise errors.IllegalArgumentError(
            f"group metadata of generation {group.generation_id} must have a member_id: pass what the consumer returns"
        )
