"""What a writer of batches keeps in the commit log, and how it is read back from what anyone can have written."""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from shmaccum.cluster import TopicPartition
from shmaccum.errors import RecordTooLargeError, printable
from shmaccum.procfs import start_time
from shmaccum.transactions.coordinator import PreparedTransaction

LARGEST_STATE: Final = 32 << 20
"""Most bytes of JSON: that of 100,000 transactions. A few bytes of zlib can become a thousand times as many."""
_MOST_REPLACED: Final = 16
_FORMAT: Final = 1


def driver_id(prefix: str) -> str:
    """Return a writer's own transactional id, by which an older process of it is fenced."""
    return f"{prefix}driver"


class JunkError(ValueError):
    """A record of the commit log is not a state that this version understands."""


class Driver(NamedTuple):
    """A process on whose behalf a writer's processes work: the driver of a Spark application."""

    host: str
    pid: int
    ticks: int
    """Its start time, in clock ticks since the host's boot; 0 if it had just ended."""
    started: str

    @classmethod
    def of(cls, pid: int) -> Driver:
        """Return a running process of this host."""
        ticks = start_time(pid)
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() - age_s))
        return cls(socket.gethostname(), pid, ticks, started)

    def is_same(self, other: Driver | None) -> bool:
        """Return whether both are one process; the text can differ by a second."""
        return other is not None and self[:3] == other[:3]

    def is_gone(self) -> bool:
        """Return whether the process has ended; False if it is on another host."""
        return self.host == socket.gethostname() and (not self.ticks or start_time(self.pid) != self.ticks)

    def __str__(self) -> str:
        return printable(f"process {self.pid} on host {self.host}, started {self.started}")


@dataclass(frozen=True)
class WriterState:
    """A writer's state.

    Attributes:
        plan: number of the last plan; 0 before the first.
        decided_in: plan of the last decision; 0 before the first.
        batch: the last that was decided; None before the first.
        source: where the batches come from; empty before the first.
        transactions: of the last decision.
        driver: of the last plan, if the writer has one.
        replaced: the drivers before that, the last ones.
    """

    plan: int = 0
    decided_in: int = 0
    batch: int | None = None
    source: str = ""
    transactions: tuple[PreparedTransaction, ...] = ()
    driver: Driver | None = None
    replaced: tuple[Driver, ...] = ()

    def drivers(self, now: Driver | None) -> tuple[Driver | None, tuple[Driver, ...]]:
        """Return the driver and the replaced ones under the next plan, which is a driver's."""
        if self.driver is None or self.driver.is_same(now):
            return now, self.replaced
        others = tuple(each for each in self.replaced if not each.is_same(now))
        return now, (*others, self.driver)[-_MOST_REPLACED:]

    def encoded(self, name: str) -> bytes:
        """Return the value of its record, for a writer's name. Raises RecordTooLargeError: no one would read it."""
        fields = {"format": _FORMAT, "writer": name, **vars(self)}  # a tuple with names is a JSON array
        text = json.dumps(fields, separators=(",", ":")).encode()
        if len(text) > LARGEST_STATE:
            raise RecordTooLargeError(
                f"the decision about {len(self.transactions)} transactions takes {len(text)} bytes, and "
                f"{LARGEST_STATE} are allowed: write the batch in fewer tasks"
            )
        return zlib.compress(text)


def decoded(value: bytes, prefix: str) -> tuple[str, WriterState]:
    """Return the writer's name and state in a record's value, which anyone can have written.

    Raises JunkError: it is no such state, or too large, or has transactions of another writer.
    """
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(value, LARGEST_STATE)
        if not unpacking.eof:
            raise JunkError(f"it is cut, or has more than {LARGEST_STATE} bytes")
        fields = json.loads(text)
        if fields["format"] != _FORMAT:
            raise JunkError(f"its format is {fields['format']!r:.20}, and {_FORMAT} is supported")
        name = _a(str, fields["writer"])
        state = WriterState(
            _number(fields["plan"], 63),
            _number(fields["decided_in"], 63),
            None if fields["batch"] is None else _a(int, fields["batch"]),
            _a(str, fields["source"]),
            tuple(_transaction(row, prefix) for row in fields["transactions"]),
            None if fields.get("driver") is None else _driver(fields["driver"]),
            tuple(_driver(row) for row in fields.get("replaced", ())),
        )
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise JunkError(str(error) or type(error).__name__) from error
    return name, state


def _transaction(row: Any, prefix: str) -> PreparedTransaction:
    transactional_id, producer_id, epoch, version, partitions, records = row
    if not _a(str, transactional_id).startswith(prefix) or transactional_id == driver_id(prefix):
        raise JunkError(f"it has a transaction of {transactional_id!r:.100}, which is another writer's")
    return PreparedTransaction(
        transactional_id,
        _number(producer_id, 63),
        _number(epoch, 15),
        _number(version, 15),
        tuple(TopicPartition(_a(str, topic), _a(int, number)) for topic, number in partitions),
        _a(int, records),
    )


def _driver(row: Any) -> Driver:
    host, pid, ticks, started = row
    return Driver(_a(str, host), _number(pid, 31), _number(ticks, 63), _a(str, started))


def _number(value: Any, bits: int) -> int:
    if not 0 <= _a(int, value) < 1 << bits:
        raise JunkError(f"it has a number out of its range: {value!r:.20}")
    return int(value)


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise JunkError(f"it has {value!r:.20} in the place of {kind.__name__}")
    return value
