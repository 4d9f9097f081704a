"""Refuses calls of a closed producer, and cleans up behind calls that fail.

All paths of one producer share its guard. It writes no shared word itself.
"""

from __future__ import annotations

from types import TracebackType

from shmaccum import _core
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.errors import IllegalStateError, ProducerClosedError


class CallGuard(_core.CallGuard):
    """``with guard: ...`` around a call of an open producer."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._slab = accumulator.state.slab

    def check_open(self) -> None:
        """Raise ProducerClosedError if the producer has been closed."""
        if self.closed:
            raise ProducerClosedError("Cannot perform operation after producer has been closed.")

    def clean_up(self, error: BaseException) -> None:
        """Clean up after an error or interrupt: release slots and flushes; raise a better error if there is one.

        Raises:
            ProducerClosedError: the error came from the detached slab, because another thread closed the producer.
            SlabDamagedError: it came from damage in the slab.
        """
        if not self.closed:
            self._accumulator.clean_up()
        if self.closed and isinstance(error, IllegalStateError | ValueError | IndexError | OSError):
            raise ProducerClosedError("The producer has been closed meanwhile.") from error
        damage = self._slab.explain(error)
        if damage is not None:
            raise damage from error

    def __enter__(self) -> None:
        self.check_open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.clean_up(error)
