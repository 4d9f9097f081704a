"""The transactions of one producer: Kafka's ``TransactionManager``, with its states and rules.

The records go through a lane of the slab (`shmaccum.accumulator.state.lanes`), the requests that begin and end a
transaction go from this process to the coordinator. So the sender needs no state of transactions but the lane's words.
If this process dies in a transaction, the sender drops what it had queued. What was sent stays invisible to
``read_committed`` consumers until the next producer of the id, or the transaction's timeout, aborts it.

Where Kafka's producer waits in the background, this one waits in the call, at most ``max.block.ms``. A call that ended
with KafkaTimeoutError can be repeated; nothing else can be called then.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final, NoReturn

from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.record_appender import Route
from shmaccum.accumulator.state.lanes import LaneLease, LaneTable
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    ClusterAuthorizationError,
    CorruptRecordError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPidMappingError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    ShmaccumError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from shmaccum.metrics import TransactionTimes
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import (
    IMPLICIT,
    Identity,
    PreparedTransaction,
    TransactionCoordinator,
    deadline_after,
    is_abortable,
)

logger = logging.getLogger(__name__)

_FATAL: Final = (
    ClusterAuthorizationError,
    InvalidPidMappingError,
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
"""Errors of a batch after which the producer can only be closed (``maybeTransitionToErrorState``)."""

_REPEATABLE: Final = (ClusterAuthorizationError, TransactionalIdAuthorizationError, TransactionAbortableError)
"""Errors after which ``init_transactions`` can be called again, once the user is authorized."""


class State(Enum):
    """States of ``TransactionManager``."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


_S = State
_FROM: Final[Mapping[State, frozenset[State]]] = {
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.INITIALIZING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION}),
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION}),
}
"""From which states a call leads to each."""


