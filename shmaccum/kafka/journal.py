"""What connections tell those who watch: incidents, and how each broker does."""

from __future__ import annotations

from shmaccum.cluster import Node
from shmaccum.errors import KafkaError


class BrokerNotes:
    """Records nothing; `shmaccum.shm.broker_table.BrokerEntry` does: how a broker is. Times are monotonic."""

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


class Journal:
    """The incidents of a transport's connections: without a slab, only whether the cluster has accepted one.

    `shmaccum.shm.broker_table.BrokerJournal` records them.
    """

    _was_let_in = False

    @property
    def has_been_let_in(self) -> bool:
        """Whether the cluster has ever accepted a connection of this sender, or of one before it."""
        return self._was_let_in

    def let_in(self) -> None:
        """Note that it has."""
        self._was_let_in = True

    def metadata_came(self, now_ms: float) -> None:
        """Note an answer with metadata, at a monotonic millisecond."""

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        """Note an incident; return its number. See `shmaccum.shm.incidents.Incidents.note`."""
        return 0

    def end(self, number: int) -> None:
        """Note that an incident is over."""

    def broker(self, node: Node) -> BrokerNotes:
        """Return the notes of a broker."""
        return BrokerNotes()
