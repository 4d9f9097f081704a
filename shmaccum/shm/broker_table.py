"""The broker table: how each broker does, for people and monitoring.

The sender alone writes it, without a lock, and no process acts on it. A state is one store, so a death leaves the last
one; the next sender sets all to IDLE. An entry's counters and its histogram go on when another broker takes it: that
happens only after `BROKERS` brokers, and readers see rates. A new entry's STATE is stored last.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from shmaccum import _core
from shmaccum._core import BROKERS, WORD, Broker, Geometry, Super
from shmaccum.cluster import Node
from shmaccum.errors import printable
from shmaccum.shm.distribution import Distribution, read
from shmaccum.shm.layout import MAX_ADDRESS, BrokerState

if TYPE_CHECKING:
    from shmaccum.shm.slab import Slab

_NODE_MASK: Final = (1 << 32) - 1
_SIGN: Final = 1 << 31
_ALL_BITS: Final = (1 << 64) - 1
_LATE_MS: Final = 250
"""An answer that takes longer can be why a call timed out."""


class BrokerInfo(NamedTuple):
    """A snapshot of a broker.

    Attributes:
        node: its id; below 0 for an address of ``bootstrap.servers``, whose broker is not known yet.
        address: host and port.
        state: of the sender's connections to it: ``idle`` (none), ``connecting``, ``ready`` (one is) or ``failed``.
        since_ms: wall-clock milliseconds since when it is in this state.
        ready_connections: connections that are ready.
        connections, failures: connections that became ready, and those that failed.
        in_flight: requests without an answer.
        waiting_ms: how long the oldest of them has been waiting; 0 if there is none.
        answers: requests answered.
        requests: requests sent, of every kind.
        bytes_out, largest_request, bytes_in: bytes in them, in the largest of them, and in the answers.
        closed: connections that were ready, and have ended.
        refused: connections that failed by their login or certificate.
        logins_again: times that a ready connection logged in again.
        last_latency_us: microseconds from the last answered request to its answer.
        answered_ms: how long ago that answer came; None before the first.
        latency: the same of all answered requests.
        throttled_ms: how much longer the broker throttles us; negative: how long ago it ended; None if it never did.
        throttles, throttle_ms, longest_throttle_ms: how often it did, and for how long, in all and at most.
        incident: number of its last incident, 0 for none.
        incident_ms: wall-clock milliseconds of that.
    """

    node: int
    address: str
    state: BrokerState
    since_ms: int
    ready_connections: int
    connections: int
    failures: int
    in_flight: int
    waiting_ms: int
    answers: int
    requests: int
    bytes_out: int
    largest_request: int
    bytes_in: int
    closed: int
    refused: int
    logins_again: int
    last_latency_us: int
    answered_ms: int | None
    latency: Distribution
    throttled_ms: int | None
    throttles: int
    throttle_ms: int
    longest_throttle_ms: int
    incident: int
    incident_ms: int

    def __str__(self) -> str:
        return f"broker {self.node}" if self.node >= 0 else f"broker {self.address}"

    def left(self) -> BrokerInfo:
        """Return this without a sender: its connections ended with it, and so do their requests."""
        state = BrokerState.FAILED if self.state is BrokerState.FAILED else BrokerState.IDLE
        return self._replace(state=state, ready_connections=0, in_flight=0, waiting_ms=0)

    def silence(self) -> str:
        """Return which request the broker has not answered, or what the login waits for; empty if nothing is late."""
        where = f"{self} at {self.address}" if self.node >= 0 else str(self)
        login_ms = self.login_ms()
        if login_ms >= _LATE_MS:
            return f"the login at {where} has been waiting for a token or ticket for {login_ms / 1000:.1f} s"
        if self.state is not BrokerState.CONNECTING or self._has_greeted():
            return unanswered(where, self.waiting_ms, is_first=False)
        return unanswered(where, self._connecting_ms(), is_first=True)

    def login_ms(self) -> int:
        """Return how long the login at a broker that answers has been waiting for a token or ticket; 0 if it is not."""
        is_ours = self.state is BrokerState.CONNECTING and self._has_greeted() and not self.in_flight
        return self.answered_ms or 0 if is_ours else 0

    def _has_greeted(self) -> bool:
        """Return whether the broker has answered a request of the connection that is being opened."""
        return self.answered_ms is not None and self.answered_ms < self._connecting_ms()

    def _connecting_ms(self) -> int:
        return time.time_ns() // 1_000_000 - self.since_ms


_DECODED: Final = {"node", "address", "state", "answered_ms", "throttled_ms"}
_LARGEST: Final = {"waiting_ms", "largest_request", "last_latency_us", "longest_throttle_ms"}
_OF_THE_FIRST: Final = _DECODED | {"since_ms", "incident", "incident_ms"}
"""Fields of a broker with several connections that are not the sum of theirs."""
_PLAIN: Final = [name for name in BrokerInfo._fields if hasattr(Broker, name.upper()) and name not in _DECODED]
"""The fields that are words of the same name, as they are."""


def unanswered(where: str, waiting_ms: float, *, is_first: bool) -> str:
    """Return, for an error, that a broker has not answered; empty if it is not late.

    ``where`` is the broker, with its address; ``waiting_ms`` how long a request has been waiting, or (``is_first``) the
    opening of the connection.
    """
    if waiting_ms < _LATE_MS:
        return ""
    if is_first:
        hint = "is it a Kafka listener, of this security.protocol?"
        return f"{where} has not answered our first request for {waiting_ms / 1000:.1f} s: {hint}"
    return f"{where} has not answered for {waiting_ms / 1000:.1f} s"


class BrokerEntry:
    """The sender's half of a broker's entry (`shmaccum.kafka.journal.BrokerNotes`)."""

    def __init__(self, slab: Slab, entry: int) -> None:
        self._words = slab.words
        self._segment = slab.core
        self._at = slab.geometry.broker(entry)
        self._latencies_at = slab.geometry.broker_histogram(entry)

    def connecting(self) -> None:
        """Note that a connection is being opened."""
        self._change(BrokerState.CONNECTING)

    def ready(self) -> None:
        """Note that a connection takes requests: a new one, or the same after it has logged in again."""
        is_ready = self._words[self._at + Broker.STATE] == BrokerState.READY
        self._add(Broker.LOGINS_AGAIN if is_ready else Broker.CONNECTIONS, 1)
        self._change(BrokerState.READY)

    def idle(self) -> None:
        """Note that the connection was closed on purpose."""
        self._change(BrokerState.IDLE)

    def failed(self, incident: int, *, is_refusal: bool = False) -> None:
        """Note that the connection failed, the number of the incident, and whether a login or certificate was why."""
        words, at = self._words, self._at
        self._add(Broker.FAILURES, 1)
        self._add(Broker.REFUSED, is_refusal)
        words[at + Broker.INCIDENT] = incident
        words[at + Broker.INCIDENT_MS] = time.time_ns() // 1_000_000
        self._change(BrokerState.FAILED)

    def closed(self) -> None:
        """Note that a connection which was ready has ended, for any reason."""
        self._add(Broker.CLOSED, 1)

    def sent(self, size: int) -> None:
        """Note a request, and its bytes."""
        words, at = self._words, self._at
        self._add(Broker.REQUESTS, 1)
        self._add(Broker.BYTES_OUT, size)
        if size > words[at + Broker.LARGEST_REQUEST]:
            words[at + Broker.LARGEST_REQUEST] = size

    def in_flight(self, requests: int, oldest_ms: float) -> None:
        """Note how many requests have no answer, and when the oldest was sent, in monotonic milliseconds."""
        self._words[self._at + Broker.IN_FLIGHT] = requests
        self._words[self._at + Broker.OLDEST_MS] = int(oldest_ms)

    def answered(self, size: int, latency_ms: float, now_ms: float) -> None:
        """Note an answer, its bytes, and how long it took; ``now_ms``: monotonic milliseconds."""
        words, at, latency_us = self._words, self._at, int(latency_ms * 1000)
        self._add(Broker.ANSWERS, 1)
        self._add(Broker.BYTES_IN, size)
        words[at + Broker.LATENCY_US] = latency_us
        words[at + Broker.ANSWERED_MS] = int(now_ms)
        _core.count_value(self._segment, self._latencies_at, latency_us)

    def throttled(self, pause_ms: float, until_ms: float) -> None:
        """Note that the broker throttles us, for how long and until when, in monotonic milliseconds."""
        words, at, pause = self._words, self._at, int(pause_ms)
        self._add(Broker.THROTTLES, 1)
        self._add(Broker.THROTTLE_MS, pause)
        words[at + Broker.LONGEST_THROTTLE_MS] = max(words[at + Broker.LONGEST_THROTTLE_MS], pause)
        words[at + Broker.THROTTLED_MS] = int(until_ms)

    def _add(self, word: int, number: int) -> None:
        self._words[self._at + word] = self._words[self._at + word] + number & _ALL_BITS  # a damaged one wraps around

    def _change(self, state: BrokerState) -> None:
        words, at = self._words, self._at
        if words[at + Broker.STATE] != state:
            words[at + Broker.SINCE_MS] = time.time_ns() // 1_000_000
            words[at + Broker.STATE] = state


class BrokerJournal:
    """What the sender of a slab records of its connections: `shmaccum.kafka.journal.Journal`."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._words = slab.words
        self._geometry = slab.geometry
        self.note: Final = slab.incidents.note
        self.end: Final = slab.incidents.end
        self.let_in: Final = slab.incidents.let_in
        for entry in range(BROKERS):
            at = self._geometry.broker(entry)
            if self._words[at + Broker.STATE]:
                for word in (Broker.IN_FLIGHT, Broker.OLDEST_MS, Broker.THROTTLED_MS):
                    self._words[at + word] = 0
                left = BrokerEntry(slab, entry)
                if self._words[at + Broker.STATE] == BrokerState.READY:
                    left.closed()  # by the death of the sender before
                left.idle()

    @property
    def has_been_let_in(self) -> bool:
        """See `Incidents.has_been_let_in`."""
        return self._slab.incidents.has_been_let_in

    def metadata_came(self, now_ms: float) -> None:
        """Note an answer with metadata, at a monotonic millisecond."""
        self._words[Super.METADATA_MS] = int(now_ms)

    def broker(self, node: Node) -> BrokerEntry:
        """Return the entry of a broker; a new one has its own from now on."""
        words, number = self._words, node.id & _ALL_BITS
        address = printable(node.address).encode()[:MAX_ADDRESS]
        places = [self._geometry.broker(entry) for entry in range(BROKERS)]
        for entry, at in enumerate(places):
            if words[at + Broker.STATE] and words[at + Broker.NODE] == number and _address(words, at) == address:
                return BrokerEntry(self._slab, entry)
        free = [entry for entry, at in enumerate(places) if not words[at + Broker.STATE]]
        if not free:  # the one that has been without a connection for longest; that of the longest connection, if none
            free = sorted(
                range(BROKERS),
                key=lambda entry: (
                    words[places[entry] + Broker.STATE] in (BrokerState.CONNECTING, BrokerState.READY),
                    words[places[entry] + Broker.SINCE_MS],
                ),
            )
        at = places[free[0]]
        words[at + Broker.STATE] = BrokerState.UNUSED
        _core.memory_fence()  # no reader sees a state with the words of another broker
        for word in range(Broker.NODE, Broker.ADDRESS):
            words[at + word] = 0
        with words[at + Broker.ADDRESS : at + Broker.length].cast("B") as place:
            place[: len(address)] = address
        words[at + Broker.ADDRESS_LENGTH] = len(address)
        words[at + Broker.NODE] = number
        words[at + Broker.SINCE_MS] = time.time_ns() // 1_000_000
        _core.memory_fence()
        words[at + Broker.STATE] = BrokerState.IDLE
        return BrokerEntry(self._slab, free[0])


