"""What the sender and the coordinators' clients share of the requests of transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from shmaccum import errors
from shmaccum.cluster import TopicPartition
from shmaccum.errors import error_for_code
from shmaccum.kafka.messages import ADD_PARTITIONS_TO_TXN, FIND_COORDINATOR
from shmaccum.kafka.schema import ApiMessage

TRANSACTION: Final = 1
"""Kind of the coordinators of transactional ids, in FindCoordinator."""
MOVED: Final = (
    errors.NotCoordinatorError,
    errors.CoordinatorNotAvailableError,
    errors.RequestTimedOutError,
    errors.NetworkError,
)
"""Retriable errors after which the cluster is asked who coordinates."""
CONCURRENT_BACKOFF_MS: Final = 20
"""``TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS``: the end of the last transaction takes milliseconds."""


def find_coordinator(kind: int, key: str, *others: str) -> ApiMessage:
    """Return the request for the coordinator of a transactional id, or of a group; from version 4 on also of others."""
    return FIND_COORDINATOR.of(key=key, key_type=kind, coordinator_keys=[key, *others])


def add_partitions(
    transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
) -> ApiMessage:
    """Return the request that adds partitions to a transaction, in protocol version 1."""
    of_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        of_topic.setdefault(topic, []).append(partition)
    return ADD_PARTITIONS_TO_TXN.of(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[{"name": name, "partitions": numbers} for name, numbers in of_topic.items()],
    )


def added(response: Any) -> dict[TopicPartition, int]:
    """Return the partitions in the answer to `add_partitions`, with their error codes."""
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def worst(codes: Iterable[int]) -> int:
    """Return the error code that decides: one that cannot be retried, else any, else 0.

    OPERATION_NOT_ATTEMPTED only says that another partition's error decides.
    """
    found = [code for code in codes if code]
    causes = [code for code in found if code != errors.OperationNotAttemptedError.code]
    final = [code for code in causes if not error_for_code(code).retriable]
    return int((final or causes or found or [0])[0])
