"""The accounting: numbered records, what each writer knows of its own, and the comparison with the log.

* A record has its writer, its number, and a checksum over all of itself: value = writer (4 bytes) | number (8) |
  filler | CRC-32 (4) of all that and the key. Its route follows from writer and number, so the check also knows the
  route of missing records.
* An `Account` is durable: a mapped file. The kernel has each store at once, and keeps it after any death of the
  process. Every change is one aligned 8-byte store. A writer stores "begun" before each call and "appended" after it.
  If it is killed in between, the records in between are in doubt.
* `judge` compares every record in the log with every account; see `tools.stress` for the rules. The oracle for a key's
  partition is kafka-python's murmur2.
"""

from __future__ import annotations

import mmap
import random
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from shmaccum.cluster import RecordMetadata
from shmaccum.errors import KafkaError, ShmaccumError, error_for_code
from tools.stress.options import SLOT_SIZE, TOPICS
from tools.support.reading import Stored

# --- records --------------------------------------------------------------------------------------------

_HEAD: Final = struct.Struct("<IQ")
_TAIL: Final = struct.Struct("<I")
SMALLEST: Final = _HEAD.size + _TAIL.size
"""Bytes in a value without filler."""
_LARGEST: Final = 4 * SLOT_SIZE
_KEYS: Final = 97

_FILLER: Final = random.Random(0).randbytes(2 * _LARGEST)


class Route(NamedTuple):
    """A record's route: to a given partition, by its key, or free."""

    partition: int | None
    key: bytes | None


def topic_of(writer: int, topics: Sequence[str] = TOPICS) -> str:
    return topics[writer % len(topics)]


def route_of(writer: int, number: int, partitions: int) -> Route:
    """Return a record's route: half of them to a partition, a quarter by key, a quarter free."""
    chance = (writer * 0x9E3779B1 ^ number * 0x85EBCA6B) >> 8 & 0xFFFFFF
    kind, chance = chance & 3, chance >> 2
    if kind < 2:
        return Route(chance % partitions, None)
    return Route(None, b"key %d" % (chance % _KEYS) if kind == 2 else None)


def make_value(writer: int, number: int, key: bytes | None, size: int) -> bytes:
    """Return the value of a record; about ``size`` bytes."""
    start = (writer * 31 + number * 17) % _LARGEST
    content = _HEAD.pack(writer, number) + _FILLER[start : start + max(0, size - SMALLEST)]
    return content + _TAIL.pack(crc32(content, crc32(key or b"")))


def read_value(key: bytes | None, value: bytes | None) -> tuple[int, int] | None:
    """Return writer and number of a record; None if it is not whole."""
    if value is None or len(value) < SMALLEST:
        return None
    content = memoryview(value)[: -_TAIL.size]
    if _TAIL.unpack_from(value, len(content))[0] != crc32(content, crc32(key or b"")):
        return None
    writer, number = _HEAD.unpack_from(value)
    return writer, number


def random_size(chance: random.Random, mean: int) -> int:
    """Return a size for a value: mostly around ``mean``, one in a hundred larger than a slot."""
    if chance.random() < 0.01:
        return chance.randrange(SLOT_SIZE, _LARGEST)
    return chance.randrange(SMALLEST, max(SMALLEST + 1, 2 * mean))


# --- accounts -------------------------------------------------------------------------------------------

CAPACITY: Final = 1 << 23
"""Records that an account has room for; the file is sparse, and only takes the used part."""
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


def place_of(outcome: int) -> tuple[int, int]:
    """Return the partition and the offset that a record was acknowledged at; -1 for an unknown one."""
    return outcome >> _PARTITION_SHIFT, (outcome & (1 << _PARTITION_SHIFT) - 1) - _FIRST_OFFSET


def failure_of(error: ShmaccumError) -> int:
    """Return the word for a record that failed with this error."""
    code = error.code if isinstance(error, KafkaError) else KafkaError.code
    return FAILED | code % (1 << _CODE_BITS)


