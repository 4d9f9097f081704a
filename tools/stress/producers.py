"""The producers: each appends records from several threads and keeps accounts; a new one replaces a dead one."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pyarrow as pa

from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.producer.column_path import partition_columns
from shmaccum.producer.partitioner import StickyPartitioner
from shmaccum.producer.producer import Producer
from shmaccum.record.format import record_format
from tools.stress.accounting import CAPACITY, Account, Route, make_value, random_size, route_of, topic_of
from tools.stress.options import BATCH_SIZES, Options
from tools.support.processes import Children

MOST_ROWS: Final = 200
"""Rows in the largest `send_batch`."""
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])


@dataclass(frozen=True, slots=True)
class Load:
    """The load of all producers: the settings of each, the directory of the accounts, and how much of what."""

    settings: Mapping[str, object]
    accounts: Path
    options: Options


class Writer:
    """One thread that appends, with its account."""

    def __init__(self, load: Load, producer: Producer, writer: int) -> None:
        self._load = load
        self._producer = producer
        self._writer = writer
        self._topic = topic_of(writer)
        self._chance = random.Random(f"{load.options.seed} {writer}")
        self._pending: deque[tuple[FutureColumnsMetadata, int, int]] = deque()
        self.account = Account(load.accounts, writer, create=True)

    def run(self, stopping: threading.Event) -> None:
        """Append at the configured rate until the event."""
        started = time.monotonic()
        while not stopping.is_set() and self.account.begun + MOST_ROWS < CAPACITY:
            self.append_once()
            if self._load.options.rate:
                ahead = self.account.appended / self._load.options.rate - (time.monotonic() - started)
                if ahead > 0:
                    self._producer.poll()
                    time.sleep(min(ahead, 1.0))

    def append_once(self) -> None:
        by_columns = self._chance.random() < self._load.options.columns
        first, count = self.account.begun, self._chance.randint(1, MOST_ROWS) if by_columns else 1
        routes = [
            route_of(self._writer, number, self._load.options.partitions) for number in range(first, first + count)
        ]
        values = [
            make_value(self._writer, number, route.key, random_size(self._chance, self._load.options.record_size))
            for number, route in enumerate(routes, first)
        ]
        self.account.begin(count)
        if by_columns:
            future = self._producer.send_batch(self._topic, _rows(routes, values))
            self.account.end()
            self._pending.append((future, first, count))
            self.store_results()
        else:
            heard = partial(self.account.hear, first)
            (route,), (value,) = routes, values
            self._producer.send(self._topic, value, route.key, partition=route.partition, on_delivery=heard)
            self.account.end()

    def store_results(self) -> None:
        """Store the results of the oldest batches of rows, as far as they are known."""
        while self._pending and self._pending[0][0].is_done:
            future, first, count = self._pending.popleft()
            error = future.exception()
            if error is None:
                self.account.hear_all(first, *future.get(0))
            else:
                self.account.fail_all(first, count, error)


def _rows(routes: Sequence[Route], values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([route.key for route in routes], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([route.partition for route in routes], pa.int32()),
        ],
        schema=_SCHEMA,
    )


def preload() -> None:
    """Import what a producer imports on first use: forked ones should spend their short lives appending."""
    sticky = StickyPartitioner(SimpleNamespace(queues=()), 1, lambda times: [0] * times)
    sizes = {"max_body_size": 1 << 10, "batch_size": 1 << 10, "open_room": 0}
    partition_columns(_rows([route_of(0, 0, 1)], [b""]), record_format(2), 1, sticky, ignore_keys=False, **sizes)


def produce(load: Load, writers: Sequence[int]) -> int:
    """Run a producer with these writers until SIGTERM; return the exit status."""
    stopping = threading.Event()
    failed = threading.Event()

    def ended_by_error(of: threading.ExceptHookArgs) -> None:
        failed.set()
        stopping.set()
        sys.excepthook(of.exc_type, of.exc_value or of.exc_type(), of.exc_traceback)

    threading.excepthook = ended_by_error
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    producer = Producer({**load.settings, "batch.size": random.choice(BATCH_SIZES)})
    parts = [Writer(load, producer, writer) for writer in writers]
    threads = [threading.Thread(target=part.run, args=(stopping,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)  # in slices: a signal's handler runs in this thread, and only between them
    producer.flush()
    for part in parts:
        part.store_results()
    producer.close()
    if failed.is_set():
        return 1
    for part in parts:
        part.account.note_closed()
    return 0


@dataclass(slots=True)
class Member:
    """A producer process, and the accounts of its writers, as far as they exist."""

    pid: int
    writers: Sequence[int]
    accounts: list[Account] = field(default_factory=list)

    @property
    def appended(self) -> int:
        return sum(account.appended for account in self.accounts)

    def open_accounts(self, directory: Path) -> None:
        with suppress(FileNotFoundError):
            for writer in self.writers[len(self.accounts) :]:
                self.accounts.append(Account(directory, writer))


class Fleet:
    """The producers, by place; ``members`` are the current ones."""

    def __init__(self, children: Children, load: Load) -> None:
        preload()
        self.members: dict[int, Member] = {}
        self._children = children
        self._load = load
        self._next_writer = 1
        self._appended_before = 0

    def start(self, place: int) -> None:
        writers = range(self._next_writer, self._next_writer + self._load.options.threads)
        self._next_writer = writers.stop
        pid = self._children.fork(
            f"producer {place}",
            lambda: produce(self._load, writers),
            pid_namespace=place < self._load.options.pid_namespaces,
        )
        self.members[place] = Member(pid, writers)
        self._children.counts["producers started"] += 1

    def look(self) -> int:
        """Return how many records have been appended in all."""
        for member in self.members.values():
            member.open_accounts(self._load.accounts)
        return self._appended_before + sum(member.appended for member in self.members.values())

    def reap(self) -> list[int]:
        """Wait for dead processes; return the places that have become empty."""
        dead = self._children.reap()
        empty = [place for place, member in self.members.items() if member.pid in dead]
        for place in empty:
            member = self.members.pop(place)
            member.open_accounts(self._load.accounts)
            self._appended_before += member.appended
            for account in member.accounts:
                account.close()
        return empty

    def finish(self, patience_s: float) -> None:
        """Make all producers flush, close and exit; one that does not is stuck."""
        self._children.continue_due(float("inf"))
        for member in self.members.values():
            self._children.ask_to_end(member.pid)  # a second time changes nothing
        deadline = time.monotonic() + patience_s
        while self.members and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.02)
        for member in self.members.values():
            self._children.abort(member.pid, f"did not flush and close within {patience_s:.0f} s")
