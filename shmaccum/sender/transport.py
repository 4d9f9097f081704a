"""The interface of transports, to brokers or a log on disk.

It follows Kafka's ``KafkaClient``. The sender asks whether a node is `ready`, hands it whole requests with `send`, and
gets the answers from `poll`, the only call that waits. By default, no node has to be waited for. A transport never
touches the slab's headers: it reads sealed batches as memory and returns a `ProduceResponse` for each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError


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
        return None

    def cluster(self) -> Cluster:
        """Return the current metadata, without waiting."""

    def request_update(self, topics: Collection[str]) -> None:
        """Request metadata of these topics, also if known; `cluster` shows it once it is there."""

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return whether the node takes a request now; begin to connect if there is no connection."""
        return True

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        """Return how long to wait before asking `ready` again for a node that is not."""
        return 0.0

    def is_busy(self) -> bool:
        """Return whether no node of the cluster takes a request before an event of its own; `poll` returns then."""
        return False

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Send one request: at most a batch of each partition, in this order, all of one transaction or of none."""

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers that came; wait for one up to ``timeout_ms``, or until the descriptor is readable."""

    def apply(self, config: ProducerConfig) -> None:
        """Use other values of the settings of scope shared, from the next request or connection on."""

    def close(self) -> None:
        """Release all resources. The next sender resends batches without an answer."""
