"""One transactional id at its coordinator: the requests of Kafka's ``TransactionManager``, each until it is answered.

A request is sent again after a retriable error, to the coordinator that the cluster names then. All of them can be
repeated: the brokers recognize the producer id and epoch. No state but the address of the coordinator is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from shmaccum import errors
from shmaccum.cluster import ConsumerGroupMetadata, Node, OffsetAndMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import error_for_code
from shmaccum.kafka import messages
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.poller import monotonic_ms
from shmaccum.kafka.transaction_requests import (
    CONCURRENT_BACKOFF_MS,
    MOVED,
    TRANSACTION,
    add_partitions,
    added,
    find_coordinator,
    worst,
)
from shmaccum.transactions.broker_client import BrokerClient, back_off, call, only

FEATURE: Final = "transaction.version"
"""Finalized feature of the cluster that names the version of the transaction protocol (KIP-890)."""
IMPLICIT: Final = 2
"""The protocol version in which brokers add partitions to a transaction on their first record, and each transaction has
its own epoch."""

_GROUP: Final = 0
_BEFORE_IMPLICIT: Final = 4
"""Of EndTxn and TxnOffsetCommit, the newest version in protocol version 1."""
_FIRST_BUMP: Final = 3
"""The first version of InitProducerId that takes the producer id and epoch to bump (KIP-360)."""
LAST_EPOCH: Final = (1 << 15) - 2
"""A producer id with this epoch gets no later one: its transactional id gets another producer id."""
_LAST_EPOCHS: Final = (LAST_EPOCH, LAST_EPOCH + 1)
"""The coordinator itself uses one more, to fence an open transaction."""

CanAbort = Callable[[type[errors.KafkaError]], bool]
"""Returns whether the producer can go on after it aborts the transaction in which a request got this error."""


def _only(*kinds: type[errors.KafkaError]) -> CanAbort:
    return lambda error: issubclass(error, kinds)


# As in the handlers of ``TransactionManager``. All other final errors end the producer.
_IN_FIND: Final = _only(errors.GroupAuthorizationError, errors.TransactionAbortableError)
_IN_ADD_OFFSETS: Final = _only(
    errors.GroupAuthorizationError, errors.TransactionAbortableError, errors.UnknownProducerIdError
)
_IN_OFFSET_COMMIT: Final = _only(
    errors.FencedInstanceIdError,
    errors.GroupAuthorizationError,
    errors.IllegalGenerationError,
    errors.TransactionAbortableError,
    errors.UnknownMemberIdError,
)
_IN_END: Final = _only(errors.TransactionAbortableError, errors.UnknownProducerIdError)
_NEVER: Final = _only()
_FATAL_IN_ADD_PARTITIONS: Final = (
    errors.InvalidPidMappingError,
    errors.InvalidTxnStateError,
    errors.ProducerFencedError,
    errors.TransactionalIdAuthorizationError,
)


def _in_add_partitions(error: type[errors.KafkaError]) -> bool:
    return not issubclass(error, _FATAL_IN_ADD_PARTITIONS)


class Identity(NamedTuple):
    """The producer id of a transactional id, and an epoch of it."""

    producer_id: int
    epoch: int


class Holder(NamedTuple):
    """Who has a transactional id (``TransactionDescription``)."""

    identity: Identity
    state: str
    """``TransactionState``, by Kafka's name."""


