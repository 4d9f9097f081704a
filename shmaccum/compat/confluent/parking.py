"""Messages whose topic is not known yet: librdkafka keeps them until it is, or until they time out.

The slab takes no record of a topic whose partitions are unknown. So these messages wait in the process, in their order,
and a later ``produce``, ``poll`` or ``flush`` sends them. They die with the process, as librdkafka's do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from shmaccum._core import Message
from shmaccum.errors import KafkaTimeoutError, ShmaccumError

if TYPE_CHECKING:
    from shmaccum.transactions.transaction import Transaction

PAUSE_S: Final = 0.02
"""Between two attempts: each one asks the sender."""


class Produced(NamedTuple):
    """A message that `produce` was given."""

    delivery: Message
    partition: int
    timestamp: int
    transaction: Transaction | None
    """That was open when `produce` was called."""


class Parking:
    """The messages of one producer that wait for their topics. Threads share it.

    Args:
        send: sends a message; raises KafkaTimeoutError if its topic is not known yet.
        is_accepted: returns whether the slab has accepted a message, or it has been purged.
        refused: reports a message that failed, with its error.
        timeout_s: how long a message waits: ``message.timeout.ms``.

    Attributes:
        topics: the messages, by topic.
    """

    def __init__(
        self,
        send: Callable[[Produced], None],
        is_accepted: Callable[[Produced], bool],
        refused: Callable[[Produced, ShmaccumError], None],
        timeout_s: float,
    ) -> None:
        self._send = send
        self._is_accepted = is_accepted
        self._refused = refused
        self._timeout_s = timeout_s
        self.topics: Final[dict[str, deque[Produced]]] = {}
        self.clear()

    def clear(self) -> None:
        """Drop everything: the messages are a parent's."""
        self.topics.clear()
        self._lock = threading.RLock()
        self._sending: list[tuple[int, Produced]] = []
        """Thread and message of each call that sends one; a signal's handler can interrupt it, and send others."""
        self._next = 0.0

    def __bool__(self) -> bool:
        return bool(self.topics)

    def interrupted(self) -> int:
        """Return how many messages wait for the end of this call: a signal's handler, it interrupts their sending."""
        me = threading.get_ident()
        return sum(thread == me for thread, _ in self._sending)

    @contextmanager
    def sending(self, message: Produced) -> Iterator[None]:
        """Note, in the block, that this call sends a message."""
        call = threading.get_ident(), message
        self._sending.append(call)
        try:
            yield
        finally:
            self._sending.remove(call)

    def add(self, message: Produced) -> None:
        """Add a message, within `sending`."""
        with self._lock:
            self.topics.setdefault(message.delivery.topic(), deque()).append(message)

    def take(self) -> list[Produced]:
        """Remove all messages, and return them."""
        with self._lock:
            taken = [message for queue in self.topics.values() for message in queue]
            self.topics.clear()
        return taken

    def retry(self, *, flushes: bool = False) -> None:
        """Send the messages whose topics are known by now; report those that time out.

        A signal's handler that interrupts a retry only does so if it flushes: it can be about to end the program. A
        message that is just being sent then comes behind the others.
        """
        if not self.topics or time.monotonic() < self._next or (self.interrupted() and not flushes):
            return  # nothing to do, too early, or it goes on after the handler
        if not self._lock.acquire(blocking=False):
            return  # another thread does it
        try:
            for topic, queue in list(self.topics.items()):
                if not self._retry(queue) or self.interrupted():
                    continue  # a message that this call interrupts can be about to enter an empty queue
                if added := self.topics.pop(topic, None):  # just now, by a signal's handler
                    self.topics.setdefault(topic, deque()).extendleft(reversed(added))
            self._next = time.monotonic() + PAUSE_S
        finally:
            self._lock.release()

    def _retry(self, queue: deque[Produced]) -> bool:
        """Send a topic's messages in their order; return whether none is left.

        If this call interrupts one that sends a message, that one stays: sent here, too, it would be doubled.
        """
        for message in list(queue):
            if any(message is sent for _, sent in self._sending):
                continue
            try:
                with self.sending(message):
                    self._send(message)
            except ShmaccumError as error:
                is_early = time.monotonic() - message.delivery.began < self._timeout_s
                if is_early and isinstance(error, KafkaTimeoutError):  # also of memory, and of a lock
                    return False
                self._refused(message, error)
            except BaseException:  # a signal handler's, before or after the commit: sent again, it would be doubled
                if self._is_accepted(message):
                    _remove(queue, message)
                raise
            _remove(queue, message)
        return not queue


def _remove(queue: deque[Produced], message: Produced) -> None:
    with suppress(ValueError):  # a signal's handler was faster
        queue.remove(message)