class TransactionManager:
    """The transactions of one producer with a ``transactional.id``.

    Args:
        config: the producer's.
        accumulator: the producer's.

    Attributes:
        times: of the calls.
        max_block_ms: how long a call waits. It can be changed between calls.
    """

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator) -> None:
        self.times: Final = TransactionTimes()
        self._id = config.transactional_id
        self._timeout_ms = config.transaction_timeout_ms
        self.max_block_ms: float = config.max_block_ms
        self._config = config
        self._accumulator = accumulator
        state = accumulator.state
        self._lanes = LaneTable(state.slab, state.map)
        self._lease: LaneLease | None = None
        self._client: BrokerClient | None = None
        self._state = State.UNINITIALIZED
        self._error: KafkaError | None = None
        """Why the state is one of the two errors."""
        self._me = Identity(-1, -1)
        self._open_as = self._me
        """Identity with which the lane is open."""
        self._version = 1
        """Of the protocol, for the current transaction."""
        self._queues: dict[int, PartitionQueue] = {}
        """Partition entry outside of transactions -> the lane's deque, of partitions in the current transaction."""
        self._routes: dict[int, tuple[Route, _LaneRoute]] = {}
        self._begun: bool | None = False
        """Whether the current transaction has begun at the coordinator: else it is not ended there. None if unknown."""
        self._has_offsets = True
        """Whether all offsets given to the current transaction are committed with it."""
        self._lost_before = 0
        """`PendingBatches.lost` when the current transaction began."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        state.slab.on_fork(self)

    def forked(self) -> None:
        """Keep a forked child's records out of its parent's transaction."""
        self._lock = threading.RLock()
        self._queues = {}

    # --- the calls of users -------------------------------------------------------------------------

    def init(self, transactional_id: str | None = None) -> None:
        """See `Producer.init_transactions`.

        Args:
            transactional_id: takes the place of the producer's own from now on; None keeps it.
        """
        with self._lock, self.times.call("init"):
            self._enter(State.INITIALIZING, "init_transactions")
            self._id = transactional_id or self._id
            deadline_ms = deadline_after(self.max_block_ms)
            self._client = self._client or BrokerClient(self._config)
            self._coordinator = TransactionCoordinator(self._client, self._id, self._config)
            if self._lease is None:
                self._lease = self._lanes.lease(self._id)
            self._wait_until_empty(self._lease, deadline_ms)
            if not self._lease.is_valid:  # else this producer would fence the one that has the lane now
                self._fail(self._lease.fenced())
            try:
                with _Failing(self):
                    self._me = self._coordinator.init_producer_id(self._timeout_ms, None, deadline_ms)
                    self._version = self._coordinator.version
                    self._open(self._lease)
            except _REPEATABLE:
                self._state, self._error = State.UNINITIALIZED, None
                raise
            self._state = State.READY

    def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        with self._lock, self.times.call("begin"):
            self._enter(State.IN_TRANSACTION, "begin_transaction")
            self._begun, self._has_offsets = False, True
            self._lost_before = self._accumulator.pending.lost

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        with self._lock:
            self._check(State.IN_TRANSACTION, "send_offsets_to_transaction")
            _check_group(group)
            if not offsets:
                return
            deadline_ms = deadline_after(self.max_block_ms)
            self._has_offsets = False
            with self.times.call("send-offsets"), _Failing(self):
                with self._beginning():
                    if self._version < IMPLICIT:
                        self._coordinator.add_group(self._me, group.group_id, deadline_ms)
                self._coordinator.commit_offsets(self._me, offsets, group, deadline_ms)
            self._has_offsets = True

    def commit(self) -> None:
        """See `Producer.commit_transaction`."""
        with self._lock, self.times.call("commit"):
            self._check_offsets("commit_transaction")
            lease = self._enter(State.COMMITTING_TRANSACTION, "commit_transaction")
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
            lease = self._enter(State.COMMITTING_TRANSACTION, "prepare")
            partitions = [queue.topic_partition for queue in self._queues.values()]
            self._store_all(lease)
            lease.release()
            self._lease, self._state = None, State.UNINITIALIZED
            return PreparedTransaction(self._id, *self._me, self._version, tuple(sorted(partitions)))

    def abort(self, timeout_ms: float | None = None) -> None:
        """See `Producer.abort_transaction`; wait ``timeout_ms`` at most, if that is less than ``max.block.ms``."""
        with self._lock, self.times.call("abort"):
            lease = self._enter(State.ABORTING_TRANSACTION, "abort_transaction")
            self._queues.clear()
            deadline_ms = deadline_after(min(self.max_block_ms, timeout_ms or self.max_block_ms))
            lease.close()
            self._wait_until_empty(lease, deadline_ms)
            self._end(lease, commit=False, deadline_ms=deadline_ms)

    def close(self, timeout_s: float | None) -> None:
        """Abort an open transaction, unless the timeout is 0; leave the lane, and close the connections.

        A call in which another thread waits for a coordinator after the timeout ends with ProducerClosedError.
        """
        client = self._client
        if timeout_s is not None and client is not None:
            if self._lock.acquire(timeout=timeout_s):
                self._lock.release()
            else:
                client.interrupt()
        with self._lock:
            if self._pid != os.getpid():
                return
            lease, client = self._lease, self._client
            try:
                if timeout_s != 0 and self._state in _FROM[State.ABORTING_TRANSACTION]:
                    self.abort(None if timeout_s is None else timeout_s * 1000)
            except ShmaccumError as error:
                logger.warning(
                    "transactional.id %r: its transaction stays open until its timeout: %s",
                    self._id,
                    error,
                )
            finally:
                self._state, self._lease, self._client = State.UNINITIALIZED, None, None
                if lease is not None:
                    lease.release()
                if client is not None:
                    client.close()

    @property
    def must_abort(self) -> bool:
        """Whether the transaction has failed, and can only be aborted."""
        return self._state is State.ABORTABLE_ERROR

    @property
    def has_unfinished_call(self) -> bool:
        """Whether a call has timed out, so that only the same one can follow."""
        return self._state in (State.INITIALIZING, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)

    # --- the path of records ------------------------------------------------------------------------

    def queue(self, of: PartitionQueue) -> PartitionQueue:
        """Return the deque for a record in the current transaction, given the one outside of transactions.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaError: the transaction has failed, or the coordinator does not take the partition.
        """
        queue = self._queues.get(of.entry)
        return self._queue_of(of) if queue is None else queue

    def queues(self, of: Iterable[PartitionQueue]) -> list[PartitionQueue]:
        """Return what `queue` does for several partitions, which one request adds to the transaction."""
        with self._lock:
            found = list(of)
            self._add([queue for queue in found if queue.entry not in self._queues])
            return [self._queues[queue.entry] for queue in found]

    def route(self, route: Route) -> Route:
        """Return a route that leads to the lane's deques."""
        known = self._routes.get(id(route))
        if known is None or known[0] is not route:
            known = self._routes[id(route)] = route, _LaneRoute(route, self)
        return known[1]

    def outside(self, of: PartitionQueue) -> PartitionQueue:
        """Return the deque outside of transactions, given one of the lane."""
        return self._accumulator.state.map.queues[of.topic_partition]

    def refused(self, error: KafkaError) -> None:
        """Note that a record of the current transaction was refused: it can only be aborted (``doSend``)."""
        with self._lock:
            if error.is_api and self._state is State.IN_TRANSACTION:
                self._set_error(error, isinstance(error, _FATAL))

    def _queue_of(self, of: PartitionQueue) -> PartitionQueue:
        with self._lock:
            if of.entry not in self._queues:
                self._add([of])
            return self._queues[of.entry]

    def _add(self, queues: list[PartitionQueue]) -> None:
        """Add partitions to the transaction."""
        lease = self._check(State.IN_TRANSACTION, "send")
        if not queues:
            return
        if not lease.is_valid:
            self._fail(lease.fenced())
        in_lane = {queue.entry: lease.queue(queue) for queue in queues}
        with _Failing(self), self._beginning():
            if self._version < IMPLICIT:
                partitions = [queue.topic_partition for queue in queues]
                self._coordinator.add_partitions(self._me, partitions, deadline_after(self.max_block_ms))
        self._queues.update(in_lane)

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Note whether a request has begun the transaction: not if the coordinator refused it."""
        before = self._begun
        self._begun = before or None
        try:
            yield
        except KafkaTimeoutError:
            raise
        except KafkaError:
            self._begun = before
            raise
        self._begun = True

    # --- states -------------------------------------------------------------------------------------

    def _store_all(self, lease: LaneLease) -> None:
        """Wait until all records of the transaction are stored, or fail it."""
        self._queues.clear()
        self._accumulator.flush(self.max_block_ms / 1000)
        if not lease.is_valid:
            self._fail(lease.fenced())
        error = lease.error
        if error is not None:
            self._fail(error(f"a batch of the transaction failed: {error.meaning()}"), of_batch=True)
        if self._accumulator.pending.lost != self._lost_before:
            self._fail(CorruptRecordError("a batch was lost with a damaged header"), of_batch=True)

    def _end(self, lease: LaneLease, *, commit: bool, deadline_ms: float) -> None:
        """End the transaction at the coordinator, and open the lane for the next one."""
        with _Failing(self):
            if self._begun is not False:
                try:
                    self._me = self._coordinator.end(
                        self._me, commit=commit, version=self._version, deadline_ms=deadline_ms
                    )
                except InvalidTxnStateError:
                    if self._begun:
                        raise  # else it never began: no partition or group of it was confirmed
                self._begun = False
            if not commit and self._version < IMPLICIT:
                # Dropped batches leave gaps in the numbers, so the next transaction needs another epoch (KIP-360).
                self._me = self._coordinator.init_producer_id(self._timeout_ms, self._me, deadline_ms)
                self._version = self._coordinator.version
            if self._me != self._open_as or not commit:
                self._wait_until_empty(lease, deadline_ms)
                try:
                    self._open(lease)
                except ProducerFencedError as error:  # this transaction has ended well, and the next one cannot begin
                    self._state, self._error = State.FATAL_ERROR, error
                    return
        self._error = None
        self._state = State.READY

    def _enter(self, state: State, what: str) -> LaneLease:
        """Change to a state, if the present one allows that; return the lease, which all but `init` have."""
        self._check_process()
        if self._state not in _FROM[state]:
            self._refuse(what, state)
        self._state = state
        return self._lease  # type: ignore[return-value]

    def _check(self, state: State, what: str) -> LaneLease:
        self._check_process()
        if self._state is not state:
            self._refuse(what, state)
        assert self._lease is not None
        return self._lease

    def _check_offsets(self, what: str) -> None:
        """Refuse to commit a transaction without offsets that the program believes to be part of it."""
        if self._state is State.IN_TRANSACTION and not self._has_offsets:
            raise IllegalStateError(
                f"transactional.id {self._id!r}: {what} is not possible: send_offsets_to_transaction has not ended; "
                "call it again, or abort the transaction"
            )

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"transactional.id {self._id!r}: the transactions belong to process {self._pid}, which this one was "
                "forked from; make another producer here, with another transactional.id"
            )

    def _refuse(self, what: str, to: State) -> NoReturn:
        """Raise the error for a call that the present state does not allow."""
        if self._state in (State.ABORTABLE_ERROR, State.FATAL_ERROR) and self._error is not None:
            advice = "abort the transaction" if self._state is State.ABORTABLE_ERROR else "close the producer"
            raise type(self._error)(
                f"Cannot execute transactional method because we are in an error state; {advice}: {self._error}"
            ) from self._error
        raise IllegalStateError(
            f"transactional.id {self._id!r}: {what} is not possible: Invalid transition attempted from state "
            f"{self._state.value} to state {to.value}"
        )

    def _fail(self, error: KafkaError, *, of_batch: bool = False) -> NoReturn:
        """Raise an error after which the transaction can only be aborted, or the producer only be closed."""
        is_final = isinstance(error, _FATAL) if of_batch else not is_abortable(type(error))
        self._set_error(error, is_final)
        raise error

    def _set_error(self, error: KafkaError, is_final: bool) -> None:
        self._state = State.FATAL_ERROR if is_final else State.ABORTABLE_ERROR
        self._error = error
        self._queues.clear()  # else `send` would take more for the partitions that it knows

    def _open(self, lease: LaneLease) -> None:
        lease.open(*self._me, self._version)
        self._open_as = self._me

    def _wait_until_empty(self, lease: LaneLease, deadline_ms: float) -> None:
        if not lease.wait_until_empty(deadline_ms / 1000):
            raise KafkaTimeoutError(
                f"transactional.id {self._id!r}: batches of its last transaction are still in flight after max.block.ms"
                f"{self._accumulator.pending.trouble()}"
            )
        self._accumulator.pending.poll()


class _Failing:
    """Turns errors of the coordinator into a state; a timeout leaves the state, so that the call can be repeated."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KafkaError) and not isinstance(error, KafkaTimeoutError | IllegalStateError):
            self._manager._fail(error)


class _LaneRoute:
    """Leads where another route leads, in a lane."""

    def __init__(self, route: Route, manager: TransactionManager) -> None:
        self._route = route
        self._manager = manager

    def reroute(self, queue: PartitionQueue) -> PartitionQueue:
        """See `Route`."""
        return self._manager.queue(self._route.reroute(self._manager.outside(queue)))


def _check_group(group: ConsumerGroupMetadata) -> None:
    """Check a group's metadata (``ConsumerGroupMetadata``, ``throwIfInvalidGroupMetadata``)."""
    for name in ("group_id", "generation_id", "member_id", "group_instance_id"):
        if not hasattr(group, name):
            raise IllegalArgumentError(
                f"group_metadata must have {name}, as ConsumerGroupMetadata has: it is a {type(group).__name__}"
            )
    if group.generation_id > 0 and not group.member_id:
        raise IllegalArgumentError(
            f"group metadata of generation {group.generation_id} must have a member_id: pass what the consumer returns"
        )
