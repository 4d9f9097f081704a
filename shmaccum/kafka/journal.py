"""What connections tell those who watch: incidents, and how each broker does."""

from __future__ import annotations

from typing import Protocol

from shmaccum.cluster import Node
from shmaccum.errors import KafkaError


# The bodies of both protocols end by a return: mypy would take their methods for abstract.
class BrokerNotes(Protocol):
    """Records how a broker does, for people (`shmaccum.shm.broker_table.BrokerEntry`). Times are monotonic."""

    def connecting(self) -> None:
        """Note that a connection is being opened."""
        return

    def ready(self) -> None:
        """Note that a connection takes requests."""
        return

    def idle(self) -> None:
        """Note that the connection was closed on purpose."""
        return

    def failed(self, incident: int, *, is_refusal: bool = False) -> None:
        """Note that the connection failed, the number of the incident, and whether a login or certificate was why."""
        return

    def closed(self) -> None:
        """Note that a connection which was ready has ended, for any reason."""
        return

    def sent(self, size: int) -> None:
        """Note a request, and its bytes."""
        return

    def in_flight(self, requests: int, oldest_ms: float) -> None:
        """Note how many requests have no answer, and when the oldest was sent."""
        return

    def answered(self, size: int, latency_ms: float, now_ms: float) -> None:
        """Note an answer, its bytes, and how long it took."""
        return

    def throttled(self, pause_ms: float, until_ms: float) -> None:
        """Note that the broker throttles us, for how long and until when."""
        return


class NoNotes(BrokerNotes):
    """Records nothing."""


class Journal(Protocol):
    """Records incidents of a transport's connections (`shmaccum.shm.broker_table.BrokerJournal`)."""

    @property
    def has_been_let_in(self) -> bool:
        """Whether the cluster has ever accepted a connection of this sender, or of one before it."""
        return False

    def let_in(self) -> None:
        """Note that it has."""
        return

    def metadata_came(self, now_ms: float) -> None:
        """Note an answer with metadata, at a monotonic millisecond."""
        return

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        """Note an incident; return its number. See `shmaccum.shm.incidents.Incidents.note`."""
        return 0

    def end(self, number: int) -> None:
        """Note that an incident is over."""
        return

    def broker(self, node: Node) -> BrokerNotes:
        """Return the notes of a broker."""
        return NoNotes()


class OwnJournal(Journal):
    """The journal of a transport without a slab: remembers `has_been_let_in` and nothing else."""

    has_been_let_in = False

    def let_in(self) -> None:
        """See `Journal`."""
        self.has_been_let_in = True
