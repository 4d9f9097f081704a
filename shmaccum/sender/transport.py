"""The interface of transports, to brokers or a log on disk.

It follows Kafka's ``KafkaClient``. The sender asks whether a node is `ready`, hands it whole requests with `send`, and
gets the answers from `poll`, the only call that waits. A transport never touches the slab's headers: it reads sealed
batches as memory and returns a `ProduceResponse` for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from shmaccum.cluster import Cluster, Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.record.fields import BatchMemory

NOTHING: Final[Mapping[int, str]] = MappingProxyType({})


class ProduceBatch:
    """One sealed batch.

    Attributes:
        topic_partition: Where it goes.
        payload: The batch's bytes in Kafka's format, writable, as one view or consecutive ones. They are in the slab,
            or in private memory if the sender compressed them. A transport writes nothing but the base offset, in the
            first view, and keeps no reference to a view after its answer.
        size: Bytes in all views.
        record_count: Records.
        magic: 2, or 0 or 1 for the old message sets.
        producer_id, producer_epoch, base_sequence: Identity of the batch; -1 without idempotence.
        max_timestamp: Largest timestamp in it, milliseconds since the epoch.
        slot: The sender's handle; comes back with the answer.
        transactional_id: Of its transaction, all of whose batches have the same; None outside of transactions.
        transaction_version: Version of the transaction protocol, 1 or 2; 0 outside of transactions.
    """

    __slots__ = (
        "base_sequence",
        "magic",
        "max_timestamp",
        "payload",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
        "slot",
        "topic_partition",
        "transaction_version",
        "transactional_id",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        payload: BatchMemory,
        record_count: int,
        magic: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        max_timestamp: int,
        slot: int,
        transactional_id: str | None = None,
        transaction_version: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.payload = payload
        self.size = sum(map(len, payload))
        self.record_count = record_count
        self.magic = magic
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.max_timestamp = max_timestamp
        self.slot = slot
        self.transactional_id = transactional_id
        self.transaction_version = transaction_version

    def release(self) -> None:
        """Release the payload's views."""
        for view in self.payload:
            view.release()


class ProduceResponse:
    """The answer to one `ProduceBatch`.

    Attributes:
        batch: The batch.
        base_offset: The first record's offset, -1 if unknown.
        log_append_time_ms: -1 unless the log stamps records itself.
        error: None if the batch is stored.
        message: Describes the error, with partition and broker.
        words: The broker's or the network's own text. It names no partition, so that all batches which one incident
            hits have the same.
        invalid_records: If the answer names invalid records (KIP-467), number within the batch -> reason.
    """

    __slots__ = ("base_offset", "batch", "error", "invalid_records", "log_append_time_ms", "message", "words")

    def __init__(
        self,
        batch: ProduceBatch,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        error: type[KafkaError] | None = None,
        message: str = "",
        invalid_records: Mapping[int, str] = NOTHING,
        words: str = "",
    ) -> None:
        self.batch = batch
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.message = message
        self.invalid_records = invalid_records
        self.words = words


class BrokerNotes(Protocol):
    """Records how a broker does, for people (`shmaccum.shm.broker_table.BrokerEntry`). Times are monotonic."""

    def connecting(self) -> None:
        """Note that a connection is being opened."""

    def ready(self) -> None:
        """Note that a connection takes requests."""

    def idle(self) -> None:
        """Note that the connection was closed on purpose."""

    def failed(self, incident: int, *, is_refusal: bool = False) -> None:
        """Note that the connection failed, the number of the incident, and whether a login or certificate was why."""

    def closed(self) -> None:
        """Note that a connection which was ready has ended, for any reason."""

    def sent(self, size: int) -> None:
        """Note a request, and its bytes."""

    def in_flight(self, requests: int, oldest_ms: float) -> None:
        """Note how many requests have no answer, and when the oldest was sent."""

    def answered(self, size: int, latency_ms: float, now_ms: float) -> None:
        """Note an answer, its bytes, and how long it took."""

    def throttled(self, pause_ms: float, until_ms: float) -> None:
        """Note that the broker throttles us, for how long and until when."""


class Journal(Protocol):
    """Records incidents of a transport's connections (`shmaccum.shm.broker_table.BrokerJournal`)."""

    @property
    def has_been_let_in(self) -> bool:
        """Whether the cluster has ever accepted a connection of this sender, or of one before it."""

    def let_in(self) -> None:
        """Note that it has."""

    def metadata_came(self, now_ms: float) -> None:
        """Note an answer with metadata, at a monotonic millisecond."""

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        """Note an incident; return its number. See `shmaccum.shm.incidents.Incidents.note`."""

    def end(self, number: int) -> None:
        """Note that an incident is over."""

    def broker(self, node: Node) -> BrokerNotes:
        """Return what records how a broker does."""


class NoNotes:
    """Records nothing: see `BrokerNotes`."""

    def connecting(self) -> None:
        """See `BrokerNotes`."""

    def ready(self) -> None:
        """See `BrokerNotes`."""

    def idle(self) -> None:
        """See `BrokerNotes`."""

    def failed(self, incident: int, *, is_refusal: bool = False) -> None:
        """See `BrokerNotes`."""

    def closed(self) -> None:
        """See `BrokerNotes`."""

    def sent(self, size: int) -> None:
        """See `BrokerNotes`."""

    def in_flight(self, requests: int, oldest_ms: float) -> None:
        """See `BrokerNotes`."""

    def answered(self, size: int, latency_ms: float, now_ms: float) -> None:
        """See `BrokerNotes`."""

    def throttled(self, pause_ms: float, until_ms: float) -> None:
        """See `BrokerNotes`."""


class OwnJournal:
    """The journal of a transport without a slab: remembers `has_been_let_in` and nothing else."""

    def __init__(self) -> None:
        self.has_been_let_in = False

    def let_in(self) -> None:
        """See `Journal`."""
        self.has_been_let_in = True

    def metadata_came(self, now_ms: float) -> None:
        """See `Journal`."""

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        """See `Journal`."""
        return 0

    def end(self, number: int) -> None:
        """See `Journal`."""

    def broker(self, node: Node) -> NoNotes:
        """See `Journal`."""
        return NoNotes()


class Transport(Protocol):
    """Carries batches. One thread uses it. Times are in milliseconds of the monotonic clock."""

    def start(self) -> None:
        """Start. Raises a ShmaccumError that says why it can never work."""

    def init_producer_id(self) -> tuple[int, int] | None:
        """Return a new (producer id, epoch), or None until a broker has answered: `poll`, and call again."""

    def failure(self) -> type[KafkaError] | None:
        """Return why nothing can be sent at all, such as a wrong password; None if a later attempt can succeed.

        Refused connections do not count once the cluster has accepted one: a retry can succeed.
        """

    def cluster(self) -> Cluster:
        """Return the current metadata, without waiting."""

    def request_update(self, topics: Collection[str]) -> None:
        """Request metadata of these topics, also if known; `cluster` shows it once it is there."""

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return whether the node takes a request now; begin to connect if there is no connection."""

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        """Return how long to wait before asking `ready` again for a node that is not."""

    def is_busy(self) -> bool:
        """Return whether every node of the cluster has as many requests in flight as it may have."""

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Send one request: at most one batch of a partition, partitions in the order given.

        All batches belong to one transaction, or none of them does to any.
        """

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers that came; wait for one up to ``timeout_ms``, or until the descriptor is readable."""

    def apply(self, config: ProducerConfig) -> None:
        """Use other values of the settings of scope shared, from the next request or connection on."""

    def close(self) -> None:
        """Release all resources. The next sender resends batches without an answer."""
