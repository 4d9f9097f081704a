"""What a producer's call waits for.

A call that can have to wait is a generator: it yields what to wait for, gets the answer, and returns its result. So
each call is written once, and there are two ways to wait. `RecordAccumulator.block` waits in the calling thread,
`shmaccum.producer.loop_calls.LoopCalls` in an event loop. A wait that ends with an error closes the generator, which
gives back what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from shmaccum._core import Buffer

Result = TypeVar("Result")

WAIT_SLICE_S: Final = 0.25
"""How long a wait for the sender sleeps before it makes sure that one runs."""


class Memory(NamedTuple):
    """Slots for a new batch: `BufferPool.allocate`."""

    size: int
    max_block_ms: float
    taken: list[Buffer]
    """Empty; gets the buffer."""
    is_over: Callable[[], bool] = lambda: False
    """Whether the call needs none any longer; asked before each look for free ones."""


class Sender(NamedTuple):
    """A sender, which has to run before a batch begins."""


class Until(NamedTuple):
    """Until a condition holds that completions or the sender's answers change; the answer is whether it does.

    Args and answer: as of `PendingBatches.wait_until`.
    """

    condition: Callable[[], bool]
    timeout_s: float | None
    batches: Callable[[], int] = lambda: 1
    topic: str | None = None
    """Whose metadata it waits for, if it does."""


class Pause(NamedTuple):
    """For some time; 0 in between long work, for other tasks of an event loop."""

    seconds: float


Wait: TypeAlias = Memory | Sender | Until | Pause
Waits: TypeAlias = Generator[Wait, Any, Result]
"""A call that yields its waits."""

SENDER: Final = Sender()
TURN_OVER: Final = Pause(0)
