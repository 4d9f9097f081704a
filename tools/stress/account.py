"""A writer's durable account: what it knows it has appended, and what it has been told of it.

A mapped file: a store into it is the kernel's at once and outlives the process, however that ends. Every change is
one aligned 8-byte store. A writer stores "begun" before each call and "appended" after it; what lies between the two
is in doubt if the writer is killed there.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from shmaccum.cluster import RecordMetadata
from shmaccum.errors import KafkaError, ShmaccumError, error_for_code

CAPACITY: Final = 1 << 23
"""Records that an account has room for; the file is sparse, and takes what is used of it."""
_WORD: Final = 8
_BEGUN: Final = 0
_APPENDED: Final = 1
_CLOSED: Final = 2
_OUTCOMES: Final = 8
"""Word of the first outcome: one a record, in their order."""

_PARTITION_SHIFT: Final = 48
_CODE_BITS: Final = 32

_FIRST_OFFSET: Final = 2
"""What stands for offset 0; 1 stands for an offset that nobody knows (-1), and 0 for nothing heard."""
NOT_HEARD: Final = 0
FAILED: Final = 0xFFFF << _PARTITION_SHIFT
"""The least word of a record that was given up; the error's code is in its lower half. No partition has this number."""


def outcome_of(partition: int, offset: int) -> int:
    """Return the word that says that a record was acknowledged at this place."""
    return partition << _PARTITION_SHIFT | offset + _FIRST_OFFSET


def place_of(outcome: int) -> tuple[int, int]:
    """Return the partition and the offset that a record was acknowledged at; -1 for one that nobody knows."""
    return outcome >> _PARTITION_SHIFT, (outcome & (1 << _PARTITION_SHIFT) - 1) - _FIRST_OFFSET


def failure_of(error: ShmaccumError) -> int:
    """Return the word that says that a record was given up, and why."""
    code = error.code if isinstance(error, KafkaError) else KafkaError.code
    return FAILED | code % (1 << _CODE_BITS)


def error_of(outcome: int) -> type[KafkaError]:
    """Return why a record was given up."""
    code = outcome % (1 << _CODE_BITS)
    return error_for_code(code if code < 1 << (_CODE_BITS - 1) else code - (1 << _CODE_BITS))


class Account:
    """One writer's account; written by the writer, read by the tool at any time.

    Args:
        directory: where the accounts are.
        writer: whose this is.
        create: make it; else it must be there.
    """

    def __init__(self, directory: Path, writer: int, *, create: bool = False) -> None:
        self.writer = writer
        path = directory / f"{writer}.account"
        if create:
            _make_file(path)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Unmap the file; it stays."""
        self._words.release()
        self._map.close()

    # --- the writer's side ------------------------------------------------------------------------

    def begin(self, count: int) -> None:
        """Note that the next ``count`` records are about to be appended by one call."""
        self._words[_BEGUN] = self.begun + count

    def end(self) -> None:
        """Note that the call has returned: what was begun is appended."""
        self._words[_APPENDED] = self.begun

    def hear(self, number: int, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        """Note what became of a record: a delivery callback, but for the number."""
        if error is not None:
            self._words[_OUTCOMES + number] = failure_of(error)
        elif metadata is not None:
            self._words[_OUTCOMES + number] = outcome_of(metadata.partition, metadata.offset)

    def hear_all(self, first: int, partitions: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        """Note where the rows of a batch, from record ``first`` on, were stored."""
        words = (offsets + _FIRST_OFFSET).astype(np.uint64)
        outcomes = partitions.astype(np.uint64) << np.uint64(_PARTITION_SHIFT) | words
        self._words[_OUTCOMES + first : _OUTCOMES + first + len(outcomes)] = memoryview(outcomes.tobytes()).cast("Q")

    def fail_all(self, first: int, count: int, error: ShmaccumError) -> None:
        """Note that the rows of a batch were given up."""
        for number in range(first, first + count):
            self._words[_OUTCOMES + number] = failure_of(error)

    def note_closed(self) -> None:
        """Note that the producer has closed, and so has been told of everything."""
        self._words[_CLOSED] = 1

    # --- the reader's side ------------------------------------------------------------------------

    @property
    def begun(self) -> int:
        """Records of which the append has been begun: numbers below this one may be in the log."""
        return int(self._words[_BEGUN])

    @property
    def appended(self) -> int:
        """Records that have been appended: numbers below this one must be in the log."""
        return int(self._words[_APPENDED])

    @property
    def closed(self) -> bool:
        """Whether the producer has closed."""
        return self._words[_CLOSED] != 0

    def outcomes(self) -> npt.NDArray[np.uint64]:
        """Return a copy of what the writer has been told, for each record that it has begun."""
        with self._words[_OUTCOMES : _OUTCOMES + self.begun] as words:
            return np.array(words, np.uint64)


def _make_file(path: Path) -> None:
    """Make an empty account, in one step for whoever may look."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("xb") as file:
        file.truncate((_OUTCOMES + CAPACITY) * _WORD)
    unfinished.rename(path)


def all_accounts(directory: Path) -> list[Account]:
    """Open all the accounts of a directory, by writer."""
    return [Account(directory, writer) for writer in sorted(int(file.stem) for file in directory.glob("*.account"))]
