"""Compares every record in the log with every account; see `tools.stress` for the rules.

The oracle for a key's partition is kafka-python's murmur2.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tools.stress.account import FAILED, NOT_HEARD, Account, error_of, place_of
from tools.stress.options import TOPICS
from tools.stress.records import Route, read_value, route_of, topic_of
from tools.support.reading import Stored

KINDS: Final = (
    "missing",
    "lost",
    "duplicated",
    "torn",
    "unexpected",
    "out of order",
    "half",
    "misplaced",
    "failed",
    "unheard",
)
EXAMPLES: Final = 3
_UNKNOWN_OFFSET: Final = -1
"""Of a record that a broker has, as its response for a later one shows."""


@dataclass(slots=True)
class Verdict:
    """The violations among the records.

    Attributes:
        counts: of each of `KINDS`; all must be 0.
        examples: some of each.
        records, bytes: found in the log, with the bytes of their values.
        appended: by the accounts.
        acknowledged: records whose producer got an acknowledgement.
        errors: the names of the errors of failed records, with their numbers.
        failed_found: failed records that are in the log.
        in_doubt: records of calls interrupted by a kill.
        in_doubt_found: those of them that are in the log.
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
        """Count one more case."""
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
    """Compare the accounts with the log.

    Args:
        accounts: of all writers.
        records: of all partitions, each partition's in the order of their offsets.
        partitions: of each topic.
        topics: that the writers append to, in turn.
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
    for partition, numbers in _cut_short(book, partitions):
        there = [number for number in numbers if book.found[number]]
        if there != numbers[: len(there)]:
            verdict.add("half", f"of records {numbers} of writer {book.writer}, partition {partition} has {there}")


def _cut_short(book: _Book, partitions: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the records of the call in doubt, by partition, without those of free routes."""
    by_partition: dict[int, list[int]] = defaultdict(list)
    for number in range(book.appended, book.begun):
        route = route_of(book.writer, number, partitions)
        if route != (None, None):
            by_partition[partition_of(route, partitions)].append(number)
    yield from by_partition.items()


def partition_of(route: Route, partitions: int) -> int:
    """Return the partition of a route that has one: the given one, or by Kafka's hash of its key."""
    if route.partition is not None:
        return route.partition
    from kafka.partitioner.default import murmur2

    return int(murmur2(route.key) & 0x7FFFFFFF) % partitions
