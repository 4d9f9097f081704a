"""One connection to a broker, from opening to close; never reopened.

Requests in flight wait in order, since a broker answers in order. When a connection ends, it closes its socket *before*
it fails its requests. From then on nothing refers to the memory of a batch, and no byte of it can still be sent.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.config.rules import MAX_IN_FLIGHT_FOR_IDEMPOTENCE
from shmaccum.errors import KafkaError, NetworkError, RequestTimedOutError, SslAuthenticationError, printable
from shmaccum.kafka.background_calls import BackgroundCall
from shmaccum.kafka.channel import Buffer, Channel
from shmaccum.kafka.codec import encode
from shmaccum.kafka.frames import FrameReader
from shmaccum.kafka.handshake import Call, Conversation, Handshake, Task
from shmaccum.kafka.journal import BrokerNotes
from shmaccum.kafka.poller import FOREVER_MS, READ, WRITE, monotonic_ms

if TYPE_CHECKING:
    from shmaccum.kafka.brokers import Brokers

logger = logging.getLogger(__name__)

_CORRELATION_IDS: Final = 1 << 31
_FAULTS: Final = (KafkaError, OSError)
"""Errors that end a connection; those of TLS are OSErrors."""
_MOST_IN_FLIGHT: Final = 1000
_SIZE_BYTES: Final = 4
"""In front of a frame: its size."""
_NO_LOGIN: Final = "; does this port need a login, by security.protocol SASL_PLAINTEXT or SASL_SSL?"
_LOG_IN_PAUSE_MS: Final = 10.0
"""Wait between checks of a connection that is to log in again, and has a request in flight."""


class _State(Enum):
    OPENING = auto()
    GREETING = auto()
    """Requesting versions, or logging in."""
    READY = auto()
    CLOSED = auto()


_OPENING, _GREETING, _READY, _CLOSED = _State

OnAnswer = Callable[[bytes], int]
"""Handles the frame of an answer, empty with ``acks=0``; returns the milliseconds that we are throttled for."""
OnFailure = Callable[[type[KafkaError], str], None]
"""Handles the reason why no answer will come."""


class Request:
    """A request; the connection calls either `answered` or `failed`, once, and sets the other attributes.

    Args:
        frame: returns its bytes, given the connection's number for it. They are not copied, so they must not change
            until it is answered.
        largest_answer: most bytes of its answer; a larger one is refused before it takes memory.
    """

    __slots__ = ("answered", "correlation_id", "deadline_ms", "end", "failed", "frame", "largest_answer", "sent_ms")

    correlation_id: int
    """The connection's number for it."""
    sent_ms: float
    deadline_ms: float
    """When it times out."""
    end: int
    """The connection's count of sent bytes once all of it is sent."""

    def __init__(
        self, frame: Callable[[int], list[Buffer]], answered: OnAnswer, failed: OnFailure, largest_answer: int
    ) -> None:
        self.frame = frame
        self.answered = answered
        self.failed = failed
        self.largest_answer = largest_answer