def brokers(words: memoryview, geometry: Geometry) -> list[BrokerInfo]:
    """Read the broker table, sorted by id."""
    found: dict[tuple[int, str], BrokerInfo] = {}
    for entry in sorted(range(BROKERS), key=lambda each: words[geometry.broker(each) + Broker.NODE]):
        if (info := _read(words, geometry, entry)) is not None:
            first = found.get((info.node, info.address))
            found[info.node, info.address] = info if first is None else _together(first, info)
    return sorted(found.values(), key=lambda each: (each.node < 0, abs(each.node)))


def _together(first: BrokerInfo, further: BrokerInfo) -> BrokerInfo:
    """Return what two connections to a broker have done; of its state and incident, what the first one knows."""
    both = {name: (getattr(first, name), getattr(further, name)) for name in first._fields if name not in _OF_THE_FIRST}
    found = {name: max(pair) if name in _LARGEST else pair[0] + pair[1] for name, pair in both.items()}
    return first._replace(state=BrokerState.READY if found["ready_connections"] else first.state, **found)


def _read(words: memoryview, geometry: Geometry, entry: int) -> BrokerInfo | None:
    """Read an entry; None if it is unused, or changes hands just now."""
    at, now_ms = geometry.broker(entry), time.monotonic_ns() // 1_000_000
    state, number = words[at + Broker.STATE], words[at + Broker.NODE]
    if not BrokerState.IDLE <= state <= BrokerState.FAILED:
        return None
    oldest_ms, answered_ms = words[at + Broker.OLDEST_MS], words[at + Broker.ANSWERED_MS]
    throttled_ms = words[at + Broker.THROTTLED_MS]
    info = BrokerInfo(
        node=(number & _NODE_MASK ^ _SIGN) - _SIGN,
        address=printable(_address(words, at).decode("ascii", "replace")),
        state=BrokerState(state),
        ready_connections=int(state == BrokerState.READY),
        waiting_ms=max(0, now_ms - oldest_ms) if oldest_ms else 0,
        last_latency_us=words[at + Broker.LATENCY_US],
        answered_ms=max(0, now_ms - answered_ms) if answered_ms else None,
        latency=read(words, geometry.broker_histogram(entry)),
        throttled_ms=throttled_ms - now_ms if throttled_ms else None,
        **{name: words[at + getattr(Broker, name.upper())] for name in _PLAIN},
    )
    return info if words[at + Broker.NODE] == number and words[at + Broker.STATE] else None


def _address(words: memoryview, at: int) -> bytes:
    length = min(words[at + Broker.ADDRESS_LENGTH], MAX_ADDRESS)
    return words[at + Broker.ADDRESS : at + Broker.ADDRESS + -(-length // WORD)].tobytes()[:length]
