"""One connection to a broker, from its opening to its end. It is never opened again; another one takes its place.

What is sent and not answered waits in order, since a broker answers in order. When a connection ends, for whatever
reason, its socket is closed *before* anybody is told what became of their request: from then on nothing refers to
the memory of a batch, and no byte of it can be sent any more.
"""

from __future__ import annotations

import logging
import random
import ssl
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, NetworkError, RequestTimedOutError, SslAuthenticationError
from shmaccum.sender.kafka.background_calls import BackgroundCall, BackgroundCalls
from shmaccum.sender.kafka.channel import Buffer, Channel
from shmaccum.sender.kafka.frames import FrameReader
from shmaccum.sender.kafka.handshake import Call, Conversation, Handshake, Task
from shmaccum.sender.kafka.kafka_python import MISUNDERSTANDINGS, misunderstood
from shmaccum.sender.kafka.poller import READ, WRITE, Poller
from shmaccum.sender.kafka.requests import CallRequest, OnAnswer, OnFailure, Request
from shmaccum.sender.kafka.timing import FOREVER_MS, monotonic_ms
from shmaccum.shm.incidents import printable

logger = logging.getLogger(__name__)

_CORRELATION_IDS: Final = 1 << 31
_FAULTS: Final = (KafkaError, OSError)
"""What can go wrong with a connection, and is the end of it; those of TLS are OSErrors."""
_LOG_IN_PAUSE_MS: Final = 10.0
"""How long to let be a connection that is to log in again and still waits for an answer."""


class _State(Enum):
    OPENING = auto()
    GREETING = auto()
    """Asking for versions, or logging in."""
    READY = auto()
    CLOSED = auto()


_OPENING: Final = _State.OPENING
_READY: Final = _State.READY
_CLOSED: Final = _State.CLOSED


class _Unsent(NamedTuple):
    """A request without an answer (``acks=0``), until it is sent."""

    end: int
    """How many bytes the connection has sent once it is."""
    request: Request


class Owner(Protocol):
    """Who has a connection, and wants to know how it fares."""

    def connection_ready(self, connection: Connection) -> None:
        """Requests can be sent."""

    def connection_closed(self, connection: Connection, error: type[KafkaError] | None, message: str) -> None:
        """It has ended: with an error, or None where it was closed on purpose."""


