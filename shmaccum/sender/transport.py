"""What the sender needs of the thing that carries batches away: brokers, or a log on disk.

The shape is that of Kafka's ``KafkaClient``: the sender asks whether a node is `ready`, hands it whole
requests with `send`, and gets the answers from `poll`, the only call that may wait. A transport never
touches the slab's headers; it sees sealed batches as memory and answers what became of them.
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
    """One sealed batch, ready to go.

    Attributes:
        topic_partition: where it goes.
        payload: the batch's bytes in Kafka's format, writable, in the slab or (compressed) in private memory: one view,
            or several that follow each other. The transport may set the base offset in the first of them and nothing
            else, and lets go of them once answered.
        size: bytes in all of these.
        record_count: records in it.
        magic: 2, or 0 or 1 for the old message sets.
        producer_id, producer_epoch, base_sequence: identity of the batch; -1 where idempotence is off.
        max_timestamp: largest timestamp in it, milliseconds since the epoch.
        slot: the sender's own handle; comes back with the answer.
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

    def release(self) -> None:
        """Let go of the payload's memory."""
        for view in self.payload:
            view.release()


class ProduceResponse:
    """What became of one `ProduceBatch`.

    Attributes:
        batch: the batch.
        base_offset: the first record's offset, -1 if unknown.
        log_append_time_ms: -1 unless the log stamps records itself.
        error: None if it is stored.
        message: what there is to say of the error.
        words: what the other side, or the network, said of it: without where and whose it was, so that it is the same
            for all batches which it hit.
        invalid_records: the numbers, within the batch, of the records for whose sake it was refused, where the answer
            says so (KIP-467), and what it says of each.
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


class Journal(Protocol):
    """Where a transport notes how its connections fare (`shmaccum.shm.incidents.Incidents`)."""

    @property
    def has_been_let_in(self) -> bool:
        """Whether the cluster has ever let us, or a sender before us, in."""

    def let_in(self) -> None:
        """Note that it has."""

    def note(self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0) -> int:
        """Note an incident; return its number. See `shmaccum.shm.incidents.Incidents.note`."""

    def end(self, number: int) -> None:
        """Note that an incident does not go on."""


class OwnJournal:
    """A journal of a transport without a slab: remembers what the transport goes by, and nothing else."""

    def __init__(self) -> None:
        self.has_been_let_in = False

    def let_in(self) -> None:
        """See `Journal`."""
        self.has_been_let_in = True

    def note(self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0) -> int:
        """See `Journal`."""
        return 0

    def end(self, number: int) -> None:
        """See `Journal`."""


class Transport(Protocol):
    """Carries batches. One thread uses it. Times are in milliseconds of the monotonic clock."""

    def start(self) -> None:
        """Get ready to work. Raises a ShmaccumError that says why it can never work."""

    def init_producer_id(self) -> tuple[int, int] | None:
        """Return a new (producer id, epoch), or None while the answer is under way: `poll`, and call again."""

    def failure(self) -> type[KafkaError] | None:
        """Return why nothing can be sent at all, as with a wrong password; None while there is hope.

        Once the cluster has let us in, there is hope: it may do so again within ``delivery.timeout.ms``.
        """

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

    def apply(self, config: ProducerConfig) -> None:
        """Work by other values of the settings of scope shared, from the next request or connection on."""

    def close(self) -> None:
        """Let go of everything. Batches not answered by then are the next sender's."""
