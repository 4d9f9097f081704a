"""What a contestant can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tools.benchmark.load import Load
from tools.benchmark.settings import Settings

Told = Callable[[bool], None]
"""Called when it is known what became of a record: whether it was acknowledged."""


class Client(Protocol):
    """A producer, connected or about to."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        """Make it.

        Args:
            servers: ``bootstrap.servers``.
            settings: the same for all.
            name: the same for all the producers of one turn; ours names the slab by it.
        """

    def send(self, load: Load) -> int | None:
        """Send records, and wait until all of them are acknowledged or given up.

        Returns:
            How many were acknowledged, or None if the load does not want to know.
        """

    def close(self) -> None:
        """Close it."""


class PacedClient(Client, Protocol):
    """A producer of which single records can be followed."""

    def send_one(self, topic: str, value: bytes, told: Told) -> None:
        """Send a record; `told` is called in `poll`."""

    def poll(self, timeout_s: float) -> None:
        """Wait for something to be told, up to so long."""

    def flush(self) -> None:
        """Wait until everything is told."""