class Connection:
    """A connection, which begins to open when it is made.

    Args:
        node: the broker.
        channel: to it, being opened.
        handshake: what to say first.
        poller: that waits for the channel.
        config: the settings.
        client_id: our name.
        setup_timeout_ms: how long it may take until it is ready.
        owner: is told when it is ready, and when it has ended.
        background_calls: does what can take long.

    Attributes:
        node: the broker.
        handshake: what is known of the broker.
        last_used_ms: when something was last sent or received.
        has_been_ready: whether requests could ever be sent over it.
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        handshake: Handshake,
        poller: Poller,
        config: ProducerConfig,
        client_id: str,
        setup_timeout_ms: float,
        owner: Owner,
        background_calls: BackgroundCalls,
    ) -> None:
        self.node = node
        self.handshake = handshake
        self._channel = channel
        self._poller = poller
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self.apply(config, client_id)
        self._setup_timeout_ms = setup_timeout_ms
        self._owner = owner
        self._background_calls = background_calls
        self._task: Task | None = None
        """What the handshake waits for, besides the broker."""
        self._background_call: BackgroundCall | None = None
        self._state = _State.OPENING
        self.has_been_ready = False
        self._frames = FrameReader()
        self._conversation: Conversation | None = None
        self._output: list[Buffer] = []
        self._queued_bytes = 0
        self._sent_bytes = 0
        self._in_flight: list[Request] = []
        self._unsent: list[_Unsent] = []
        self._correlation_id = 0
        self._throttled_until_ms = 0.0
        self._log_in_again_ms = FOREVER_MS
        now = monotonic_ms()
        self.last_used_ms = now
        self._setup_deadline_ms = now + setup_timeout_ms
        self._events = WRITE
        poller.add(channel.fileno(), WRITE, self._handle)

    def apply(self, config: ProducerConfig, client_id: str) -> None:
        """Work by these settings from the next request on."""
        self._client_id = client_id
        self._request_timeout_ms = config.request_timeout_ms
        self._max_idle_ms = config.connections_max_idle_ms if config.connections_max_idle_ms >= 0 else FOREVER_MS

    # --- what others want to know -------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Say whether requests can be sent, if not at this very moment."""
        return self._state is _READY

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._state is _State.CLOSED

    @property
    def in_flight(self) -> int:
        """How many requests are sent, or being sent, and not answered."""
        return len(self._in_flight) + len(self._unsent)

    def is_full(self) -> bool:
        """Say whether an answer is to come before the next request may be sent."""
        return len(self._in_flight) >= self._max_in_flight

    def can_send(self, now_ms: float) -> bool:
        """Say whether a request may be sent now: the last one is out, not too many are unanswered, nothing forbids."""
        return (
            self._state is _READY
            and not self._output
            and not self.is_full()
            and now_ms >= self._throttled_until_ms
            and now_ms < self._log_in_again_ms
        )

    def throttle_delay_ms(self, now_ms: float) -> float:
        """Return for how long the broker wants to be left alone."""
        return max(0.0, self._throttled_until_ms - now_ms)

    # --- sending ------------------------------------------------------------------------------------

    def call(self, call: Call, on_answer: OnAnswer, on_failure: OnFailure) -> None:
        """Send a request of the library's."""
        self.send(CallRequest(call, self._client_id, on_answer, on_failure))

    def send(self, request: Request, is_answered: bool = True) -> None:
        """Send a request.

        Args:
            request: the request.
            is_answered: whether the broker answers; otherwise it counts as answered once all of it is sent.
        """
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        self.last_used_ms = now = monotonic_ms()
        request.correlation_id = self._correlation_id
        request.deadline_ms = now + self._request_timeout_ms
        for buffer in request.frame(self._correlation_id):
            self._output.append(buffer)
            self._queued_bytes += len(buffer)
        if is_answered:
            self._in_flight.append(request)
        else:
            self._unsent.append(_Unsent(self._queued_bytes, request))
        try:
            self._flush()
        except _FAULTS as error:
            self._broken(error)

    # --- input and output ---------------------------------------------------------------------------

    def _handle(self, events: int) -> None:
        """Do what the poller found to be possible."""
        try:
            if self._state is _OPENING:
                self._open()
                return
            if events & ~WRITE:
                self._receive()
            if self._output:
                self._flush()
        except _FAULTS as error:
            self._broken(error)

    def _broken(self, error: KafkaError | OSError) -> None:
        """End the connection for what went wrong with it."""
        if isinstance(error, KafkaError):
            self.close(type(error), str(error))
        elif isinstance(error, ssl.SSLEOFError):
            self.close(NetworkError, "the broker closed the connection")
        elif isinstance(error, ssl.SSLError):
            # A broker may say only after the handshake that it does not take our certificate (TLS 1.3).
            kind = NetworkError if self.has_been_ready else SslAuthenticationError
            self.close(kind, f"TLS: {getattr(error, 'verify_message', '') or error.reason or error.strerror}")
        else:
            self.close(NetworkError, error.strerror or type(error).__name__)

    def _open(self) -> None:
        if event := self._channel.open():
            self._watch(event)
            return
        self._watch(READ)
        self._state = _State.GREETING
        self._converse(self.handshake.introduce())

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._poller.watch(self._channel.fileno(), events)
            self._events = events

    def _flush(self) -> None:
        """Send as much as the socket takes; have the poller tell when it takes the rest."""
        output = self._output
        while output:
            written = self._channel.write(output)
            if not written:
                break
            self._sent_bytes += written
            if self._sent_bytes == self._queued_bytes:
                output.clear()
                break
            whole = 0
            while written >= len(output[whole]):
                written -= len(output[whole])
                whole += 1
            del output[:whole]
            if written:
                output[0] = memoryview(output[0])[written:]
        self._watch(READ | WRITE if output else READ)
        while self._unsent and self._unsent[0].end <= self._sent_bytes:
            self._unsent.pop(0).request.answered(b"")

    def _receive(self) -> None:
        for data in self._channel.read():
            self.last_used_ms = now = monotonic_ms()
            self._frames.feed(data)
            while self._state is not _CLOSED and (frame := self._next_frame()) is not None:
                self._answer(frame, now)

    def _next_frame(self) -> bytes | None:
        """Return the next answer, None as long as it is not whole."""
        if not self._in_flight:
            return self._frames.next(-1, 0)
        request = self._in_flight[0]
        return self._frames.next(request.largest_answer, request.correlation_id)

    def _answer(self, frame: bytes, now_ms: float) -> None:
        request = self._in_flight[0]
        # Answered only when it is understood: until then its failure is still to be told.
        try:
            throttle_ms = request.answered(frame)
        except MISUNDERSTANDINGS as error:
            raise misunderstood("the broker's answer makes no sense", error) from error
        if self._state is not _CLOSED:
            self._in_flight.pop(0)
            if throttle_ms:
                # No longer than an answer may take: a broker that asks for days is broken, and its clock no limit.
                pause_ms = min(throttle_ms, self._request_timeout_ms)
                self._throttled_until_ms = max(self._throttled_until_ms, now_ms + pause_ms)

    # --- handshake -----------------------------------------------------------------------------------

    def _converse(self, conversation: Conversation) -> None:
        self._state = _State.GREETING
        self._conversation = conversation
        self._next_step(None)

    def _next_step(self, answer: object) -> None:
        """Give the conversation an answer, and do what it says next."""
        assert self._conversation is not None
        try:
            step = self._conversation.send(answer)
        except StopIteration:
            self._become_ready()
            return
        if isinstance(step, Task):
            self._task = step
            self._background_call = self._background_calls.run(step.key, step.call, self._task_done)
        else:
            self.call(step, self._continue, lambda error, message: None)

    def _continue(self, frame: bytes) -> int:
        self._next_step(frame)
        return 0

    def _task_done(self, result: object, error: BaseException | None) -> None:
        """Go on with what another thread found out."""
        self._task = self._background_call = None
        try:
            if error is not None:
                raise error
            self._next_step(result)
        except _FAULTS as fault:
            self._broken(fault)

    def _become_ready(self) -> None:
        self._state = _State.READY
        self._conversation = None
        self.has_been_ready = True
        lifetime_ms = self.handshake.session_lifetime_ms
        # Before the broker ends the session, and not all connections at once (KIP-368).
        self._log_in_again_ms = monotonic_ms() + lifetime_ms * random.uniform(0.85, 0.95) if lifetime_ms else FOREVER_MS
        self._owner.connection_ready(self)

    # --- time and end -------------------------------------------------------------------------------

    def check(self, now_ms: float) -> float:
        """Do what it is time for; return when to call again at the latest.

        A connection that is not ready in time ends, and one with a request that was not answered in time, and one
        that was not used for long. A login that is about to end is renewed.
        """
        oldest = self._oldest()
        if self._state in (_State.OPENING, _State.GREETING):
            if now_ms >= self._setup_deadline_ms:
                why = f": {self._task.what} takes longer" if self._task is not None else ""
                self.close(NetworkError, f"it was not ready within {self._setup_timeout_ms:.0f} ms{why}")
        elif oldest is not None:
            if now_ms >= oldest.deadline_ms:
                # Nothing behind an answer that is lost can be told apart.
                message = f"no answer within request.timeout.ms ({self._request_timeout_ms} ms)"
                self._end(NetworkError, message, now_ms)
        elif self._state is _State.READY and now_ms >= self.last_used_ms + self._max_idle_ms:
            self.close(None, "it was idle")
        elif self._state is _State.READY and now_ms >= self._log_in_again_ms:
            self._setup_deadline_ms = now_ms + self._setup_timeout_ms
            try:
                self._converse(self.handshake.log_in())
            except _FAULTS as error:
                self._broken(error)
        return self._next_check_ms(now_ms)

    def _oldest(self) -> Request | None:
        """Return the request that has waited longest."""
        if self._in_flight:
            return self._in_flight[0]
        return self._unsent[0].request if self._unsent else None

    def _next_check_ms(self, now_ms: float) -> float:
        if self._state is _State.CLOSED:
            return FOREVER_MS
        if self._state is not _State.READY:
            return self._setup_deadline_ms
        oldest = self._oldest()
        if oldest is not None:
            # A login that is due waits for the last answer, and all that is to be sent waits for the login.
            return min(oldest.deadline_ms, max(self._log_in_again_ms, now_ms + _LOG_IN_PAUSE_MS))
        return min(self.last_used_ms + self._max_idle_ms, self._log_in_again_ms)

    def close(self, error: type[KafkaError] | None, message: str) -> None:
        """End it. Whoever waits for an answer gets the error, NetworkError where it is None."""
        self._end(error, message)

    def _end(self, error: type[KafkaError] | None, message: str, late_ms: float = 0.0) -> None:
        """End it; requests that were to be answered by ``late_ms`` have timed out."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        self._poller.remove(self._channel.fileno())
        self._channel.close()
        self._output.clear()
        self._conversation = None
        if self._background_call is not None:
            self._background_call.cancel()
        failed = [*self._in_flight, *(each.request for each in self._unsent)]
        self._in_flight.clear()
        self._unsent.clear()
        message = printable(f"connection to {describe(self.node)}: {message}")
        for request in failed:
            request.failed(RequestTimedOutError if request.deadline_ms <= late_ms else error or NetworkError, message)
        self._owner.connection_closed(self, error, message)


def describe(node: Node) -> str:
    """Return how messages name a broker; those of ``bootstrap.servers`` have no number yet."""
    return f"broker {node.id} at {node.host}:{node.port}" if node.id >= 0 else f"broker {node.host}:{node.port}"
