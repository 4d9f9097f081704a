"""Requests to brokers outside of the sender: a process that sends in transactions asks their coordinators itself.

The records go through the slab and its sender; the few requests that begin and end transactions do not. So a
transaction depends on no message between processes, and any process can end one. It has its own connections, by the
sender's own code, opened when first needed. Nothing here touches the slab.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    ProducerClosedError,
    error_for_code,
)
from shmaccum.kafka.brokers import Brokers
from shmaccum.kafka.connection import Connection, describe
from shmaccum.kafka.handshake import Call, decode_answer
from shmaccum.kafka.journal import Journal, NoNotes, OwnJournal
from shmaccum.kafka.poller import monotonic_ms
from shmaccum.kafka.schema import NEVER, ApiMessage
from shmaccum.shm import native
from shmaccum.shm.broker_table import unanswered

_SLICE_MS: Final = 100.0
"""Longest wait at once: another thread's signal, such as Ctrl-C, is handled in between."""
_MOST_COORDINATORS: Final = 4096
"""A worker that lives through many jobs meets new transactional ids in each."""
_LARGEST_ANSWER: Final = 1 << 20
"""Most bytes of an answer: one partition of an offset commit takes about 10."""

MakeCall = Callable[[Connection], Call]
"""Makes a request for a connection, in a version that its broker supports."""


class Exchange:
    """A request and its answer."""

    __slots__ = ("error", "make", "node", "response")

    def __init__(self, node: Node | None, make: MakeCall) -> None:
        self.node = node
        """The broker to ask; None for any."""
        self.make = make
        self.response: Any = None
        self.error: KafkaError | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has its answer, or will have none."""
        return self.response is not None or self.error is not None


class _Causes(OwnJournal):
    """Keeps why connections fail and which brokers are silent, for errors; passes incidents on to another journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last = ""
        self._brokers: dict[str, _Silence] = {}

    def text(self) -> str:
        """Return the causes as an error's suffix; often empty."""
        causes = [*(each.text() for each in self._brokers.values()), self._last]
        return "".join(f"; {cause}" for cause in causes if cause)

    def let_in(self) -> None:
        super().let_in()
        self._last = ""

    def note(
        self, error: type[KafkaError], text: str, *, lasts: bool = False, since_ms: int = 0, node: int | None = None
    ) -> int:
        self._last = f"last error: {error.__name__}: {text}"
        return self._journal.note(error, text, lasts=lasts, since_ms=since_ms, node=node)

    def broker(self, node: Node) -> _Silence:
        where = describe(node)
        return self._brokers.setdefault(where, _Silence(where))


class _Silence(NoNotes):
    """Since when a broker owes an answer."""

    _since_ms = 0.0
    _is_first = False

    def __init__(self, where: str) -> None:
        self._where = where

    def text(self) -> str:
        """Return that it is silent, and for how long; empty if it is not."""
        waiting_ms = monotonic_ms() - self._since_ms if self._since_ms else 0.0
        return unanswered(self._where, waiting_ms, is_first=self._is_first)

    def connecting(self) -> None:
        self._since_ms, self._is_first = monotonic_ms(), True

    def ready(self) -> None:
        self._since_ms, self._is_first = 0.0, False

    def idle(self) -> None:
        self._since_ms = 0.0

    def failed(self, incident: int, *, is_refusal: bool = False) -> None:
        self.idle()

    def answered(self, size: int, latency_ms: float, now_ms: float) -> None:
        self._is_first = False  # from here on, a login can wait for a token, which is not the broker's

    def in_flight(self, requests: int, oldest_ms: float) -> None:
        if not self._is_first:
            self._since_ms = oldest_ms if requests else 0.0


