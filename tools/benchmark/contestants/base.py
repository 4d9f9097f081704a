"""Interfaces of contestants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tools.benchmark.load import Load
from tools.benchmark.settings import Settings

Told = Callable[[bool], None]
"""Called when a record's result is known, with whether it was acknowledged."""


class Client(Protocol):
    """A producer."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        """Create it.

        Args:
            servers: ``bootstrap.servers``.
            settings: the same for all.
            name: the same for all producers of one turn; ours names the slab by it.
        """

    def send(self, load: Load) -> int | None:
        """Send records, and wait until each is acknowledged or has failed.

        Returns:
            How many were acknowledged, or None if the load does not ask.
        """

    def close(self) -> None:
        """Close it."""


class PacedClient(Client, Protocol):
    """A producer that reports on single records."""

    def send_one(self, topic: str, value: bytes, told: Told) -> None:
        """Send a record; `poll` calls `told`."""

    def poll(self, timeout_s: float) -> None:
        """Wait for a record's result, at most this long."""

    def flush(self) -> None:
        """Wait for the results of all records."""
