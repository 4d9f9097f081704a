"""A writer's durable account: the records it has appended, and their results.

A mapped file: the kernel has each store at once, and keeps it after any death of the process. Every change is one
aligned 8-byte store. A writer stores "begun" before each call and "appended" after it. If it is killed in between, the
records in between are in doubt.
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
"""Records that an account has room for; the file is sparse, and only takes the used part."""
_WORD: Final = 8
_BEGUN: Final = 0
_APPENDED: Final = 1
_CLOSED: Final = 2
_OUTCOMES: Final = 8
"""Word of the first outcome: one for each record, in order."""

_PARTITION_SHIFT: Final = 48
_CODE_BITS: Final = 32

_FIRST_OFFSET: Final = 2
"""Stands for offset 0; 1 stands for an unknown offset (-1), and 0 for no result yet."""
NOT_HEARD: Final = 0
FAILED: Final = 0xFFFF << _PARTITION_SHIFT
"""The least word of a failed record; the error's code is in its lower half. No partition has this number."""


def outcome_of(partition: int, offset: int) -> int:
    """Return the word for a record that was acknowledged at this place."""
    return partition << _PARTITION_SHIFT | offset + _FIRST_OFFSET


def place_of(outcome: int) -> tuple[int, int]:
    """Return the partition and the offset that a record was acknowledged at; -1 for an unknown one."""
    return outcome >> _PARTITION_SHIFT, (outcome & (1 << _PARTITION_SHIFT) - 1) - _FIRST_OFFSET


def failure_of(error: ShmaccumError) -> int:
    """Return the word for a record that failed with this error."""
    code = error.code if isinstance(error, KafkaError) else KafkaError.code
    return FAILED | code % (1 << _CODE_BITS)


def error_of(outcome: int) -> type[KafkaError]:
    """Return the error of a failed record."""
    code = outcome % (1 << _CODE_BITS)
    return error_for_code(code if code < 1 << (_CODE_BITS - 1) else code - (1 << _CODE_BITS))


class Account:
    """One writer's account; written by the writer, read by the tool at any time.

    Args:
        directory: of the accounts.
        writer: its owner.
        create: create it; otherwise it must exist.
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
        """Store that one call is about to append the next ``count`` records."""
        self._words[_BEGUN] = self.begun + count

    def end(self) -> None:
        """Store that the call has returned: its records are accepted."""
        self._words[_APPENDED] = self.begun

    def hear(self, number: int, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        """Store a record's result: a delivery callback, except for the number."""
        if error is not None:
            self._words[_OUTCOMES + number] = failure_of(error)
        elif metadata is not None:
            self._words[_OUTCOMES + number] = outcome_of(metadata.partition, metadata.offset)

    def hear_all(self, first: int, partitions: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        """Store where the rows of a batch, from record ``first`` on, were stored."""
        words = (offsets + _FIRST_OFFSET).astype(np.uint64)
        outcomes = partitions.astype(np.uint64) << np.uint64(_PARTITION_SHIFT) | words
        self._words[_OUTCOMES + first : _OUTCOMES + first + len(outcomes)] = memoryview(outcomes.tobytes()).cast("Q")

    def fail_all(self, first: int, count: int, error: ShmaccumError) -> None:
        """Store that the rows of a batch failed."""
        for number in range(first, first + count):
            self._words[_OUTCOMES + number] = failure_of(error)

    def note_closed(self) -> None:
        """Store that the producer has closed, and so knows all results."""
        self._words[_CLOSED] = 1

    # --- the reader's side ------------------------------------------------------------------------

    @property
    def begun(self) -> int:
        """Number of begun records: those with a lower number can be in the log."""
        return int(self._words[_BEGUN])

    @property
    def appended(self) -> int:
        """Number of accepted records: those with a lower number must be in the log."""
        return int(self._words[_APPENDED])

    @property
    def closed(self) -> bool:
        """Whether the producer has closed."""
        return self._words[_CLOSED] != 0

    def outcomes(self) -> npt.NDArray[np.uint64]:
        """Return a copy of the results, for each record that the writer has begun."""
        with self._words[_OUTCOMES : _OUTCOMES + self.begun] as words:
            return np.array(words, np.uint64)


def _make_file(path: Path) -> None:
    """Create an empty account atomically, because readers look for it."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("xb") as file:
        file.truncate((_OUTCOMES + CAPACITY) * _WORD)
    unfinished.rename(path)


def all_accounts(directory: Path) -> list[Account]:
    """Open all the accounts of a directory, by writer."""
    return [Account(directory, writer) for writer in sorted(int(file.stem) for file in directory.glob("*.account"))]