class PreparedTransaction(NamedTuple):
    """An open transaction whose records are all stored: any process that has this can end it."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    """Of the transaction protocol that it was written with."""
    partitions: tuple[TopicPartition, ...]
    """Where its records are."""
    records: int = 0
    """How many, if that is known."""


class TransactionCoordinator:
    """The coordinator of one transactional id.

    ``following``: ids that are used next, whose coordinators are found by the same request.

    Attributes:
        version: of the transaction protocol, as of the last `init_producer_id` or `describe`.
    """

    def __init__(
        self, client: BrokerClient, transactional_id: str, config: ProducerConfig, following: Sequence[str] = ()
    ) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self._following = following
        self._backoff_ms = config.retry_backoff_ms
        self.version = 1

    def init_producer_id(self, timeout_ms: int, last: Identity | None, deadline_ms: float) -> Identity:
        """Return the id's producer id with a new epoch; fence all earlier ones, and abort what they left open.

        With ``last``, this producer's identity, the epoch is raised; if another producer has a newer one, this one is
        fenced. None fences any other.
        """

        def make(connection: Connection) -> Call:
            self.version = protocol_version(connection)
            request = messages.INIT_PRODUCER_ID.of(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1 if last is None else last.producer_id,
                producer_epoch=-1 if last is None else last.epoch,
            )
            return call(request, connection, oldest=_FIRST_BUMP if last is not None else 0)

        response = self._ask(make, _NEVER, deadline_ms)
        return Identity(response.producer_id, response.producer_epoch)

    def add_partitions(self, me: Identity, partitions: Collection[TopicPartition], deadline_ms: float) -> None:
        """Add partitions to the transaction, in protocol version 1."""
        request = add_partitions(self.transactional_id, *me, partitions)

        self._ask(
            partial(call, request), _in_add_partitions, deadline_ms, lambda response: worst(added(response).values())
        )

    def add_group(self, me: Identity, group_id: str, deadline_ms: float) -> None:
        """Add a consumer group to the transaction, in protocol version 1; before `commit_offsets`."""
        request = messages.ADD_OFFSETS_TO_TXN.of(
            transactional_id=self.transactional_id,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            group_id=group_id,
        )
        self._ask(partial(call, request), _IN_ADD_OFFSETS, deadline_ms)

    def commit_offsets(
        self,
        me: Identity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline_ms: float,
    ) -> None:
        """Commit a consumer group's offsets as part of the transaction."""
        # Version 3 is the first that takes a group's generation and member: without them, a member that its group has
        # lost could commit (KIP-447).
        oldest = 3 if group.generation_id >= 0 or group.member_id or group.group_instance_id else 0

        def make(connection: Connection) -> Call:
            of_topic: dict[str, list[Any]] = {}
            for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
                of_topic.setdefault(topic, []).append(
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": leader_epoch,
                        "committed_metadata": metadata,
                    }
                )
            request = messages.TXN_OFFSET_COMMIT.of(
                transactional_id=self.transactional_id,
                group_id=group.group_id,
                producer_id=me.producer_id,
                producer_epoch=me.epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=[{"name": name, "partitions": parts} for name, parts in of_topic.items()],
            )
            return call(request, connection, **_limits(self.version, oldest))

        def code(response: Any) -> int:
            return worst(each.error_code for topic in response.topics for each in topic.partitions)

        def where(response: Any, code: int) -> str:
            refused = [
                f"{topic.name}-{each.partition_index}"
                for topic in response.topics
                for each in topic.partitions
                if each.error_code == code
            ]
            return f", {', '.join(refused)}"

        self._ask(make, _IN_OFFSET_COMMIT, deadline_ms, code, group.group_id, where)

    def end(self, me: Identity, *, commit: bool, version: int, deadline_ms: float) -> Identity:
        """Commit or abort a transaction, by identity and protocol version; return the identity for the next one.

        Raises KafkaError: without its own class, also if an abort is answered by TRANSACTION_ABORTABLE (KIP-1050).
        """

        def make(connection: Connection) -> Call:
            return end_call(connection, self.transactional_id, me, commit=commit, version=version)

        try:
            response = self._ask(make, _IN_END, deadline_ms)
        except errors.TransactionAbortableError as error:
            if commit:
                raise
            # As another abort would not help.
            raise errors.KafkaError(f"Failed to abort transaction: {error}") from error
        if response.producer_id >= 0:  # in version 2
            return Identity(response.producer_id, response.producer_epoch)
        return me

    def describe(self, deadline_ms: float) -> Holder:
        """Return the id's holder, and the state of its transaction; this changes nothing.

        Raises TransactionalIdNotFoundError: none has, or it has expired.
        """

        def make(connection: Connection) -> Call:
            self.version = protocol_version(connection)
            return call(messages.DESCRIBE_TRANSACTIONS.of(transactional_ids=[self.transactional_id]), connection)

        def code(response: Any) -> int:
            return int(only(response.transaction_states, "transactional ids").error_code)

        (found,) = self._ask(make, _NEVER, deadline_ms, code).transaction_states
        return Holder(Identity(found.producer_id, found.producer_epoch), found.transaction_state)

    def follows(self, former: int, me: Identity, timeout_ms: int, deadline_ms: float) -> bool:
        """Return whether a producer id took the place of a former one whose epochs are used up, and is unused since.

        The coordinator keeps the former id, to answer a repeated InitProducerId. It refuses that for any other id. The
        identity stays the same either way, unless a transaction is open.
        """
        for epoch in _LAST_EPOCHS:
            try:
                if self.init_producer_id(timeout_ms, Identity(former, epoch), deadline_ms) == me:
                    return True
            except errors.ProducerFencedError:
                pass  # the answer: another id, or another last epoch
        return False

    # --- until it is answered -----------------------------------------------------------------------

    def _ask(
        self,
        make: Callable[[Connection], Call],
        can_abort: CanAbort,
        deadline_ms: float,
        code_of: Callable[[Any], int] = attrgetter("error_code"),
        group: str | None = None,
        where: Callable[[Any, int], str] = lambda response, code: "",
    ) -> Any:
        """Send a request to the coordinator of the id, or of a group; return the response.

        It is sent until it is answered without a retriable error. ``where`` adds to errors what a code is about.

        Raises:
            ProducerFencedError: a newer producer has the transactional id.
            KafkaTimeoutError: not by the deadline; the request may be processed. The last error is its cause.
            KafkaError: the coordinator refused; ``requires_abort`` is set if an abort leads out of it.
        """
        kind, key = (TRANSACTION, self.transactional_id) if group is None else (_GROUP, group)
        cause: errors.KafkaError | None = None
        while True:
            try:
                node = self._coordinator(kind, key, deadline_ms)
                response = self._client.ask(node, make, deadline_ms)
                code = code_of(response)
                if not code:
                    return response
                raise self._error(error_for_code(code), can_abort, kind, key, where(response, code))
            except MOVED as error:
                self._client.coordinators.pop((kind, key), None)
                cause, wait_ms = error, self._backoff_ms
            except errors.RetriableError as error:
                cause, wait_ms = error, self._backoff_ms
                if isinstance(error, errors.ConcurrentTransactionsError):
                    wait_ms = min(wait_ms, CONCURRENT_BACKOFF_MS)
            except errors.KafkaTimeoutError as error:
                raise self._timed_out(error) from (cause or error)
            if not back_off(wait_ms, deadline_ms):
                raise self._timed_out(cause) from cause

    def _coordinator(self, kind: int, key: str, deadline_ms: float) -> Node:
        node = self._client.coordinators.get((kind, key))
        if node is None:
            following = self._following if kind == TRANSACTION else ()
            response = self._client.ask(None, partial(call, find_coordinator(kind, key, *following)), deadline_ms)
            found = {each.key: each for each in response.coordinators}
            for other in following:
                if other in found and found[other].host and not found[other].error_code:
                    self._learn(kind, other, found[other])
            mine = found.get(key) if found else response
            if mine is not None and mine.error_code:
                raise self._error(error_for_code(mine.error_code), _IN_FIND, kind, key)
            if mine is None or not mine.host:
                raise errors.NetworkError(f"the broker's answer makes no sense: it names no coordinator of {key!r}")
            node = self._learn(kind, key, mine)
        return node

    def _learn(self, kind: int, key: str, found: Any) -> Node:
        node = Node(found.node_id, found.host, found.port)
        self._client.learn_coordinator(kind, key, node)
        return node

    def _error(
        self, error: type[errors.KafkaError], can_abort: CanAbort, kind: int, key: str, where: str = ""
    ) -> errors.KafkaError:
        if error is errors.InvalidProducerEpochError:
            error = errors.ProducerFencedError  # older brokers' code for it (KIP-588)
        what = f"group {key!r}" if kind == _GROUP else f"transactional.id {key!r}"
        made = error(f"{what}{where}: {error.meaning()}")
        made.requires_abort = can_abort(error)
        return made

    def _timed_out(self, cause: errors.KafkaError | None) -> errors.KafkaTimeoutError:
        why = f": {type(cause).__name__}: {cause}" if cause is not None else ""
        return errors.KafkaTimeoutError(
            f"transactional.id {self.transactional_id!r}: not done within max.block.ms{why}"
        )


def protocol_version(connection: Connection) -> int:
    """Return the version of the transaction protocol: `IMPLICIT`, or 1."""
    return IMPLICIT if connection.handshake.versions.features.get(FEATURE, 0) >= IMPLICIT else 1


def end_call(connection: Connection, transactional_id: str, me: Identity, *, commit: bool, version: int) -> Call:
    """Return the request that ends a transaction, which was written with a version of the protocol."""
    request = messages.END_TXN.of(
        transactional_id=transactional_id, producer_id=me.producer_id, producer_epoch=me.epoch, committed=commit
    )
    return call(request, connection, **_limits(version))


def _limits(version: int, oldest: int = 0) -> dict[str, int]:
    """Return the versions of EndTxn or TxnOffsetCommit, from ``oldest`` on, for a version of the protocol."""
    if version >= IMPLICIT:
        return {"oldest": _BEFORE_IMPLICIT + 1}
    return {"oldest": oldest, "newest": _BEFORE_IMPLICIT}


def deadline_after(milliseconds: float) -> float:
    """Return the time this many milliseconds from now, in monotonic milliseconds."""
    return monotonic_ms() + milliseconds
