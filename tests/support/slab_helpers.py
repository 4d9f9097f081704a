"""What several tests of the slab and its locks look at, and do in child processes."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

from shmaccum.shm import names
from shmaccum.shm.layout import WORD, Geometry, Lock, Super
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

NUMBER = 5
"""The tested lock; any would do."""


def scratch(slab: Slab) -> int:
    """Return the first of a thousand words that nothing else uses here."""
    return slab.geometry.waiters // WORD


def takeovers(slab: Slab) -> int:
    """Return how often the tested lock was taken over."""
    taken_over: int = slab.words[slab.geometry.lock(NUMBER) + Lock.TAKEOVERS]
    return taken_over


def rebuilding(slab: Slab) -> list[int]:
    """Let the tested lock record which process rebuilds, and return the record."""
    rebuilt: list[int] = []
    slab.locks[NUMBER].rebuild = lambda: rebuilt.append(slab.locks[NUMBER].owner())
    return rebuilt


def whats_there(name: str) -> list[str]:
    """Return the existing files of a slab."""
    return [path for path in names.leftovers(name) if os.path.exists(path)]


def stay(link: Connection, name: str, geometry: Geometry | None = None) -> None:
    """Attach, send when the slab was created, and detach after the next message."""
    slab = attach(name, geometry)
    link.send(slab.words[Super.CREATED_MS])
    link.recv()
    detach(slab)
