"""The processes of one turn: forks them, starts them together, and waits for their end."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final

from tools.benchmark.contestants import client_class
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.load import Load
from tools.benchmark.settings import Settings
from tools.support.processes import Children

PATIENCE_S: Final = 300.0
"""Longer than any turn takes."""
_LEAST_WARM_UP: Final = 1000
"""Records."""

Work = Callable[["Member"], Any]
"""The work of a member: it calls `Member.wait_for_go` when it is ready, and returns its result."""


class Member:
    """A member of a group, in its own process."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self.began_s = self.ended_s = 0.0

    def wait_for_go(self) -> None:
        """Report ready, and wait until all others are."""
        self._link.send("ready")
        self._link.recv()
        self.began_s = time.monotonic()

    def done(self, result: Any) -> None:
        """Report the result, then wait until all have, so that the tool can measure what all of them use."""
        self.ended_s = time.monotonic()
        self._link.send((self.began_s, self.ended_s, result))
        self._link.recv()


@dataclass(frozen=True, slots=True)
class Report:
    """A member's report: begin and end by the monotonic clock, and the result."""

    began_s: float
    ended_s: float
    result: Any


class ProcessGroup:
    """Processes that begin at the same time; ``with`` ends them, orderly unless something failed."""

    def __init__(self, children: Children, works: Sequence[Work]) -> None:
        self._children = children
        self._links: list[Connection] = []
        self.pids: list[int] = []
        for number, work in enumerate(works):
            ours, theirs = Pipe()
            self.pids.append(children.fork(f"worker {number}", partial(_be, work, theirs)))
            theirs.close()
            self._links.append(ours)

    def wait_ready(self) -> None:
        """Wait until all are ready."""
        for link in self._links:
            _hear(link)

    def go(self) -> None:
        """Start them all."""
        for link in self._links:
            link.send("go")

    def reports(self) -> list[Report]:
        """Wait until all are done."""
        return [Report(*_hear(link)) for link in self._links]

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            with suppress(OSError):  # it has died
                link.send("end")
        for link in self._links:
            try:
                link.poll(PATIENCE_S)
            finally:
                link.close()


def _hear(link: Connection) -> Any:
    try:
        if not link.poll(PATIENCE_S):
            raise BenchmarkError(f"a worker has not responded for {PATIENCE_S:.0f} s")
        heard = link.recv()
    except EOFError:
        raise BenchmarkError("a worker has died") from None
    if isinstance(heard, BenchmarkError):
        raise heard
    return heard


def _be(work: Work, link: Connection) -> int:
    # A contestant's garbage collection must not visit, and so copy, the pages inherited from the tool.
    gc.freeze()
    try:
        work(Member(link))
    except BaseException as error:
        link.send(BenchmarkError(f"a worker failed: {type(error).__name__}: {error}\n{traceback.format_exc()}"))
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a producer.

    Attributes:
        records, bytes: of its load.
        warm_up: records that it had sent before.
        acknowledged: how many of the load's records were acknowledged, None if it did not ask.
    """

    records: int
    bytes: int
    warm_up: int
    acknowledged: int | None


def sending(
    contestant: str,
    servers: str,
    settings: Settings,
    name: str,
    make_load: Callable[[], Load],
    warm_up_share: float,
) -> Work:
    """Return the work of sending a load with a contestant's client; its result is a `Sent`.

    Args:
        contestant: by its name.
        servers: ``bootstrap.servers``.
        settings: the same for all.
        name: of the turn.
        make_load: returns the load. It is created in the sending process, so that the tool stays small.
        warm_up_share: fraction of the load's first records to send once before; these do not count.
    """

    def work(member: Member) -> None:
        make_client = client_class(contestant)
        load = make_load()
        records, size = load.count, load.size
        warm_up = load.first(max(min(records, _LEAST_WARM_UP), int(records * warm_up_share)))
        client = make_client(servers, settings, name)
        client.send(warm_up)
        member.wait_for_go()
        acknowledged = client.send(load)
        member.done(Sent(records, size, warm_up.count, acknowledged))
        client.close()

    return work
