"""One wait for all sockets and the doorbell, by ``epoll``; the clock of its times; and the waits between attempts."""

from __future__ import annotations

import contextlib
import math
import random
import select
import time
from collections.abc import Callable
from typing import Final

FOREVER_MS: Final = math.inf

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT

_LONGEST_WAIT_MS: Final = 2.0**31 - 1

MULTIPLIER: Final = 2.0
JITTER: Final = 0.2
"""Spreads the retries of what failed together: each wait is up to 20% longer or shorter."""
LARGEST_EXPONENT: Final = 32


def monotonic_ms() -> float:
    """Return the time of the monotonic clock in milliseconds."""
    return time.monotonic_ns() / 1_000_000


class Poller:
    """Waits for descriptors, and calls the handlers of those that are ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._doorbell = -1

    def add(self, descriptor: int, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler`` with the descriptor's events whenever one of ``events`` or an error occurs."""
        self._epoll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def watch(self, descriptor: int, events: int) -> None:
        """Wait for other events of a descriptor."""
        self._epoll.modify(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Remove a descriptor; call it before closing it."""
        with contextlib.suppress(OSError):  # `ssl` closes a socket that was reset before the handshake
            self._epoll.unregister(descriptor)
        del self._handlers[descriptor]

    def listen_to(self, doorbell: int) -> None:
        """End `wait` when the doorbell is readable, without reading from it. -1: no doorbell."""
        if doorbell != self._doorbell:
            if self._doorbell >= 0:
                self._epoll.unregister(self._doorbell)
            if doorbell >= 0:
                self._epoll.register(doorbell, READ)
            self._doorbell = doorbell

    def wait(self, timeout_ms: float) -> bool:
        """Wait for events and call their handlers; return whether the doorbell was pressed."""
        rings = False
        for descriptor, events in self._epoll.poll(min(timeout_ms, _LONGEST_WAIT_MS) / 1000):
            # No handler: another handler in this loop closed the connection before its event's turn.
            if handler := self._handlers.get(descriptor):
                handler(events)
            elif descriptor == self._doorbell:
                rings = True
        return rings

    def close(self) -> None:
        """Close the epoll descriptor."""
        self._epoll.close()


class ExponentialBackoff:
    """Waits that double with each attempt up to a maximum, with a random jitter (KIP-144, KIP-580).

    If the first one is above the maximum, all are the maximum.
    """

    def __init__(self, initial_ms: float, max_ms: float) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms

    def wait_ms(self, attempts: int) -> float:
        """Return how long to wait after this number of failed attempts in a row, at least 1."""
        wait_ms = self._initial_ms * MULTIPLIER ** min(attempts - 1, LARGEST_EXPONENT)
        return min(wait_ms, self._max_ms) * random.uniform(1 - JITTER, 1 + JITTER)
