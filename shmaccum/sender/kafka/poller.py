"""One wait for all the sockets and the doorbell: ``epoll``, which costs nothing while nothing happens."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT

_LONGEST_WAIT_MS: Final = 2.0**31 - 1


class Poller:
    """Waits for descriptors, and calls those whose descriptors are ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._doorbell = -1

    def add(self, descriptor: int, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler`` with the events that there are, whenever there are any of ``events``, or errors."""
        self._epoll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def watch(self, descriptor: int, events: int) -> None:
        """Wait for other events of a descriptor from now on."""
        self._epoll.modify(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Forget a descriptor, before it is closed."""
        self._epoll.unregister(descriptor)
        del self._handlers[descriptor]

    def listen_to(self, doorbell: int) -> None:
        """Have `wait` end when the doorbell rings; it is not read from. -1: no doorbell."""
        if doorbell != self._doorbell:
            if self._doorbell >= 0:
                self._epoll.unregister(self._doorbell)
            if doorbell >= 0:
                self._epoll.register(doorbell, READ)
            self._doorbell = doorbell

    def wait(self, timeout_ms: float) -> bool:
        """Wait for something to happen, and have it handled; return whether the doorbell rings."""
        rings = False
        for descriptor, events in self._epoll.poll(min(timeout_ms, _LONGEST_WAIT_MS) / 1000):
            # A handler may have closed a connection whose events are still to come.
            if handler := self._handlers.get(descriptor):
                handler(events)
            elif descriptor == self._doorbell:
                rings = True
        return rings

    def close(self) -> None:
        """Let go of it."""
        self._epoll.close()