class BrokerClient:
    """A process's connections to brokers, for requests that it waits for. Threads take turns.

    Raises ConfigError: a setting names a file or function that cannot be used.
    """

    def __init__(self, config: ProducerConfig, journal: Journal | None = None) -> None:
        self._config = config
        self._is_interrupted = False
        self._known: dict[int, Node] = {}
        """Brokers that answers named, by id."""
        self.coordinators: dict[tuple[int, str], Node] = {}
        """Kind and key -> their coordinator, as far as known. A task of Spark has the id of an earlier one."""
        self._lock = threading.RLock()
        self._is_asking = False
        """Who has the lock sees this only in a signal handler that runs within `ask_all`."""
        self._closes = False
        """Whether such a handler has called `close`: `ask_all` does it at its end."""
        self._causes = _Causes(journal or OwnJournal())
        client_id = config.client_id or "shmaccum-transactions"
        # Changes need no call: every wait looks at the connections again.
        self._brokers = Brokers(config, client_id, lambda error: None, self._causes)
        self.shown = self._brokers.shown

    def ask(self, node: Node | None, make: MakeCall, deadline_ms: float) -> Any:
        """Send a request to a broker, None for any, and return its answer.

        Raises:
            NetworkError: the connection was lost, or the answer makes no sense: the request may have been processed.
            KafkaTimeoutError: there was none by the deadline.
            ProducerClosedError: another thread has interrupted this.
            AuthenticationError: the cluster refuses us.
            UnsupportedVersionError: the broker does not support the request.
        """
        exchange = Exchange(node, make)
        self.ask_all([exchange], deadline_ms)
        if exchange.error is not None:
            raise exchange.error
        return exchange.response

    def ask_all(self, exchanges: Sequence[Exchange], deadline_ms: float) -> None:
        """Send requests at once, to several brokers, and wait until each has its answer or its error."""
        with self._lock:
            if self._is_asking:
                for each in exchanges:
                    each.error = IllegalStateError("a signal handler called it while a call waited for a broker")
                return
            self._is_asking = True
            try:
                self._await_all(exchanges, deadline_ms)
            finally:
                self._is_asking = False
                if self._closes:
                    self._brokers.close()

    def _await_all(self, exchanges: Sequence[Exchange], deadline_ms: float) -> None:
        waiting = list(exchanges)
        while True:
            now_ms = monotonic_ms()
            if not self._is_interrupted:
                waiting = [each for each in waiting if not self._begin(each, now_ms)]
            under_way = [each for each in exchanges if not each.is_over]
            if not under_way:
                return
            if self._is_interrupted:
                for each in under_way:
                    each.error = ProducerClosedError(f"closed before {_shown(each.node)} answered")
                return
            if now_ms >= deadline_ms:
                for each in under_way:
                    each.error = KafkaTimeoutError(
                        f"no answer of {_shown(each.node)} within max.block.ms{self._causes.text()}"
                    )
                return
            self._brokers.poller.wait(
                max(0.0, min(deadline_ms - now_ms, _SLICE_MS, self._brokers.next_check_ms - now_ms))
            )
            now_ms = monotonic_ms()
            if now_ms >= self._brokers.next_check_ms:
                self._brokers.check(now_ms)

    def _begin(self, exchange: Exchange, now_ms: float) -> bool:
        """Send a request if its broker takes one now; return whether it is sent, or over."""
        connection = self._connection(exchange.node, now_ms)
        if connection is None:
            failure = self._brokers.failure()
            if failure is not None and not failure.retriable:
                exchange.error = failure(f"{_shown(exchange.node)}: {failure.meaning()}")
            elif exchange.node is not None and self._brokers.all_failed([exchange.node]):
                exchange.error = NetworkError(  # another may do by now
                    f"no connection to {_shown(exchange.node)}{self._causes.text()}"
                )
            return exchange.is_over
        try:
            call = exchange.make(connection)
        except KafkaError as error:
            exchange.error = error
            return True
        connection.call(call, partial(self._answered, exchange, call), partial(self._failed, exchange))
        self._brokers.check_by(now_ms + self._config.request_timeout_ms)
        return True

    def _connection(self, node: Node | None, now_ms: float) -> Connection | None:
        if node is None:
            return self._brokers.least_loaded([*self._known.values(), *self._brokers.bootstrap], now_ms)
        return self._brokers.connection(node) if self._brokers.ready(node, now_ms) else None

    def _answered(self, exchange: Exchange, call: Call, frame: bytes) -> int:
        response = decode_answer(call, frame)
        exchange.response = response
        return int(response.throttle_time_ms)

    def _failed(self, exchange: Exchange, error: type[KafkaError], message: str) -> None:
        exchange.error = error(message)

    def learn(self, node: Node) -> None:
        """Note that the cluster has this broker."""
        self._known[node.id] = node

    def learn_coordinator(self, kind: int, key: str, node: Node) -> None:
        """Note the coordinator of a transactional id or a group."""
        if len(self.coordinators) >= _MOST_COORDINATORS:
            self.coordinators.clear()
        self.coordinators[kind, key] = node
        self.learn(node)

    def interrupt(self) -> None:
        """Let every wait for an answer end with ProducerClosedError, now and later; from any thread."""
        self._is_interrupted = True

    def close(self) -> None:
        """Close all connections; drop unanswered requests."""
        self.interrupt()
        with self._lock:
            if self._is_asking:
                self._closes = True
            else:
                self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def call(
    request: ApiMessage,
    connection: Connection,
    *,
    oldest: int = 0,
    newest: int = NEVER,
    largest_answer: int = _LARGEST_ANSWER,
) -> Call:
    """Return a request in the newest version that both sides support (see `BrokerVersions.best`)."""
    return connection.handshake.versions.call(request, oldest, newest, largest_answer)


def back_off(wait_ms: float, deadline_ms: float) -> bool:
    """Wait before a repetition; return False at once if that would end after the deadline."""
    if monotonic_ms() + wait_ms > deadline_ms:
        return False
    native.pause(wait_ms / 1000)
    return True


def refusal(code: int, what: str) -> KafkaError:
    """Return the error for a code in an answer."""
    error = error_for_code(code)
    return error(f"{what}: {error.meaning()}")


def check(code: int, what: str) -> None:
    """Raise the error for a code in an answer, unless it is 0."""
    if code:
        raise refusal(code, what)


def only(array: Sequence[Any], what: str) -> Any:
    """Return the one element of an answer's array. Raises NetworkError: it has none, or several."""
    if len(array) != 1:
        raise NetworkError(f"the broker's answer makes no sense: it has {len(array)} {what} instead of one")
    return array[0]


def _shown(node: Node | None) -> str:
    return "any broker" if node is None else f"broker {node.id} ({node.address})"
