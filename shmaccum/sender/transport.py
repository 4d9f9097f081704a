"""The interface of transports, to brokers or a log on disk.

It follows Kafka's ``KafkaClient``. The sender asks whether a node is `ready`, hands it whole requests with `send`, and
gets the answers from `poll`, the only call that waits. A transport never touches the slab's headers: it reads sealed
batches as memory and returns a `ProduceResponse` for each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.cluster import Cluster, Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError


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