def error_of(outcome: int) -> type[KafkaError]:
    code = outcome % (1 << _CODE_BITS)
    return error_for_code(code if code < 1 << (_CODE_BITS - 1) else code - (1 << _CODE_BITS))


class Account:
    """One writer's account; written by the writer, which creates it, and read by the tool at any time."""

    def __init__(self, directory: Path, writer: int, *, create: bool = False) -> None:
        self.writer = writer
        path = directory / f"{writer}.account"
        if create:  # at once, because readers look for it
            unfinished = path.with_suffix(".unfinished")
            with unfinished.open("xb") as file:
                file.truncate((_OUTCOMES + CAPACITY) * 8)
            unfinished.rename(path)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Unmap the file; it stays."""
        self._words.release()
        self._map.close()

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
            self._words[_OUTCOMES + number] = metadata.partition << _PARTITION_SHIFT | metadata.offset + _FIRST_OFFSET

    def hear_all(self, first: int, partitions: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> None:
        """Store where the rows of a batch, from record ``first`` on, were stored."""
        words = (offsets + _FIRST_OFFSET).astype(np.uint64)
        outcomes = partitions.astype(np.uint64) << np.uint64(_PARTITION_SHIFT) | words
        self._words[_OUTCOMES + first : _OUTCOMES + first + len(outcomes)] = memoryview(outcomes.tobytes()).cast("Q")

    def fail_all(self, first: int, count: int, error: ShmaccumError) -> None:
        for number in range(first, first + count):
            self._words[_OUTCOMES + number] = failure_of(error)

    def note_closed(self) -> None:
        """Store that the producer has closed, and so knows all results."""
        self._words[_CLOSED] = 1

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
        return self._words[_CLOSED] != 0

    def outcomes(self) -> npt.NDArray[np.uint64]:
        """Return a copy of the results, for each record that the writer has begun."""
        with self._words[_OUTCOMES : _OUTCOMES + self.begun] as words:
            return np.array(words, np.uint64)


def all_accounts(directory: Path) -> list[Account]:
    return [Account(directory, writer) for writer in sorted(int(file.stem) for file in directory.glob("*.account"))]


# --- the verdict ----------------------------------------------------------------------------------------

KINDS: Final = (
    *("missing", "lost", "duplicated", "torn", "unexpected", "out of order", "half", "misplaced", "failed", "unheard"),
)
EXAMPLES: Final = 3
_UNKNOWN_OFFSET: Final = -1
"""Of a record that a broker has, as its response for a later one shows."""


@dataclass(slots=True)
class Verdict:
    """The violations among the records: counts of each of `KINDS`, which all must be 0, and some examples of each.

    Attributes:
        records, bytes: found in the log, with the bytes of their values.
        appended: by the accounts.
        acknowledged: records whose producer got an acknowledgement.
        errors: the names of the errors of failed records, with their numbers.
        failed_found: failed records that are in the log.
        in_doubt, in_doubt_found: records of calls interrupted by a kill, and those of them that are in the log.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[str] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    appended: int = 0
    acknowledged: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    failed_found: int = 0
    in_doubt: int = 0
    in_doubt_found: int = 0

    def add(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {what}")


class _Book:
    """One writer's account, and its records found so far."""

    def __init__(self, account: Account, topics: Sequence[str]) -> None:
        self.writer = account.writer
        self.topic = topic_of(account.writer, topics)
        self.begun, self.appended, self.closed = account.begun, account.appended, account.closed
        outcomes = account.outcomes()
        self.heard = outcomes != NOT_HEARD
        self.failed = outcomes >= FAILED
        self.outcomes = outcomes.tolist()  # reading an item is faster from a list than from an array
        self.found = bytearray(self.begun)
        self.last: dict[int, int] = defaultdict(lambda: -1)


def judge(
    accounts: Iterable[Account], records: Iterable[Stored], partitions: int, topics: Sequence[str] = TOPICS
) -> Verdict:
    """Compare the accounts of all writers with the log: each partition's records, in the order of their offsets.

    The writers append to the topics in turn.
    """
    verdict = Verdict()
    books = {account.writer: _Book(account, topics) for account in accounts}
    for record in records:
        verdict.records += 1
        verdict.bytes += len(record.value or b"")
        _judge_record(record, books, partitions, verdict)
    for book in books.values():
        _judge_book(book, partitions, verdict)
    return verdict


def _judge_record(record: Stored, books: dict[int, _Book], partitions: int, verdict: Verdict) -> None:
    where = f"{record.topic}-{record.partition} at {record.offset}"
    content = read_value(record.key, record.value)
    if content is None:
        verdict.add("torn", where)
        return
    writer, number = content
    book = books.get(writer)
    if book is None or number >= book.begun:
        verdict.add("unexpected", f"record {number} of writer {writer}, {where}")
        return
    if book.found[number]:
        verdict.add("duplicated", f"record {number} of writer {writer}, {where}")
        return
    book.found[number] = 1
    if number < book.last[record.partition]:
        verdict.add("out of order", f"record {number} of writer {writer} behind {book.last[record.partition]}, {where}")
    else:
        book.last[record.partition] = number
    route = route_of(writer, number, partitions)
    if (
        record.topic != book.topic
        or record.key != route.key
        or record.partition != (partition_of(route, partitions) if route != (None, None) else record.partition)
    ):
        verdict.add("misplaced", f"record {number} of writer {writer} with key {record.key!r}, {where}; meant {route}")
    outcome = book.outcomes[number]
    if NOT_HEARD < outcome < FAILED and place_of(outcome) not in (
        (record.partition, record.offset),
        (record.partition, _UNKNOWN_OFFSET),
    ):
        verdict.add("misplaced", f"record {number} of writer {writer}, {where}; acknowledged at {place_of(outcome)}")


def _judge_book(book: _Book, partitions: int, verdict: Verdict) -> None:
    """Check missing records and the results that the producer got."""
    found = np.frombuffer(book.found, np.bool_)
    certain = np.arange(book.begun) < book.appended
    acknowledged = book.heard & ~book.failed
    verdict.appended += book.appended
    verdict.acknowledged += int(acknowledged.sum())
    verdict.errors.update(error_of(outcome).__name__ for outcome in book.outcomes if outcome >= FAILED)
    verdict.failed_found += int((book.failed & found).sum())
    verdict.in_doubt += book.begun - book.appended
    verdict.in_doubt_found += int(found[~certain].sum())
    for kind, cases in (
        ("missing", certain & ~found & ~book.failed),
        ("lost", acknowledged & ~found),
        ("failed", book.failed),
        ("unheard", ~book.heard & certain if book.closed else np.zeros(0, np.bool_)),
    ):
        for number in np.flatnonzero(cases).tolist():
            verdict.add(kind, f"record {number} of writer {book.writer}")
    cut_short: dict[int, list[int]] = defaultdict(list)
    """The records of the call in doubt, by partition, without those of free routes."""
    for number in range(book.appended, book.begun):
        route = route_of(book.writer, number, partitions)
        if route != (None, None):
            cut_short[partition_of(route, partitions)].append(number)
    for partition, numbers in cut_short.items():
        there = [number for number in numbers if book.found[number]]
        if there != numbers[: len(there)]:
            verdict.add("half", f"of records {numbers} of writer {book.writer}, partition {partition} has {there}")


def partition_of(route: Route, partitions: int) -> int:
    """Return the partition of a route that has one: the given one, or by Kafka's hash of its key."""
    if route.partition is not None:
        return route.partition
    from kafka.partitioner.default import murmur2

    return int(murmur2(route.key) & 0x7FFFFFFF) % partitions
