"""A producer process: threads append records and keep accounts, until a signal."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

import pyarrow as pa

from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.producer.column_path import partition_columns
from shmaccum.producer.partitioner import StickyPartitioner
from shmaccum.producer.producer import Producer
from shmaccum.record.format import record_format
from tools.stress.account import CAPACITY, Account
from tools.stress.options import BATCH_SIZES
from tools.stress.records import Route, make_value, random_size, route_of, topic_of

MOST_ROWS: Final = 200
"""Rows in the largest `send_batch`."""
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])


@dataclass(frozen=True, slots=True)
class Load:
    """The load of all producers.

    Attributes:
        settings: of the producer.
        accounts: directory of the accounts.
        partitions: of each topic.
        record_size: mean size of a value, in bytes.
        columns: share of calls to `send_batch`.
        rate: most records per second that a thread appends; 0: no limit.
        seed: for sizes and calls, together with the writer's number.
    """

    settings: Mapping[str, object]
    accounts: Path
    partitions: int
    record_size: int
    columns: float
    rate: float
    seed: int


class Writer:
    """One thread that appends, with its account."""

    def __init__(self, load: Load, producer: Producer, writer: int) -> None:
        self._load = load
        self._producer = producer
        self._writer = writer
        self._topic = topic_of(writer)
        self._chance = random.Random(f"{load.seed} {writer}")
        self._pending: deque[tuple[FutureColumnsMetadata, int, int]] = deque()
        self.account = Account(load.accounts, writer, create=True)

    def run(self, stop: Callable[[], bool]) -> None:
        """Append at the configured rate until ``stop`` returns true."""
        started = time.monotonic()
        while not stop() and self.account.begun + MOST_ROWS < CAPACITY:
            self.append_once()
            if self._load.rate:
                ahead = self.account.appended / self._load.rate - (time.monotonic() - started)
                if ahead > 0:
                    self._producer.poll()
                    time.sleep(min(ahead, 1.0))

    def append_once(self) -> None:
        """Append with one call."""
        if self._chance.random() < self._load.columns:
            self._send_batch(self._chance.randint(1, MOST_ROWS))
        else:
            self._send()

    def settle(self) -> None:
        """Store the results of the oldest batches of rows, as far as they are known."""
        while self._pending and self._pending[0][0].is_done:
            future, first, count = self._pending.popleft()
            error = future.exception()
            if error is None:
                self.account.hear_all(first, *future.get(0))
            else:
                self.account.fail_all(first, count, error)

    def _send(self) -> None:
        account = self.account
        number = account.begun
        route = route_of(self._writer, number, self._load.partitions)
        value = make_value(self._writer, number, route.key, random_size(self._chance, self._load.record_size))
        heard = partial(account.hear, number)
        account.begin(1)
        self._producer.send(self._topic, value, route.key, partition=route.partition, on_delivery=heard)
        account.end()

    def _send_batch(self, count: int) -> None:
        account = self.account
        first = account.begun
        routes = [route_of(self._writer, number, self._load.partitions) for number in range(first, first + count)]
        values = [
            make_value(self._writer, number, route.key, random_size(self._chance, self._load.record_size))
            for number, route in enumerate(routes, first)
        ]
        rows = _rows(routes, values)
        account.begin(count)
        future = self._producer.send_batch(self._topic, rows)
        account.end()
        self._pending.append((future, first, count))
        self.settle()


def _rows(routes: Sequence[Route], values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([route.key for route in routes], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([route.partition for route in routes], pa.int32()),
        ],
        schema=_SCHEMA,
    )


class _NoTopic:
    """A topic without partitions, for a partitioner that chooses none."""

    queues = ()


def preload() -> None:
    """Import what a producer imports on first use: forked ones should spend their short lives appending."""
    sticky = StickyPartitioner(_NoTopic(), 1, lambda times: [0] * times)
    partition_columns(
        _rows([route_of(0, 0, 1)], [b""]),
        record_format(2),
        1,
        sticky,
        ignore_keys=False,
        max_body_size=1 << 10,
        batch_size=1 << 10,
        open_room=0,
    )


def produce(load: Load, writers: Sequence[int]) -> int:
    """Run a producer with these writers until SIGTERM; return the exit status."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    def ended_by_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failed.append(error)
        stopping.set()
        sys.excepthook(kind, error, trace)

    failed: list[BaseException] = []
    threading.excepthook = lambda of: ended_by_error(of.exc_type, of.exc_value or of.exc_type(), of.exc_traceback)
    signal.signal(signal.SIGTERM, stop)
    producer = Producer({**load.settings, "batch.size": random.choice(BATCH_SIZES)})
    parts = [Writer(load, producer, writer) for writer in writers]
    threads = [threading.Thread(target=part.run, args=(stopping.is_set,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)  # in slices: a signal's handler runs in this thread, and only between them
    producer.flush()
    for part in parts:
        part.settle()
    producer.close()
    if failed:
        return 1
    for part in parts:
        part.account.note_closed()
    return 0
