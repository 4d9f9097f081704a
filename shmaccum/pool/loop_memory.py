"""Memory for producers in an event loop, which must not wait in a call.

`LoopMemory.allocate` takes what is free, or raises `NoMemory`. The caller then waits in its loop, in the same queue as
all other processes, and calls again with its `MemoryWait`. Only that call allocates memory, once it is the wait's turn.
So a task that is cancelled while it waits has no memory; its ticket must be given back (`BufferPool.leave`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shmaccum._core import Buffer
from shmaccum.errors import LockTimeoutError
from shmaccum.pool.buffer_pool import BufferPool, MemoryWait


class WouldWait(Exception):
    """A call in an event loop would have to wait: do that in the loop, then call again."""


class TurnOver(WouldWait):
    """Other tasks of the event loop get their turn first."""


class NoSender(WouldWait):
    """There is no sender: one has to be started."""


class LockHeld(WouldWait):
    """A stopped process holds a lock.

    Attributes:
        error: names the process.
    """

    def __init__(self, error: LockTimeoutError) -> None:
        super().__init__(str(error))
        self.error = error


class NoMemory(WouldWait):
    """There is no free memory, or it is another process's turn.

    Attributes:
        size: bytes to wait for.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"no memory for {size} bytes is free")
        self.size = size


class LoopMemory:
    """The slots of a slab, for calls that must not wait. Threads may share it.

    Args:
        pool: of the slab.
    """

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._waits: dict[int, MemoryWait] = {}
        """By thread: the wait whose turn the call under way may use."""

    @contextmanager
    def turn_of(self, wait: MemoryWait) -> Iterator[None]:
        """Let calls of this thread in the block allocate when it is this wait's turn."""
        thread = threading.get_ident()
        self._waits[thread] = wait
        try:
            yield
        finally:
            del self._waits[thread]

    def allocate(self, size: int, max_block_ms: float, taken: list[Buffer], *, most: int = 1) -> Buffer:
        """Allocate as `BufferPool.allocate`, without a wait for memory.

        Raises:
            NoMemory: it would wait.
            BufferExhaustedError: the time of this thread's `MemoryWait` is over.
        """
        wait = self._waits.get(threading.get_ident())
        pool = self._pool
        if wait is not None and wait.count == pool.slots_for(size):
            has_taken = pool.look(wait, taken, most=most)
        else:
            has_taken = pool.try_allocate(size, taken, most=most)
        if not has_taken:
            raise NoMemory(size)
        return taken[0]
