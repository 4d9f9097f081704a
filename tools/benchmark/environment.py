"""Shared resources of all cases: processes, brokers, a directory, the loads' scale."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from shmaccum.shm import names
from shmaccum.shm.lifecycle import unlink
from tools.benchmark import cpu
from tools.benchmark.brokers import Broker
from tools.benchmark.errors import BenchmarkError, VoidError
from tools.benchmark.process_group import ProcessGroup, Report, Work
from tools.support.processes import Children

T = TypeVar("T")

_QUIET_S: Final = 20.0
"""Limit for everything that a turn started to exit."""


class Measured:
    """The measurements of a turn.

    Attributes:
        reports: of the members.
        usage: processor time, from the start to the last report.
        memory: of all processes of the contestant when all were done, in bytes (PSS).
        counts: what the broker counted in that time.
    """

    def __init__(self, reports: list[Report], usage: cpu.Usage, memory: int, counts: dict[str, int]) -> None:
        self.reports = reports
        self.usage = usage
        self.memory = memory
        self.counts = counts

    @property
    def wall_s(self) -> float:
        """Seconds from the first member's begin to the last one's end."""
        return max(each.ended_s for each in self.reports) - min(each.began_s for each in self.reports)


class Environment:
    """All resources of a running benchmark; `close` releases them.

    Args:
        directory: for files; its creator removes it.
        scale: of all loads, 1 by default.
        smoke: use the smallest loads that show that a case works.
        lines: a file whose lines are values to send, too.
    """

    def __init__(self, directory: Path, scale: float, *, smoke: bool, lines: Path | None = None) -> None:
        self.directory = directory
        self.scale = scale
        self.smoke = smoke
        self.lines = lines
        self.messages = directory / "messages"
        self.children = Children(self.messages, judge_inherited=False)
        self._brokers: dict[str, Broker] = {}
        self._numbers = itertools.count(1)
        self._members: set[str] = set()
        self._meter = cpu.Meter()
        self._prefix = f"bench-{os.getpid()}"

    def count(self, at_full_scale: int, least: int = 200) -> int:
        """Return the number of records to send for a number at scale 1."""
        return least if self.smoke else max(least, int(at_full_scale * self.scale))

    def seconds(self, at_full_scale: float, least: float = 0.3) -> float:
        """Return a duration for one at scale 1."""
        return least if self.smoke else max(least, at_full_scale * self.scale)

    def some(self, of: Sequence[T], every: int) -> Sequence[T]:
        """Return the variants to run: all of them, or in a smoke run every ``every``-th."""
        return of[::every] if self.smoke else of

    def new_name(self) -> str:
        """Return a unique name: for a turn, its topic and slab."""
        return f"{self._prefix}-{next(self._numbers)}"

    def broker(self, kind: str) -> Broker:
        """Return the broker of a kind; start it if it does not run yet.

        Raises:
            MissingError: it is not available here.
        """
        if kind not in self._brokers:
            self._brokers[kind] = Broker(kind, self.children, self.directory / kind)
        return self._brokers[kind]

    @contextmanager
    def topic(self, broker: Broker, name: str, partitions: int) -> Iterator[str]:
        """Create a topic for the block, and delete it afterwards."""
        broker.create_topic(name, partitions)
        try:
            yield name
        finally:
            broker.delete_topic(name)

    def measure(self, broker: Broker | None, works: Sequence[Work]) -> Measured:
        """Run processes together and measure them.

        Args:
            broker: to send to.
            works: one for each process.

        Raises:
            BenchmarkError: a process failed.
        """
        before_counts = dict(broker.counts()) if broker else {}
        with ProcessGroup(self.children, works) as group:
            self._members |= set(map(str, group.pids))
            group.wait_ready()
            counts = dict(broker.counts()) if broker else {}
            began = self.usage(group.pids)
            group.go()
            reports = group.reports()
            used = self.usage(group.pids).since(began)
            after = dict(broker.counts()) if broker else {}
            memory = cpu.memory(self._broker_pids(), group.pids)
        self.wait_quiet()
        since = {name: after[name] - counts[name] for name in after}
        for gauge in ("open", "producing"):
            if gauge in after:  # the current value, not the increase since the start
                since[gauge] = after[gauge] - before_counts[gauge]
        return Measured(reports, used, memory, since)

    def usage(self, workers: Sequence[int]) -> cpu.Usage:
        """Return the usage of all processes so far."""
        self.children.reap()
        return self._meter.usage(self._broker_pids(), workers)

    def check_delivered(self, broker: Broker, topic: str, expected: int, acknowledged: Sequence[int | None]) -> None:
        """Check that the records of a turn have arrived.

        Args:
            broker: to look in.
            topic: of the turn.
            expected: number of records that it must have by now.
            acknowledged: records short of its load for each producer, or None if it did not ask.

        Raises:
            VoidError: records are missing, or too many.
        """
        if any(acknowledged):
            raise VoidError(f"producers got no acknowledgement for {sum(each or 0 for each in acknowledged)} records")
        found = broker.records(topic)
        if found != expected:
            raise VoidError(f"the broker has {found} records of {expected}")

    def check_committed(self, broker: Broker, topic: str, expected: int) -> None:
        """Check that `read_committed` consumers see all records of a turn.

        Raises:
            VoidError: records are missing, or too many.
        """
        found = broker.committed(topic, expected)
        if found != expected:
            raise VoidError(f"read_committed consumers see {found} records of {expected}")

    def wait_quiet(self) -> None:
        """Wait until nothing is left of a turn.

        Raises:
            BenchmarkError: something does not exit.
        """
        self._until(lambda: not cpu.others(self._broker_pids()), "processes of a turn still run")

    def close(self) -> None:
        """Stop everything."""
        try:
            self.children.kill_all()
        finally:
            for name in names.slab_names():
                # Slabs of turns, and slabs that a member created and named by its pid.
                if name.startswith(self._prefix + "-") or name.rpartition("-")[2] in self._members:
                    unlink(name)

    def _broker_pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers.values()]

    def _until(self, condition: Callable[[], Any], otherwise: str) -> None:
        deadline = time.monotonic() + _QUIET_S
        self.children.reap()
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{otherwise} for {_QUIET_S:.0f} s; messages are in {self.messages}")
            time.sleep(0.01)
            self.children.reap()
