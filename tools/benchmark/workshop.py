"""What all cases work with: processes, brokers, a directory, and how large the loads are to be."""

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
from tools.benchmark.contestants import OUR_COLUMNS, OURS, PLAIN, PLAIN_COLUMNS
from tools.benchmark.crew import Crew, Report, Work
from tools.benchmark.errors import BenchmarkError, VoidError
from tools.benchmark.forms import PLAIN as PLAIN_FORM
from tools.benchmark.forms import Form
from tools.stress.processes import Children

T = TypeVar("T")

_QUIET_S: Final = 20.0
"""How long what a turn started may take to go away."""


class Measured:
    """What was seen of a turn.

    Attributes:
        reports: of the members.
        usage: of processor time, from the go to the last report.
        memory: of all processes of the contestant when all were done, in bytes (PSS).
        counts: what the broker counted meanwhile.
        form: of the package, None for a peer.
    """

    def __init__(
        self, reports: list[Report], usage: cpu.Usage, memory: int, counts: dict[str, int], form: Form | None
    ) -> None:
        self.form = form
        self.reports = reports
        self.usage = usage
        self.memory = memory
        self.counts = counts

    @property
    def wall_s(self) -> float:
        """Seconds from the first member's begin to the last one's end."""
        return max(each.ended_s for each in self.reports) - min(each.began_s for each in self.reports)


class Workshop:
    """Everything that is there while a benchmark runs; `close` leaves nothing of it.

    Args:
        directory: for files, removed by whoever made it.
        scale: of all loads, 1 by default.
        smoke: the least that shows that a case works.

    Attributes:
        ours: the form of the package that is compared with the peers; the compiled one, once it is there.
    """

    def __init__(self, directory: Path, scale: float, *, smoke: bool) -> None:
        self.directory = directory
        self.scale = scale
        self.smoke = smoke
        self.ours = PLAIN_FORM
        self.messages = directory / "messages"
        self.children = Children(self.messages, judge_inherited=False)
        self._brokers: dict[str, Broker] = {}
        self._numbers = itertools.count(1)
        self._members: set[str] = set()
        self._meter = cpu.Meter()
        self._prefix = f"bench-{os.getpid()}"

    def count(self, at_full_scale: int, least: int = 200) -> int:
        """Return how many records to send where so many are meant at scale 1."""
        return least if self.smoke else max(least, int(at_full_scale * self.scale))

    def seconds(self, at_full_scale: float, least: float = 0.3) -> float:
        """Return how long something is to last."""
        return least if self.smoke else max(least, at_full_scale * self.scale)

    def some(self, of: Sequence[T], every: int) -> Sequence[T]:
        """Return what a case is to have variants of: all of them, in a smoke run only every so many-th."""
        return of[::every] if self.smoke else of

    def form_of(self, contestant: str) -> Form | None:
        """Return the form of the package that a contestant is, None if it is a peer."""
        if contestant in (OURS, OUR_COLUMNS):
            return self.ours
        return PLAIN_FORM if contestant in (PLAIN, PLAIN_COLUMNS) else None

    def with_plain(self, ours: str, plain: str, peers: Sequence[str] = ()) -> Sequence[str]:
        """Return contestants, the plain form among them if it is not the only one there is."""
        return (ours, *[plain] * self.ours.compiled, *peers)

    def new_name(self) -> str:
        """Return a name that nothing else has: for a turn, its topic and slab."""
        return f"{self._prefix}-{next(self._numbers)}"

    def broker(self, kind: str) -> Broker:
        """Return the broker of a kind, started if it does not run yet.

        Raises:
            MissingError: it cannot be had here.
        """
        if kind not in self._brokers:
            self._brokers[kind] = Broker(kind, self.children, self.directory / kind)
        return self._brokers[kind]

    @contextmanager
    def topic(self, broker: Broker, name: str, partitions: int) -> Iterator[str]:
        """Have a topic meanwhile."""
        broker.create_topic(name, partitions)
        try:
            yield name
        finally:
            broker.delete_topic(name)

    def measure(self, broker: Broker | None, works: Sequence[Work], form: Form | None = None) -> Measured:
        """Have processes work together, and see what that took.

        Args:
            broker: which they send to.
            works: of each.
            form: of the package that they have, None if it is not theirs.

        Raises:
            BenchmarkError: one of them failed, or our sender is of another form.
        """
        before_counts = dict(broker.counts()) if broker else {}
        with Crew(self.children, works) as crew:
            self._members |= set(map(str, crew.pids))
            crew.wait_ready()
            counts = dict(broker.counts()) if broker else {}
            began = self.usage(crew.pids)
            crew.go()
            reports = crew.reports()
            used = self.usage(crew.pids).since(began)
            after = dict(broker.counts()) if broker else {}
            memory = cpu.memory(self._broker_pids(), crew.pids)
            if form is not None:
                self.check_senders(form, crew.pids)
        self.wait_quiet()
        since = {name: after[name] - counts[name] for name in after}
        for gauge in ("open", "producing"):
            if gauge in after:  # what there is, and not what has come since the go
                since[gauge] = after[gauge] - before_counts[gauge]
        return Measured(reports, used, memory, since, form)

    def usage(self, workers: Sequence[int]) -> cpu.Usage:
        """Return what all processes have used so far."""
        self.children.reap()
        return self._meter.usage(self._broker_pids(), workers)

    def check_senders(self, form: Form, workers: Sequence[int]) -> None:
        """See that our senders which are there have a form of the package.

        Raises:
            BenchmarkError: one has the other.
        """
        form.check(cpu.senders(self._broker_pids(), workers))

    def check_delivered(self, broker: Broker, topic: str, expected: int, acknowledged: Sequence[int | None]) -> None:
        """See that the records of a turn are there.

        Args:
            broker: where.
            topic: of the turn.
            expected: how many it must have by now.
            acknowledged: how many records short of its load each producer was told of, or None where it did not ask.

        Raises:
            VoidError: records are missing, or too many.
        """
        if any(acknowledged):
            raise VoidError(f"producers were not told of {sum(each or 0 for each in acknowledged)} records")
        found = broker.records(topic)
        if found != expected:
            raise VoidError(f"the broker has {found} records of {expected}")

    def wait_quiet(self) -> None:
        """Wait until nothing is left of a turn.

        Raises:
            BenchmarkError: something does not go away.
        """
        self._until(lambda: not cpu.others(self._broker_pids()), "processes of a turn stay")

    def close(self) -> None:
        """End everything."""
        try:
            self.children.kill_all()
        finally:
            for name in names.slab_names():
                # Those of turns, and those that a member has made for itself and named by its pid.
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
