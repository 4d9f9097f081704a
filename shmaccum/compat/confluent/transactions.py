"""librdkafka's transactional calls: timeouts by call, offsets as lists, and errors that say what can follow."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from shmaccum.cluster import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from shmaccum.compat.confluent.errors import KafkaException, kafka_error, new_error
from shmaccum.errors import IllegalStateError, KafkaTimeoutError, ProducerClosedError, ShmaccumError
from shmaccum.producer.producer import Producer

if TYPE_CHECKING:
    from shmaccum.compat.confluent.calls import Calls

_GROUP_MAGIC: Final = b"CGMDv2:"
"""Begins what ``Consumer.consumer_group_metadata`` of confluent-kafka returns (``rdkafka_cgrp.c``)."""
_LEAST_DEFAULT_S: Final = 60.0


@contextmanager
def transactional_call(producer: Producer, timeout_s: float | None) -> Iterator[None]:
    """Let a transactional call wait for this long, and raise its errors as librdkafka does.

    None or a negative number is ``transaction.timeout.ms``, but at least 60 s.

    Raises:
        KafkaException: _NOT_CONFIGURED without a ``transactional.id``. Else with ``retriable`` if the call can be
            repeated, ``txn_requires_abort`` if only an abort can follow, ``fatal`` if the producer can only be closed.
    """
    if not producer.config.transactional_id:
        raise KafkaException(
            new_error("_NOT_CONFIGURED", "The Transactional API requires transactional.id to be configured")
        )
    transactions = None
    try:
        transactions = producer.transactions
        default_s = max(_LEAST_DEFAULT_S, producer.config.transaction_timeout_ms / 1000)
        transactions.max_block_ms = 1000 * (default_s if timeout_s is None or timeout_s < 0 else timeout_s)
        yield
    except ProducerClosedError as error:
        raise RuntimeError("Producer has been closed") from error
    except IllegalStateError as error:
        if transactions is None or not transactions.has_unfinished_call:
            raise KafkaException(kafka_error(error)) from error
        raise KafkaException(new_error("_CONFLICT", f"Local: Conflicting use: {error}", retriable=True)) from error
    except ShmaccumError as error:
        can_repeat = True if isinstance(error, KafkaTimeoutError) else None
        must_abort = transactions is not None and transactions.must_abort
        raise KafkaException(kafka_error(error, retriable=can_repeat, txn_requires_abort=must_abort)) from error


def offsets_of(positions: Sequence[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of confluent-kafka's TopicPartitions; those without an offset are left out, as there."""
    return {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(
            each.offset, each.metadata or "", -1 if each.leader_epoch is None else each.leader_epoch
        )
        for each in positions
        if each.offset >= 0
    }


def group_of(metadata: object) -> Any:
    """Return a consumer group's member, from what a consumer of confluent-kafka says or an object like Kafka's.

    Raises KafkaException: these are not a consumer's bytes.
    """
    if not isinstance(metadata, bytes):
        return metadata
    try:
        if not metadata.startswith(_GROUP_MAGIC):
            raise ValueError("it does not begin with CGMDv2:")
        at = len(_GROUP_MAGIC)
        (generation,) = struct.unpack_from("<i", metadata, at)
        group, member, rest = metadata[at + 4 :].split(b"\0", 2)
        instance = rest[1:].removesuffix(b"\0").decode() if rest[:1] == b"\0" else None
        return ConsumerGroupMetadata(group.decode(), generation, member.decode(), instance)
    except (ValueError, struct.error) as error:
        raise KafkaException(
            new_error("_INVALID_ARG", f"group_metadata is none of confluent-kafka's consumer: {error}")
        ) from error


class TransactionalCalls:
    """The transactional methods of a producer (`shmaccum.compat.confluent.Producer`)."""

    _shm: Calls

    def init_transactions(self, timeout: float | None = -1) -> None:
        """See `shmaccum.Producer.init_transactions`; raises KafkaException."""
        with transactional_call(self._shm.opened(), timeout):
            self._shm.opened().init_transactions()

    def begin_transaction(self) -> None:
        """See `shmaccum.Producer.begin_transaction`; raises KafkaException."""
        with transactional_call(self._shm.opened(), None):
            self._shm.opened().begin_transaction()

    def send_offsets_to_transaction(
        self, positions: Sequence[Any], group_metadata: Any, timeout: float | None = -1
    ) -> None:
        """Commit offsets with the transaction; raises KafkaException.

        Args:
            positions: confluent-kafka's TopicPartitions.
            group_metadata: what its consumer's ``consumer_group_metadata`` returns.
            timeout: seconds.
        """
        producer = self._shm.opened()
        with transactional_call(producer, timeout):
            producer.send_offsets_to_transaction(offsets_of(positions), group_of(group_metadata))

    def commit_transaction(self, timeout: float | None = -1) -> None:
        """Flush, with callbacks, and commit the transaction; raises KafkaException."""
        self._shm.flush(timeout)
        with transactional_call(self._shm.opened(), timeout):
            self._shm.opened().commit_transaction()

    def abort_transaction(self, timeout: float | None = -1) -> None:
        """Abort the transaction and run the callbacks of its messages; raises KafkaException."""
        with transactional_call(self._shm.opened(), timeout):
            self._shm.opened().abort_transaction()
        self._shm.serve(0.0)