class Connection:
    """A connection; it begins to open when constructed."""

    def __init__(
        self,
        node: Node,
        channel: Channel,
        handshake: Handshake,
        setup_timeout_ms: float,
        owner: Brokers,
        notes: BrokerNotes,
    ) -> None:
        config = owner.config
        self.node = node
        self._notes = notes
        self.handshake = handshake
        self._channel = channel
        self._poller = owner.poller
        self._max_in_flight = config.max_in_flight_requests_per_connection
        if config.enable_idempotence and self._max_in_flight == MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
            # The default bounds each partition (`ReadyCheck`): more of a connection would only be more partitions.
            self._max_in_flight = _MOST_IN_FLIGHT
        self.apply(config, owner.client_id)
        self._setup_timeout_ms = setup_timeout_ms
        self._owner = owner
        self._task: Task | None = None
        """The background call that the handshake waits for."""
        self._background_call: BackgroundCall | None = None
        self._state = _OPENING
        self.has_been_ready = False
        self.distance_ms = FOREVER_MS
        """The shortest time that an answer took, also one of the handshake."""
        self._logs_in = config.security_protocol.startswith("SASL_")
        self._is_let_in = False
        """Whether the broker has answered a request behind the handshake."""
        self._frames = FrameReader()
        self._conversation: Conversation | None = None
        self._output: list[Buffer] = []
        self._queued_bytes = 0
        self._sent_bytes = 0
        self._in_flight: list[Request] = []
        self._unsent: list[Request] = []
        """Those without an answer (``acks=0``), until they are sent."""
        self._correlation_id = 0
        self._throttled_until_ms = 0.0
        self._log_in_again_ms = FOREVER_MS
        self._setup_deadline_ms = monotonic_ms() + setup_timeout_ms
        self._last_used_ms = 0.0
        """When it was ready first, and of the last request or answer since; a login is no use of it."""
        self._events = WRITE
        self._poller.add(channel.fileno(), WRITE, self._handle)

    def apply(self, config: ProducerConfig, client_id: str) -> None:
        """Use these settings from the next request on."""
        self._client_id = client_id
        self._request_timeout_ms = config.request_timeout_ms
        self._log_in_timeout_ms = config.socket_connection_setup_timeout_ms
        self._max_idle_ms = config.connections_max_idle_ms if config.connections_max_idle_ms >= 0 else FOREVER_MS

    # --- state --------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Return whether the handshake is done: it takes requests, if not at this very moment."""
        return self._state is _READY

    @property
    def in_flight(self) -> int:
        """Number of requests sent, or being sent, without an answer."""
        return len(self._in_flight) + len(self._unsent)

    @property
    def backlog(self) -> int:
        """Bytes of the requests that wait for the oldest one's answer: a broker handles one at a time."""
        return self._queued_bytes - self._in_flight[0].end if self._in_flight else 0

    def is_busy(self) -> bool:
        """Return whether the last request is not out yet, or ``max.in.flight.requests.per.connection`` is reached."""
        return bool(self._output) or len(self._in_flight) >= self._max_in_flight

    def can_send(self, now_ms: float) -> bool:
        """Return whether it takes a request: not busy, not throttled, no login due."""
        return (
            self._state is _READY
            and not self.is_busy()
            and now_ms >= self._throttled_until_ms
            and now_ms < self._log_in_again_ms
        )

    def throttle_delay_ms(self, now_ms: float) -> float:
        """Return how long the broker throttles us still."""
        return max(0.0, self._throttled_until_ms - now_ms)

    # --- sending ------------------------------------------------------------------------------------

    def call(self, call: Call, on_answer: OnAnswer, on_failure: OnFailure) -> None:
        """Send a request that is encoded by its schema."""
        client_id = self._client_id
        self.send(
            Request(
                lambda number: [encode(call.request, call.version, number, client_id)],
                on_answer,
                on_failure,
                call.largest_answer,
            )
        )

    def send(self, request: Request, is_answered: bool = True) -> None:
        """Send a request; without an answer (``acks=0``) it counts as answered once all of it is sent."""
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        now = self._now_in_use()
        request.correlation_id = self._correlation_id
        request.sent_ms = now
        request.deadline_ms = now + self._request_timeout_ms
        buffers = request.frame(self._correlation_id)
        size = sum(map(len, buffers))
        self._output += buffers
        self._queued_bytes += size
        request.end = self._queued_bytes
        self._notes.sent(size)
        if is_answered:
            self._in_flight.append(request)
            self._notes.in_flight(len(self._in_flight), self._in_flight[0].sent_ms)
        else:
            self._unsent.append(request)
        try:
            self._flush()
        except _FAULTS as error:
            self._broken(error)

    def _now_in_use(self) -> float:
        """Return the time, and note that the connection is in use, but for a login."""
        now = monotonic_ms()
        if self._state is _READY:
            self._last_used_ms = now
        return now

    # --- input and output ---------------------------------------------------------------------------

    def _handle(self, events: int) -> None:
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
        if isinstance(error, KafkaError):
            self.close(type(error), str(error))
        else:
            # In TLS 1.3 a broker can refuse our certificate after the handshake.
            is_refusal = self._channel.is_refusal(error) and not self.has_been_ready
            reason = self._channel.reason(error)
            if self.has_been_ready and not self._is_let_in and not self._logs_in:
                reason += _NO_LOGIN  # a broker that needs one ends the connection at the first other request
            self.close(SslAuthenticationError if is_refusal else NetworkError, reason)

    def _open(self) -> None:
        if event := self._channel.open():
            self._watch(event)
            return
        self._watch(READ)
        self._converse(self.handshake.introduce())

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._poller.watch(self._channel.fileno(), events)
            self._events = events

    def _flush(self) -> None:
        """Send as much as the socket takes; wait with the poller to send the rest."""
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
        if output or self._events != READ:
            self._watch(READ | WRITE if output else READ)
        while self._unsent and self._unsent[0].end <= self._sent_bytes:
            self._unsent.pop(0).answered(b"")

    def _receive(self) -> None:
        for data in self._channel.read():
            now = self._now_in_use()
            self._frames.feed(data)
            while self._frames.left and self._state is not _CLOSED and (frame := self._next_frame()) is not None:
                self._answer(frame, now)

    def _next_frame(self) -> bytes | None:
        """Return the next answer, None until it is whole."""
        if not self._in_flight:
            return self._frames.next(-1, 0)
        request = self._in_flight[0]
        return self._frames.next(request.largest_answer, request.correlation_id)

    def _answer(self, frame: bytes, now_ms: float) -> None:
        request = self._in_flight[0]
        if request.end > self._sent_bytes:
            # Its batches would be freed, and what is written there then be sent.
            raise NetworkError(f"the broker answered request {request.correlation_id} before all of it was sent")
        self._is_let_in = self.has_been_ready
        # The request stays in flight until its answer is decoded: if that fails, it fails with the connection.
        throttle_ms = request.answered(frame)
        if self._state is not _CLOSED:
            in_flight = self._in_flight
            del in_flight[0]
            took_ms = now_ms - request.sent_ms
            self.distance_ms = min(self.distance_ms, took_ms)
            self._notes.answered(_SIZE_BYTES + len(frame), took_ms, now_ms)
            self._notes.in_flight(len(in_flight), in_flight[0].sent_ms if in_flight else 0.0)
            if throttle_ms > 0:
                # At most request.timeout.ms: a broken broker could throttle us for days.
                pause_ms = min(throttle_ms, self._request_timeout_ms)
                self._throttled_until_ms = max(self._throttled_until_ms, now_ms + pause_ms)
                self._notes.throttled(pause_ms, self._throttled_until_ms)

    # --- handshake -----------------------------------------------------------------------------------

    def _converse(self, conversation: Conversation) -> None:
        self._state = _GREETING
        self._conversation = conversation
        self._next_step(None)

    def _next_step(self, answer: object) -> None:
        """Pass an answer to the conversation, and run its next step."""
        assert self._conversation is not None
        try:
            step = self._conversation.send(answer)
        except StopIteration:
            self._become_ready()
            return
        if isinstance(step, Task):
            self._task = step
            self._background_call = self._owner.background_calls.run(step.key, step.call, self._task_done)
        else:
            self.call(step, self._continue, lambda error, message: None)

    def _continue(self, frame: bytes) -> int:
        self._next_step(frame)
        return 0

    def _task_done(self, result: object, error: BaseException | None) -> None:
        """Continue the handshake with the result of a background call."""
        self._task = self._background_call = None
        try:
            if error is not None:
                raise error
            self._next_step(result)
        except _FAULTS as fault:
            self._broken(fault)

    def _become_ready(self) -> None:
        self._state = _READY
        self._conversation = None
        if not self.has_been_ready:
            self.has_been_ready = True
            self._now_in_use()
        lifetime_ms = self.handshake.session_lifetime_ms
        # Log in again before the broker ends the session; at random, so that not all connections do at once (KIP-368).
        self._log_in_again_ms = monotonic_ms() + lifetime_ms * random.uniform(0.85, 0.95) if lifetime_ms else FOREVER_MS
        self._owner.connection_ready(self)

    # --- timeouts and close -------------------------------------------------------------------------

    def check(self, now_ms: float) -> float:
        """Handle what is due; return when to call again at the latest.

        End the connection if its setup or an answer takes too long, or if it is idle for too long. Log in again before
        the session ends.
        """
        oldest = self._oldest()
        if self._state in (_OPENING, _GREETING):
            if now_ms >= self._setup_deadline_ms:
                why = f", since {self._task.what} takes longer" if self._task is not None else ""
                limit = f"{self._setup_timeout_ms:.0f} ms (socket.connection.setup.timeout.ms)"
                self.close(NetworkError, f"not ready within {limit}{why}")
        elif oldest is not None:
            if now_ms >= oldest.deadline_ms:
                # Answers come in order: behind a lost one, none can be matched to its request.
                message = f"no answer within request.timeout.ms ({self._request_timeout_ms} ms)"
                self.close(NetworkError, message, now_ms)
        elif self._state is _READY and now_ms >= self._last_used_ms + self._max_idle_ms:
            self.close(None, f"closed after {self._max_idle_ms:.0f} ms without use (connections.max.idle.ms)")
        elif self._state is _READY and now_ms >= self._log_in_again_ms:
            self._setup_timeout_ms = self._log_in_timeout_ms  # failures before this connection are over
            self._setup_deadline_ms = now_ms + self._setup_timeout_ms
            try:
                self._converse(self.handshake.log_in())
            except _FAULTS as error:
                self._broken(error)
        return self._next_check_ms(now_ms)

    def _oldest(self) -> Request | None:
        return next(iter(self._in_flight or self._unsent), None)

    def _next_check_ms(self, now_ms: float) -> float:
        if self._state is _CLOSED:
            return FOREVER_MS
        if self._state is not _READY:
            return self._setup_deadline_ms
        oldest = self._oldest()
        if oldest is not None:
            # A login that is due waits for the last answer, and new requests wait for the login. If no request follows
            # that answer, the connection is idle from then on.
            login_ms = max(self._log_in_again_ms, now_ms + _LOG_IN_PAUSE_MS)
            return min(oldest.deadline_ms, now_ms + max(self._max_idle_ms, _LOG_IN_PAUSE_MS), login_ms)
        return min(self._last_used_ms + self._max_idle_ms, self._log_in_again_ms)

    def close(self, error: type[KafkaError] | None, message: str, late_ms: float = 0.0) -> None:
        """End the connection; requests in flight fail with the error, or NetworkError if it is None.

        Those with a deadline up to ``late_ms`` fail with RequestTimedOutError.
        """
        if self._state is _CLOSED:
            return
        self._state = _CLOSED
        if self.has_been_ready:
            self._notes.closed()
        self._poller.remove(self._channel.fileno())
        self._channel.close()
        self._output.clear()
        if self._background_call is not None:
            self._background_call.cancel()
        failed = [*self._in_flight, *self._unsent]
        self._in_flight.clear()
        self._unsent.clear()
        self._notes.in_flight(0, 0.0)
        message = printable(f"connection to {describe(self.node)}: {message}")
        for request in failed:
            request.failed(RequestTimedOutError if request.deadline_ms <= late_ms else error or NetworkError, message)
        self._owner.connection_closed(self, error, message)


def describe(node: Node) -> str:
    """Return a broker's name for messages; those of ``bootstrap.servers`` have no number."""
    return f"broker {node.broker} at {node.address}" if node.id >= 0 else f"broker {node.address}"
