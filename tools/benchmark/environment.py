"""Shared resources of all cases: processes, brokers, a directory, the loads' scale."""

from __future__ import annotations

import gc
import itertools
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, TypeVar

from shmaccum.shm import names
from shmaccum.shm.lifecycle import unlink
from tools.benchmark import cpu
from tools.benchmark.brokers import Broker
from tools.benchmark.errors import BenchmarkError, VoidError
from tools.benchmark.remote import hear
from tools.support.processes import Children

T = TypeVar("T")
_QUIET_S: Final = 20.0
"""Limit for everything that a turn started to exit."""
PATIENCE_S: Final = 300.0
"""Longer than any turn takes."""


class Member:
    """A process of a turn, as its work sees it."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self.began_s = 0.0

    def wait_for_go(self) -> None:
        """Report ready, and wait until all others are."""
        self._link.send(None)
        self._link.recv()
        self.began_s = time.monotonic()

    def done(self, result: Any) -> None:
        """Report the result, then wait until all have, so that the tool can measure what all of them use."""
        self._link.send(Report(self.began_s, time.monotonic(), result))
        self._link.recv()


Work = Callable[[Member], Any]
"""The work of a member: it calls `Member.wait_for_go` when it is ready, and `Member.done` with its result."""


@dataclass(frozen=True, slots=True)
class Report:
    """A member's report: begin and end by the monotonic clock, and the result."""

    began_s: float
    ended_s: float
    result: Any


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a turn.

    Attributes:
        reports: of the members.
        usage: processor time, from the start to the last report.
        memory: of all processes of the contestant when all were done, in bytes (PSS).
        counts: what the broker counted in that time.
    """

    reports: list[Report]
    usage: cpu.Usage
    memory: int
    counts: dict[str, int]

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
        self.directory, self.scale, self.smoke, self.lines = directory, scale, smoke, lines
        self.children = Children(directory / "messages", judge_inherited=False)
        self.of_case = ExitStack()
        """What the turns of a case share; closed orderly behind it. An interrupted run kills everything instead."""
        self._brokers: dict[str, Broker] = {}
        self._numbers = itertools.count(1)
        self._members: set[int] = set()
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
        """Return the broker of a kind; start it if it does not run yet."""
        if kind not in self._brokers:
            self._brokers[kind] = Broker(kind, self.children, self.directory / kind)
        return self._brokers[kind]

    @contextmanager
    def topic(self, broker: Broker, partitions: int) -> Iterator[str]:
        """Create a new topic for the block, and delete it afterwards."""
        name = self.new_name()
        broker.call("create_topic", name, partitions)
        try:
            yield name
        finally:
            broker.call("delete_topic", name)

    def measure(self, broker: Broker | None, works: Sequence[Work]) -> Measured:
        """Run processes together, each with its work, and measure them; end them, orderly unless something failed."""

        def counts() -> dict[str, int]:
            return broker.call("counts") if broker else {}

        before, pids, links = counts(), [], []
        for number, work in enumerate(works):
            ours, theirs = Pipe()
            pids.append(self.children.fork(f"worker {number}", partial(_be, work, theirs)))
            theirs.close()
            links.append(ours)
        self._members |= set(pids)
        try:
            for link in links:
                _hear(link)
            ready, began = counts(), self.usage(pids)
            for link in links:
                link.send(None)
            reports = [_hear(link) for link in links]
            used, after = self.usage(pids).since(began), counts()
            memory = cpu.memory(self._broker_pids(), pids)
        finally:
            for link in links:
                with suppress(OSError):  # it has died
                    link.send(None)
            for link in links:
                link.poll(PATIENCE_S)
                link.close()
        self.wait_quiet()
        # The first two are current values, the others increase.
        since = {name: after[name] - (before if name in ("open", "producing") else ready)[name] for name in after}
        return Measured(reports, used, memory, since)

    def usage(self, workers: Sequence[int]) -> cpu.Usage:
        self.children.reap()
        return self._meter.usage(self._broker_pids(), workers)

    def check_delivered(self, broker: Broker, topic: str, expected: int, lacking: Sequence[int | None] = ()) -> None:
        """Check that a topic has the records of a turn; ``lacking`` are each producer's that were not acknowledged."""
        if any(lacking):
            raise VoidError(f"producers got no acknowledgement for {sum(each or 0 for each in lacking)} records")
        found = broker.call("records", topic)
        if found != expected:
            raise VoidError(f"the broker has {found} records of {expected}")

    def check_committed(self, broker: Broker, topic: str, expected: int) -> None:
        found = broker.call("committed", topic, expected)
        if found != expected:
            raise VoidError(f"read_committed consumers see {found} records of {expected}")

    def wait_quiet(self) -> None:
        """Wait until nothing is left of a turn."""
        deadline = time.monotonic() + _QUIET_S
        self.children.reap()
        while cpu.others(self._broker_pids()):
            if time.monotonic() > deadline:
                where = self.directory / "messages"
                raise BenchmarkError(f"processes of a turn still run for {_QUIET_S:.0f} s; messages are in {where}")
            time.sleep(0.01)
            self.children.reap()

    def close(self) -> None:
        try:
            self.children.kill_all()
        finally:
            for name in names.slab_names():
                # Slabs of turns, and slabs that a member created and named by its pid.
                if name.startswith(self._prefix + "-") or name.rpartition("-")[2] in map(str, self._members):
                    unlink(name)

    def _broker_pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers.values()]


def _hear(link: Connection) -> Any:
    return hear(link, "a worker", PATIENCE_S)


def _be(work: Work, link: Connection) -> int:
    # A contestant's garbage collection must not visit, and so copy, the pages inherited from the tool.
    gc.freeze()
    try:
        work(Member(link))
    except BaseException as error:
        link.send(BenchmarkError(f"a worker failed: {type(error).__name__}: {error}\n{traceback.format_exc()}"))
        return 1
    return 0
