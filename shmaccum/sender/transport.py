"""What the sender needs of the thing that carries batches away: brokers, or a log on disk.

The shape is that of Kafka's ``KafkaClient``: the sender asks whether a node is `ready`, hands it whole
requests with `send`, and gets the answers from `poll`, the only call that may wait. A transport never
touches the slab's headers; it sees sealed batches as memory and answers what became of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from shmaccum.cluster import Cluster, Node, TopicPartition
from shmaccum.errors import KafkaError


class ProduceBatch(NamedTuple):
    """One sealed batch, ready to go.

    Attributes:
        topic_partition: where it goes.
        payload: the batch's bytes in Kafka's format, writable, in the slab or (compressed) in private memory.
            The transport may set the base offset in it and nothing else, and lets go of it once answered.
        record_count: records in it.
        magic: 2, or 0 or 1 for the old message sets.
        producer_id, producer_epoch, base_sequence: identity of the batch; -1 where idempotence is off.
        max_timestamp: largest timestamp in it, milliseconds since the epoch.
        slot: the sender's own handle; comes back with the answer.
    """

    topic_partition: TopicPartition
    payload: memoryview
    record_count: int
    magic: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp: int
    slot: int


class ProduceResponse(NamedTuple):
    """What became of one `ProduceBatch`.

    ``error`` None means stored: ``base_offset`` is the first record's offset (-1 if unknown) and
    ``log_append_time_ms`` is -1 unless the log stamps records itself. ``invalid_records`` are the numbers, within the
    batch, of the records for whose sake a batch was refused, where the answer says so (KIP-467).
    """

    batch: ProduceBatch
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: type[KafkaError] | None = None
    message: str = ""
    invalid_records: tuple[int, ...] = ()


class Transport(Protocol):
    """Carries batches. One thread uses it. Times are in milliseconds of the monotonic clock."""

    def start(self) -> None:
        """Get ready to work. Raises a ShmaccumError that says why it can never work."""

    def init_producer_id(self) -> tuple[int, int] | None:
        """Return a new (producer id, epoch), or None while the answer is under way: `poll`, and call again."""

    def failure(self) -> type[KafkaError] | None:
        """Return why nothing can be sent at all, as with a wrong password; None while there is hope."""

    def cluster(self) -> Cluster:
        """Return what is known now, without waiting."""

    def request_update(self, topics: Collection[str]) -> None:
        """Find out (or find out again) about these topics; `cluster` shows it once known."""

    def ready(self, node: Node, now_ms: int) -> bool:
        """Say whether a request may be sent to the node now; begins to connect where it may not."""

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        """Return how long to wait before asking `ready` again for a node that is not."""

    def is_busy(self) -> bool:
        """Say whether no node of the cluster takes a request before it has answered one."""

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Take one request: at most one batch a partition, in the order of the partitions given."""

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers that came; wait for one up to ``timeout_ms``, or until the descriptor is readable."""

    def close(self) -> None:
        """Let go of everything. Batches not answered by then are the next sender's."""
